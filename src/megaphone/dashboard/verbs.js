/** What can be asked for: pause, resume and cancel what is under way; rescale, rebalance or drain, after a dry run. */

import { Refused } from "./query.js";
import { about, count, seconds, size } from "./words.js";

const ROUTES = 8;

const $ = (id) => document.getElementById(id);

/** The migration under way, or how the last one ended. */
export class Migration {
  constructor(query, look) {
    this.query = query;
    this.look = look;
    for (const verb of ["pause", "resume", "cancel"]) $(verb).addEventListener("click", () => this.#tell(verb));
  }

  show(migration, history) {
    const last = history.findLast((one) => one.ended_s !== null);
    const shown = migration ?? last;
    const waiting = history.filter((one) => one.phase === "waiting" && one.number !== migration?.number).length;
    $("under-way").textContent = shown ? heading(shown) : "none under way";
    $("progress").max = shown?.bins || 1;
    $("progress").value = shown?.bins_moved ?? 0;
    $("left").textContent = shown ? left(shown, waiting) : "";
    const running = migration !== null && !["cancelled", "failed"].includes(migration.phase);
    $("pause").disabled = !running || migration.phase === "paused";
    $("resume").disabled = !running || migration.phase !== "paused";
    $("cancel").disabled = !running;
  }

  async #tell(verb) {
    try {
      $("told").textContent = "";
      await this.query.post(`/${verb}`);
    } catch (error) {
      $("told").textContent = error.message;
    }
    this.look();
  }
}

function heading(one) {
  const target = one.latency_target === null ? "" : `, records within ${seconds(one.latency_target)}`;
  const took = one.ended_s === null ? "" : ` in ${seconds(one.seconds)}`;
  return `#${one.number} ${one.strategy}${target}: ${one.phase}${took}`;
}

function left(one, waiting) {
  const moved = `${one.bins_moved} of ${one.bins} bins, ${size(one.bytes_moved)} moved`;
  if (one.ended_s !== null) return one.reason ? `${moved}; ${one.reason}` : moved;
  const queue = waiting ? `; ${waiting} more waiting` : "";
  if (one.seconds_left === null) return `${moved}; ${size(one.bytes_left)} left, ${notBefore(one)}${queue}`;
  return `${moved}; ${size(one.bytes_left)} and ${about(one.seconds_left)} left${queue}`;
}

/** Of what waits for a time to come, nobody knows how long it takes. */
function notBefore(one) {
  return `not before time ${one.not_before}`;
}

/** The form. What is started is what the dry run was about: whatever is changed takes the plan away. */
export class Wish {
  constructor(query, look) {
    this.query = query;
    this.look = look;
    this.form = $("wish");
    this.workers = null;
    this.form.addEventListener("input", () => this.#changed());
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask();
    });
    $("start").addEventListener("click", () => this.#start());
    $("discard").addEventListener("click", () => this.#forget());
    this.#changed();
  }

  /** Who can be drained, and how many workers there are unless somebody has said otherwise. */
  show(workers) {
    const field = this.form.elements.workers;
    if (this.workers === null || field.value === String(this.workers)) field.value = workers.length;
    this.workers = workers.length;
    const hosts = [...new Set(workers.map((one) => one.host))].map((host) => [host, `host ${host}`]);
    const options = [...workers.map((one) => [one.worker, `worker ${one.worker}`]), ...hosts];
    const select = this.form.elements.who;
    if (JSON.stringify(options) === this.options) return;
    this.options = JSON.stringify(options);
    const chosen = select.value;
    select.replaceChildren(...options.map(([value, text]) => new Option(text, value, false, String(value) === chosen)));
  }

  get #verb() {
    return this.form.elements.verb.value;
  }

  /** What the form says, as the HTTP interface takes it. */
  get #wish() {
    const { workers, by, who, strategy, target, batch, gap } = this.form.elements;
    const wanted = Number(workers.value);
    const from = worker(who.value);
    const wish = { rescale: { workers: wanted }, rebalance: { by: by.value }, drain: { who: from } }[this.#verb];
    if (strategy.value) wish.strategy = strategy.value;
    if (target.value) wish.latency_target = Number(target.value) / 1000;
    if (batch.value) wish.batch = Number(batch.value);
    if (gap.value) wish.gap = Number(gap.value);
    return wish;
  }

  #changed() {
    for (const label of this.form.querySelectorAll("[data-verb]")) label.hidden = label.dataset.verb !== this.#verb;
    this.form.elements.workers.disabled = this.#verb !== "rescale";
    this.#forget();
  }

  #forget() {
    this.planned = null;
    $("plan").hidden = true;
    this.#refuse("");
  }

  #refuse(sentence) {
    $("refused").textContent = sentence;
    $("refused").hidden = !sentence;
  }

  async #ask() {
    this.#forget();
    const [verb, wish] = [this.#verb, this.#wish];
    await this.#busy($("ask"), async () => {
      const plan = await this.query.post("/plan", { verb, ...wish });
      this.planned = { verb, wish };
      this.#showPlan(verb, plan);
    });
  }

  #showPlan(verb, plan) {
    const cells = {
      bins: count(plan.bins),
      steps: count(plan.steps),
      bytes: plan.bytes_measured ? `${plan.bytes_measured < 1 ? "~" : ""}${size(plan.bytes)}` : "unknown",
      seconds: plan.seconds === null ? notBefore(plan) : about(plan.seconds),
    };
    for (const [name, text] of Object.entries(cells)) document.querySelector(`[data-plan=${name}]`).textContent = text;
    $("plan-title").textContent = `The plan: ${verb}, ${plan.strategy}`;
    const moves = plan.bins ? routes(plan.plan) : "nothing would move";
    $("routes").textContent = plan.obstacle ? `it would fail: ${plan.obstacle}` : moves;
    $("start").disabled = !plan.bins && verb !== "rescale";
    $("plan").hidden = false;
    if (!$("start").disabled) $("start").focus();
  }

  async #start() {
    const { verb, wish } = this.planned;
    await this.#busy($("start"), async () => {
      $("told").textContent = verb === "rescale" ? "asked for; new workers are being started" : "";
      await this.query.post(`/${verb}`, wish);
      $("told").textContent = "";
      this.#forget();
    });
    $("told").textContent = "";
    this.look();
  }

  /** Do something with a button out of reach; a refusal is told below the form. */
  async #busy(button, act) {
    button.disabled = true;
    try {
      await act();
    } catch (error) {
      this.#refuse(error.message);
      if (!(error instanceof Refused)) this.look();
    } finally {
      if (button.id === "ask" || !$("plan").hidden) button.disabled = false;
    }
  }
}

/** A worker by its number, or the host that it is not. */
function worker(chosen) {
  return /^[0-9]+$/.test(chosen) ? Number(chosen) : chosen;
}

/** Which workers give how many bins to which. */
function routes({ steps }) {
  const found = new Map();
  for (const { moves } of steps) {
    for (const [, source, target] of moves) {
      const route = `worker ${source} to ${target}`;
      found.set(route, (found.get(route) ?? 0) + 1);
    }
  }
  const lines = [...found].map(([route, bins]) => `${route}: ${bins} ${bins === 1 ? "bin" : "bins"}`);
  const more = lines.length - ROUTES;
  return more > 1 ? [...lines.slice(0, ROUTES), `and ${more} routes more`].join("\n") : lines.join("\n");
}
