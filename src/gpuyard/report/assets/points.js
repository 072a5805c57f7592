// Charts of points: a point for each series, named; those that no other beats on both axes are joined by a line.

const POINTS_HEIGHT = 330;

function drawPoints(figure) {
  const { chart, width } = figure;
  const shown = chart.series.filter((one) => !figure.hidden.has(one.name) && one.x[0] !== null && one.y[0] !== null);
  const y = makeScale(chart.y, shown.map((one) => one.y[0]), POINTS_HEIGHT - 50, 46);
  const area = { ...plotArea(width, y), height: POINTS_HEIGHT - 50 };
  const x = makeScale(chart.x, shown.map((one) => one.x[0]), area.width, 120);
  const svg = shape("svg", { width, height: POINTS_HEIGHT, role: "img", "aria-label": describePoints(figure.title, shown, chart) });
  drawFrame(svg, chart, area, x, y);
  const placed = shown.map((one) => ({ one, left: area.left + x.at(one.x[0]), top: area.top + area.height - y.at(one.y[0]) }));
  const front = placed.filter(({ one }) => one.best).sort((a, b) => a.left - b.left);
  if (front.length > 1) svg.append(shape("path", { class: "front", d: `M${front.map(({ left, top }) => `${left} ${top}`).join("L")}` }));
  const taken = [];
  for (const point of placed) svg.append(pointMark(figure, point), pointName(point, width, taken));
  return svg;
}

function pointMark(figure, { one, left, top }) {
  const { chart } = figure;
  const mark = shape("circle", { cx: left, cy: top, r: one.best ? 6.5 : 5, fill: `var(--series-${one.colour})`, class: one.best ? "best" : "" });
  const lines = [[one.name, one.colour], ...["x", "y"].map((name) => [`${chart[name].label}: ${valueText(one[name][0], chart[name].unit)}`, null])];
  mark.addEventListener("pointerenter", () => figure.tell(left, top, lines));
  mark.addEventListener("pointerleave", () => { figure.tooltip.hidden = true; });
  return mark;
}

/** A name beside its point, moved down until it stands free of the others. */
function pointName({ one, left, top }, width, taken) {
  const long = one.name.length * LETTER, before = left + long + 12 > width;
  const box = { left: before ? left - long - 10 : left + 10, right: before ? left - 10 : left + long + 10, y: top + 4 };
  while (taken.some((other) => Math.abs(other.y - box.y) < 13 && other.left < box.right && box.left < other.right)) box.y += 13;
  taken.push(box);
  return shape("text", { class: "over", x: before ? left - 10 : left + 10, y: box.y, "text-anchor": before ? "end" : "start" }, one.name);
}

function describePoints(title, series, chart) {
  const told = series.map((one) => `${one.name}: ${valueText(one.x[0], chart.x.unit)}, ${valueText(one.y[0], chart.y.unit)}${one.best ? ", not beaten on both" : ""}`);
  return `${title}. ${chart.x.label} and ${chart.y.label}. ${told.join("; ")}.`;
}

/** The points as rows, the first with names. */
function pointRows(chart) {
  const rows = [["series", chart.x.label + unitSuffix(chart.x), chart.y.label + unitSuffix(chart.y), "not beaten on both"]];
  for (const one of chart.series) rows.push([one.name, one.x[0], one.y[0], one.best ? "yes" : "no"]);
  return rows;
}
