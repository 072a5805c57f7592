// Charts of a page that come and change while it is open.

import { Figure, element } from "/static/drawing.js";

const drawn = new Map();

/** The place of a chart, as the report has it. */
export function chartHome(chart) {
  const caption = element("figcaption", {}, element("h3", {}, chart.title), element("p", { class: "note" }, chart.note || ""));
  return element("figure", { id: `figure-${chart.id}`, "data-chart": chart.id }, caption);
}

/** Show these charts in a place: those that are there change, new ones come after them. The figures are returned. */
export function showCharts(place, charts) {
  for (const chart of charts) {
    const known = drawn.get(chart.id);
    if (known) known.show(chart);
    else {
      const home = chartHome(chart);
      place.append(home);
      drawn.set(chart.id, new Figure(home, chart));
    }
  }
  document.documentElement.dataset.drawn = "all";
  return charts.map((chart) => drawn.get(chart.id));
}
