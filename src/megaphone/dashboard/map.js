/** The map: a column for every worker, a cell for every bin. Cells fly when bins move, and stay outlined for a while.
 *
 * While bins are still to move, those that stay keep their place: who leaves leaves a hole, who comes takes one.
 */

import { colour, fit, ramp, tip } from "./canvas.js";
import { count, size } from "./words.js";

const HEAD = 22; // A column's name, and the bar of its load.
const GAP = 12;
const LARGEST = 40;
const SMALLEST = 3;
const FLIGHT_MS = 700;
const LATELY_MS = 15_000;
const SHADES = 64;

export class BinMap {
  constructor(place, scale) {
    [this.canvas, this.output] = place.children;
    this.scale = scale;
    this.colouring = "records_per_s";
    this.bins = null;
    this.chosen = null;
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", () => this.#choose(null));
    this.canvas.addEventListener("blur", () => this.#choose(null));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
  }

  /** Begin anew, with another query. */
  reset() {
    this.bins = null;
  }

  /** Take in what /bins answered, and who is there. */
  update(bins, workers) {
    const before = this.bins?.owners;
    this.bins = bins;
    this.workers = [...new Set([...workers, ...bins.owners])].sort((a, b) => a - b);
    const fresh = before?.length !== bins.owners.length;
    if (fresh) {
      this.movedAt = new Float64Array(bins.owners.length).fill(-Infinity);
      this.places = null;
    } else {
      this.#move(before);
    }
    if (fresh || bins.expected.every((owner, bin) => owner === bins.owners[bin])) this.#tidy();
    this.#arrange();
    this.draw();
  }

  /** Give the bins that have moved since a place in their new columns. */
  #move(before) {
    const now = performance.now();
    for (const worker of this.workers) if (!this.slots.has(worker)) this.slots.set(worker, []);
    this.bins.owners.forEach((owner, bin) => {
      if (owner === before[bin]) return;
      this.movedAt[bin] = now;
      const [from, to] = [this.slots.get(before[bin]), this.slots.get(owner)];
      from[from.indexOf(bin)] = null;
      const hole = to.indexOf(null);
      to[hole < 0 ? to.length : hole] = bin;
    });
  }

