// Figures: scales, legends, tables and files of charts. What draws them is in lines.js, rows.js, columns.js and points.js.

const KNOWN_DURATIONS = [0.001, 0.1, 1, 10, 60, 600, 3600, 21600, 86400, 604800, 2592000, 31536000];
const NICE_DURATIONS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000, 864000, 1728000, 4320000, 8640000];

function niceStep(step) {
  const base = 10 ** Math.floor(Math.log10(step));
  return [1, 2, 2.5, 5, 10].map((factor) => factor * base).find((nice) => nice >= step * (1 - 1e-9));
}

/** A step between ticks of time that people know, seconds. */
function timeStep(step) {
  if (step < 1) return niceStep(step);
  return NICE_DURATIONS.find((nice) => nice >= step) || niceStep(step / 86400) * 86400;
}

/** A scale for an axis over values: at(value) gives pixels from 0 to size. */
function makeScale(axis, values, size, spacing = 80) {
  const known = values.filter((value) => value !== null && Number.isFinite(value));
  if (axis.unit === "change" && isWide(known)) return changeScale(known, size);
  return axis.scale === "log" ? logScale(axis, known, size, spacing) : linearScale(axis, known, size, spacing);
}

function linearScale(axis, values, size, spacing) {
  let low = axis.low ?? values.reduce((a, b) => Math.min(a, b), axis.zero ? 0 : Infinity);
  let high = axis.high ?? values.reduce((a, b) => Math.max(a, b), axis.zero ? 0 : -Infinity);
  if (!(high > low)) [low, high] = [Math.min(low, 0) || 0, Math.max(high, low + 1) || 1];
  if (axis.unit === "moment") return momentScale(axis, low, high, size, spacing);
  const rough = (high - low) / Math.max(size / spacing, 2);
  const step = axis.unit === "s" ? timeStep(rough) : niceStep(rough);
  if (axis.low === undefined) low = Math.floor(low / step + 1e-9) * step;
  if (axis.high === undefined && axis.label !== "time" && axis.label !== "samples") high = Math.ceil(high / step - 1e-9) * step;
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high * (1 + 1e-9) + 1e-12; k++) {
    ticks.push({ value: k * step, text: tickText(Number((k * step).toPrecision(10)), axis.unit) });
  }
  return { low, high, ticks, at: (value) => ((value - low) / (high - low)) * size, back: (pixel) => low + (pixel / size) * (high - low) };
}

function momentScale(axis, low, high, size, spacing) {
  const at = (value) => ((value - low) / (high - low)) * size;
  return { low, high, ticks: momentTicks(low, high, axis.epoch, size / (spacing * 1.3)), at, back: (pixel) => low + (pixel / size) * (high - low) };
}

/** Whether changes spread so far that halves and doubles are told apart only on a scale of ratios. */
function isWide(changes) {
  return changes.every((value) => value > -1) && changes.some((value) => value > 1.5 || value < -0.8);
}

function changeScale(changes, size) {
  const ratios = changes.map((value) => 1 + value);
  const low = Math.min(...ratios, 0.8), high = Math.max(...ratios, 1.25);
  const [from, to] = [Math.log(low) - 0.05, Math.log(high) + 0.05];
  const at = (value) => ((Math.log(Math.max(1 + value, low)) - from) / (to - from)) * size;
  const wanted = [1e-4, 1e-3, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000, 1e4];
  const kept = [];
  for (const ratio of [1, ...wanted.filter((one) => one !== 1 && one >= low && one <= high)]) {
    if (kept.every((other) => Math.abs(at(other - 1) - at(ratio - 1)) >= 56)) kept.push(ratio);
  }
  const text = (ratio) => (ratio === 1 ? "0 %" : ratio > 1 ? `×${short(ratio)}` : `−${Number((100 * (1 - ratio)).toPrecision(4))} %`);
  return { low: low - 1, high: high - 1, at, note: "log scale", ticks: kept.map((ratio) => ({ value: ratio - 1, text: text(ratio) })) };
}

