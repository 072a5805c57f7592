// The chart of the cluster: its view, and how pointer, wheel and keys move it.

const WAIT_STEPS = [60, 600, 3600, 21600, 86400, 604800];
const WAIT_NAMES = ["< 1 min", "< 10 min", "< 1 h", "< 6 h", "< 1 d", "< 7 d", "more"];
const SIZE_STEPS = [1, 2, 4, 8, 16, 64];
const SIZE_NAMES = ["1 GPU or less", "2", "3–4", "5–8", "9–16", "17–64", "more"];
const SHORTEST_VIEW_S = 1;

class Gantt {
  constructor(about) {
    this.about = about;
    this.canvas = document.getElementById("gantt-canvas");
    this.nodes = makeNodes(about.nodes);
    this.selected = null;
    this.bar = null; // the selected job's bar from which keys go on: it may have bars on many nodes
    this.loaded = new Map();
    this.mode = "wait";
    this.wanted = 0;
    this.details = new GanttDetails(this);
  }

  async start() {
    const [columns, names] = await Promise.all([unpackColumns("jobs", this.about.layouts.jobs), unpackJson("names")]);
    this.jobs = makeJobs(columns, names, this.about.unit_s);
    this.topUsers = mostFrequent(this.jobs.user, 7);
    this.surface = new BarCanvas(this.canvas);
    this.surface.epoch = this.about.epoch_s;
    await this.show(0);
    document.getElementById("gantt-loading").remove();
    this.listen();
    performance.mark("gantt-drawn");
    this.canvas.dataset.ready = "yes";
  }

  /** Show the schedule of a policy; the part of time and nodes in view stays. */
  async show(number) {
    this.wanted = number;
    if (!this.loaded.has(number)) {
      const { columns: name } = this.about.policies[number];
      const columns = await unpackColumns(name, this.about.layouts[name]);
      const schedule = makeSchedule(columns, this.jobs, this.about.unit_s);
      schedule.bars = layBars(columns, schedule, this.nodes);
      schedule.last = schedule.bars.to.reduce((a, b) => Math.max(a, b), 1);
      this.loaded.set(number, schedule);
    }
    if (this.wanted !== number) return; // another one was asked for meanwhile
    this.number = number;
    this.schedule = this.loaded.get(number);
    this.bar = null;
    this.last = Math.max(...[...this.loaded.values()].map((one) => one.last));
    if (!this.view) this.fit();
    this.chooseColour();
    this.details.refresh();
    this.redraw();
  }

  fit() {
    this.view = { from: 0, to: this.last, top: 0, rows: this.nodes.count };
  }

  chooseColour() {
    const { jobs, schedule, surface } = this;
    if (this.mode === "wait") {
      this.colourOf = (job) => surface.heat[stepOf(WAIT_STEPS, schedule.start[job] - jobs.submit[job])];
    } else if (this.mode === "size") {
      this.colourOf = (job) => surface.heat[sizeStep(jobs.gpus[job])];
    } else {
      this.colourOf = (job) => surface.series[userPlace(this.topUsers, jobs.user[job])];
    }
    this.details.drawLegend();
  }

  /** Draw at the next frame, once however often it is asked for. */
  redraw() {
    this.details.hideHint(); // what it was about may have moved
    this.pending ??= requestAnimationFrame(() => {
      this.pending = null;
      const began = performance.now();
      const seen = this.surface.draw(this.view, this.schedule.bars, this.colourOf, this.selected);
      const { from, to, top, rows } = this.view;
      Object.assign(this.canvas.dataset, { from, to, top, rows, bars: seen, policy: this.about.policies[this.number].name, ms: performance.now() - began });
      this.details.tellView();
    });
  }

  /** Where zooming keeps time fixed: at the selected job if it is in view, else in the middle. */
  anchor() {
    const { view, schedule, selected } = this;
    if (selected === null) return 0.5;
    const place = ((schedule.start[selected] + schedule.end[selected]) / 2 - view.from) / (view.to - view.from);
    return place > 0 && place < 1 ? place : 0.5;
  }

  /** Zoom time around a place (0 is left, 1 right). */
  zoom(factor, place = this.anchor()) {
    const { view } = this, span = view.to - view.from;
    const next = Math.min(Math.max(span * factor, SHORTEST_VIEW_S), this.last * 1.05);
    const fixed = view.from + span * place;
    view.from = fixed - next * place;
    view.to = view.from + next;
    this.pan(0, 0);
  }

