// Results beside each other: the report's charts and tables.

import { Figure, download, makeSortable, whenIdle } from "/static/drawing.js";
import { pageData } from "/static/frame.js";

document.querySelectorAll("table.sortable").forEach(makeSortable);
for (const button of document.querySelectorAll("button[data-csv]")) {
  button.addEventListener("click", () => download(`${button.dataset.csv}.csv`, pageData.tables[button.dataset.csv]));
}
whenIdle([
  ...[...document.querySelectorAll("figure[data-chart]")].map((home) => () => new Figure(home, pageData.charts[home.dataset.chart])),
  () => { document.documentElement.dataset.drawn = "all"; },
]);
