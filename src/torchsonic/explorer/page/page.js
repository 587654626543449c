// The explorer's page: keeps what the user has chosen, asks the server for pictures, draws them.

import { DARK, draw, drawScale } from "/pictures.js";
import { ask, newestOnly } from "/requests.js";
import { openTurning } from "/turning.js";
import { meaningOf, percent, short, withUnit } from "/words.js";

const POSITIONS = 300; // of a logarithmic slider
const RESOLUTION = 160;
const ANISOTROPY = 1;
const find = (selector) => document.querySelector(selector);

const state = { values: {}, image: null, layer: 0, page: 0, chosen: null };
let start = null;

// Messages ----------------------------------------------------------------------------------------------------------

function complain(text) {
  find("#message span").textContent = text;
  find("#message").hidden = false;
}

function forgive() {
  find("#message").hidden = true;
}

// Sliders of the mode -----------------------------------------------------------------------------------------------

function toPosition(knob, value) {
  if (!knob.logarithmic) return value;
  const clipped = Math.min(Math.max(value, knob.low), knob.high);
  return Math.round((POSITIONS * Math.log(clipped / knob.low)) / Math.log(knob.high / knob.low));
}

function fromPosition(knob, position) {
  if (!knob.logarithmic) return position;
  return knob.low * (knob.high / knob.low) ** (position / POSITIONS);
}

function makeSlider(knob) {
  const box = document.createElement("div");
  box.className = "knob";
  const label = document.createElement("label");
  label.htmlFor = knob.name;
  label.append(`${knob.label} `, Object.assign(document.createElement("i"), { textContent: knob.symbol }));
  const output = Object.assign(document.createElement("output"), { id: `${knob.name}-value` });
  output.htmlFor.add(knob.name);
  const slider = Object.assign(document.createElement("input"), { type: "range", id: knob.name });
  slider.min = knob.logarithmic ? 0 : knob.low;
  slider.max = knob.logarithmic ? POSITIONS : knob.high;
  slider.step = knob.name === "oscillation" ? 0.05 : 1;
  slider.setAttribute("aria-describedby", `${knob.name}-hint`);
  const hint = Object.assign(document.createElement("p"), { className: "hint", id: `${knob.name}-hint` });
  slider.addEventListener("input", () => {
    state.values[knob.name] = fromPosition(knob, Number(slider.value));
    state.chosen = null;
    showChosen();
    showValues();
    renew();
  });
  box.append(label, output, slider, hint);
  return box;
}

function showValues() {
  for (const knob of start.knobs) {
    const value = state.values[knob.name];
    const slider = find(`#${knob.name}`);
    slider.value = toPosition(knob, value); // a checkpoint's value may lie outside; the number shown is the true one
    slider.setAttribute("aria-valuetext", `${withUnit(knob, value)}`);
    find(`#${knob.name}-value`).textContent = withUnit(knob, value);
  }
}

function resetMode() {
  for (const knob of start.knobs) state.values[knob.name] = knob.default;
  state.chosen = null;
  showChosen();
  showValues();
  renew();
}

/** A trained layer has channels and no knobs. */
function showFilter() {
  const ofLayer = find("input[name=filter]:checked").value === "layer";
  find("#channels").hidden = !ofLayer;
  find("#sliders").disabled = find("#reset").disabled = ofLayer;
}

// The sampling ------------------------------------------------------------------------------------------------------

function grid() {
  const [fewest, most] = start.sides;
  const side = Number(find("#resolution").value);
  const root = 2 ** (Number(find("#anisotropy").value) / 2);
  const within = (count) => Math.min(Math.max(Math.round(count), fewest), most);
  return { rows: within(side * root), columns: within(side / root) };
}

function showGrid() {
  const { rows, columns } = grid();
  const ratio = rows / columns;
  const words = ratio >= 1 ? `${short(ratio)} : 1` : `1 : ${short(1 / ratio)}`;
  const side = find("#resolution").value;
  find("#resolution-value").textContent = `${side} px per side`;
  find("#resolution").setAttribute("aria-valuetext", `${side} pixels per side on average`);
  find("#anisotropy-value").textContent = words;
  find("#anisotropy").setAttribute("aria-valuetext", `rows to columns ${words}`);
  const spacing = [start.field / rows, start.field / columns].map(short).join(" × ");
  find("#pixels").textContent = `${rows} × ${columns} pixels of ${spacing} mm`;
}

// Pictures ----------------------------------------------------------------------------------------------------------

function request() {
  return {
    values: state.values,
    filter: find("input[name=filter]:checked").value,
    layer: state.layer,
    input: Number(find("#channel-in").value),
    output: Number(find("#channel-out").value),
    image: state.image,
    highest: Number(find("#highest").value),
    reach: Number(find("#reach").value),
    ...grid(),
  };
}

let shownInput = null; // which image on which grid is drawn already