  /** Move by shares of what is in view, within what there is. */
  pan(across, down) {
    const { view } = this, span = view.to - view.from;
    const most = Math.max(this.last - span, 0);
    view.from = Math.min(Math.max(view.from + across * span, Math.min(0, most)), most);
    view.to = view.from + span;
    view.top = Math.min(Math.max(view.top + down * view.rows, 0), this.nodes.count - view.rows);
    this.redraw();
  }

  /** Change how many rows are in view, around the middle one. */
  zoomRows(factor) {
    const { view } = this, middle = view.top + view.rows / 2;
    view.rows = Math.min(Math.max(view.rows * factor, 1), this.nodes.count);
    view.top = middle - view.rows / 2;
    this.pan(0, 0);
  }

  /** The bar at a place of the canvas, or null. */
  barAt(x, y) {
    if (x < GUTTER || y < RULER) return null;
    const { view, schedule: { bars } } = this;
    const perSecond = (this.surface.width - GUTTER) / (view.to - view.from);
    const time = view.from + (x - GUTTER) / perSecond;
    const row = view.top + ((y - RULER) / (this.surface.height - RULER)) * view.rows, node = Math.floor(row);
    if (node >= this.nodes.count) return null;
    const lane = Math.floor((row - node) * bars.laneCounts[node]), slack = 2 / perSecond;
    const [from, to] = barsBetween(bars, node, time - slack, time + slack);
    let best = null;
    for (let k = to - 1; k >= from; k--) {
      if (bars.lane[k] > lane || bars.lane[k] + bars.lanes[k] <= lane) continue;
      const away = Math.max(bars.from[k] - time, time - bars.to[k], 0);
      if (away <= slack && (best === null || away < best.away)) best = { node, k, away };
    }
    return best;
  }

  /** Select a job, by one of its bars if it is known which. */
  select(job, center = false, bar = null) {
    this.selected = job;
    this.bar = bar;
    if (center) this.reveal(job);
    this.details.showJob(job);
    this.redraw();
  }

  /** Move so that a job is in view. */
  reveal(job) {
    const place = this.placeOf(job);
    if (!place) return;
    const { view } = this, { start, end } = this.schedule;
    const span = Math.max(Math.min(view.to - view.from, (end[job] - start[job]) * 6), SHORTEST_VIEW_S, (end[job] - start[job]) * 2);
    if (start[job] < view.from || end[job] > view.to || (end[job] - start[job]) / (view.to - view.from) < 0.01) {
      view.from = (start[job] + end[job]) / 2 - span / 2;
      view.to = view.from + span;
    }
    if (place.node < view.top || place.node >= view.top + view.rows) view.top = place.node - view.rows / 2;
    this.pan(0, 0);
  }

  /** The bar by which a job was selected, else its first one. */
  placeOf(job) {
    const { bars } = this.schedule, k = this.bar ?? bars.job.indexOf(job);
    return k < 0 ? null : { k, node: upperBound(bars.first, k) - 1 };
  }

  /** Select the next or previous job of the row, or the nearest one of a row further down or up. */
  step(along, down) {
    const { bars } = this.schedule, place = this.selected === null ? null : this.placeOf(this.selected);
    if (!place) return this.selectMiddle();
    if (along) {
      let next = place.k + along; // a job may have several bars in a row, where its GPUs are no neighbours
      while (next >= bars.first[place.node] && next < bars.first[place.node + 1] && bars.job[next] === this.selected) next += along;
      if (next >= bars.first[place.node] && next < bars.first[place.node + 1]) this.select(bars.job[next], true, next);
      return;
    }
    for (let node = place.node + down; node >= 0 && node < this.nodes.count; node += down) {
      if (bars.first[node] === bars.first[node + 1]) continue;
      const k = Math.max(upperBound(bars.from, bars.from[place.k], bars.first[node], bars.first[node + 1]) - 1, bars.first[node]);
      if (bars.job[k] === this.selected) continue; // of a job on many nodes, the next row is the same job
      this.select(bars.job[k], true, k);
      return;
    }
  }

