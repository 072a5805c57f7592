// Training runs: facts, curves and actions, live.

import { element, short } from "/static/drawing.js";
import { follow, momentHere, pageData, send } from "/static/frame.js";
import { showCharts } from "/static/charts.js";

const WORDS = { pause: "Pause", finish: "Finish now", resume: "Resume" };
const TOLD = {
  pause: "It writes a checkpoint and ends its processes. Resume trains on from there.",
  finish: "It validates once more, keeps its best model, and ends for good: it cannot be resumed.",
  resume: "It trains on from its last checkpoint, on this machine.",
};

const facts = document.getElementById("facts");
const charts = document.getElementById("charts");

/** Ask before something is done; what was answered. */
function confirmed(action, label) {
  const dialog = element("dialog", { "aria-labelledby": "ask-title" },
    element("h2", { id: "ask-title" }, `${WORDS[action]}: ${label}`), element("p", {}, TOLD[action]),
    element("form", { method: "dialog", class: "actions" },
      element("button", { value: "yes", class: action === "finish" ? "danger" : "" }, WORDS[action]), element("button", { value: "no" }, "Cancel")));
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(dialog.returnValue === "yes");
    });
  });
}

class RunFacts {
  constructor(run) {
    this.id = run.id;
    this.label = run.label;
    this.tiles = element("dl", { class: "tiles" });
    this.words = element("div", { class: "words" });
    this.stale = element("p", { class: "badge warn" });
    this.said = element("output", { "aria-live": "polite" });
    this.buttons = element("div", { class: "actions", role: "group", "aria-label": `What can be done to ${run.label}` });
    if (pageData.ids.length === 1) facts.append(this.stale, this.tiles, this.words, this.buttons);
    else this.addRow(run);
  }

  /** Several runs stand in a table, one below the other. */
  addRow(run) {
    const names = [...Object.keys(run.tiles), "in words"];
    if (!facts.firstElementChild) {
      const heads = ["run", ...names].map((name) => element("th", { scope: "col" }, name));
      const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody"));
      facts.append(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" }, table));
    }
    this.line = element("tr", {}, element("th", { scope: "row" }, element("a", { href: `/runs?run=${encodeURIComponent(run.id)}` }, run.label)), ...names.map(() => element("td")));
    this.line.cells[1].append(this.stale);
    this.line.lastElementChild.append(this.words, this.buttons);
    facts.querySelector("tbody").append(this.line);
  }

  show(run) {
    const boxes = Object.entries(run.tiles).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", value.length > 20 ? { class: "long" } : {}, value)));
    this.tiles.replaceChildren(...boxes);
    if (this.line) Object.values(run.tiles).forEach((value, index) => { this.line.cells[index + 1].replaceChildren(value, ...(index ? [] : [" ", this.stale])); });
    const reading = run.reading === null ? [] : [`The log has been read to ${short(run.reading * 100)} %.`];
    const words = this.line ? [run.beside, ...run.words.slice(1)].filter(Boolean) : run.words; // the score stands beside
    this.words.replaceChildren(...[...words, ...reading].map((text) => element("p", {}, text)));
    this.stale.hidden = !run.stale;
    this.stale.textContent = run.stale ? `Stale: ${run.stale} (${momentHere(run.written_s, true)})` : "";
    if (JSON.stringify(run.can) !== this.can) this.offer(run.can);
  }

  offer(can) {
    this.can = JSON.stringify(can);
    this.buttons.replaceChildren(...can.map((action) => {
      const button = element("button", { type: "button", "data-action": action, ...(action === "finish" ? { class: "danger" } : {}) }, WORDS[action]);
      button.addEventListener("click", () => this.act(action));
      return button;
    }), this.said);
  }

  async act(action) {
    if (!(await confirmed(action, this.label))) return;
    try {
      this.said.textContent = (await send("/api/runs/do", { run: this.id, action })).said;
    } catch (error) {
      this.said.textContent = error.message;
    }
  }
}

const shown = new Map();

function showFacts(runs) {
  for (const run of runs) {
    if (!shown.has(run.id)) shown.set(run.id, new RunFacts(run));
    shown.get(run.id).show(run);
  }
}

const asked = new URLSearchParams();
for (const id of pageData.ids) asked.append("run", id);
for (const [name, value] of [["across", pageData.across], ["seeds", pageData.seeds ? "band" : "each"]]) {
  asked.set(name, value);
  const field = document.getElementById(name);
  if (!field) continue;
  field.value = value;
  field.addEventListener("change", () => {
    asked.set(name, field.value);
    location.search = asked;
  });
}
follow(`/api/runs?${asked}`, {
  facts: showFacts,
  charts: (list) => {
    document.getElementById("nothing").hidden = list.length > 0;
    showCharts(charts, list);
  },
});
