// What if: a form whose settings stand in the address, and the questions that are being answered.

import { duration, element, percent } from "/static/drawing.js";
import { follow, get, momentHere, pageData, send } from "/static/frame.js";

const byId = (id) => document.getElementById(id);
const OWN = "own";
let pools = [];

function fillForm() {
  byId("log").append(...pageData.logs.map(({ id, name }) => element("option", { value: id }, name)));
  byId("cluster-choice").append(...pageData.clusters.map(({ id, name }) => element("option", { value: id }, name)), element("option", { value: OWN }, "nodes x GPUs …"));
  byId("estimates").append(...pageData.estimates.map((name) => element("option", { value: name }, name)));
  byId("policies").append(...pageData.policies.map((name) => element("label", {}, element("input", { type: "checkbox", value: name }), name)));
  document.body.append(element("datalist", { id: "types" }, ...pageData.types.map((name) => element("option", { value: name }))));
}

/** Fill in what the address says, else what is usual. */
async function readAddress() {
  const asked = new URLSearchParams(location.search);
  if (asked.has("log")) byId("log").value = asked.get("log");
  if (!byId("log").value) byId("log").selectedIndex = 0;
  chooseCluster(asked.get("cluster") ?? usualCluster());
  if (asked.has("estimates")) byId("estimates").value = asked.get("estimates");
  const chosen = asked.has("policy") ? asked.getAll("policy") : ["fifo+easy", "sjf+easy"];
  for (const box of byId("policies").querySelectorAll("input")) box.checked = chosen.includes(box.value);
  byId("others").value = chosen.filter((name) => !pageData.policies.includes(name)).join(" ");
  await showPools(asked.getAll("change"));
}

function usualCluster() {
  const log = pageData.logs.find(({ id }) => id === byId("log").value);
  return log?.cluster ?? pageData.clusters[0]?.id ?? "8x8";
}

function chooseCluster(text) {
  const known = pageData.clusters.some(({ id }) => id === text);
  byId("cluster-choice").value = known ? text : OWN;
  byId("shorthand").value = known ? "" : text;
  byId("shorthand-label").hidden = known;
}

function clusterText() {
  return byId("cluster-choice").value === OWN ? byId("shorthand").value.trim() : byId("cluster-choice").value;
}

/** A row for each pool of the chosen cluster; changes are such as 0:4 or 1:0:h100@1.5. */
async function showPools(changes = []) {
  byId("shorthand-label").hidden = byId("cluster-choice").value !== OWN;
  if (!clusterText()) return;
  try {
    const told = await get(`/api/what-if/cluster?${new URLSearchParams({ cluster: clusterText() })}`);
    refuse(null);
    pools = told.pools;
  } catch (error) {
    pools = [];
    refuse(error);
  }
  const given = new Map(changes.map((text) => [Number(text.split(":")[0]), text.split(":")]));
  byId("pools").replaceChildren(...pools.map((pool, number) => poolRow(pool, number, given.get(number) ?? [])));
}

function poolRow(pool, number, [, nodes = "0", kind = ""]) {
  const [type, speed = "1"] = kind.split("@");
  const field = (label, attributes) => element("label", {}, label, element("input", { ...attributes, "data-pool": number, "aria-label": `${label}, pool ${number + 1}` }));
  return element("div", { class: "pool" }, element("strong", {}, `${pool.nodes.toLocaleString()} × ${pool.gpus} ${pool.type}`),
    field("nodes added or removed", { type: "number", step: "1", min: -pool.nodes, value: nodes, class: "added" }),
    field("other GPU type", { list: "types", value: type, placeholder: pool.type, class: "type", autocomplete: "off" }),
    field("its speed", { type: "number", step: "any", min: "0.01", value: speed, class: "speed" }));
}

function question() {
  const boxes = [...byId("policies").querySelectorAll("input:checked")].map((box) => box.value);
  const changes = pools.map((_, number) => {
    const value = (name) => document.querySelector(`input.${name}[data-pool="${number}"]`).value.trim();
    return { pool: number, nodes: Number(value("added") || 0), type: value("type"), speed: Number(value("speed") || 1) };
  });
  return { log: byId("log").value, cluster: clusterText(), estimates: byId("estimates").value, policies: [...boxes, ...byId("others").value.split(/\s+/).filter(Boolean)],
    changes: changes.filter(({ nodes, type }) => nodes || type).map((change) => (change.type ? change : { ...change, speed: 1 })) };
}

