// Charts of rows: a dot for each value, with a line for its interval.

const DOT_COLOURS = { better: "var(--better)", worse: "var(--worse)", tie: "var(--tie)", weak: "var(--tie)", reference: "var(--accent)", "one run": "var(--series-1)" };

function drawRows(figure) {
  const { chart, width } = figure;
  const stacked = width < 520;
  const letters = Math.max(...chart.rows.map((row) => row.name.length), 4);
  const left = stacked ? 8 : Math.min(letters * 7.2 + 16, width * 0.34);
  const single = chart.rows.every((row) => row.dots.length <= 1);
  const right = single ? 66 : 16, top = 6, each = stacked ? 36 : 24;
  const height = top + chart.rows.length * each + 42;
  const area = { left, top, width: Math.max(width - left - right, 60), height: chart.rows.length * each };
  const dots = chart.rows.flatMap((row) => row.dots.filter((dot) => !figure.hidden.has(dot.series)));
  const x = makeScale(chart.x, dots.flatMap((dot) => [dot.value, dot.low ?? dot.value, dot.high ?? dot.value]), area.width, 84);
  const svg = shape("svg", { width, height, role: "img", "aria-label": describeRows(figure.title, chart) });
  drawColumns(svg, chart, area, x, width);
  chart.rows.forEach((row, index) => drawRow({ svg, row, figure, area, x, stacked, single, top: top + index * each, each }));
  return svg;
}

function describeRows(title, chart) {
  const told = chart.rows.slice(0, 12).map((row) => `${row.name}: ${row.dots.map((dot) => valueText(dot.value, chart.x.unit)).join(", ")}`);
  return `${title}. ${told.join("; ")}.`;
}

function drawColumns(svg, chart, area, x, width) {
  const base = area.top + area.height;
  for (const tick of x.ticks) {
    const at = area.left + x.at(tick.value);
    const zero = chart.x.unit === "change" && Math.abs(tick.value) < 1e-12;
    svg.append(shape("path", { class: zero ? "zero" : "grid", d: `M${at} ${area.top}V${base}` }));
    svg.append(placedText(tick.text, at, base + 16, width));
  }
  svg.append(placedText(axisLabel(chart.x, x), area.left + area.width / 2, base + 34, width));
}

const LETTER = 6.6; // a letter's usual width in pixels, at 12 pixels

/** A text around a place, moved and cut so that it stays in the picture. */
function placedText(text, at, y, width) {
  const room = Math.floor(width / LETTER);
  const told = text.length > room ? `${text.slice(0, Math.max(room - 1, 3))}…` : text;
  const half = Math.min((told.length * LETTER) / 2, width / 2);
  return shape("text", { x: Math.max(half, Math.min(at, width - half)), y, "text-anchor": "middle", class: "muted" }, told);
}

function drawRow({ svg, row, figure, area, x, stacked, single, top, each }) {
  const { chart } = figure;
  const middle = top + (stacked ? each - 11 : each / 2);
  const room = Math.floor((stacked ? figure.width - 8 : area.left - 14) / 7);
  const name = row.name.length > room ? `${row.name.slice(0, Math.max(room - 1, 3))}…` : row.name;
  const label = shape("text", stacked ? { x: 0, y: top + 12 } : { x: area.left - 10, y: middle + 4, "text-anchor": "end" }, name);
  label.append(shape("title", {}, row.count ? `${row.name}: ${row.count.toLocaleString("en-US")} jobs` : row.name));
  svg.append(label, shape("path", { class: "grid", d: `M${area.left} ${middle}h${area.width}` }));
  for (const dot of row.dots) {
    if (figure.hidden.has(dot.series) || dot.value === null) continue;
    const colour = dot.verdict ? DOT_COLOURS[dot.verdict] : `var(--series-${dot.colour})`;
    const at = area.left + x.at(dot.value);
    const group = shape("g");
    if (dot.low !== undefined) group.append(shape("path", { class: "whisker", stroke: colour, d: `M${area.left + x.at(dot.low)} ${middle}H${area.left + x.at(dot.high)}` }));
    group.append(shape("circle", { cx: at, cy: middle, r: dot.verdict === "reference" ? 3.5 : 5, fill: colour }));
    if (single) {
      const beyond = dot.high === undefined ? at : area.left + x.at(Math.max(dot.high, dot.value));
      group.append(shape("text", { x: beyond + 9, y: middle + 4 }, dot.verdict === "reference" ? "reference" : valueText(dot.value, chart.x.unit)));
    }
    const span = dot.low === undefined ? "" : ` (${valueText(dot.low, chart.x.unit)} to ${valueText(dot.high, chart.x.unit)})`;
    const lines = [[row.name, null], [`${dot.series}: ${valueText(dot.value, chart.x.unit)}${span}`, dot.colour || null]];
    group.addEventListener("pointerenter", () => figure.tell(at, middle - 8, lines));
    group.addEventListener("pointerleave", () => { figure.tooltip.hidden = true; });
    svg.append(group);
  }
}
