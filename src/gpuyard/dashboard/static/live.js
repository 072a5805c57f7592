// A live agent: facts, charts, nodes, decisions, jobs, and the switch that stops it.

import { download, duration, element, percent } from "/static/drawing.js";
import { agoText, follow, get, momentHere, pageData, send } from "/static/frame.js";
import { showCharts } from "/static/charts.js";
import { SteadyTable } from "/static/tables.js";

const $ = (id) => document.getElementById(id);
const agent = new URLSearchParams({ agent: pageData.agent });
const MOST_NAMED = 300; // nodes with names; of more there are squares only

let facts = null;

function showFacts(found) {
  facts = found;
  $("alarms").hidden = found.alarms.length === 0;
  $("alarms").replaceChildren(...found.alarms.map((text) => element("p", {}, text)));
  const kind = { halted: "bad", dead: "bad", active: "good", canary: "warn" }[found.mode] || "plain";
  const round = found.last_s === null ? "no round yet" : `round ${found.round.toLocaleString()}, ${agoText(found.last_s)}`;
  const stale = found.stale_round ? [element("span", { class: "badge warn" }, "stale")] : [];
  $("head").replaceChildren(element("span", { class: `badge ${kind}`, id: "mode" }, found.mode), `${found.policy}, control ${found.control}; ${round} `, ...stale);
  $("tiles").replaceChildren(...Object.entries(found.tiles).map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", value.length > 20 ? { class: "long" } : {}, value))));
  $("tiles").classList.toggle("stale", found.stale_round);
  $("halt").hidden = found.halted;
  $("resume").hidden = !found.halted;
}

/** Moments on the viewer's clock: the chart's own shift is that of UTC. */
function here(chart) {
  if (chart.x.unit !== "moment") return chart;
  const zone = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" }).formatToParts(new Date()).find((part) => part.type === "timeZoneName").value;
  return { ...chart, x: { ...chart.x, epoch: -60 * new Date(chart.x.high * 1000).getTimezoneOffset(), label: `time (${zone})` } };
}

let nodes = [];

function showNodes(found) {
  nodes = found;
  const named = found.length <= MOST_NAMED;
  $("nodes").classList.toggle("small", !named);
  $("nodes-note").textContent = `${found.length.toLocaleString()} nodes; each shows its GPUs in use.`;
  $("nodes").replaceChildren(...found.map(([name, busy, gpus, closed]) => {
    const step = gpus ? Math.ceil((busy / gpus) * 4) : 0;
    const told = `${name}: ${busy} of ${gpus} GPUs in use${closed ? `, closed: ${closed}` : ""}`;
    const item = element("li", { class: `use-${closed ? "closed" : step}`, title: told });
    if (named) item.append(element("b", {}, name), ` ${busy}/${gpus}`, closed ? element("span", { class: "remark" }, closed) : "");
    else item.append(element("span", { class: "visually-hidden" }, told));
    return item;
  }));
}

function showAgreement(found) {
  const share = (value) => (value === null ? "-" : percent(value));
  const rows = [
    ["policy agrees with the scheduler's starts", share(found.agreement)], ["baseline agrees", share(found.baseline)],
    ["starts compared", found.compared.toLocaleString()], ["rounds looked at", found.rounds.toLocaleString()],
    ["order against starts (Kendall)", found.correlation === null ? "-" : found.correlation.toFixed(3)],
    ...Object.entries(found.predictions).map(([by, one]) => [`predicted starts (${by === "policy" ? "policy" : "what runs today"})`,
      `median error ${one.median} over ${one.jobs.toLocaleString()} jobs${one.inside === null ? "" : `, ${percent(one.inside)} within the interval`}`]),
  ];
  $("agreement").replaceChildren(
    element("dl", { class: "facts" }, ...rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
    element("details", {}, element("summary", {}, "what this cannot tell"), ...found.missing.map((text) => element("p", { class: "note" }, text))));
}

const decisions = new SteadyTable($("decisions"), "Decisions", [
  { name: "job", text: (row) => row.job },
  { name: "when", text: (row) => element("span", {}, momentHere(row.at_s, true), element("span", { class: "remark" }, `round ${row.round.toLocaleString()}`)) },
  { name: "policy", text: (row) => row.wanted + (row.by === "policy" ? "" : ` (the ${row.by})`) },
  { name: "baseline", text: (row) => (row.same ? "the same" : row.baseline) },
  { name: "guard", text: (row) => (row.guard === "" || row.guard === "allowed" ? row.guard : element("span", {}, element("span", { class: "badge bad" }, row.guard), element("span", { class: "remark" }, row.words))) },
  { name: "scheduler said", text: (row) => row.error },
]);
let decided = [];
$("decisions-csv").addEventListener("click", () => download("decisions.csv", [["round", "time", "job", "policy", "baseline", "guard", "words", "error"],
  ...decided.map((row) => [row.round, row.at_s, row.job, row.wanted, row.baseline, row.guard, row.words, row.error])]));
$("nodes-csv").addEventListener("click", () => download("nodes.csv", [["node", "gpus in use", "gpus", "closed"], ...nodes]));

$("find").addEventListener("submit", async (event) => {
  event.preventDefault();
  const said = $("find").querySelector("output");
  try {
    const found = await get(`/api/live/jobs?${agent}&q=${encodeURIComponent($("find").elements.q.value)}`);
    said.textContent = found.found ? `${found.found.toLocaleString()} found${found.found > found.jobs.length ? `, the first ${found.jobs.length}` : ""}` : "no such job waits or runs";
    showFound(found.jobs);
    if (found.jobs.length === 1) await tellJob(found.jobs[0].job);
    else $("job").replaceChildren();
  } catch (error) {
    said.textContent = error.message;
  }
});

function showFound(jobs) {
  $("found").replaceChildren();
  if (jobs.length < 2) return;
  const table = new SteadyTable($("found"), "Jobs found", [
    { name: "job", text: (row) => {
      const button = element("button", { type: "button", class: "plain-button" }, row.job);
      button.addEventListener("click", () => tellJob(row.job));
      return button;
    } },
    { name: "user", text: (row) => row.user },
    { name: "phase", text: (row) => row.phase },
    { name: "GPUs", kind: "number", text: (row) => String(row.gpus) },
    { name: "place", kind: "number", text: (row) => (row.place === null ? "-" : row.place.toLocaleString()) },
    { name: "for", text: (row) => duration(row.since_s) },
  ]);
  table.update(jobs.map((row) => ({ ...row, key: row.job })));
}

async function tellJob(job) {
  let told;
  try {
    told = await get(`/api/live/job?${agent}&job=${encodeURIComponent(job)}`);
  } catch (error) {
    $("job").replaceChildren(element("p", {}, error.message));
    return;
  }
  const rows = [];
  if (told.place) rows.push(["place in the queue", `${told.place.toLocaleString()} of ${told.queue_length.toLocaleString()}`]);
  if (told.waited_s !== null && told.waited_s !== undefined) rows.push(["has waited", duration(told.waited_s)]);
  for (const [by, one] of Object.entries(told.starts || {})) {
    const range = one.low_s === null || one.high_s === null ? "" : ` (between ${momentHere(one.low_s)} and ${momentHere(one.high_s)})`;
    rows.push([`predicted start, ${by === "policy" ? "policy" : "what runs today"}`, `${momentHere(one.mid_s)}${range}`]);
  }
  if (told.phase === "waiting" && !Object.keys(told.starts || {}).length) rows.push(["predicted start", "no forecast has been made"]);
  if (told.ahead?.length) rows.push(["ahead of it", `${told.ahead.map((one) => `${one.job} (${one.gpus} GPUs)`).join(", ")}; ${told.ahead_gpus.toLocaleString()} GPUs in all`]);
  if (told.blocking?.length) rows.push(["in its way", told.blocking.map((one) => `${one.job} (${one.gpus} GPUs)`).join(", ")]);
  if (told.at_wall_s) rows.push(["as of", momentHere(told.at_wall_s, true)]);
  const history = told.history.slice(0, 5).map((one) => `round ${one.round}: ${one.action}${one.rule ? `, refused by ${one.rule}: ${one.words}` : ""}`);
  if (history.length) rows.push(["decided about it", history.join("; ")]);
  $("job").replaceChildren(element("h3", {}, `Job ${told.job}`), element("p", { class: "reason" }, told.sentence),
    element("dl", { class: "facts" }, ...rows.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))));
  $("job").scrollIntoView({ block: "nearest" });
}

