// The page of replays: what all panels share, the player, and the story of a job.

import { duration, element, markPlace, momentText, plainTable, swatch, useViewersZone } from "/static/drawing.js";
import { get, pageData } from "/static/frame.js";
import { showCharts } from "/static/charts.js";
import { ReplayPanel } from "/static/replay-panel.js";

const SPEEDS = [["1 min a second", 60], ["10 min a second", 600], ["1 h a second", 3600], ["6 h a second", 21600], ["1 day a second", 86400], ["7 days a second", 604800]];
const STEPS = 500, NARROWEST_S = 60;
const byId = (id) => document.getElementById(id);
const choiceText = (choice) => `${choice.id}\n${choice.policy}`;

class Replay {
  constructor() {
    const asked = new URLSearchParams(location.search);
    this.by = pageData.colours.includes(asked.get("by")) ? asked.get("by") : "wait";
    this.panels = [];
    this.job = null;
    this.asked = asked;
    this.result = pageData.results.find((one) => one.id === asked.get("id")) || pageData.results[0];
  }

  async start() {
    useViewersZone();
    byId("results").append(...pageData.results.map((one) => element("option", { value: one.id }, `${one.workload} on ${one.cluster} (${one.id.replace(/^\d+\//, "")})`)));
    byId("results").value = this.result.id;
    byId("colour").append(...pageData.colours.map((name) => element("option", { value: name }, name)));
    byId("colour").value = this.by;
    byId("speed").append(...SPEEDS.map(([name, value]) => element("option", { value }, name)));
    this.listen();
    await this.openResult(this.asked.get("a"), this.asked.get("b"), Number(this.asked.get("t") ?? NaN));
  }

  /** The policies that a panel offers: of these results, and of others over the same jobs. */
  offers() {
    const others = pageData.results.filter((one) => one.fingerprint === this.result.fingerprint);
    return [this.result, ...others.filter((one) => one !== this.result)];
  }

  /** A choice from the address: a policy of these results, or, with a line break, one of others. */
  choiceOf(text, fallback) {
    for (const one of this.offers()) {
      for (const { name } of one.policies) if (text === name || text === choiceText({ id: one.id, policy: name })) return { id: one.id, policy: name };
    }
    return { id: this.result.id, policy: fallback };
  }

  async openResult(first, second, at = NaN) {
    const names = this.result.policies.map((one) => one.name);
    const usual = names.find((name) => name !== this.result.reference) ?? names[0];
    const choices = [this.choiceOf(first, usual)];
    if (second !== null) choices.push(this.choiceOf(second, names.find((name) => name !== choices[0].policy) ?? names[0]));
    this.job = null;
    byId("job").hidden = true;
    byId("two").checked = choices.length > 1;
    await this.openPanels(choices, at);
  }

  async openPanels(choices, at) {
    this.pause();
    for (const panel of this.panels) panel.remove();
    this.panels = choices.map((choice, number) => new ReplayPanel(this, number, choice));
    byId("panels").classList.toggle("two", choices.length > 1);
    byId("panels").append(...this.panels.map((panel) => panel.node));
    for (const panel of this.panels) this.fillChoices(panel);
    try {
      await Promise.all(this.panels.map((panel) => panel.openSchedule()));
    } catch (error) { return this.trouble(error); }
    this.trouble(null);
    this.epoch = this.panels[0].about.epoch_s;
    this.began = Math.min(...this.panels.map((panel) => panel.about.began_s));
    this.ended = Math.max(...this.panels.map((panel) => panel.about.ended_s), this.began + 1);
    const usual = Number.isNaN(at) ? this.at ?? (this.began + this.ended) / 2 : at;
    this.at = Math.min(Math.max(usual, this.began), this.ended);
    this.view = { from: this.began, to: this.ended };
    if (!this.speed) this.chooseSpeed();
    byId("zone").textContent = this.epoch === null ? "" : `Dates are in your zone (${Intl.DateTimeFormat().resolvedOptions().timeZone}), the log's clock taken as UTC.`;
    this.showLegend();
    await Promise.all([this.refresh(), ...this.panels.map((panel) => panel.askStretch())]);
    performance.mark("replay-drawn");
    document.documentElement.dataset.replay = "drawn";
    await this.showSeries();
  }

