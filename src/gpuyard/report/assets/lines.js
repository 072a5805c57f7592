// Charts of lines, with a cursor that tells values: by pointer, or by arrow keys.

const LINE_HEIGHT = 250, PLOT_TOP = 8, PLOT_HEIGHT = 200;

/** Where marks are drawn: right of the texts of the scale upwards. */
function plotArea(width, y) {
  const left = Math.max(54, ...y.ticks.map((tick) => tick.text.length * LETTER + 10)), right = 14;
  return { left, top: PLOT_TOP, width: Math.max(width - left - right, 60), height: PLOT_HEIGHT };
}

/** Dashes and gaps by the number of a colour, so that lines are told apart without it too; the first is solid. */
const DASHES = ["none", "8 3", "2 2", "9 3 2 3", "16 5", "8 2 2 2 2 2", "4 5", "14 3 5 3"];

function lineStyle(colour) {
  return { class: "line", stroke: `var(--series-${colour})`, "stroke-dasharray": DASHES[(colour - 1) % DASHES.length] };
}

/** A piece of a line, to stand before its name. */
function lineKey(colour) {
  const key = shape("svg", { class: "key", width: 32, height: 8, "aria-hidden": "true" });
  key.append(shape("path", { ...lineStyle(colour), d: "M0 4h32" }));
  return key;
}

function drawLines(figure) {
  const { chart, width } = figure;
  const shown = chart.series.filter((one) => !figure.hidden.has(one.name));
  const levels = (chart.levels || []).map((level) => level.value);
  const y = makeScale(chart.y, [...shown.flatMap((one) => [...one.y, ...(one.low || []), ...(one.high || [])]), ...levels], PLOT_HEIGHT, 46);
  const area = plotArea(width, y);
  const x = makeScale(chart.x, shown.flatMap((one) => one.x), area.width, 90);
  const svg = shape("svg", { width, height: LINE_HEIGHT, role: "img", "aria-label": describeLines(figure.title, shown, chart) });
  drawFrame(svg, chart, area, x, y);
  for (const one of shown) {
    if (one.low) svg.append(shape("path", { class: "band", fill: `var(--series-${one.colour})`, d: bandPath(one, x, y, area) }));
    svg.append(shape("path", { ...lineStyle(one.colour), d: linePath(one, x, y, area, chart.steps) }));
    if (one.x.length <= 24 && !chart.steps) {
      one.x.forEach((at, index) => svg.append(shape("circle", { cx: area.left + x.at(at), cy: area.top + area.height - y.at(one.y[index]), r: 2.6, fill: `var(--series-${one.colour})` })));
    }
  }
  drawLevels(svg, chart, area, y);
  figure.across = { area, x };
  drawMark(figure, svg);
  addCursor(figure, svg, shown, area, x, y);
  return svg;
}

function describeLines(title, series, chart) {
  const told = series.map((one) => `${one.name}: ${describeLine(one, chart)}`);
  return `${title}. ${chart.y.label} over ${chart.x.label}. ${told.join("; ")}. Arrow keys read values.`;
}

/** What a line shows, in a few words: of a distribution its median and tail, over time its peak. */
function describeLine(one, chart) {
  const known = one.y.filter((value) => value !== null);
  if (!known.length) return "no values";
  const [first, last] = [known[0], known[known.length - 1]].map((value) => valueText(value, chart.y.unit));
  if (chart.tells === "quantiles") {
    const [median, tail] = [0.5, 0.99].map((share) => valueText(valueAt({ x: one.y, y: one.x }, share), chart.x.unit));
    return `median ${median}, 99th percentile ${tail}`;
  }
  if (chart.tells === "maximum") return `at most ${valueText(known.reduce((a, b) => Math.max(a, b)), chart.y.unit)}`;
  return `${first} to ${last}`;
}

function drawFrame(svg, chart, area, x, y) {
  const base = area.top + area.height;
  for (const tick of y.ticks) {
    const at = base - y.at(tick.value);
    svg.append(shape("path", { class: "grid", d: `M${area.left} ${at}h${area.width}` }));
    svg.append(shape("text", { x: area.left - 6, y: at + 4, "text-anchor": "end", class: "muted" }, tick.text));
  }
  svg.append(shape("path", { class: "axis", d: `M${area.left} ${base}h${area.width}` }));
  for (const tick of x.ticks) {
    const at = area.left + x.at(tick.value);
    svg.append(shape("path", { class: "axis", d: `M${at} ${base}v4` }));
    svg.append(shape("text", { x: at, y: base + 17, "text-anchor": at + (tick.text.length * LETTER) / 2 > area.left + area.width + 14 ? "end" : "middle", class: "muted" }, tick.text));
  }
  svg.append(shape("text", { x: area.left + area.width / 2, y: base + 35, "text-anchor": "middle", class: "muted" }, axisLabel(chart.x, x)));
}

