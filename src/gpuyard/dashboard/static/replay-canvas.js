// Pictures of a replay: GPUs at a moment as squares, and a stretch of time as cells that the server has made.

import { GUTTER, RULER, momentTicks, niceStep, pageColours, pixelOf, upperBound } from "/static/drawing.js";

const PALETTES = { heat: 7, series: 8, job: 12 };
const TALLEST_MAP = 300, LARGEST_SQUARE = 22;

/** The colours of a palette, as texts; the first one, of key 0, is that of idle GPUs. */
export function paletteColours(palette) {
  return pageColours(["idle", ...Array.from({ length: PALETTES[palette] }, (_, k) => `${palette}-${k + 1}`)]);
}

class Surface {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.recolour();
  }

  recolour() {
    [this.paper, this.ink, this.muted, this.accent] = pageColours(["paper", "ink", "muted", "accent"]);
  }

  /** Fit the canvas to its place; all that follows is in CSS pixels. */
  begin() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    const [across, down] = [Math.max(1, Math.round(this.width * ratio)), Math.max(1, Math.round(this.height * ratio))];
    if (this.canvas.width !== across || this.canvas.height !== down) [this.canvas.width, this.canvas.height] = [across, down];
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.fillStyle = this.paper;
    this.context.fillRect(0, 0, this.width, this.height);
  }
}

/** Squares, a column a node: what each GPU does at a moment. */
export class GpuMap extends Surface {
  /** Places of the squares; firstLanes has the first GPU of each node and, last, their number. */
  setNodes(firstLanes, lanesPerSquare) {
    this.every = lanesPerSquare;
    this.first = firstLanes.map((lane) => Math.ceil(lane / lanesPerSquare));
    this.nodes = firstLanes.length - 1;
    this.tall = 1;
    for (let node = 0; node < this.nodes; node++) this.tall = Math.max(this.tall, this.first[node + 1] - this.first[node]);
  }

  /** The largest squares with which all nodes have room. */
  layOut(width) {
    for (this.square = LARGEST_SQUARE; this.square > 1; this.square--) {
      this.gap = this.square > 4 ? 3 : 1;
      this.across = Math.max(1, Math.floor((width - 8) / (this.square + this.gap)));
      this.down = Math.ceil(this.nodes / this.across);
      if (this.down * (this.tall * this.square + this.gap + 2) <= TALLEST_MAP) break;
    }
    this.across = Math.max(1, Math.floor((width - 8) / (this.square + this.gap)));
    this.down = Math.ceil(this.nodes / this.across);
    return this.down * (this.tall * this.square + this.gap + 2) + 8;
  }

  place(node) {
    return [4 + (node % this.across) * (this.square + this.gap), 4 + Math.floor(node / this.across) * (this.tall * this.square + this.gap + 2)];
  }

  draw(lanes, colours, own, cursor) {
    const height = Math.round(this.layOut(this.canvas.clientWidth));
    if (this.canvas.parentElement.clientHeight !== height) this.canvas.parentElement.style.height = `${height}px`;
    this.begin();
    const { context, square } = this, inner = square > 3 ? square - 1 : square;
    let last = -1;
    for (let node = 0; node < this.nodes; node++) {
      const [x, y] = this.place(node);
      for (let lane = this.first[node]; lane < this.first[node + 1]; lane++) {
        if (lanes[lane] !== last) context.fillStyle = colours[(last = lanes[lane])];
        context.fillRect(x, y + (lane - this.first[node]) * square, inner, inner);
      }
    }
    context.strokeStyle = this.ink;
    context.lineWidth = 2;
    for (const lane of own) this.outline(lane);
    context.strokeStyle = this.accent;
    if (cursor !== null) this.outline(Math.floor(cursor / this.every));
  }

  outline(lane) {
    const node = upperBound(this.first, lane) - 1, [x, y] = this.place(node);
    this.context.strokeRect(x - 1, y + (lane - this.first[node]) * this.square - 1, this.square + 1, this.square + 1);
  }

  /** The GPU at a place, or null. */
  laneAt(x, y) {
    const column = Math.floor((x - 4) / (this.square + this.gap)), row = Math.floor((y - 4) / (this.tall * this.square + this.gap + 2));
    const node = row * this.across + column;
    if (column < 0 || column >= this.across || row < 0 || node >= this.nodes) return null;
    const lane = this.first[node] + Math.floor((y - this.place(node)[1]) / this.square);
    return lane < this.first[node + 1] ? lane * this.every : null;
  }
}