  /** In every column one bin after the other. */
  #tidy() {
    this.slots = new Map(this.workers.map((worker) => [worker, []]));
    this.bins.owners.forEach((owner, bin) => this.slots.get(owner).push(bin));
  }

  /** Lay the cells out: as large as will fit, in one row of columns or in several. */
  #arrange() {
    const width = this.canvas.clientWidth;
    const lists = this.workers.map((worker) => this.slots.get(worker));
    const most = Math.max(...lists.map((list) => list.length), 1);
    const grid = best(width, this.canvas.clientHeight, this.workers.length, most);
    if (grid.height > this.canvas.clientHeight) this.canvas.parentElement.style.minHeight = `${grid.height}px`;
    const places = new Float32Array(2 * this.bins.owners.length);
    this.columns = lists.map((list, i) => {
      const left = (i % grid.across) * (grid.width + GAP);
      const top = Math.floor(i / grid.across) * grid.deep;
      list.forEach((bin, n) => {
        if (bin === null) return;
        places[2 * bin] = left + (n % grid.cells) * grid.cell;
        places[2 * bin + 1] = top + HEAD + Math.floor(n / grid.cells) * grid.cell;
      });
      return { worker: this.workers[i], list, left, top };
    });
    this.order = lists.flat().filter((bin) => bin !== null);
    const same = this.places && this.grid.cell === grid.cell && this.places.every((at, i) => at === places[i]);
    if (this.places && !same) this.#fly();
    this.from = this.places ?? places;
    this.places = places;
    this.grid = grid;
    this.maximum = this.bins[this.colouring].reduce((most, value) => Math.max(most, value ?? 0), 0);
    const words = this.colouring === "bytes" ? size : (rate) => `${count(rate)}/s`;
    const [, middle, , end] = this.scale.children;
    // Half way up the ramp is a quarter of the most: see `shade`.
    [middle.textContent, end.textContent] = [this.maximum / 4, this.maximum].map(words);
  }

  #fly() {
    if (this.still.matches || document.hidden) return;
    const begin = performance.now();
    this.began = begin;
    const frame = () => {
      if (this.began !== begin) return;
      this.draw();
      if (performance.now() - begin < FLIGHT_MS) requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  }

  draw() {
    if (!this.bins) return;
    const { context } = fit(this.canvas);
    const now = performance.now();
    const flown = Math.min(1, (now - (this.began ?? -Infinity)) / FLIGHT_MS);
    const part = flown * flown * (3 - 2 * flown);
    const at = (i) => this.from[i] + (this.places[i] - this.from[i]) * part;
    this.#heads(context);
    const side = this.grid.cell >= 5 ? this.grid.cell - 1 : this.grid.cell;
    const shades = ramp(SHADES);
    const values = this.bins[this.colouring];
    const unknown = colour("unknown");
    const lately = [];
    for (let bin = 0; bin < values.length; bin++) {
      if (now - this.movedAt[bin] < LATELY_MS) lately.push(bin);
      context.fillStyle = values[bin] === null ? unknown : shades[shade(values[bin], this.maximum)];
      context.fillRect(at(2 * bin), at(2 * bin + 1), side, side);
    }
    context.fillStyle = context.strokeStyle = colour("move");
    this.#leaving(context, at, side);
    // On top of all others: those that fly over them.
    for (const bin of lately) {
      context.globalAlpha = Math.max(0.15, 1 - (now - this.movedAt[bin]) / LATELY_MS);
      context.lineWidth = this.grid.cell >= 8 ? 2 : 1;
      const inset = context.lineWidth / 2;
      context.strokeRect(at(2 * bin) + inset, at(2 * bin + 1) + inset, side - 2 * inset, side - 2 * inset);
    }
    context.globalAlpha = 1;
    this.#mark(context, side);
  }

  #heads(context) {
    const owned = this.columns.map(({ list }) => list.filter((bin) => bin !== null));
    const loads = owned.map((list) => list.reduce((sum, bin) => sum + this.bins.records_per_s[bin], 0));
    const most = Math.max(...loads, 1e-9);
    this.columns.forEach(({ worker, left, top }, i) => {
      context.fillStyle = colour("ink");
      context.fillText(title(worker, owned[i].length, this.grid.width), left, top + 11);
      context.fillStyle = colour("line");
      context.fillRect(left, top + 15, this.grid.width, 3);
      context.fillStyle = colour("accent");
      context.fillRect(left, top + 15, (this.grid.width * loads[i]) / most, 3);
    });
  }

  #leaving(context, at, side) {
    const corner = Math.max(2, side / 2.2);
    this.bins.expected.forEach((target, bin) => {
      if (target === this.bins.owners[bin]) return;
      const [right, top] = [at(2 * bin) + side, at(2 * bin + 1)];
      context.beginPath();
      context.moveTo(right - corner, top);
      context.lineTo(right, top);
      context.lineTo(right, top + corner);
      context.fill();
    });
  }

  /** The bin that is pointed at, and what there is to say of it. */
  #mark(context, side) {
    this.output.hidden = this.chosen === null;
    if (this.chosen === null) return;
    const [x, y] = [this.places[2 * this.chosen], this.places[2 * this.chosen + 1]];
    context.strokeStyle = colour("ink");
    context.lineWidth = 2;
    context.strokeRect(x - 1, y - 1, side + 2, side + 2);
    tip(this.output, this.words(this.chosen), x + side, y);
  }

  words(bin) {
    const { owners, expected, records_per_s: rates, bytes } = this.bins;
    const to = expected[bin] === owners[bin] ? "" : `, will go to worker ${expected[bin]}`;
    const known = bytes[bin] === null ? "not measured yet" : size(bytes[bin]);
    return `bin ${bin}\nworker ${owners[bin]}${to}\n${count(rates[bin])} records/s\n${known}`;
  }

  #point({ offsetX: x, offsetY: y }) {
    if (!this.bins) return;
    const column = this.columns.find(({ left, top }) => {
      return x >= left && x < left + this.grid.width && y >= top + HEAD && y < top + this.grid.deep;
    });
    if (!column) return this.#choose(null);
    const across = Math.floor((x - column.left) / this.grid.cell);
    const down = Math.floor((y - column.top - HEAD) / this.grid.cell);
    this.#choose(across < this.grid.cells ? (column.list[down * this.grid.cells + across] ?? null) : null);
  }

  #key(event) {
    if (event.key === "Escape") this.#choose(null);
    if (!this.bins) return;
    const [now, { cells }, last] = [this.order.indexOf(this.chosen), this.grid, this.order.length - 1];
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: cells, ArrowUp: -cells, Home: -Infinity, End: Infinity };
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.#choose(this.order[Math.min(last, Math.max(0, now + steps[event.key]))]);
    this.canvas.setAttribute("aria-label", this.words(this.chosen).replaceAll("\n", ", "));
  }

  #choose(bin) {
    if (bin === this.chosen) return;
    this.chosen = bin;
    this.draw();
  }
}

/** The grid with the largest cells that has room for the fullest column; if need be it is taller than asked for. */
function best(width, height, columns, most) {
  let found = null;
  for (let rows = 1; rows <= columns; rows++) {
    const across = Math.ceil(columns / rows);
    const one = { across, width: (width - GAP * (across - 1)) / across, deep: height / rows };
    one.cell = largest(one.width, one.deep - HEAD - 6, most);
    if (one.width >= SMALLEST && one.cell > (found?.cell ?? 0)) found = one;
  }
  if (!found) {
    const across = Math.max(1, Math.min(columns, Math.floor((width + GAP) / (24 + GAP))));
    found = { across, width: (width - GAP * (across - 1)) / across, cell: SMALLEST };
    found.deep = HEAD + 6 + Math.ceil(most / Math.floor(found.width / SMALLEST)) * SMALLEST;
  }
  const rows = Math.ceil(columns / found.across);
  return { ...found, cells: Math.max(1, Math.floor(found.width / found.cell)), height: rows * found.deep };
}

/** The largest cell of which so many fit, or 0. */
function largest(width, height, most) {
  for (let cell = LARGEST; cell >= SMALLEST; cell -= 0.5) {
    if (Math.floor(width / cell) * Math.floor(height / cell) >= most) return cell;
  }
  return 0;
}

/** By the root: beside one hot bin the others are still told apart. */
function shade(value, maximum) {
  return maximum > 0 ? Math.round(Math.sqrt(value / maximum) * (SHADES - 1)) : 0;
}

function title(worker, bins, width) {
  if (width > 120) return `worker ${worker}, ${bins} bins`;
  return width > 54 ? `${worker}: ${bins}` : `${worker}`;
}
