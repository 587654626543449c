// "Rotate the image": a scene and the answers of two trained networks, upright and rotated.

import { CLASSES, draw } from "/pictures.js";
import { ask, newestOnly } from "/requests.js";
import { percent } from "/words.js";

const ANGLE = 45;
const ALONG = 0.8; // of the shapes' pixels; a turned edge never falls on the same pixels
const find = (selector) => document.querySelector(selector);

let scene = 0;

function show(answer, angle) {
  for (const box of document.querySelectorAll("#turning [data-answer]")) {
    const found = answer[box.dataset.answer];
    const title = box.querySelector("h3").textContent;
    for (const which of ["upright", "turned"]) {
      draw(box.querySelector(`canvas[data-turn=${which}]`), found[which], `${title}, ${which === "turned" ? `rotated by ${angle} degrees` : which}`);
    }
    box.querySelector(".by").textContent = `rotated by ${angle}°`;
    if (found.agreement === undefined) continue;
    const verdict = box.querySelector(".agreement");
    verdict.textContent = `${percent(found.agreement)} rotated with the image`;
    verdict.className = `agreement ${found.agreement >= ALONG ? "same" : "changed"}`;
  }
}

function showAngle() {
  const words = `${find("#angle").value}°`.replace("-", "−");
  find("#angle-value").textContent = words;
  find("#angle").setAttribute("aria-valuetext", words);
}

/** Make the section work; `complain` shows what went wrong. */
export function openTurning(start, complain) {
  const turn = newestOnly(async (wanted) => {
    try {
      show(await ask("/api/turn", JSON.stringify(wanted)), String(wanted.angle).replace("-", "−"));
    } catch (error) {
      complain(error.message);
    }
    document.body.dataset.turned = Number(document.body.dataset.turned ?? 0) + 1;
  });
  const renew = () => turn({ scene, angle: Number(find("#angle").value) });
  start.kinds.forEach((kind, index) => {
    const swatch = document.createElement("i");
    swatch.style.background = CLASSES[index];
    const entry = document.createElement("li");
    entry.append(swatch, kind);
    find("#kinds").append(entry);
  });
  find("#angle").addEventListener("input", () => {
    showAngle();
    renew();
  });
  find("#scene").addEventListener("click", () => {
    scene = (scene + 1) % start.scenes;
    renew();
  });
  find("#angle").value = ANGLE;
  showAngle();
  renew();
}
