// Charts as files: SVG with the colours of the page as it is now, and PNG, drawn from that.

const PICTURE_STYLES = ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "stroke-linecap", "stroke-linejoin", "opacity", "font-size", "text-anchor", "paint-order"];
const PICTURE_MARGIN = 12, PICTURE_HEAD = 26, PICTURE_KEY = 20, PICTURE_SCALE = 2;

/** A drawn chart as a document of its own, with its title and what its colours mean. */
function pictureOf(figure) {
  const drawn = figure.plot.querySelector("svg");
  const copy = drawn.cloneNode(true);
  const [from, to] = [drawn, copy].map((svg) => [...svg.querySelectorAll("*")]);
  from.forEach((one, index) => {
    const style = getComputedStyle(one);
    for (const name of PICTURE_STYLES) to[index].setAttribute(name, style.getPropertyValue(name));
    to[index].removeAttribute("class");
  });
  copy.querySelectorAll("title").forEach((one) => one.remove());
  const keys = figure.keys().filter(([name]) => !figure.hidden.has(name));
  const top = PICTURE_MARGIN + PICTURE_HEAD + keys.length * PICTURE_KEY;
  const [wide, high] = [figure.width + 2 * PICTURE_MARGIN, Number(drawn.getAttribute("height")) + top + PICTURE_MARGIN];
  const [paper, ink] = pageColours(["paper", "ink"]);
  const made = shape("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, "font-family": "system-ui, sans-serif", "font-size": 12, color: ink });
  made.append(shape("rect", { width: wide, height: high, fill: paper }));
  made.append(shape("text", { x: PICTURE_MARGIN, y: PICTURE_MARGIN + 14, "font-size": 15, "font-weight": 600, fill: ink }, figure.title));
  keys.forEach(([name, colour], index) => made.append(...pictureKey(figure, name, colour, PICTURE_MARGIN + PICTURE_HEAD + index * PICTURE_KEY, ink)));
  for (const [name, value] of [["x", PICTURE_MARGIN], ["y", top], ["overflow", "visible"]]) copy.setAttribute(name, value);
  made.append(copy);
  return { text: new XMLSerializer().serializeToString(made), wide, high };
}

function pictureKey(figure, name, colour, y, ink) {
  const [shade] = pageColours([`series-${colour}`]);
  const mark = figure.chart.kind === "lines"
    ? shape("path", { d: `M${PICTURE_MARGIN} ${y + 6}h32`, stroke: shade, "stroke-width": 1.9, "stroke-dasharray": DASHES[(colour - 1) % DASHES.length] })
    : shape("rect", { x: PICTURE_MARGIN, y, width: 12, height: 12, rx: 3, fill: shade });
  return [mark, shape("text", { x: PICTURE_MARGIN + 40, y: y + 10, fill: ink }, name)];
}

function downloadSvg(figure) {
  downloadBlob(`${figure.id}.svg`, new Blob([pictureOf(figure).text], { type: "image/svg+xml" }));
}

/** Twice as many pixels as on the page, for paper and for slides. */
async function downloadPng(figure) {
  const { text, wide, high } = pictureOf(figure);
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = element("canvas", { width: wide * PICTURE_SCALE, height: high * PICTURE_SCALE });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  downloadBlob(`${figure.id}.png`, await new Promise((done) => { canvas.toBlob(done, "image/png"); }));
}
