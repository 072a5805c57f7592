// Moments: dates where the log has a clock, else the time since the first submit; ticks that stay readable.

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY_S = 86400;
const LONG_STEPS = [1, 2, 5, 7, 14, 30, 90, 180, 365].map((days) => days * DAY_S);
const two = (value) => String(value).padStart(2, "0");

/** Seconds that the clock of those who read is ahead of the log's at a moment; pages that are files keep the log's. */
let zoneAhead = () => 0;

/** Show dates in the zone of the browser. */
function useViewersZone() {
  zoneAhead = (moment) => -60 * new Date(moment * 1000).getTimezoneOffset();
}

/** The day of a moment and its time of day, as texts; epoch is null where the log has no dates. */
function momentParts(seconds, epoch, precise) {
  const whole = Math.floor(seconds + (epoch === null ? 0 : epoch + zoneAhead(seconds + epoch)) + 1e-6);
  const inDay = ((whole % DAY_S) + DAY_S) % DAY_S;
  const clock = `${two(Math.floor(inDay / 3600))}:${two(Math.floor(inDay / 60) % 60)}${precise ? `:${two(inDay % 60)}` : ""}`;
  if (epoch === null) return { day: `${Math.floor(whole / DAY_S).toLocaleString("en-US")} d`, year: "", iso: "", clock, inDay };
  const date = new Date(whole * 1000);
  const [year, month, day] = [date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()];
  return { day: `${day} ${MONTHS[month]}`, year: String(year), iso: `${year}-${two(month + 1)}-${two(day)}`, clock, inDay };
}

/** A moment in full: 2016-12-21 21:43, or 3 d 4 h without a clock; precise ones have seconds. */
function momentText(seconds, epoch, precise = false) {
  if (epoch === null && !precise) return duration(seconds);
  const { day, iso, clock } = momentParts(seconds, epoch, precise);
  return `${iso || day} ${clock}`;
}

/** Ticks between two moments: days where they are far apart, times of day where they are close. */
function momentTicks(from, to, epoch, most) {
  const least = (to - from) / Math.max(most, 1);
  const step = (least > DAY_S / 2 && LONG_STEPS.find((long) => long >= least)) || timeStep(least), shift = epoch === null ? 0 : epoch + zoneAhead(from + epoch);
  const ticks = [];
  let before = null;
  for (let k = Math.ceil((from + shift) / step - 1e-9); k * step - shift <= to + 1e-9 * step; k++) {
    const value = k * step - shift, parts = momentParts(value, epoch, step < 60);
    const day = parts.year && parts.year !== before?.year ? `${parts.day} ${parts.year}` : parts.day;
    let text = day;
    if (step < DAY_S) text = before === null ? `${day} ${parts.clock}` : parts.day === before.day ? parts.clock : parts.inDay ? `${parts.day} ${parts.clock}` : day;
    ticks.push({ value, text });
    before = parts;
  }
  return ticks;
}