function addressOf(asked) {
  const told = new URLSearchParams({ log: asked.log, cluster: asked.cluster, estimates: asked.estimates });
  for (const policy of asked.policies) told.append("policy", policy);
  for (const { pool, nodes, type, speed } of asked.changes) told.append("change", `${pool}:${nodes}${type ? `:${type}@${speed}` : ""}`);
  return `/what-if?${told}`;
}

function refuse(error) {
  byId("refused").hidden = !error;
  byId("refused").textContent = error ? error.message : "";
}

async function start(event) {
  event.preventDefault();
  byId("start").disabled = true;
  try {
    const asked = question();
    history.replaceState(null, "", addressOf(asked));
    await send("/api/what-if/start", asked);
    refuse(null);
  } catch (error) { refuse(error); }
  byId("start").disabled = false;
}

async function share() {
  const link = new URL(addressOf(question()), location.href).href;
  history.replaceState(null, "", link);
  try {
    await navigator.clipboard.writeText(link);
    byId("shared").textContent = "Copied.";
  } catch {
    byId("shared").textContent = "It stands in the address line.";
  }
}

/** Cards keep their places and their focus; only what changed is written. */
const cards = new Map();

function showRuns(runs) {
  byId("none").hidden = runs.length > 0;
  for (const run of [...runs].reverse()) {
    if (!cards.has(run.name)) {
      cards.set(run.name, newCard(run));
      byId("asked").prepend(cards.get(run.name).node);
    }
    fillCard(cards.get(run.name), run);
  }
}

function newCard(run) {
  const cancel = element("button", { type: "button", class: "plain-button" }, "Cancel");
  cancel.addEventListener("click", () => send("/api/what-if/cancel", { name: run.name }).then((told) => fillCard(cards.get(run.name), told), refuse));
  const card = { cancel, bar: element("progress", { max: "1", "aria-label": "share done" }), text: element("p"), links: element("p"), title: element("h3") };
  card.node = element("article", { class: "asked", "data-name": run.name }, card.title, card.bar, card.text, card.links, cancel);
  return card;
}

function fillCard(card, run) {
  const { question: asked } = run, key = JSON.stringify(run);
  if (card.key === key) return;
  card.key = key;
  card.node.dataset.state = run.state;
  card.title.textContent = `${asked.policies.join(", ")} on ${run.cluster}, ${asked.log.replace(/^(built-in:|\d+\/(\.\/)?)/, "")}`;
  card.bar.hidden = run.state !== "running";
  card.bar.value = run.share;
  card.cancel.hidden = run.state !== "running";
  const passed = Date.now() / 1000 - run.asked_s, left = run.share > 0.02 ? `, about ${duration(Math.round((passed * (1 - run.share)) / run.share))} left` : "";
  card.text.textContent = { running: `${percent(Math.floor(run.share * 100) / 100)}${left}: ${run.label || "starting"}`, done: "Done.", cancelled: "Cancelled.", failed: `Failed: ${run.said}` }[run.state];
  const links = [element("a", { href: addressOf(asked) }, "settings")];
  if (run.ids.length) {
    const all = new URLSearchParams(run.ids.map((id) => ["results", id]));
    links.unshift(element("a", { href: `/compare?${all}` }, "compare"), element("a", { href: `/replay?${new URLSearchParams({ id: run.ids[run.ids.length - 1], b: "" })}` }, "replay"));
  }
  card.links.replaceChildren(...links.flatMap((link, k) => (k ? [" · ", link] : [link])), ` · asked ${momentHere(run.asked_s)}`);
}

fillForm();
byId("log").addEventListener("change", () => { chooseCluster(usualCluster()); showPools(); });
byId("cluster-choice").addEventListener("change", () => showPools());
byId("shorthand").addEventListener("change", () => showPools());
byId("question").addEventListener("submit", start);
byId("share").addEventListener("click", share);
follow("/api/what-if", { runs: showRuns });
await readAddress();
document.documentElement.dataset.drawn = "all";