const view = newestOnly(async ({ moved, wanted }) => {
  try {
    const input = `${wanted.image} ${wanted.rows} ${wanted.columns}`;
    show(await ask("/api/view", JSON.stringify({ ...wanted, show_input: input !== shownInput })), wanted);
    shownInput = input;
    forgiveIfOwn();
    const elapsed = Math.round(performance.now() - moved);
    find("#status").textContent = `Drawn ${elapsed} ms after the last change.`;
    document.body.dataset.milliseconds = elapsed;
  } catch (error) {
    complainOfView(error.message);
  }
  document.body.dataset.drawn = Number(document.body.dataset.drawn ?? 0) + 1;
});

function renew() {
  view({ moved: performance.now(), wanted: request() });
}

// A view that works again takes its own complaint away, never one about an upload.
let ownComplaint = null;
function complainOfView(text) {
  ownComplaint = text;
  complain(text);
}
function forgiveIfOwn() {
  if (ownComplaint !== null && find("#message span").textContent === ownComplaint) forgive();
  ownComplaint = null;
}

function show(answer, asked) {
  const several = asked.filter !== "mode";
  find("#response-symbol").textContent = several ? "log(1 + |H|)" : "log(1 + |T|)";
  draw(find("#response"), answer.response, `Magnitude of the response up to ${short(asked.highest)} radians per mm; largest ${short(answer.response.peak)}`);
  draw(find("#kernel"), answer.kernel, `Spatial kernel within ${asked.reach} mm of the origin; largest magnitude ${short(answer.kernel.bound)}`);
  find("#heat-top").textContent = `${short(answer.response.top)} (|${several ? "H" : "T"}| = ${short(answer.response.peak)})`;
  find("#kernel-low").textContent = short(-answer.kernel.bound);
  find("#kernel-high").textContent = short(answer.kernel.bound);
  for (const tick of document.querySelectorAll(".tick")) {
    tick.textContent = tick.dataset.sign + find(`#${tick.dataset.axis}`).selectedOptions[0].dataset.tick;
  }
  for (const knob of start.knobs) find(`#${knob.name}-hint`).textContent = meaningOf(knob.name, answer.meaning);
  showOperators(answer, asked);
}

function showOperators(answer, asked) {
  const sizes = { reference: start.reference, sampled: [asked.rows, asked.columns] };
  for (const box of document.querySelectorAll(".operator")) {
    const name = box.dataset.operator;
    if (answer[name] === undefined) continue; // the input, which has not changed
    const title = box.querySelector("h3").textContent;
    for (const [which, size] of Object.entries(sizes)) {
      const words = `${title}, ${which === "reference" ? "on the reference grid" : "on your grid"} of ${size.join(" by ")} pixels`;
      draw(box.querySelector(`canvas[data-grid=${which}]`), answer[name][which] ?? answer.sonic[which], words);
      box.querySelector(`.grid-name.${which}`).textContent = `${which === "reference" ? "reference" : "yours"} ${size.join(" × ")}`;
    }
    const difference = answer[name].difference;
    if (difference === undefined) continue;
    const own = Math.max(0.005, 1.5 * answer.lost); // what the grid itself loses is not the operator's fault
    const verdict = box.querySelector(".difference");
    verdict.textContent = `changed by ${percent(difference)}`;
    verdict.className = `difference ${difference <= own ? "same" : "changed"}`;
  }
  find("#fit").textContent = `which differs from it by ${percent(answer.fit)}`;
  const lost = find("#lost");
  lost.hidden = answer.lost < 0.001;
  lost.textContent = `This grid is too coarse for all the detail of the image: it cannot hold ${percent(answer.lost)} of SONIC's output, whichever filter computes it. With more than ${start.detail} pixels on both sides, nothing is lost.`;
}

// Images ------------------------------------------------------------------------------------------------------------

function addImage(name, label) {
  find("#image").append(new Option(label, name));
}

async function upload(file) {
  forgive();
  if (file.size > start.uploads.bytes) {
    complain(`${file.name} is larger than ${start.uploads.bytes >> 20} MB; please make it smaller first.`);
    return;
  }
  find("#upload-label").textContent = "Reading …";
  try {
    const { image } = await ask("/api/upload", file);
    addImage(image, file.name);
    find("#image").value = state.image = image;
    renew();
  } catch (error) {
    complain(`${file.name}: ${error.message}`);
  } finally {
    find("#upload-label").textContent = "Upload …";
    find("#upload").value = "";
  }
}

// The checkpoint ----------------------------------------------------------------------------------------------------

const sheet = newestOnly(async (wanted) => {
  let answer;
  try {
    answer = await ask("/api/sheet", JSON.stringify(wanted));
  } catch (error) {
    complain(error.message);
    return;
  }
  if (wanted.layer !== state.layer || wanted.page !== state.page) return; // a newer one follows
  find("#page-number").textContent = `page ${answer.page + 1} of ${answer.pages}`;
  find("#sheet").replaceChildren(...answer.modes.map(makeCard));
  showChosen();
});

/** Asks for the modes of the chosen layer and page; the buttons know its ends before the answer is there. */
function showSheet() {
  find("#earlier").disabled = state.page === 0;
  find("#later").disabled = state.page + 1 >= start.layers[state.layer].pages;
  sheet({ layer: state.layer, page: state.page });
}