function logScale(axis, values, size, spacing) {
  const positive = values.filter((value) => value > 0);
  const floor = axis.floor ?? 0;
  let low = Math.max(positive.reduce((a, b) => Math.min(a, b), Infinity), floor);
  if (values.some((value) => value <= floor) && floor) low = floor;
  let high = positive.reduce((a, b) => Math.max(a, b), low * 10);
  if (!Number.isFinite(low)) [low, high] = [1, 10];
  const pad = Math.log(high / low) * 0.03;
  const [from, to] = [Math.log(low) - (low === floor ? 0 : pad), Math.log(high) + pad];
  const at = (value) => ((Math.log(Math.max(value, low)) - from) / (to - from)) * size;
  const ticks = [];
  let last = -Infinity;
  for (const value of logTicks(axis.unit, low, high)) {
    if (at(value) - last < spacing * 0.7) continue;
    last = at(value);
    const below = floor && value === low && values.some((one) => one < low);
    ticks.push({ value, text: (below ? "≤ " : "") + valueText(value, axis.unit) });
  }
  return { low, high, ticks, at, note: "log scale", back: (pixel) => Math.exp(from + (pixel / size) * (to - from)) };
}

function logTicks(unit, low, high) {
  const within = (value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9);
  if (unit === "s" && high / low > 30) return KNOWN_DURATIONS.filter(within);
  const ticks = [];
  const factors = high / low > 1000 ? [1] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power++) {
    ticks.push(...factors.map((factor) => factor * 10 ** power).filter(within));
  }
  return ticks;
}

/** The values of a chart as rows, the first with names: what its table and its CSV file hold. */
function chartRows(chart) {
  if (chart.kind === "lines") {
    const bands = chart.series.some((one) => one.low);
    const rows = [["series", chart.x.label + unitSuffix(chart.x), chart.y.label + unitSuffix(chart.y), ...(bands ? ["least", "greatest"] : [])]];
    const band = (one, index) => (bands ? [one.low?.[index], one.high?.[index]] : []);
    for (const one of chart.series) one.x.forEach((x, index) => rows.push([one.name, x, one.y[index], ...band(one, index)]));
    return rows;
  }
  if (chart.kind === "columns") return columnRows(chart);
  if (chart.kind === "points") return pointRows(chart);
  const intervals = chart.rows.some((row) => row.dots.some((dot) => dot.low !== undefined));
  const rows = [["name", "series", chart.x.label + unitSuffix(chart.x), ...(intervals ? ["low", "high"] : [])]];
  for (const row of chart.rows) {
    for (const dot of row.dots) rows.push([row.name, dot.series, dot.value, ...(intervals ? [dot.low, dot.high] : [])]);
  }
  return rows;
}

function unitSuffix(axis) {
  return axis.unit === "s" || axis.unit === "moment" ? " (s)" : "";
}

/** One figure of the page, drawn as wide as it is. */
class Figure {
  constructor(home, chart) {
    this.home = home;
    this.id = chart.id;
    this.title = chart.title;
    this.choices = chart.choices || null;
    this.chart = this.choices ? Object.values(this.choices)[0] : chart;
    this.hidden = new Set(this.chart.hidden || []);
    if (this.choices) home.querySelector("figcaption").append(this.choiceField());
    this.legend = element("div", { class: "legend" });
    this.plot = element("div", { class: "plot", tabindex: "0", role: "group", "aria-label": `Chart: ${chart.title}` });
    this.tooltip = element("div", { class: "tooltip", "aria-live": "polite" });
    this.tooltip.hidden = true;
    home.append(this.legend, this.plot, this.foot());
    this.draw();
    new ResizeObserver(() => {
      if (Math.abs(this.plot.clientWidth - this.width) > 1) this.draw();
    }).observe(this.plot);
  }

  /** Show a chart anew, with other values; what is hidden or open stays so. */
  show(chart) {
    if (this.choices) {
      this.choices = chart.choices;
      const field = this.home.querySelector("figcaption select"), chosen = field.value;
      field.replaceChildren(...Object.keys(this.choices).map((name) => element("option", {}, name)));
      field.value = chosen in this.choices ? chosen : Object.keys(this.choices)[0];
      this.chart = this.choices[field.value];
    } else this.chart = chart;
    this.draw();
  }

