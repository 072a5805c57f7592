// The list of training runs, from which some are chosen.

import { element } from "/static/drawing.js";
import { get, momentHere, pageData } from "/static/frame.js";
import { showCharts } from "/static/charts.js";
import { SteadyTable } from "/static/tables.js";

const MOST_RUNS = 8;
const form = document.getElementById("chosen");
const said = form.querySelector("output");

function pick(row) {
  const box = element("input", { type: "checkbox", class: "pick", name: "run", value: row.id, form: "chosen", "aria-label": `choose ${row.name}` });
  box.addEventListener("change", count);
  return box;
}

function count() {
  const chosen = document.querySelectorAll(".pick:checked").length;
  said.textContent = chosen === 0 ? "none chosen" : `${chosen} chosen${chosen > MOST_RUNS ? `, at most ${MOST_RUNS} can be shown` : ""}`;
  form.querySelector("button").disabled = chosen === 0 || chosen > MOST_RUNS;
}

const table = new SteadyTable(document.getElementById("runs"), "Training runs", [
  { name: "run", text: (row) => element("span", {}, element("a", { href: row.page + encodeURIComponent(row.id) }, row.name), element("span", { class: "remark" }, row.where)) },
  { name: "choose", text: (row) => (row.damaged ? "" : pick(row)) },
  { name: "state", text: (row) => (row.damaged ? element("span", {}, element("span", { class: "badge bad" }, "damaged"), element("span", { class: "remark" }, row.damaged)) : row.state_words) },
  { name: "algorithm", text: (row) => row.algorithm || "" },
  { name: "best score", kind: "number", text: (row) => row.score || "-" },
  { name: "compared with the best heuristic", text: (row) => row.beside || "" },
  { name: "written", text: (row) => element("time", { datetime: new Date(row.changed_s * 1000).toISOString() }, momentHere(row.changed_s)) },
]);
table.update(pageData.runs.map((row) => ({ ...row, key: row.id })));
count();
const { chart } = await get("/api/runs/scores");
if (chart) {
  const home = document.getElementById("scores");
  home.hidden = false;
  showCharts(home.querySelector(".figures"), [chart]);
}
document.documentElement.dataset.drawn = "all";