  fillChoices(panel) {
    const groups = this.offers().map((one) => element("optgroup", { label: `${one.cluster} (${one.id.replace(/^\d+\//, "")})` },
      ...one.policies.map(({ name, label }) => element("option", { value: choiceText({ id: one.id, policy: name }) }, label))));
    panel.select.append(...(groups.length > 1 ? groups : groups[0].children));
    panel.select.value = choiceText(panel.choice);
  }

  /** Take a speed with which all of it plays in a minute or so. */
  chooseSpeed() {
    const wanted = (this.ended - this.began) / 60;
    this.speed = (SPEEDS.find(([, value]) => value >= wanted) ?? SPEEDS[SPEEDS.length - 1])[1];
    byId("speed").value = this.speed;
  }

  choices() {
    return this.panels.map((panel) => panel.choice);
  }

  choose(number, text) {
    const [id, policy] = text.split("\n"), choices = this.choices();
    choices[number] = { id, policy };
    return this.openPanels(choices, this.at);
  }

  showLegend() {
    const { names, palette } = this.panels[0].about.legend;
    const keys = names.map((name, k) => [name, k + 1]).filter(([name]) => name !== "" || this.by === "user");
    const marks = palette === "job" ? [element("span", {}, swatch("job-any"), "a colour for each job")] : keys.map(([name, k]) => element("span", {}, swatch(`${palette}-${k}`), name || "(no name)"));
    byId("legend").replaceChildren(element("span", {}, `${{ wait: "Waited", size: "GPUs", user: "User", group: "Group", job: "Job" }[this.by]}:`), ...marks);
  }

  /** Show the moment everywhere. */
  refresh() {
    byId("slider").value = Math.round(((this.at - this.began) / (this.ended - this.began)) * 10000);
    const close = this.ended - this.began < 172800;
    const text = momentText(this.at, this.epoch, close);
    byId("moment").textContent = text;
    byId("slider").setAttribute("aria-valuetext", text);
    for (const figure of this.figures ?? []) markPlace(figure, this.at);
    this.follow();
    return Promise.all(this.panels.map((panel) => panel.askMoment())).then(() => this.afterMoment());
  }

  afterMoment() {
    if (this.playing) return;
    clearTimeout(this.later);
    this.later = setTimeout(() => {
      byId("told").textContent = `${byId("moment").textContent}. ${this.panels.map((panel) => `${panel.select.selectedOptions[0].textContent}: ${panel.facts.textContent}`).join(". ")}`;
      this.keepAddress();
    }, 400);
  }

  /** Where the lower picture shows less than all, it goes where the moment is. */
  follow() {
    const { from, to } = this.view, span = to - from;
    if (this.at >= from && this.at <= to) return;
    const begin = Math.max(this.began, Math.min(this.at - span * 0.1, this.ended - span));
    this.view = { from: begin, to: begin + span };
    for (const panel of this.panels) panel.askStretch();
  }

  goTo(at) {
    this.at = Math.min(Math.max(at, this.began), this.ended);
    return this.refresh();
  }

  zoom(factor) {
    const span = Math.min(Math.max((this.view.to - this.view.from) * factor, NARROWEST_S), this.ended - this.began);
    const begin = Math.max(this.began, Math.min(this.at - span / 2, this.ended - span));
    this.view = { from: begin, to: begin + span };
    for (const panel of this.panels) panel.askStretch();
  }

  play() {
    if (this.at >= this.ended) this.at = this.began;
    this.playing = true;
    byId("play").textContent = "❚❚ Pause";
    byId("play").setAttribute("aria-pressed", "true");
    this.before = performance.now();
    this.tick();
  }

