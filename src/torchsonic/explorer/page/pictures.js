// Numbers to colours: three maps, safe for colour-blind eyes and the same as in viz, drawn pixel by pixel.

const STOPS = {
  grey: ["#000000", "#ffffff"],
  heat: ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"],
  signed: ["#053061", "#2166ac", "#4393c3", "#92c5de", "#d1e5f0", "#f7f7f7", "#fddbc7", "#f4a582", "#d6604d", "#b2182b", "#67001f"],
  signedDark: ["#c4e6ff", "#7cc0f0", "#3f86bd", "#24557d", "#1a3245", "#171b20", "#4a2a1f", "#8a4128", "#cc6a3e", "#f5a070", "#ffdcc4"],
};

/** Colours of classes, background first: the same as in reports. */
export const CLASSES = ["#15181c", "#56b4e9", "#f0e442", "#009e73", "#d55e00", "#cc79a7"];

/** Zero is drawn in the colour of the ground, light or dark. */
export const DARK = matchMedia("(prefers-color-scheme: dark)");

function channels(colour) {
  return [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
}

const opaque = ([red, green, blue]) => (255 << 24) | (blue << 16) | (green << 8) | red;

function makeTable(stops) {
  const colours = stops.map(channels);
  const table = new Uint32Array(256);
  for (let level = 0; level < 256; level++) {
    const place = (level / 255) * (colours.length - 1);
    const first = Math.min(Math.floor(place), colours.length - 2);
    const mixed = colours[first].map((value, i) => Math.round(value + (place - first) * (colours[first + 1][i] - value)));
    table[level] = opaque(mixed);
  }
  return table;
}

const TABLES = Object.fromEntries(Object.entries(STOPS).map(([name, stops]) => [name, makeTable(stops)]));
TABLES.classes = Uint32Array.from(CLASSES, (colour) => opaque(channels(colour)));

function paint(canvas, columns, rows, levels, map) {
  const image = new ImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const table = TABLES[map === "signed" && DARK.matches ? "signedDark" : map];
  for (let i = 0; i < pixels.length; i++) pixels[i] = table[levels[i]];
  if (canvas.width !== columns) canvas.width = columns;
  if (canvas.height !== rows) canvas.height = rows;
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function decode(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text); // newer browsers
  const bytes = atob(text);
  const levels = new Uint8Array(bytes.length);
  for (let i = 0; i < bytes.length; i++) levels[i] = bytes.charCodeAt(i);
  return levels;
}

/** Draw a picture of the server's and say in words what it shows. */
export function draw(canvas, picture, words) {
  paint(canvas, picture.columns, picture.rows, decode(picture.pixels), picture.map);
  canvas.setAttribute("aria-label", words);
}

/** Draw the scale of a map, 256 levels in one row. */
export function drawScale(canvas, map, root = false) {
  const levels = Uint8Array.from({ length: 256 }, (_, i) => {
    const place = i / 127.5 - 1; // the root of magnitudes, as kernels are drawn
    return root ? Math.round(127.5 + 127.5 * Math.sign(place) * Math.sqrt(Math.abs(place))) : i;
  });
  paint(canvas, 256, 1, levels, map);
}