function makeCard(mode) {
  const card = Object.assign(document.createElement("button"), { type: "button" });
  card.dataset.mode = mode.mode;
  const canvas = document.createElement("canvas");
  draw(canvas, mode, "");
  canvas.setAttribute("aria-hidden", "true");
  const title = Object.assign(document.createElement("b"), { textContent: `mode ${mode.mode}` });
  const words = [`${short(mode.values.orientation)}°`, `decay ${short(mode.meaning.decay_length)} mm`, `${percent(mode.share)} of the power`];
  card.append(canvas, title, ...words.map((text) => Object.assign(document.createElement("span"), { textContent: text })));
  card.addEventListener("click", () => {
    state.values = { ...mode.values };
    state.chosen = `${state.layer}/${mode.mode}`;
    find("input[name=filter][value=mode]").checked = true;
    showFilter();
    showChosen();
    showValues();
    renew();
  });
  return card;
}

function showChosen() {
  for (const card of document.querySelectorAll("#sheet button")) {
    card.setAttribute("aria-pressed", String(`${state.layer}/${card.dataset.mode}` === state.chosen));
  }
}

function chooseLayer(index) {
  state.layer = index;
  state.page = 0;
  const layer = start.layers[index];
  for (const [id, count] of [["#channel-in", layer.inputs], ["#channel-out", layer.outputs]]) {
    find(id).max = count - 1;
    find(id).value = Math.min(Number(find(id).value), count - 1);
  }
  find("#layer-note").textContent = layer.note;
  find("#layer-note").hidden = layer.note === "";
  const ofLayer = find("input[name=filter][value=layer]");
  ofLayer.disabled = !layer.exact;
  if (ofLayer.checked && ofLayer.disabled) {
    find("input[name=filter][value=mode]").checked = true;
    showFilter();
    renew();
  }
  showSheet();
  if (ofLayer.checked) renew();
}

function openCheckpoint() {
  find("#checkpoint").hidden = false;
  find(".of-layer").hidden = false;
  find("#checkpoint-name").textContent = start.checkpoint;
  start.layers.forEach((layer, index) => find("#layer").append(new Option(`${layer.name} (${layer.modes} modes)`, index)));
  find("#layer").addEventListener("change", (event) => chooseLayer(Number(event.target.value)));
  for (const [id, step] of [["#earlier", -1], ["#later", 1]]) {
    find(id).addEventListener("click", () => {
      state.page += step;
      showSheet();
    });
  }
  chooseLayer(0);
}

// Start -------------------------------------------------------------------------------------------------------------

function wire() {
  find("#message button").addEventListener("click", forgive);
  find("#knobs").addEventListener("submit", (event) => event.preventDefault());
  find("#reset").addEventListener("click", resetMode);
  for (const id of ["#highest", "#reach"]) find(id).addEventListener("change", renew);
  for (const id of ["#channel-in", "#channel-out"]) find(id).addEventListener("change", renew);
  for (const choice of document.querySelectorAll("input[name=filter]")) {
    choice.addEventListener("change", () => {
      showFilter();
      renew();
    });
  }
  for (const id of ["#resolution", "#anisotropy"]) {
    find(id).addEventListener("input", () => {
      showGrid();
      renew();
    });
  }
  find("#reset-sampling").addEventListener("click", () => {
    find("#resolution").value = start.reference[0];
    find("#anisotropy").value = 0;
    showGrid();
    renew();
  });
  find("#image").addEventListener("change", (event) => {
    state.image = event.target.value;
    renew();
  });
  find("#upload").addEventListener("change", (event) => {
    const [file] = event.target.files;
    if (file) upload(file);
  });
}

function drawScales() {
  drawScale(find("#heat-scale"), "heat");
  drawScale(find("#signed-scale"), "signed", true);
}

async function begin() {
  try {
    start = await ask("/api/start");
  } catch (error) {
    complain(error.message);
    return;
  }
  start.knobs.forEach((knob) => find("#sliders").append(makeSlider(knob)));
  start.samples.forEach((sample) => addImage(sample.name, sample.label));
  state.image = start.samples[0].name;
  find("#image").value = state.image; // a browser may remember another from before a reload
  find("#resolution").value = RESOLUTION;
  find("#anisotropy").value = ANISOTROPY;
  find("#upload-hint").textContent = `up to ${start.uploads.megapixels} megapixels, ${start.uploads.bytes >> 20} MB; the central square is used`;
  const words = { ...start, turn: 360 / start.bank, rows: start.reference[0], pixel: start.field / start.reference[0] };
  for (const place of document.querySelectorAll("[data-start]")) place.textContent = words[place.dataset.start];
  drawScales();
  DARK.addEventListener("change", () => {
    drawScales();
    renew();
    if (start.checkpoint !== null) showSheet();
  });
  wire();
  showFilter();
  showGrid();
  resetMode();
  if (start.checkpoint !== null) openCheckpoint();
  openTurning(start, complain);
  document.body.dataset.ready = "yes";
}

begin();
