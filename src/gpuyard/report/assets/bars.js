// A policy's schedule as bars, grouped by node and sorted by begin, in typed arrays.

/** Jobs that all policies share; times in seconds. */
function makeJobs(columns, names, unit) {
  const count = columns.submit.length;
  const submit = new Float64Array(count), length = new Float64Array(count);
  for (let k = 0; k < count; k++) {
    submit[k] = columns.submit[k] * unit;
    length[k] = columns.duration[k] * unit;
  }
  return { count, submit, length, row: columns.row, gpus: columns.gpus, milli: columns.milli || null,
    user: columns.user, group: columns.group, priority: columns.priority, names };
}

/** Node numbers to their GPUs, types and names. */
function makeNodes(groups) {
  const gpus = [], types = [];
  for (const [count, size, type] of groups) {
    for (let k = 0; k < count; k++) {
      gpus.push(size);
      types.push(type);
    }
  }
  return { count: gpus.length, gpus, types };
}

/** When each of a policy's jobs started and ended, and the pieces that were held, before lanes. */
function makeSchedule(columns, jobs, unit) {
  const count = columns.wait.length;
  const job = columns.job || Int32Array.from({ length: count }, (_, k) => k);
  const start = new Float64Array(jobs.count).fill(NaN), end = new Float64Array(jobs.count).fill(NaN);
  const backfilled = new Uint8Array(jobs.count);
  for (let k = 0; k < count; k++) {
    start[job[k]] = jobs.submit[job[k]] + columns.wait[k] * unit;
    end[job[k]] = start[job[k]] + jobs.length[job[k]] + columns.extra[k] * unit;
    backfilled[job[k]] = columns.backfilled[k];
  }
  const pieces = columns.piece_job ? {
    job: columns.piece_job.map((k) => job[k]),
    from: Float64Array.from(columns.piece_from, (at) => at * unit),
    to: Float64Array.from(columns.piece_from, (at, k) => (at + columns.piece_length[k]) * unit),
  } : { job, from: Float64Array.from(job, (k) => start[k]), to: Float64Array.from(job, (k) => end[k]) };
  return { start, end, backfilled, job, pieces };
}

/** Give each piece lanes (GPUs) on its nodes: the lowest ones that are free, as schedules tell only how many. */
function layBars(columns, schedule, nodes) {
  const { job, from, to } = schedule.pieces;
  const first = new Uint32Array(job.length + 1);
  for (let k = 0; k < job.length; k++) first[k + 1] = first[k] + columns.nodes[k];
  const order = Uint32Array.from(job, (_, k) => k).sort((a, b) => from[a] - from[b]);
  const free = nodes.gpus.map((size) => new Array(size).fill(-Infinity));
  const found = { node: [], job: [], from: [], to: [], lane: [], lanes: [] };
  for (const piece of order) {
    for (let at = first[piece]; at < first[piece + 1]; at++) {
      const node = columns.node[at];
      const shared = columns.gpu && columns.gpu[piece] >= 0;
      const lanes = shared ? [columns.gpu[piece]] : freeLanes(free[node], nodes.gpus[node], columns.held[at], from[piece]);
      for (const lane of lanes) free[node][lane] = Math.max(free[node][lane] ?? -Infinity, to[piece]);
      pushBars(found, node, job[piece], from[piece], to[piece], lanes);
    }
  }
  return groupBars(found, free.map((lanes) => Math.max(lanes.length, 1)));
}

/** Lanes for a piece; those of CPU-only jobs lie beyond the GPUs. Rounding may leave too few: then the first to be free. */
function freeLanes(free, gpus, held, from) {
  const lanes = [];
  if (held === 0) {
    let lane = gpus;
    while (lane < free.length && free[lane] > from + 1e-3) lane++;
    return [lane];
  }
  for (let lane = 0; lane < gpus && lanes.length < held; lane++) if (free[lane] <= from + 1e-3) lanes.push(lane);
  if (lanes.length < held) {
    const rest = free.map((at, lane) => [at, lane]).filter(([, lane]) => lane < gpus && !lanes.includes(lane));
    rest.sort((a, b) => a[0] - b[0]);
    lanes.push(...rest.slice(0, held - lanes.length).map(([, lane]) => lane));
    lanes.sort((a, b) => a - b);
  }
  return lanes;
}

/** A bar for each run of neighbouring lanes. */
function pushBars(found, node, job, from, to, lanes) {
  for (let k = 0; k < lanes.length;) {
    let next = k + 1;
    while (next < lanes.length && lanes[next] === lanes[next - 1] + 1) next++;
    found.node.push(node);
    found.job.push(job);
    found.from.push(from);
    found.to.push(to);
    found.lane.push(lanes[k]);
    found.lanes.push(next - k);
    k = next;
  }
}

/** Bars by node; within a node they stay sorted by begin. `latest` is the latest end so far, for searching. */
function groupBars(found, laneCounts) {
  const count = found.node.length, nodes = laneCounts.length;
  const first = new Uint32Array(nodes + 1);
  for (const node of found.node) first[node + 1]++;
  for (let node = 0; node < nodes; node++) first[node + 1] += first[node];
  const bars = { count, first, laneCounts, job: new Uint32Array(count), from: new Float64Array(count), to: new Float64Array(count),
    lane: new Uint16Array(count), lanes: new Uint16Array(count), latest: new Float64Array(count) };
  const next = first.slice();
  for (let k = 0; k < count; k++) {
    const node = found.node[k], at = next[node]++;
    bars.job[at] = found.job[k];
    bars.from[at] = found.from[k];
    bars.to[at] = found.to[k];
    bars.lane[at] = found.lane[k];
    bars.lanes[at] = found.lanes[k];
    bars.latest[at] = at === first[node] ? found.to[k] : Math.max(bars.latest[at - 1], found.to[k]);
  }
  return bars;
}

/** Places of the bars of a node that may lie between two times. */
function barsBetween(bars, node, from, to) {
  const [low, high] = [bars.first[node], bars.first[node + 1]];
  return [upperBound(bars.latest, from, low, high), upperBound(bars.from, to, low, high)];
}
