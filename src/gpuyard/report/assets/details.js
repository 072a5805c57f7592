// Around the chart of the cluster: choices, legend, the panel of a job, the table of jobs in view.

const MOST_TABLE_ROWS = 200;

class GanttDetails {
  constructor(gantt) {
    this.gantt = gantt;
    this.panel = document.getElementById("gantt-details");
    this.hintBox = document.getElementById("gantt-hint");
    this.table = document.getElementById("gantt-table");
    this.status = document.getElementById("gantt-status");
    this.legend = document.getElementById("gantt-legend");
    document.getElementById("gantt-note").textContent = gantt.about.note;
    const policies = document.getElementById("gantt-policy");
    policies.append(...gantt.about.policies.map((one, number) => element("option", { value: number }, one.label)));
    policies.addEventListener("change", () => gantt.show(Number(policies.value)));
    const colour = document.getElementById("gantt-colour");
    colour.addEventListener("change", () => { gantt.mode = colour.value; gantt.chooseColour(); gantt.redraw(); });
    document.getElementById("gantt-find").addEventListener("submit", (event) => { event.preventDefault(); this.find(document.getElementById("gantt-job").value.trim()); });
    document.getElementById("gantt-csv").addEventListener("click", () => download("schedule.csv", this.csvRows()));
    this.table.addEventListener("toggle", () => this.fillTable());
  }

  drawLegend() {
    const { gantt } = this;
    let keys;
    if (gantt.mode === "user") {
      keys = gantt.topUsers.map((user, place) => [`series-${place + 1}`, gantt.jobs.names.user[user] || "(no name)"]);
      if (gantt.jobs.names.user.length > 7) keys.push(["series-8", "others"]);
    } else {
      const names = gantt.mode === "wait" ? WAIT_NAMES : SIZE_NAMES;
      keys = names.map((name, place) => [`heat-${place + 1}`, name]);
    }
    const title = { wait: "Waited", size: "GPUs", user: "User" }[gantt.mode];
    this.legend.replaceChildren(element("span", {}, `${title}:`), ...keys.map(([mark, name]) => element("span", {}, swatch(mark), name)));
  }

  name(job) {
    const { jobs } = this.gantt;
    const id = jobs.names.id && jobs.names.id[job];
    return id ? `job ${id} (row ${jobs.row[job]})` : `row ${jobs.row[job]}`;
  }

  moment(seconds, precise = false) {
    return momentText(seconds, this.gantt.about.epoch_s, precise);
  }

  /** Names and values of a job, as told in the panel. */
  facts(job) {
    const { jobs, schedule, about, number } = this.gantt;
    const share = jobs.milli && jobs.milli[job] < 1000 ? ` (${jobs.milli[job] / 10} % of one)` : "";
    const stay = schedule.end[job] - jobs.submit[job];
    const facts = { policy: about.policies[number].label, GPUs: `${jobs.gpus[job]}${share}`, user: jobs.names.user[jobs.user[job]],
      group: jobs.names.group[jobs.group[job]], priority: jobs.names.priority[jobs.priority[job]] };
    if (Number.isNaN(schedule.start[job])) return { ...facts, "under this policy": "it did not run" };
    return { ...facts, submitted: this.moment(jobs.submit[job]), waited: duration(schedule.start[job] - jobs.submit[job]), started: this.moment(schedule.start[job]),
      ended: this.moment(schedule.end[job]), "run time": duration(jobs.length[job]), "completion time": duration(stay),
      "bounded slowdown": short(Math.max(1, stay / Math.max(jobs.length[job], 10))), backfilled: schedule.backfilled[job] ? "yes" : "no",
      nodes: this.nodesOf(job) };
  }

  nodesOf(job) {
    const { bars } = this.gantt.schedule, found = new Set();
    for (let k = bars.job.indexOf(job); k >= 0; k = bars.job.indexOf(job, k + 1)) found.add(upperBound(bars.first, k) - 1);
    const nodes = [...found].sort((a, b) => a - b);
    return nodes.length > 12 ? `${nodes.slice(0, 12).join(", ")} and ${nodes.length - 12} more` : nodes.join(", ");
  }

  showJob(job) {
    const facts = Object.entries(this.facts(job)).filter(([, value]) => value !== "" && value !== undefined);
    const list = element("dl", {}, ...facts.flatMap(([name, value]) => [element("dt", {}, name), element("dd", /^\d{4}-\d\d-/.test(value) ? { class: "moment" } : {}, String(value))]));
    this.panel.replaceChildren(element("h3", {}, this.name(job)), list);
  }

  clear() {
    this.panel.replaceChildren(element("p", { class: "intro" }, "Click a bar, or press Enter, to see its job."));
  }

  refresh() {
    if (this.gantt.selected !== null) this.showJob(this.gantt.selected);
  }