/** Levels with their names at the right; names of close ones stand side by side. */
function drawLevels(svg, chart, area, y) {
  const names = [];
  const right = area.left + area.width;
  let last = -Infinity, end = right;
  for (const level of [...(chart.levels || [])].sort((a, b) => b.value - a.value)) {
    const at = area.top + area.height - y.at(level.value);
    const text = `${level.name} ${valueText(level.value, chart.y.unit)}`;
    if (Math.abs(at - last) > 13) end = right;
    svg.append(shape("path", { class: "level", d: `M${area.left} ${at}h${area.width}` }));
    names.push(shape("text", { class: "over", x: end, y: at - 4, "text-anchor": "end" }, text));
    last = at;
    end -= LETTER * text.length + 12;
  }
  svg.append(...names);
}

/** Pixels of a place; what lies beyond the scale is cut at its end. */
function pixels(at, value, x, y, area) {
  const up = Math.max(0, Math.min(y.at(value), area.height));
  return [(area.left + x.at(at)).toFixed(1), (area.top + area.height - up).toFixed(1)];
}

function linePath(one, x, y, area, steps = false) {
  let path = "", pen = "M";
  one.x.forEach((at, index) => {
    if (one.y[index] === null || at === null) {
      pen = "M";
      return;
    }
    const [across, down] = pixels(at, one.y[index], x, y, area);
    path += steps && pen === "L" ? `H${across}V${down}` : `${pen}${across} ${down}`;
    pen = "L";
  });
  return path;
}

/** The area between the least and the greatest values. */
function bandPath(one, x, y, area) {
  const edge = (values) => one.x.map((at, index) => pixels(at, values[index], x, y, area).join(" "));
  return `M${[...edge(one.high), ...edge(one.low).reverse()].join("L")}Z`;
}

/** The value of a series at a place: between neighbours in a straight line, or the one before. */
function valueAt(one, place, steps = false) {
  const next = upperBound(one.x, place);
  if (next === 0) return place < one.x[0] ? null : one.y[0];
  if (next === one.x.length) return place > one.x[next - 1] ? (one.y[next - 1] === 1 ? 1 : null) : one.y[next - 1];
  if (steps) return one.y[next - 1];
  const [a, b] = [one.x[next - 1], one.x[next]];
  return one.y[next - 1] + ((place - a) / (b - a)) * (one.y[next] - one.y[next - 1]);
}

/** What the cursor stands at. */
function placeText(axis, value) {
  return axis.unit === "moment" ? momentText(value, axis.epoch) : `${axis.label} ${valueText(value, axis.unit)}`;
}

/** The name of an axis, and that it is not linear. */
function axisLabel(axis, scale) {
  return scale.note ? `${axis.label} (${scale.note})` : axis.label;
}

/** Mark a place of a chart of lines, such as the moment that the rest of the page shows; null: none. */
function markPlace(figure, value) {
  figure.marked = value;
  drawMark(figure, figure.plot.querySelector("svg"));
}

function drawMark(figure, svg) {
  svg.querySelector(".now")?.remove();
  const { across: { area, x }, marked } = figure;
  if (marked === undefined || marked === null || marked < x.low || marked > x.high) return;
  svg.append(shape("path", { class: "now", d: `M${area.left + x.at(marked)} ${area.top}v${area.height}` }));
}

function addCursor(figure, svg, shown, area, x, y) {
  const cursor = shape("path", { class: "cursor" });
  svg.append(cursor);
  let pixel = null;
  const place = (at) => {
    pixel = Math.max(0, Math.min(at, area.width));
    const value = x.back(pixel);
    cursor.setAttribute("d", `M${area.left + pixel} ${area.top}v${area.height}`);
    const told = shown.map((one) => [one, valueAt(one, value, figure.chart.steps)]).filter(([, found]) => found !== null);
    told.sort((a, b) => b[1] - a[1]);
    const lines = told.map(([one, found]) => [`${one.name}: ${valueText(found, figure.chart.y.unit)}`, one.colour]);
    figure.tell(area.left + pixel, area.top, [[placeText(figure.chart.x, value), null], ...lines]);
  };
  const hide = () => {
    cursor.removeAttribute("d");
    figure.tooltip.hidden = true;
  };
  svg.addEventListener("pointermove", (event) => place(event.clientX - svg.getBoundingClientRect().left - area.left));
  svg.addEventListener("pointerleave", hide);
  figure.plot.onblur = hide;
  figure.plot.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    place((pixel ?? area.width / 2) + (step * area.width) / 40);
  };
}
