// Home: what was found, kept up to date.

import { element, short } from "/static/drawing.js";
import { agoText, follow, momentHere, pageData } from "/static/frame.js";
import { SteadyTable } from "/static/tables.js";

function nameOf(row) {
  const link = element("a", { href: row.page + encodeURIComponent(row.id), title: row.where }, row.name);
  return element("span", {}, link, element("span", { class: "remark" }, row.where));
}

function written(seconds) {
  return element("time", { datetime: new Date(seconds * 1000).toISOString(), title: momentHere(seconds, true) }, momentHere(seconds));
}

function badge(text, kind) {
  return element("span", { class: `badge ${kind}` }, text);
}

function stateOf(row) {
  if (row.damaged) return element("span", {}, badge("damaged", "bad"), element("span", { class: "remark" }, row.damaged));
  const kind = { running: "good", finished: "plain", early: "plain", interrupted: "warn", nan: "bad", killed: "bad" }[row.state];
  const parts = [badge(row.state_words, row.stale ? "warn" : kind)];
  if (row.stale) parts.push(element("span", { class: "remark" }, `stale: ${row.stale}`));
  if (row.reading !== null) parts.push(element("span", { class: "remark" }, `log read to ${short(row.reading * 100)} %`));
  return element("span", {}, ...parts);
}

function scoreOf(row) {
  if (row.damaged || row.score === null) return row.damaged ? "" : "-";
  return element("span", {}, row.score, row.beside ? element("span", { class: "remark" }, row.beside) : null);
}

function leftOf(row) {
  if (row.damaged || row.state !== "running") return "";
  if (row.share === null) return row.left;
  return element("span", {}, element("progress", { max: "1", value: String(row.share), "aria-label": "share done" }), element("span", { class: "remark" }, row.left));
}

function modeOf(row) {
  if (row.damaged) return element("span", {}, badge("damaged", "bad"), element("span", { class: "remark" }, row.damaged));
  return badge(row.mode, { halted: "bad", dead: "bad", stopped: "plain", active: "good", canary: "warn" }[row.mode] || "plain");
}

function answerOf(row) {
  if (row.damaged) return element("span", {}, badge("damaged", "bad"), element("span", { class: "remark" }, row.damaged));
  return row.answer;
}

const sections = {
  journal: { id: "agents", columns: [
    { name: "agent", text: nameOf },
    { name: "mode", text: modeOf },
    { name: "policy", text: (row) => row.policy || "" },
    { name: "last round", text: (row) => (row.last_s ? element("span", {}, agoText(row.last_s), row.stale_round && row.alive ? badge("stale", "warn") : null) : "none yet") },
    { name: "waiting", kind: "number", text: (row) => (row.pending ?? "-").toLocaleString() },
    { name: "alarms", kind: "wide", text: (row) => (row.alarms || []).join("; ") || (row.damaged ? "" : "none") },
  ] },
  run: { id: "runs", columns: [
    { name: "run", text: nameOf },
    { name: "state", text: stateOf },
    { name: "algorithm", text: (row) => row.algorithm || "" },
    { name: "best score", text: scoreOf },
    { name: "time left", text: leftOf },
    { name: "written", text: (row) => written(row.changed_s) },
  ] },
  results: { id: "results", columns: [
    { name: "results", text: nameOf },
    { name: "answer", kind: "wide", text: answerOf },
    { name: "policies", kind: "number", text: (row) => String(row.policies ?? "") },
    { name: "written", text: (row) => written(row.changed_s) },
  ] },
};

const tables = Object.fromEntries(Object.entries(sections).map(([kind, { id, columns }]) => {
  const home = document.getElementById(id);
  return [kind, new SteadyTable(home, home.querySelector("h2").textContent, columns)];
}));

function show(found) {
  for (const [kind, table] of Object.entries(tables)) {
    table.update(found[kind].map((row) => ({ ...row, key: row.id })));
    document.getElementById(sections[kind].id).hidden = table.rows.size === 0;
  }
  document.getElementById("empty").hidden = Object.values(tables).some((table) => table.rows.size);
  document.getElementById("notes").replaceChildren(...found.notes.map((note) => element("p", { class: "note" }, note)));
}

let latest = pageData;
show(latest);
document.documentElement.dataset.drawn = "all";
follow("/api/home", { home: (found) => { latest = found; show(found); } });
setInterval(() => show(latest), 10000); // "5 s ago" grows by itself
