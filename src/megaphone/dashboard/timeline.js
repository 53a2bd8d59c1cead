/** The timeline: epoch time, throughput and frontier lag over the last minutes, with migrations marked. */

import { colour, fit, tip } from "./canvas.js";
import { clock, count, lag, seconds } from "./words.js";

const LEFT = 58;
const BOTTOM = 16;
const TOP = 16; // The names of migrations stand there.
const GAP = 18; // And the titles of the strips between them.
const TICKS_S = [5, 10, 30, 60, 120];

export class Timeline {
  constructor(place, epochs) {
    [this.canvas, this.output] = place.children;
    this.epochs = epochs;
    this.history = [];
    this.range = 180;
    this.unit = "epoch";
    this.pointer = null;
    this.canvas.addEventListener("pointermove", (event) => this.#point([event.offsetX, event.offsetY]));
    this.canvas.addEventListener("pointerleave", () => this.#point(null));
  }

  draw() {
    if (!this.epochs.now) return;
    const { context, width, height } = fit(this.canvas);
    const shown = this.epochs.within(this.range);
    const begin = this.epochs.now - this.range;
    this.x = (time) => LEFT + ((time - begin) / this.range) * (width - LEFT - 4);
    this.begin = begin;
    const strips = this.#strips(shown);
    const weight = strips.reduce((sum, strip) => sum + strip.weight, 0);
    const room = height - TOP - BOTTOM - GAP * (strips.length - 1);
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT, height - BOTTOM);
    context.clip();
    this.#bands(context, width, height - BOTTOM);
    context.restore();
    this.#hours(context, width, height);
    let top = TOP;
    for (const strip of strips) {
      strip.box = { left: LEFT, right: width - 4, top, bottom: top + (room * strip.weight) / weight };
      this.#strip(context, strip, shown);
      top = strip.box.bottom + GAP;
    }
    this.canvas.setAttribute("aria-label", this.#words(shown));
    this.#hover(context, shown, strips, height);
  }

  #strips(shown) {
    const taken = logarithmic(shown.map((one) => one.seconds));
    const strips = [
      { title: "epoch time", weight: 6, scale: taken, draw: this.#times, words: seconds },
      { title: "records/s", weight: 4, scale: linear(rates(shown)), draw: this.#rates, words: count },
    ];
    if (this.unit === "epoch") return strips;
    const scale = linear(shown.map((one) => one.lag));
    const words = (value) => lag(value, this.unit);
    const weight = scale.ticks.length > 1 ? 4 : 1; // A lag of nothing needs no room.
    return [...strips, { title: "frontier lag", weight, scale, draw: this.#lags, words }];
  }

  #bands(context, width, bottom) {
    context.fillStyle = colour("move");
    // The last first: where names would meet, the older one gives way.
    let free = width;
    for (const one of this.history.toReversed()) {
      if (one.began_s === null || (one.ended_s ?? this.epochs.now) < this.begin) continue;
      const [from, to] = [this.x(one.began_s), this.x(one.ended_s ?? this.epochs.now)];
      context.globalAlpha = 0.16;
      context.fillRect(from, 0, Math.max(2, to - from), bottom);
      context.globalAlpha = 1;
      const name = `#${one.number} ${one.strategy}`;
      const wide = context.measureText(name).width;
      const at = Math.max(LEFT + 3, Math.min(from + 3, width - wide - 4));
      if (at + wide > free) continue;
      context.fillText(name, at, 11);
      free = at - 6;
    }
  }

  #hours(context, width, height) {
    const step = TICKS_S.find((tick) => (this.range / tick) * 70 < width - LEFT) ?? 120;
    context.fillStyle = colour("quiet");
    context.textAlign = "center";
    for (let time = Math.ceil(this.begin / step) * step; time < this.epochs.now; time += step) {
      const x = this.x(time);
      if (x > LEFT + 26 && x < width - 28) context.fillText(clock(time), x, height - 3);
    }
    context.textAlign = "left";
  }

  #strip(context, strip, shown) {
    const { left, right, top, bottom } = strip.box;
    strip.y = (value) => bottom - strip.scale.part(value) * (bottom - top);
    context.lineWidth = 1;
    context.textAlign = "right";
    for (const tick of strip.scale.ticks) {
      const y = Math.round(strip.y(tick)) + 0.5;
      context.strokeStyle = colour("line");
      context.beginPath();
      context.moveTo(left, y);
      context.lineTo(right, y);
      context.stroke();
      context.fillStyle = colour("quiet");
      context.fillText(strip.words(tick).replace(/\.0+ /, " "), left - 6, y + 4);
    }
    context.textAlign = "left";
    if (top > TOP) context.fillText(strip.title, left, top - 5);
    context.save();
    context.beginPath();
    context.rect(left, top - 4, right - left, bottom - top + 8);
    context.clip();
    strip.draw.call(this, context, strip, shown);
    context.restore();
  }

  #times(context, { y }, shown) {
    const told = shown.filter((one) => one.seconds !== null);
    this.#line(context, told, (one) => y(one.seconds));
    context.fillStyle = colour("move");
    for (const one of told.filter((one) => one.moved)) dot(context, this.x(one.ended), y(one.seconds), 2.5);
  }

  #lags(context, { y }, shown) {
    this.#line(context, shown.filter((one) => one.lag !== null), (one) => y(one.lag));
  }