/** Ask before the agent is halted: the word must be typed, so that no slip of a finger does it. */
function askHalt() {
  const word = element("input", { type: "text", autocomplete: "off", "aria-describedby": "halt-why" });
  const why = element("input", { type: "text", autocomplete: "off", maxlength: "200" });
  const yes = element("button", { type: "submit", value: "yes", class: "danger", disabled: "" }, "Halt");
  word.addEventListener("input", () => { yes.disabled = word.value.trim().toLowerCase() !== "halt"; });
  const dialog = element("dialog", { "aria-labelledby": "halt-title" }, element("h2", { id: "halt-title" }, "Halt this agent?"),
    element("p", { id: "halt-why" }, "It returns every job to the cluster's own scheduler and acts no more until you let it."),
    element("form", { method: "dialog" }, element("label", {}, "Why, for the record ", why), element("label", {}, "Type halt to confirm ", word),
      element("div", { class: "actions" }, yes, element("button", { type: "button", class: "cancel" }, "Cancel"))));
  dialog.querySelector(".cancel").addEventListener("click", () => dialog.close("no"));
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      done(dialog.returnValue === "yes" ? { why: why.value, confirmed: word.value.trim().toLowerCase() } : null);
    });
  });
}

async function switched(address, asked) {
  try {
    $("switched").textContent = (await send(address, { agent: pageData.agent, ...asked })).said;
  } catch (error) {
    $("switched").textContent = error.message;
  }
}

$("halt").addEventListener("click", async () => {
  const asked = await askHalt();
  if (asked) await switched("/api/live/halt", asked);
});
$("resume").addEventListener("click", () => switched("/api/live/resume", {}));

follow(`/api/live?${agent}`, {
  facts: showFacts,
  charts: (list) => showCharts($("charts"), list.map(here)),
  nodes: showNodes,
  shadow: showAgreement,
  decisions: (rows) => {
    decided = rows;
    decisions.update(rows);
    document.documentElement.dataset.decided = String(rows.length);
  },
});
setInterval(() => facts && showFacts(facts), 5000); // ages grow by themselves
