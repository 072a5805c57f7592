// One policy of a replay: its pictures, its queue, and what it asks the server for.

import { duration, element, short } from "/static/drawing.js";
import { get } from "/static/frame.js";
import { GpuMap, StretchPicture, paletteColours } from "/static/replay-canvas.js";

/** Asks one question at a time; of those that come meanwhile only the last is asked. */
class Asker {
  async ask(question) {
    this.next = question;
    if (this.busy) return this.busy;
    this.busy = (async () => {
      while (this.next) {
        const now = this.next;
        this.next = null;
        await now();
      }
    })();
    try { await this.busy; } finally { this.busy = null; }
  }
}

export class ReplayPanel {
  /** replay: what all panels share: by, at, view, job, and what is done when a job is chosen. */
  constructor(replay, number, choice) {
    this.replay = replay;
    this.number = number;
    this.choice = choice;
    this.moments = new Asker();
    this.stretches = new Asker();
    this.cursor = null;
    this.build();
  }

  build() {
    const title = this.number ? "Second policy" : "Policy";
    this.select = element("select", { "aria-label": title });
    this.facts = element("output");
    const canvas = (label) => element("canvas", { tabindex: "0", role: "img", "aria-label": label, "aria-describedby": "keys" });
    const [squares, stretch] = [canvas("GPUs at this moment, a column a node"), canvas("GPUs over time")];
    this.queue = element("tbody");
    const heads = ["job", "user", "GPUs", "waits", "starts in"].map((name, k) => element("th", { scope: "col", "data-kind": k < 2 ? "text" : "number" }, name));
    this.queueTitle = element("h3", {}, "Queue");
    const table = element("div", { class: "scroll queue", tabindex: "0", role: "region", "aria-label": "Queue at this moment" }, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), this.queue));
    this.node = element("section", { class: "panel", "aria-label": title },
      element("div", { class: "panel-head" }, this.select, this.facts),
      element("div", { class: "panel-body" },
        element("div", {}, element("h3", {}, "At this moment"), element("div", { class: "frame" }, squares), element("h3", {}, "Over time"), element("div", { class: "frame stretch" }, stretch)),
        element("div", {}, this.queueTitle, table)));
    this.map = new GpuMap(squares);
    this.picture = new StretchPicture(stretch);
    this.select.addEventListener("change", () => this.replay.choose(this.number, this.select.value));
    squares.addEventListener("click", (event) => this.open(this.map.laneAt(event.offsetX, event.offsetY), this.replay.at));
    stretch.addEventListener("click", (event) => {
      const place = this.picture.placeAt(event.offsetX, event.offsetY);
      if (place) this.open(place.lane, place.at);
    });
    for (const one of [squares, stretch]) one.addEventListener("keydown", (event) => this.onKey(event));
    this.resizing = new ResizeObserver(() => { this.drawMoment(); this.drawStretch(); this.askStretch(); });
    this.resizing.observe(stretch);
  }

  remove() {
    this.resizing.disconnect();
    this.node.remove();
  }

  address(name, more = {}) {
    const { id, policy } = this.choice;
    return `/api/replay/${name}?${new URLSearchParams({ id, policy, by: this.replay.by, ...more })}`;
  }

  /** Read what the schedule is of; colours and pictures come after. */
  async openSchedule() {
    this.about = await get(this.address("about"));
    this.colours = paletteColours(this.about.legend.palette);
    this.map.setNodes(this.about.first_lanes, this.about.lanes_per_square);
    this.cursor = null;
    this.node.dataset.jobs = this.about.jobs;
  }

  async recolour() {
    this.about.legend = (await get(this.address("about"))).legend;
    this.repaint();
    await Promise.all([this.askMoment(), this.askStretch()]);
  }

  /** Take the colours of the page as it is now: light or dark. */
  repaint() {
    this.colours = paletteColours(this.about.legend.palette);
    this.map.recolour();
    this.picture.recolour();
    this.picture.paint(this.colours);
    this.drawMoment();
    this.drawStretch();
  }

  askMoment() {
    return this.moments.ask(async () => {
      const asked = { at: this.replay.at, ...(this.replay.job === null ? {} : { job: this.replay.job }) };
      try {
        const told = await get(this.address("moment", asked));
        told.lanes = Uint8Array.from(atob(told.lanes), (letter) => letter.charCodeAt(0));
        this.told = told;
        this.drawMoment();
        this.drawStretch();
        this.showQueue();
        this.node.dataset.at = told.at_s;
      } catch (error) { this.replay.trouble(error); }
    });
  }

  askStretch() {
    if (!this.about) return null;
    return this.stretches.ask(async () => {
      const { from, to } = this.replay.view, room = this.picture.room();
      if (room.columns < 2) return;
      try {
        const answer = await fetch(this.address("picture", { from, to, first: 0, last: this.about.first_lanes.length - 1, ...room }));
        if (!answer.ok) throw new Error((await answer.json()).error);
        this.picture.take(await answer.arrayBuffer(), { from, to }, this.about.first_lanes);
        this.picture.paint(this.colours);
        this.drawStretch();
        Object.assign(this.picture.canvas.dataset, { from, to, ready: "yes" });
      } catch (error) { this.replay.trouble(error); }
    });
  }

  drawMoment() {
    if (!this.told) return;
    this.map.draw(this.told.lanes, this.colours, this.told.own, this.cursor);
    const { busy_gpus: busy, waiting, waiting_gpus: wanted } = this.told, { gpus } = this.about;
    this.facts.textContent = `${short(busy)} of ${gpus.toLocaleString("en-US")} GPUs in use, ${waiting.toLocaleString("en-US")} ${waiting === 1 ? "job waits" : "jobs wait"} for ${short(wanted)} GPUs`;
  }

  drawStretch() {
    if (this.about) this.picture.draw(this.replay.at, this.about.epoch_s);
  }

  showQueue() {
    const { queue, waiting } = this.told;
    this.queueTitle.textContent = waiting > queue.length ? `Queue: the ${queue.length} that wait longest, of ${waiting.toLocaleString("en-US")}` : `Queue: ${waiting.toLocaleString("en-US")}`;
    const rows = queue.map((row) => {
      const open = element("button", { type: "button", "data-row": row.row, title: row.name }, row.id || `row ${row.row}`);
      open.addEventListener("click", () => this.replay.tell(this, row.row));
      const numbers = [short(row.gpus), duration(Math.round(row.waited_s)), duration(Math.round(row.starts_in_s))];
      return element("tr", {}, element("td", {}, open), element("td", {}, row.user), ...numbers.map((text) => element("td", { class: "number" }, text)));
    });
    const focused = document.activeElement?.dataset?.row;
    this.queue.replaceChildren(...rows);
    if (focused !== undefined) this.queue.querySelector(`button[data-row="${focused}"]`)?.focus({ preventScroll: true });
  }

  async open(lane, at) {
    if (lane === null) return;
    try {
      const { job } = await get(this.address("job", { lane, at }));
      if (job) await this.replay.tell(this, job.row);
    } catch (error) { this.replay.trouble(error); }
  }

  onKey(event) {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!step && event.key !== "Enter") return;
    event.preventDefault();
    event.stopPropagation();
    const last = this.about.first_lanes[this.about.first_lanes.length - 1] - 1;
    if (step) this.cursor = this.cursor === null ? 0 : Math.max(0, Math.min(this.cursor + step * this.about.lanes_per_square, last));
    else if (this.cursor !== null) this.open(this.cursor, this.replay.at);
    this.drawMoment();
  }
}
