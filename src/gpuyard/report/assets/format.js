// Values as people read them, elements, and files to download.

const SVG = "http://www.w3.org/2000/svg";

/** An element; children are elements or texts, never HTML. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

function shape(tag, attributes = {}, text = null) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== null) made.textContent = text;
  return made;
}

const DURATIONS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];

/** A length of time in its two largest units: 4 h 34 min. */
function duration(seconds) {
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds === 0) return "0 s";
  if (seconds < 0.0995) return `${short(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${short(seconds)} s`;
  const step = seconds >= 86400 - 30 ? 3600 : seconds >= 3600 - 0.5 ? 60 : 1;
  const whole = Math.round(seconds / step) * step;
  const large = DURATIONS.findIndex(([unit]) => whole >= unit);
  const first = Math.floor(whole / DURATIONS[large][0]);
  const text = `${first.toLocaleString("en-US")} ${DURATIONS[large][1]}`;
  if (large === 3) return text;
  const second = Math.floor((whole % DURATIONS[large][0]) / DURATIONS[large + 1][0]);
  return second ? `${text} ${second} ${DURATIONS[large + 1][1]}` : text;
}

/** Three digits or so: 0.012, 12.3, 4,560, 1.2M. */
function short(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))}M`;
  if (size >= 1000) return Math.round(value).toLocaleString("en-US");
  return String(Number(value.toPrecision(size >= 100 ? 4 : 3))).replace("-", "−");
}

function percent(share, signed = false) {
  const text = `${short(Math.abs(share) * 100)} %`;
  return share < 0 ? `−${text}` : signed && share > 0 ? `+${text}` : text;
}

/** A value in its unit. */
function valueText(value, unit) {
  if (value === null || value === undefined) return "-";
  if (unit === "s") return duration(value);
  if (unit === "share") return percent(value);
  if (unit === "change") return changeText(value);
  return short(value);
}

/** A relative difference as tables of the page tell it: −12.3 %, +0.4 %, ×6.3. */
function changeText(ratio) {
  if (ratio >= 2) return `×${(1 + ratio).toLocaleString("en-US", { minimumFractionDigits: ratio < 99 ? 1 : 0, maximumFractionDigits: ratio < 99 ? 1 : 0 })}`;
  const size = 100 * Math.abs(ratio), text = size.toFixed(size < 99.5 || size >= 100 ? 1 : 2);
  return `${Number(text) === 0 ? "" : ratio < 0 ? "−" : "+"}${text} %`;
}

/** A value beside an axis, where round numbers stand. */
function tickText(value, unit) {
  return unit === "change" && value < 2 ? percent(value, true) : valueText(value, unit);
}

/** Rows of values as CSV: quoted where a comma, a quote or a line break asks for it. */
function csvText(rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

/** Give the browser a table as a file. */
function download(name, rows) {
  downloadBlob(name, new Blob([csvText(rows)], { type: "text/csv" }));
}

/** Give the browser a file that is made here. */
function downloadBlob(name, blob) {
  const link = element("a", { download: name, href: URL.createObjectURL(blob) });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** Rows of values as a table; the first row has the names. */
function plainTable(rows) {
  const head = element("tr", {}, ...rows[0].map((text) => element("th", { scope: "col" }, String(text))));
  const body = rows.slice(1).map((row) => element("tr", {}, ...row.map((value) =>
    element("td", typeof value === "number" ? { class: "number" } : {}, value === null || value === undefined ? "" : String(value)))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
}

function swatch(name) {
  return element("i", { class: `swatch ${name}`, "aria-hidden": "true" });
}

/** First place in a sorted array whose value is greater than the given one. */
function upperBound(values, value, low = 0, high = values.length) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > value) high = middle; else low = middle + 1;
  }
  return low;
}

/** The colours of the page as it is now, as CSS texts: rgb(1, 2, 3). */
function pageColours(names) {
  const probe = element("span");
  document.body.append(probe);
  const colours = names.map((name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  });
  probe.remove();
  return colours;
}

/** Do things one after the other, each when the browser has nothing more urgent to do. */
function whenIdle(tasks) {
  const later = window.requestIdleCallback ?? ((run) => setTimeout(run, 1));
  const next = () => {
    const task = tasks.shift();
    if (!task) return;
    task();
    later(next);
  };
  later(next);
}