  hint(bar, at) {
    if (!bar) return this.hideHint();
    const { jobs, schedule } = this.gantt, job = schedule.bars.job[bar.k];
    const lines = [this.name(job), `${jobs.gpus[job]} ${jobs.gpus[job] === 1 ? "GPU" : "GPUs"} for ${duration(jobs.length[job])}`, `waited ${duration(schedule.start[job] - jobs.submit[job])}`];
    this.hintBox.replaceChildren(...lines.map((text) => element("p", {}, text)));
    this.hintBox.hidden = false;
    const { width, height } = this.gantt.surface;
    this.hintBox.style.left = `${Math.max(0, Math.min(at.x + 14, width - this.hintBox.offsetWidth))}px`;
    this.hintBox.style.top = `${Math.max(0, Math.min(at.y + 14, height - this.hintBox.offsetHeight))}px`;
  }

  hideHint() {
    this.hintBox.hidden = true;
  }

  /** Select the job with this row of the trace or id of the log. */
  find(text) {
    const { gantt } = this, { jobs } = gantt;
    const row = /^(?:row[: ])?(\d+)$/.exec(text);
    let job = jobs.names.id ? jobs.names.id.indexOf(text) : -1;
    if (job < 0 && row) job = jobs.row.indexOf(Number(row[1]));
    if (job < 0) this.panel.replaceChildren(element("p", {}, `There is no job ${text} here. ${this.range()}`));
    else gantt.select(job, true);
  }

  /** Which jobs can be found. */
  range() {
    const { row, names: { id } } = this.gantt.jobs;
    if (!row.length) return "There are none.";
    const low = row.reduce((a, b) => Math.min(a, b)), high = row.reduce((a, b) => Math.max(a, b));
    const ids = id ? `, ids such as ${id[0]}` : "";
    return `Here are ${row.length.toLocaleString("en-US")} jobs, rows ${low} to ${high} of the trace${ids}.`;
  }

  tellView() {
    const { view, nodes } = this.gantt;
    const rows = view.rows >= nodes.count ? (nodes.count === 1 ? "its one node" : `all ${nodes.count} nodes`) : `nodes ${Math.ceil(view.top)} to ${Math.floor(view.top + view.rows - 1e-9)} of ${nodes.count}`;
    const close = view.to - view.from < 2 * DAY_S;
    this.status.textContent = `Showing ${this.moment(Math.max(view.from, 0), close)} to ${this.moment(view.to, close)}, ${rows}.`;
    clearTimeout(this.later);
    this.later = setTimeout(() => this.fillTable(), 200);
  }

  /** Numbers of the jobs that run in view, by start. */
  jobsInView() {
    const { view, schedule: { bars, start }, nodes } = this.gantt, found = new Set();
    for (let node = Math.floor(view.top); node < Math.min(view.top + view.rows, nodes.count); node++) {
      const [from, to] = barsBetween(bars, node, view.from, view.to);
      for (let k = from; k < to; k++) if (bars.to[k] >= view.from) found.add(bars.job[k]);
    }
    return [...found].sort((a, b) => start[a] - start[b]);
  }

  fillTable() {
    if (!this.table.open || !this.gantt.schedule) return;
    const every = this.jobsInView(), { jobs, schedule } = this.gantt;
    const rows = every.slice(0, MOST_TABLE_ROWS).map((job) => [this.name(job), this.moment(schedule.start[job]), duration(schedule.start[job] - jobs.submit[job]),
      duration(jobs.length[job]), jobs.gpus[job], jobs.names.user[jobs.user[job]], this.nodesOf(job)]);
    const more = every.length > MOST_TABLE_ROWS ? element("p", { class: "note" }, `The first ${MOST_TABLE_ROWS} of ${every.length.toLocaleString("en-US")}; zoom in, or take the CSV file.`) : null;
    this.table.querySelector(".scroll").replaceChildren(plainTable([["job", "started", "waited", "run time", "GPUs", "user", "nodes"], ...rows]), ...(more ? [more] : []));
  }

  /** The schedule of the policy in view, a row a job. */
  csvRows() {
    const { jobs, schedule } = this.gantt, { bars } = schedule;
    const nodes = new Map();
    for (let node = 0; node < bars.laneCounts.length; node++) {
      for (let k = bars.first[node]; k < bars.first[node + 1]; k++) {
        if (!nodes.has(bars.job[k])) nodes.set(bars.job[k], new Set());
        nodes.get(bars.job[k]).add(node);
      }
    }
    const rows = [["row", "source_id", "user", "group", "priority", "gpus", "submit_s", "duration_s", "start_s", "end_s", "backfilled", "nodes"]];
    const seconds = (value) => Number(value.toFixed(3));
    for (const job of schedule.job) {
      rows.push([jobs.row[job], jobs.names.id ? jobs.names.id[job] : "", jobs.names.user[jobs.user[job]], jobs.names.group[jobs.group[job]], jobs.names.priority[jobs.priority[job]],
        jobs.gpus[job], seconds(jobs.submit[job]), seconds(jobs.length[job]), seconds(schedule.start[job]), seconds(schedule.end[job]),
        schedule.backfilled[job] ? "true" : "false", [...(nodes.get(job) || [])].join("|")]);
    }
    return rows;
  }
}
