// Charts of lines, with a cursor that tells values: by pointer, or by arrow keys.

const LINE_HEIGHT = 250;

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
  const left = 54, right = 14, top = 8, bottom = 42;
  const area = { left, top, width: Math.max(width - left - right, 60), height: LINE_HEIGHT - top - bottom };
  const x = makeScale(chart.x, shown.flatMap((one) => one.x), area.width, 90);
  const levels = (chart.levels || []).map((level) => level.value);
  const y = makeScale(chart.y, [...shown.flatMap((one) => one.y), ...levels], area.height, 46);
  const svg = shape("svg", { width, height: LINE_HEIGHT, role: "img", "aria-label": describeLines(figure.title, shown, chart) });
  drawFrame(svg, chart, area, x, y);
  for (const one of shown) {
    svg.append(shape("path", { ...lineStyle(one.colour), d: linePath(one, x, y, area) }));
    if (one.x.length <= 24) {
      one.x.forEach((at, index) => svg.append(shape("circle", { cx: left + x.at(at), cy: top + area.height - y.at(one.y[index]), r: 2.6, fill: `var(--series-${one.colour})` })));
    }
  }
  drawLevels(svg, chart.levels || [], area, y);
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
    svg.append(shape("text", { x: at, y: base + 17, "text-anchor": at > area.left + area.width - 18 ? "end" : "middle", class: "muted" }, tick.text));
  }
  svg.append(shape("text", { x: area.left + area.width / 2, y: base + 35, "text-anchor": "middle", class: "muted" }, chart.x.label));
}

function drawLevels(svg, levels, area, y) {
  for (const level of levels) {
    const at = area.top + area.height - y.at(level.value);
    svg.append(shape("path", { class: "level", d: `M${area.left} ${at}h${area.width}` }));
    svg.append(shape("text", { x: area.left + area.width, y: at - 4, "text-anchor": "end" }, `${level.name} ${short(level.value)}`));
  }
}

function linePath(one, x, y, area) {
  const base = area.top + area.height;
  let path = "", pen = "M";
  one.x.forEach((at, index) => {
    if (one.y[index] === null || at === null) {
      pen = "M";
      return;
    }
    path += `${pen}${(area.left + x.at(at)).toFixed(1)} ${(base - y.at(one.y[index])).toFixed(1)}`;
    pen = "L";
  });
  return path;
}

/** The value of a series at a place: between neighbours in a straight line. */
function valueAt(one, place) {
  const next = upperBound(one.x, place);
  if (next === 0) return place < one.x[0] ? null : one.y[0];
  if (next === one.x.length) return place > one.x[next - 1] ? (one.y[next - 1] === 1 ? 1 : null) : one.y[next - 1];
  const [a, b] = [one.x[next - 1], one.x[next]];
  return one.y[next - 1] + ((place - a) / (b - a)) * (one.y[next] - one.y[next - 1]);
}

function addCursor(figure, svg, shown, area, x, y) {
  const cursor = shape("path", { class: "cursor" });
  svg.append(cursor);
  let pixel = null;
  const place = (at) => {
    pixel = Math.max(0, Math.min(at, area.width));
    const value = x.back(pixel);
    cursor.setAttribute("d", `M${area.left + pixel} ${area.top}v${area.height}`);
    const told = shown.map((one) => [one, valueAt(one, value)]).filter(([, found]) => found !== null);
    told.sort((a, b) => b[1] - a[1]);
    const lines = told.map(([one, found]) => [`${one.name}: ${valueText(found, figure.chart.y.unit)}`, one.colour]);
    figure.tell(area.left + pixel, area.top, [[`${figure.chart.x.label} ${valueText(value, figure.chart.x.unit)}`, null], ...lines]);
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
