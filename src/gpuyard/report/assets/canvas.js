// Draws bars: pixel by pixel into an image, so that a hundred thousand of them take milliseconds.

const GUTTER = 62;
const RULER = 24;

function pixelOf(colour) {
  const [red, green, blue] = colour.match(/[\d.]+/g).map(Number);
  return (255 << 24) | (blue << 16) | (green << 8) | red;
}

class BarCanvas {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.readColours();
    this.resize();
  }

  readColours() {
    const heat = [1, 2, 3, 4, 5, 6, 7].map((number) => `heat-${number}`);
    const series = [1, 2, 3, 4, 5, 6, 7, 8].map((number) => `series-${number}`);
    this.heat = pageColours(heat).map(pixelOf);
    this.series = pageColours(series).map(pixelOf);
    [this.paper, this.idle, this.ink, this.muted, this.accent] = pageColours(["paper", "idle", "ink", "muted", "accent"]);
    this.idlePixel = pixelOf(this.idle);
    this.paperPixel = pixelOf(this.paper);
  }

  resize() {
    this.ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.max(1, Math.round(this.width * this.ratio));
    this.canvas.height = Math.max(1, Math.round(this.height * this.ratio));
    const [across, down] = [this.canvas.width - Math.round(GUTTER * this.ratio), this.canvas.height - Math.round(RULER * this.ratio)];
    this.image = across > 0 && down > 0 ? this.context.createImageData(across, down) : null;
    this.pixels = this.image ? new Uint32Array(this.image.data.buffer) : null;
  }

  /** Draw what a view shows. Returns the number of bars looked at. */
  draw(view, bars, colourOf, selected) {
    if (!this.image) return 0;
    const scale = { perSecond: this.image.width / (view.to - view.from), perRow: this.image.height / view.rows };
    this.pixels.fill(this.paperPixel);
    let seen = 0;
    const last = Math.min(Math.ceil(view.top + view.rows), bars.laneCounts.length);
    for (let node = Math.floor(view.top); node < last; node++) seen += this.drawNode(node, view, bars, colourOf, scale);
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.fillStyle = this.paper;
    this.context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.context.putImageData(this.image, Math.round(GUTTER * this.ratio), Math.round(RULER * this.ratio));
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    if (selected !== null) this.outline(view, bars, selected);
    this.drawRuler(view);
    this.drawNames(view, bars);
    return seen;
  }

  /** Top and bottom of a node's row in the image, with a gap where there is room for one. */
  rowSpan(node, view, perRow) {
    const top = Math.round((node - view.top) * perRow), bottom = Math.round((node + 1 - view.top) * perRow);
    return [top, Math.max(bottom - (perRow >= 5 * this.ratio ? Math.ceil(this.ratio) : 0), top + 1)];
  }

  drawNode(node, view, bars, colourOf, { perSecond, perRow }) {
    const [top, bottom] = this.rowSpan(node, view, perRow);
    this.fill(0, this.image.width, top, bottom, this.idlePixel);
    const lanes = bars.laneCounts[node], height = bottom - top, gap = height / lanes >= 4 * this.ratio ? 1 : 0;
    const [from, to] = barsBetween(bars, node, view.from, view.to);
    for (let k = from; k < to; k++) {
      if (bars.to[k] < view.from) continue;
      const left = Math.round((bars.from[k] - view.from) * perSecond);
      let right = Math.round((bars.to[k] - view.from) * perSecond);
      right = right - left > 3 ? right - 1 : Math.max(right, left + 1);
      const upper = top + Math.round((bars.lane[k] * height) / lanes);
      const lower = top + Math.round(((bars.lane[k] + bars.lanes[k]) * height) / lanes) - gap;
      this.fill(left, right, upper, Math.max(lower, upper + 1), colourOf(bars.job[k]));
    }
    return to - from;
  }

  fill(left, right, top, bottom, pixel) {
    const { width, height } = this.image;
    left = Math.max(left, 0);
    right = Math.min(right, width);
    bottom = Math.min(bottom, height);
    if (right <= left) return;
    for (let y = Math.max(top, 0); y < bottom; y++) this.pixels.fill(pixel, y * width + left, y * width + right);
  }

  /** Where a bar lies, in CSS pixels. */
  box(view, bars, node, k) {
    const perSecond = (this.width - GUTTER) / (view.to - view.from), perRow = (this.height - RULER) / view.rows;
    const lane = perRow / bars.laneCounts[node];
    return { left: GUTTER + (bars.from[k] - view.from) * perSecond, width: Math.max((bars.to[k] - bars.from[k]) * perSecond, 1),
      top: RULER + (node - view.top) * perRow + bars.lane[k] * lane, height: Math.max(bars.lanes[k] * lane, 1) };
  }

  outline(view, bars, job) {
    const { context } = this;
    context.save();
    context.beginPath();
    context.rect(GUTTER, RULER, this.width - GUTTER, this.height - RULER);
    context.clip();
    context.strokeStyle = this.ink;
    context.lineWidth = 2;
    const last = Math.min(Math.ceil(view.top + view.rows), bars.laneCounts.length);
    for (let node = Math.floor(view.top); node < last; node++) {
      const [from, to] = barsBetween(bars, node, view.from, view.to);
      for (let k = from; k < to; k++) {
        if (bars.job[k] !== job) continue;
        const box = this.box(view, bars, node, k);
        context.strokeRect(box.left - 1, box.top - 1, Math.max(box.width, 3) + 1, Math.max(box.height, 3) + 1);
      }
    }
    context.restore();
  }

  drawRuler(view) {
    const { context } = this;
    context.fillStyle = this.paper;
    context.fillRect(0, 0, this.width, RULER);
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = this.muted;
    context.textAlign = "left";
    for (const { value, text } of momentTicks(view.from, view.to, this.epoch, (this.width - GUTTER) / 120)) {
      const at = GUTTER + ((value - view.from) / (view.to - view.from)) * (this.width - GUTTER);
      context.fillRect(at, RULER - 6, 1, 6);
      if (at + 4 + context.measureText(text).width < this.width) context.fillText(text, at + 4, 15);
    }
  }

  drawNames(view) {
    const { context } = this, perRow = (this.height - RULER) / view.rows;
    context.fillStyle = this.paper;
    context.fillRect(0, 0, GUTTER, this.height);
    context.fillStyle = this.muted;
    context.textAlign = "right";
    const every = Math.max(1, niceStep(Math.ceil(15 / perRow)));
    for (let node = Math.ceil(view.top / every) * every; node < view.top + view.rows; node += every) {
      const at = RULER + (node + Math.min(0.5, 8 / perRow) - view.top) * perRow + 4;
      if (node >= view.top && at < this.height) context.fillText(`node ${node}`, GUTTER - 6, Math.max(at, RULER + 9));
    }
  }
}
