// Charts of columns: one for each label, or between each two edges; those of several series stand side by side.

function drawColumnChart(figure) {
  const { chart, width } = figure;
  const shown = chart.series.filter((one) => !figure.hidden.has(one.name));
  const y = makeScale({ ...chart.y, low: 0 }, shown.flatMap((one) => one.y), PLOT_HEIGHT, 46);
  const area = plotArea(width, y);
  const x = chart.edges ? makeScale(chart.x, chart.edges, area.width, 90) : labelScale(chart.labels, area.width);
  const svg = shape("svg", { width, height: LINE_HEIGHT, role: "img", "aria-label": describeColumns(figure.title, shown, chart) });
  drawFrame(svg, chart, area, x, y);
  const spans = chart.edges ? chart.edges.slice(1).map((to, k) => [x.at(chart.edges[k]), x.at(to)]) : x.spans;
  shown.forEach((one, number) => one.y.forEach((value, index) => {
    if (!(value > 0)) return;
    const [from, to] = spans[index], room = (to - from) * (chart.edges ? 0.9 : 0.8), wide = room / shown.length;
    const height = y.at(value), at = (from + to - room) / 2 + number * wide;
    svg.append(shape("rect", { class: "column", x: area.left + at, y: area.top + area.height - height, width: Math.max(wide, 0.5), height, fill: `var(--series-${one.colour})` }));
  }));
  addColumnReader(figure, svg, shown, area, spans);
  return svg;
}

/** Places of labels, of which those are shown that do not lie on each other. */
function labelScale(labels, size) {
  const slot = size / Math.max(labels.length, 1);
  const every = Math.max(Math.ceil((Math.max(...labels.map((label) => label.length), 1) * 7 + 6) / slot), 1);
  const ticks = labels.map((text, index) => ({ value: index, text })).filter((tick) => tick.value % every === 0);
  return { ticks, at: (index) => (index + 0.5) * slot, spans: labels.map((_, index) => [index * slot, (index + 1) * slot]) };
}

function columnName(chart, index) {
  if (chart.labels) return chart.labels[index];
  return `${valueText(chart.edges[index], chart.x.unit)} to ${valueText(chart.edges[index + 1], chart.x.unit)}`;
}

function describeColumns(title, series, chart) {
  const told = series.map((one) => {
    const largest = one.y.reduce((best, value, index) => (value > one.y[best] ? index : best), 0);
    return `${one.name}: ${one.y.length} values up to ${valueText(one.y[largest], chart.y.unit)} at ${columnName(chart, largest)}`;
  });
  return `${title}. ${chart.y.label} over ${chart.x.label}. ${told.join("; ")}. Arrow keys read values.`;
}

/** The values of a chart of columns as rows, the first with names. */
function columnRows(chart) {
  const places = chart.edges ? ["from", "to"].map((end) => `${chart.x.label} ${end}${unitSuffix(chart.x)}`) : [chart.x.label];
  const rows = [["series", ...places, chart.y.label + unitSuffix(chart.y)]];
  const place = (index) => (chart.edges ? [chart.edges[index], chart.edges[index + 1]] : [chart.labels[index]]);
  for (const one of chart.series) one.y.forEach((value, index) => rows.push([one.name, ...place(index), value]));
  return rows;
}

/** Tells the values of a place: by pointer, or by arrow keys. */
function addColumnReader(figure, svg, shown, area, spans) {
  const { chart } = figure;
  let place = null;
  const tell = (index) => {
    place = Math.max(0, Math.min(index, spans.length - 1));
    const lines = shown.map((one) => [`${one.name}: ${valueText(one.y[place], chart.y.unit)}`, one.colour]);
    figure.tell(area.left + (spans[place][0] + spans[place][1]) / 2, area.top, [[`${chart.x.label} ${columnName(chart, place)}`, null], ...lines]);
  };
  const hide = () => { figure.tooltip.hidden = true; };
  svg.addEventListener("pointermove", (event) => {
    const pixel = event.clientX - svg.getBoundingClientRect().left - area.left;
    const index = spans.findIndex(([from, to]) => pixel >= from && pixel < to);
    if (index >= 0) tell(index); else hide();
  });
  svg.addEventListener("pointerleave", hide);
  figure.plot.onblur = hide;
  figure.plot.onkeydown = (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    tell(place === null ? 0 : place + step);
  };
}