  selectMiddle() {
    const { view, schedule: { bars } } = this, middle = (view.from + view.to) / 2;
    let best = null;
    for (let node = Math.floor(view.top); node < Math.min(view.top + view.rows, this.nodes.count); node++) {
      const [from, to] = barsBetween(bars, node, view.from, view.to);
      for (let k = from; k < to; k++) {
        const away = Math.max(bars.from[k] - middle, middle - bars.to[k], 0);
        if (best === null || away < best.away) best = { k, away };
      }
    }
    if (best) this.select(bars.job[best.k], false, best.k);
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("keydown", (event) => this.onKey(event));
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    new GanttPointer(this);
    for (const [id, act] of Object.entries({
      "gantt-in": () => this.zoom(0.5), "gantt-out": () => this.zoom(2), "gantt-taller": () => this.zoomRows(0.5), "gantt-lower": () => this.zoomRows(2),
      "gantt-fit": () => { this.fit(); this.redraw(); },
    })) document.getElementById(id).addEventListener("click", act);
    new ResizeObserver(() => { this.surface.resize(); this.redraw(); }).observe(canvas);
    const recolour = () => { this.surface.readColours(); this.redraw(); };
    document.addEventListener("themechange", recolour);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const acts = { "+": () => this.zoom(0.7), "=": () => this.zoom(0.7), "-": () => this.zoom(1 / 0.7), 0: () => { this.fit(); this.redraw(); },
      "[": () => this.zoomRows(1.5), "]": () => this.zoomRows(1 / 1.5), Escape: () => { this.selected = null; this.details.clear(); this.redraw(); },
      Enter: () => (this.selected === null ? this.selectMiddle() : this.select(this.selected, true, this.bar)),
      PageUp: () => this.pan(0, -0.9), PageDown: () => this.pan(0, 0.9), Home: () => this.pan(-1e9, 0), End: () => this.pan(1e9, 0) };
    const arrow = arrows[event.key];
    if (arrow && event.shiftKey) this.step(...arrow);
    else if (arrow) this.pan(arrow[0] * 0.15, arrow[1] * 0.15);
    else if (acts[event.key]) acts[event.key]();
    else return;
    event.preventDefault();
  }

  onWheel(event) {
    const pinch = event.ctrlKey || event.metaKey;
    if (!pinch && document.activeElement !== this.canvas) return; // the page scrolls
    event.preventDefault();
    const place = (event.clientX - this.canvas.getBoundingClientRect().left - GUTTER) / (this.surface.width - GUTTER);
    const amount = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
    if (event.shiftKey) this.pan(0, amount / 600);
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.pan(event.deltaX / 800, 0);
    else this.zoom(Math.exp(Math.max(-300, Math.min(300, amount)) * (pinch ? 0.008 : 0.002)), Math.max(0, Math.min(place, 1)));
  }
}

/** Drags, pinches, hovering and clicks. */
class GanttPointer {
  constructor(gantt) {
    this.gantt = gantt;
    this.down = new Map();
    const { canvas } = gantt;
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (event) => this.release(event));
    canvas.addEventListener("pointerleave", () => gantt.details.hideHint());
  }

  place(event) {
    const box = this.gantt.canvas.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  press(event) {
    this.down.set(event.pointerId, this.place(event));
    this.moved = 0;
    this.gantt.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    const { gantt } = this, at = this.place(event), before = this.down.get(event.pointerId);
    if (!before) return gantt.details.hint(gantt.barAt(at.x, at.y), at);
    const others = [...this.down].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
    const across = (before.x - at.x) / (gantt.surface.width - GUTTER);
    this.moved += Math.abs(before.x - at.x) + Math.abs(before.y - at.y);
    if (others.length) {
      const gap = Math.max(Math.abs(at.x - others[0].x), 20), was = Math.max(Math.abs(before.x - others[0].x), 20);
      gantt.zoom(was / gap, Math.max(0, Math.min(((at.x + others[0].x) / 2 - GUTTER) / (gantt.surface.width - GUTTER), 1)));
    } else {
      if (this.moved > 4) gantt.canvas.classList.add("dragging");
      gantt.pan(across, (before.y - at.y) / (gantt.surface.height - RULER));
    }
    this.down.set(event.pointerId, at);
  }

  release(event) {
    const { gantt } = this, at = this.place(event);
    this.down.delete(event.pointerId);
    gantt.canvas.classList.remove("dragging");
    if (event.type !== "pointerup" || this.moved > 4) return;
    const bar = gantt.barAt(at.x, at.y);
    if (bar) gantt.select(gantt.schedule.bars.job[bar.k], false, bar.k);
  }
}

/** Which step a value belongs to: the first it is below, else the last one. */
function stepOf(steps, value) {
  let step = 0;
  while (step < steps.length && value >= steps[step]) step++;
  return step;
}

function sizeStep(gpus) {
  let step = 0;
  while (step < SIZE_STEPS.length && gpus > SIZE_STEPS[step]) step++;
  return step;
}

/** The codes that occur most often. */
function mostFrequent(codes, count) {
  const times = new Map();
  for (const code of codes) times.set(code, (times.get(code) || 0) + 1);
  return [...times].sort((a, b) => b[1] - a[1]).slice(0, count).map(([code]) => code);
}

function userPlace(top, user) {
  const place = top.indexOf(user);
  return place < 0 ? 7 : place;
}