  #line(context, shown, y) {
    context.strokeStyle = context.fillStyle = colour("accent");
    context.lineWidth = 1.25;
    context.lineJoin = "round";
    context.beginPath();
    for (const one of shown) context.lineTo(this.x(one.ended), y(one));
    context.stroke();
    // One that stands alone is no line.
    if (shown.length < 3) for (const one of shown) dot(context, this.x(one.ended), y(one), 2);
  }

  #rates(context, { y, box }, shown) {
    const values = rates(shown);
    context.fillStyle = context.strokeStyle = colour("accent");
    context.beginPath();
    shown.forEach((one, i) => {
      const until = shown[i + 1]?.began ?? one.ended;
      if (i === 0) context.moveTo(this.x(one.began), box.bottom);
      context.lineTo(this.x(one.began), y(values[i]));
      context.lineTo(this.x(until), y(values[i]));
      if (i === shown.length - 1) context.lineTo(this.x(until), box.bottom);
    });
    context.globalAlpha = 0.25;
    context.fill();
    context.globalAlpha = 1;
    context.lineWidth = 1;
    context.stroke();
  }

  #point(pointer) {
    this.pointer = pointer;
    this.draw();
  }

  #hover(context, shown, strips, height) {
    const near = this.pointer && nearest(shown, this.pointer[0], (one) => this.x(one.ended));
    this.output.hidden = !near;
    if (!near) return;
    const x = this.x(near.ended);
    context.strokeStyle = colour("quiet");
    context.lineWidth = 1;
    context.beginPath();
    context.moveTo(x, 0);
    context.lineTo(x, height - BOTTOM);
    context.stroke();
    context.fillStyle = colour("accent");
    if (near.seconds !== null) dot(context, x, strips[0].y(near.seconds), 3.5);
    const when = `epoch ${near.epoch}, ${clock(near.ended)}`;
    const words = [when, seconds(near.seconds), `${count(near.records)} records`];
    if (near.lag !== null) words.push(`lag ${lag(near.lag, this.unit)}`);
    if (near.moved) words.push(`${near.moved} bins moved`);
    tip(this.output, words.join("\n"), x, this.pointer[1]);
  }

  #words(shown) {
    const { p50, p99, max } = this.epochs.times;
    const moved = shown.filter((one) => one.moved).length;
    const times = `p50 ${seconds(p50)}, p99 ${seconds(p99)}, max ${seconds(max)}`;
    return `${shown.length} epochs, ${moved} of them with moves; in the last minute ${times}`;
  }
}

/** Records a second of each epoch, until the next began. */
function rates(shown) {
  return shown.map((one, i) => {
    const span = (shown[i + 1]?.began ?? one.ended) - one.began;
    return span > 0 ? one.records / span : 0;
  });
}

function nearest(shown, x, at) {
  return shown.reduce((best, one) => (best && Math.abs(at(best) - x) <= Math.abs(at(one) - x) ? best : one), null);
}

function dot(context, x, y, radius) {
  context.beginPath();
  context.arc(x, y, radius, 0, 7);
  context.fill();
}

/** From 0 to a round number above all. */
function linear(values) {
  const most = values.reduce((most, value) => Math.max(most, value ?? 0), 0);
  if (most === 0) return { part: () => 0, ticks: [0] };
  const power = 10 ** Math.floor(Math.log10(most));
  const top = [1, 2, 3, 4, 5, 6, 8, 10].map((n) => n * power).find((n) => n >= most);
  return { part: (value) => value / top, ticks: [0, top / 2, top] };
}

/** Between two of 1, 2, 5, 10, ...: a step that takes ten times as long must not flatten all others. */
function logarithmic(values) {
  const told = values.filter((value) => value > 0);
  const rungs = [-3, -2, -1, 0, 1, 2, 3].flatMap((power) => [1, 2, 5].map((n) => n * 10 ** power));
  const [least, most] = told.length ? [Math.min(...told), Math.max(...told)] : [0.1, 1];
  let low = rungs.findLastIndex((rung) => rung <= least);
  let high = rungs.findIndex((rung) => rung >= most);
  [low, high] = [low < 0 ? 0 : low, high < 0 ? rungs.length - 1 : high];
  if (high - low < 2) [low, high] = [Math.max(0, low - 1), Math.min(rungs.length - 1, high + 1)];
  const ticks = rungs.slice(low, high + 1);
  const [from, to] = [Math.log(rungs[low]), Math.log(rungs[high])];
  const sparse = ticks.length > 6 ? ticks.filter((tick) => /^1/.test(tick.toPrecision(1))) : ticks;
  return { part: (value) => (Math.log(Math.max(value, rungs[low])) - from) / (to - from), ticks: sparse };
}