  pause() {
    this.playing = false;
    byId("play").textContent = "▶ Play";
    byId("play").setAttribute("aria-pressed", "false");
  }

  /** One frame: both panels show it before the next one begins, so that they stay together. */
  async tick() {
    if (!this.playing) return;
    const now = performance.now();
    await this.goTo(this.at + (this.speed * (now - this.before)) / 1000);
    this.before = now;
    if (this.at >= this.ended) {
      this.pause();
      this.afterMoment();
    }
    if (this.playing) setTimeout(() => requestAnimationFrame(() => this.tick()), Math.max(0, 66 - (performance.now() - now)));
  }

  keepAddress() {
    const [a, b] = this.choices(), name = (one) => (one.id === this.result.id ? one.policy : choiceText(one));
    const told = { id: this.result.id, a: name(a), ...(b ? { b: name(b) } : {}), t: Math.round(this.at), by: this.by };
    history.replaceState(null, "", `/replay?${new URLSearchParams(told)}`);
  }

  async showSeries() {
    try {
      const told = await Promise.all(this.panels.map((panel) => get(panel.address("series"))));
      const time = { label: this.epoch === null ? "time since the first submit" : "time (your zone)", unit: "moment", scale: "linear", low: this.began, high: this.ended, epoch: this.epoch };
      const same = new Set(this.panels.map((panel) => panel.select.selectedOptions[0].textContent)).size < this.panels.length;
      const line = (key) => told.map((one, k) => ({ name: this.panels[k].select.selectedOptions[0].textContent + (same ? ` (${k + 1})` : ""), colour: k + 1, x: one.at_s, y: one[key] }));
      const chart = (id, title, y, key) => ({ id, title, kind: "lines", tells: "maximum", note: "Mean over equal spans. Click to go there.", x: time, y, series: line(key) });
      this.figures = showCharts(byId("charts"), [
        chart("utilisation", "GPUs in use", { label: "share of all GPUs", unit: "share", scale: "linear", low: 0, high: 1 }, "in_use"),
        chart("queue-length", "Jobs waiting", { label: "jobs", unit: "1", scale: "linear", low: 0 }, "waiting"),
      ]);
      for (const figure of this.figures) {
        markPlace(figure, this.at);
        figure.plot.onclick = (event) => {
          const { area, x } = figure.across;
          this.goTo(x.back(event.clientX - figure.plot.getBoundingClientRect().left - area.left));
        };
      }
    } catch (error) { this.trouble(error); }
  }

  trouble(error) {
    byId("trouble").hidden = !error;
    byId("trouble").textContent = error ? error.message : "";
    if (error) this.pause();
  }

  /** Seconds that the clock of whoever reads is ahead of the log's. */
  zoneAhead(at) {
    return this.epoch === null ? 0 : -60 * new Date((this.epoch + at) * 1000).getTimezoneOffset();
  }

  /** The story of a job, under each policy that is shown. */
  async tell(panel, row) {
    this.pause();
    this.job = row;
    const story = byId("story");
    byId("job").hidden = false;
    const articles = this.panels.map(() => element("article", {}, element("p", { class: "note" }, "Asking…")));
    story.replaceChildren(...articles);
    await Promise.all(this.panels.map((one, k) => this.tellOne(one, row, articles[k])));
    if (this.job === row) for (const one of this.panels) one.askMoment();
    byId("job-title").focus({ preventScroll: this.panels.length > 0 && panel === null });
  }