/** A stretch of time: nodes down, time across, as the server has drawn it. */
export class StretchPicture extends Surface {
  constructor(canvas) {
    super(canvas);
    this.cells = document.createElement("canvas");
    this.view = null;
  }

  /** How many cells there is room for. */
  room() {
    const ratio = Math.min(window.devicePixelRatio || 1, 2);
    return { columns: Math.max(1, Math.round((this.canvas.clientWidth - GUTTER) * ratio)), rows: Math.max(1, Math.round((this.canvas.clientHeight - RULER) * ratio)) };
  }

  /** Take a picture: bytes as gpuyard.dashboard.replay.picture describes them. */
  take(buffer, view, firstLanes) {
    const [columns, rows] = new Uint32Array(buffer.slice(0, 8));
    const size = columns * rows;
    this.keys = new Uint8Array(buffer, 8, size);
    this.shares = new Uint8Array(buffer, 8 + size, size);
    Object.assign(this, { view, columns, rows, firstLanes, lanes: firstLanes[firstLanes.length - 1] });
  }

  /** Colour the cells: the fuller, the stronger. */
  paint(colours) {
    if (!this.view) return;
    this.cells.width = this.columns;
    this.cells.height = this.rows;
    const context = this.cells.getContext("2d"), image = context.createImageData(this.columns, this.rows);
    const pixels = new Uint32Array(image.data.buffer), tones = tonesOf(colours);
    for (let k = 0; k < pixels.length; k++) pixels[k] = tones[(this.keys[k] << 4) | (this.shares[k] >> 4)];
    context.putImageData(image, 0, 0);
  }

  draw(at, epoch) {
    this.begin();
    if (!this.view) return;
    const { context } = this, wide = this.width - GUTTER, high = this.height - RULER;
    context.imageSmoothingEnabled = false;
    context.drawImage(this.cells, GUTTER, RULER, wide, high);
    this.drawRuler(epoch, wide);
    this.drawNames(high);
    const x = GUTTER + ((at - this.view.from) / (this.view.to - this.view.from)) * wide;
    if (x < GUTTER || x > this.width) return;
    context.fillStyle = this.ink;
    context.fillRect(x - 0.75, RULER - 6, 1.5, this.height);
  }

  drawRuler(epoch, wide) {
    const { context, view } = this;
    context.font = "12px system-ui, sans-serif";
    context.fillStyle = this.muted;
    context.textAlign = "left";
    for (const { value, text } of momentTicks(view.from, view.to, epoch, wide / 120)) {
      const at = GUTTER + ((value - view.from) / (view.to - view.from)) * wide;
      context.fillRect(at, RULER - 6, 1, 6);
      if (at + 4 + context.measureText(text).width < this.width) context.fillText(text, at + 4, 15);
    }
  }

  drawNames(high) {
    const { context, firstLanes } = this, nodes = firstLanes.length - 1;
    context.textAlign = "right";
    const every = Math.max(1, niceStep(Math.ceil((15 * nodes) / high)));
    for (let node = 0; node < nodes; node += every) {
      const at = RULER + (firstLanes[node] / this.lanes) * high + 11;
      if (at < this.height) context.fillText(`node ${node}`, GUTTER - 6, at);
    }
  }

  /** The GPU and the moment at a place, or null. */
  placeAt(x, y) {
    if (!this.view || x < GUTTER || y < RULER) return null;
    const lane = Math.floor(((y - RULER) / (this.height - RULER)) * this.lanes);
    const at = this.view.from + ((x - GUTTER) / (this.width - GUTTER)) * (this.view.to - this.view.from);
    return lane < this.lanes ? { lane, at } : null;
  }
}

/** Pixels of all keys in sixteen strengths, from idle to the colour itself. */
function tonesOf(colours) {
  const rgb = colours.map((colour) => colour.match(/[\d.]+/g).map(Number));
  const tones = new Uint32Array(colours.length << 4);
  for (let key = 0; key < colours.length; key++) {
    for (let step = 0; step < 16; step++) {
      const strength = key ? 0.3 + (0.7 * step) / 15 : 0;
      const mixed = rgb[key].map((value, k) => Math.round(rgb[0][k] + (value - rgb[0][k]) * strength));
      tones[(key << 4) | step] = pixelOf(`rgb(${mixed.slice(0, 3).join(",")})`);
    }
  }
  return tones;
}