  choiceField() {
    const field = element("select", { "aria-label": `${this.title}: what is shown` }, ...Object.keys(this.choices).map((name) => element("option", {}, name)));
    field.addEventListener("change", () => {
      this.chart = this.choices[field.value];
      this.draw();
    });
    return field;
  }

  foot() {
    const files = { CSV: () => download(`${this.id}.csv`, chartRows(this.chart)), SVG: () => downloadSvg(this), PNG: () => downloadPng(this) };
    const buttons = Object.entries(files).map(([kind, give]) => {
      const what = kind === "CSV" ? `Download the data of “${this.title}” as CSV` : `Download “${this.title}” as ${kind}`;
      const button = element("button", { type: "button", "aria-label": what }, kind);
      button.addEventListener("click", give);
      return button;
    });
    const place = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Data of ${this.title}` });
    this.table = element("details", {}, element("summary", {}, "as a table"), place);
    this.table.addEventListener("toggle", () => this.fillTable());
    return element("div", { class: "foot" }, this.table, element("span", { class: "buttons" }, ...buttons));
  }

  /** The values that are drawn, where the table is open; of many rows some, and that they are. */
  fillTable() {
    if (!this.table.open || this.told === this.chart) return;
    this.told = this.chart;
    const rows = chartRows(this.chart), shown = thinned(rows);
    const left = shown.length < rows.length;
    const count = (some) => (some.length - 1).toLocaleString("en-US");
    const note = left ? element("p", { class: "note" }, `${count(shown)} of ${count(rows)} rows, evenly spread; the CSV file has all.`) : null;
    this.table.querySelector(".scroll").replaceChildren(...(note ? [note] : []), plainTable(shown));
  }

  draw() {
    this.width = this.plot.clientWidth;
    this.home.querySelector(".note").textContent = this.chart.note || "";
    this.drawLegend();
    this.tooltip.hidden = true;
    const draw = { lines: drawLines, rows: drawRows, columns: drawColumnChart, points: drawPoints }[this.chart.kind];
    this.plot.replaceChildren(draw(this), this.tooltip);
    this.fillTable();
  }

  keys() {
    if (this.chart.series) return this.chart.series.map((one) => [one.name, one.colour]);
    const found = new Map();
    for (const row of this.chart.rows) for (const dot of row.dots) if (dot.colour) found.set(dot.series, dot.colour);
    return found.size > 1 && this.chart.rows.some((row) => row.dots.length > 1) ? [...found] : [];
  }

  /** What stands before the name of a series: a piece of its line, or the colour of its dots. */
  mark(colour) {
    return this.chart.kind === "lines" ? lineKey(colour) : swatch(`series-${colour}`);
  }

  drawLegend() {
    this.legend.replaceChildren(...this.keys().map(([name, colour]) => {
      const button = element("button", { type: "button", "aria-pressed": String(!this.hidden.has(name)), title: "show or hide" }, this.mark(colour), name);
      button.addEventListener("click", () => {
        if (!this.hidden.delete(name)) this.hidden.add(name);
        this.draw();
        [...this.legend.children].find((one) => one.textContent === name)?.focus();
      });
      return button;
    }));
  }

  /** Show lines of text near a place; each may have a colour. */
  tell(x, y, lines) {
    this.tooltip.replaceChildren(...lines.map(([text, colour]) => element("p", {}, colour ? this.mark(colour) : null, text)));
    this.tooltip.hidden = false;
    const room = this.plot.clientWidth - this.tooltip.offsetWidth;
    this.tooltip.style.left = `${Math.max(0, Math.min(x + 14, room))}px`;
    this.tooltip.style.top = `${Math.max(0, y)}px`;
  }
}

/** At most 400 rows, evenly spread: the file has all. */
function thinned(rows) {
  const every = Math.ceil(rows.length / 400);
  return rows.filter((row, index) => index === 0 || (index - 1) % every === 0);
}