  async tellOne(panel, row, article) {
    const label = panel.select.selectedOptions[0].textContent;
    let job;
    try {
      ({ job } = await get(panel.address("job", { name: `row:${row}` })));
    } catch (error) {
      article.replaceChildren(element("h3", {}, label), element("p", {}, error.message));
      return;
    }
    byId("job-title").textContent = `Story of ${job.name}`;
    const facts = { submitted: momentText(job.submit_s, this.epoch), waited: duration(Math.round(job.wait_s)), started: momentText(job.start_s, this.epoch), ended: momentText(job.end_s, this.epoch),
      GPUs: String(job.gpus), user: job.user, group: job.group, "run time": duration(job.duration_s), backfilled: job.backfilled ? "yes" : "no" };
    const list = element("dl", {}, ...Object.entries(facts).filter(([, text]) => text).flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));
    const there = element("button", { type: "button", class: "plain-button" }, "Go to its start");
    there.addEventListener("click", () => this.goTo(job.start_s));
    const why = element("div", { class: "why" }, element("p", { class: "note" }, "Asking the policy why…"));
    article.replaceChildren(element("h3", {}, label), list, there, why);
    try {
      const told = await get(panel.address("story", { job: row, ahead: this.zoneAhead(job.submit_s) }));
      const spans = told.spans.map((span) => [momentText(span.from_s, this.epoch), duration(Math.round(span.to_s - span.from_s)), span.reason, span.detail]);
      const table = spans.length ? element("div", { class: "scroll waits", tabindex: "0", role: "region", "aria-label": "Reasons of its wait" }, plainTable([["from", "for", "because", "in detail"], ...spans])) : null;
      why.replaceChildren(...told.sentences.map((text) => element("p", {}, text)), ...(table ? [table] : []));
    } catch (error) {
      why.replaceChildren(element("p", { class: "note" }, `Why is not known: ${error.message}.`));
    }
    why.dataset.told = "yes";
  }

  async find(name) {
    try {
      const { job } = await get(this.panels[0].address("job", { name }));
      await this.goTo(job.submit_s);
      await this.tell(this.panels[0], job.row);
      this.trouble(null);
    } catch (error) { this.trouble(error); }
  }

  listen() {
    byId("results").addEventListener("change", () => {
      this.result = pageData.results.find((one) => one.id === byId("results").value);
      [this.at, this.speed] = [undefined, undefined];
      this.openResult(null, byId("two").checked ? "" : null);
    });
    byId("colour").addEventListener("change", async () => {
      this.by = byId("colour").value;
      await Promise.all(this.panels.map((panel) => panel.recolour()));
      this.showLegend();
      this.keepAddress();
    });
    byId("two").addEventListener("change", () => this.openResult(choiceText(this.choices()[0]), byId("two").checked ? "" : null, this.at));
    byId("slider").addEventListener("input", () => { this.pause(); this.goTo(this.began + (byId("slider").value / 10000) * (this.ended - this.began)); });
    byId("speed").addEventListener("change", () => { this.speed = Number(byId("speed").value); });
    byId("play").addEventListener("click", () => (this.playing ? this.pause() : this.play()));
    byId("find").addEventListener("submit", (event) => { event.preventDefault(); this.find(byId("find-name").value); });
    for (const [id, act] of Object.entries({ "zoom-in": () => this.zoom(0.5), "zoom-out": () => this.zoom(2), "zoom-fit": () => this.zoom(Infinity) })) byId(id).addEventListener("click", act);
    document.addEventListener("keydown", (event) => this.onKey(event));
    const repaint = () => { for (const panel of this.panels) if (panel.about) panel.repaint(); };
    document.addEventListener("themechange", repaint);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  }

  onKey(event) {
    const { target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || target.closest("select, textarea, input:not([type='range']), .plot, .scroll")) return;
    if (target.closest("button, a, summary") && (event.key === " " || event.key === "Enter")) return;
    const step = ((this.view.to - this.view.from) / STEPS) * (event.shiftKey ? 10 : 1);
    const acts = { " ": () => (this.playing ? this.pause() : this.play()), ArrowLeft: () => { this.pause(); this.goTo(this.at - step); }, ArrowRight: () => { this.pause(); this.goTo(this.at + step); },
      Home: () => this.goTo(this.began), End: () => this.goTo(this.ended), "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), 0: () => this.zoom(Infinity) };
    if (!acts[event.key]) return;
    event.preventDefault();
    acts[event.key]();
  }
}

new Replay().start();
