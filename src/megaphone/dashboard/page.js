/** The live page: looks at the query every second, and shows what it sees. */

import { Epochs } from "./epochs.js";
import { BinMap } from "./map.js";
import { Gone, Locked, Query, Silent } from "./query.js";
import { showHistory, showWorkers } from "./tables.js";
import { Timeline } from "./timeline.js";
import { Migration, Wish } from "./verbs.js";
import { clock, count, lag, seconds, size } from "./words.js";

const EVERY_MS = 1000;
const QUIET_S = 5;

const $ = (id) => document.getElementById(id);

class Page {
  constructor() {
    this.query = Query.fromAddress();
    this.epochs = new Epochs();
    this.timeline = new Timeline($("timeline"), this.epochs);
    this.map = new BinMap($("map"), $("scale"));
    this.migration = new Migration(this.query, () => this.look());
    this.wish = new Wish(this.query, () => this.look());
    this.run = null;
    this.seen = null;
    this.history = [];
    this.#listen();
  }

  #listen() {
    $("range").addEventListener("change", (event) => {
      this.timeline.range = Number(event.target.value);
      this.timeline.draw();
    });
    $("colour").addEventListener("change", (event) => {
      this.map.colouring = event.target.value;
      if (this.bins) this.map.update(this.bins, this.workers);
    });
    $("queries").querySelector("select").addEventListener("change", (event) => {
      this.query.choose(event.target.value);
      this.look();
    });
    const redraw = () => {
      this.timeline.draw();
      if (this.bins) this.map.update(this.bins, this.workers);
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    new ResizeObserver(redraw).observe($("map"));
    window.addEventListener("hashchange", () => location.reload());
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
  }

  /** Look once, and again in a second. */
  async look() {
    clearTimeout(this.timer);
    const begin = performance.now();
    const turn = (this.turn = (this.turn ?? 0) + 1);
    try {
      await this.#ask(turn);
    } catch (error) {
      if (turn === this.turn) this.#fail(error);
    }
    if (turn !== this.turn || this.locked) return;
    const rest = Math.max(100, EVERY_MS - (performance.now() - begin));
    this.timer = setTimeout(() => document.hidden || this.look(), rest);
  }

  async #ask(turn) {
    const status = this.#choose(await this.query.statuses());
    if (status.run !== this.run) this.#begin(status.run);
    const asked = [this.query.get("/bins"), this.query.get("/timeline", { since: this.epochs.last })];
    const seen = JSON.stringify(status.migrations);
    if (seen !== this.seen) asked.push(this.query.get("/history"));
    const [bins, told, history] = await Promise.all(asked);
    if (turn !== this.turn) return;
    if (history) [this.history, this.seen] = [history, seen];
    this.epochs.add(told);
    this.bins = bins;
    this.workers = status.workers.map((one) => one.worker);
    this.#show(status);
  }

  /** The query that is meant, of those that run on the control. */
  #choose(statuses) {
    if (!this.query.id && statuses.length > 1) this.query.choose(statuses[0].query);
    const status = this.query.id ? statuses.find((one) => one.query === this.query.id) : statuses[0];
    if (!status) throw new Gone("no such query");
    const names = JSON.stringify(statuses.map((one) => [one.name ?? one.query, one.query]));
    if (names !== this.names) {
      const options = JSON.parse(names).map(([name, id]) => new Option(name, id, false, id === this.query.id));
      $("queries").querySelector("select").replaceChildren(...options);
      $("queries").hidden = statuses.length < 2;
      this.names = names;
    }
    return status;
  }

  /** Another query, or another run of it: what was known is of no use. */
  #begin(run) {
    this.run = run;
    this.epochs.list.length = 0;
    this.map.reset();
    this.seen = null;
    this.history = [];
  }

  #show(status) {
    document.body.classList.remove("stale");
    $("alarm").hidden = true;
    this.#reach(true);
    const migration = status.migration;
    const history = this.history.map((one) => (one.number === migration?.number ? migration : one));
    const operators = Object.values(status.operators);
    this.timeline.unit = operators[0]?.unit ?? "epoch";
    this.timeline.history = history;
    $("timeline").classList.toggle("tall", this.timeline.unit !== "epoch");
    $("lag-note").hidden = this.timeline.unit === "epoch";
    this.timeline.draw();
    this.map.update(this.bins, this.workers);
    this.#title(status);
    this.#tiles(status, operators);
    this.migration.show(migration, history);
    this.wish.show(status.workers);
    showWorkers($("workers"), status.workers, status.sizes_measured);
    showHistory($("history"), history);
    $("no-history").hidden = history.length > 0;
  }

  #title(status) {
    const name = status.name ?? status.query.slice(0, 8);
    const [state, kind] = this.#state(status);
    const quiet = this.epochs.silence > QUIET_S ? `, no epoch has ended for ${seconds(this.epochs.silence)}` : "";
    $("name").textContent = name;
    pill(state, kind);
    $("about").textContent = `epoch ${status.epoch}${quiet}, control ${status.control}, query ${status.query}`;
    document.title = `${name}: ${state} – Megaphone`;
  }

  #state({ migration }) {
    if (!migration) return ["running", "running"];
    const part = `${Math.floor((100 * migration.bins_moved) / (migration.bins || 1))} %`;
    return [migration.phase === "running" ? `migrating, ${part}` : `migration ${migration.phase}, ${part}`, "moving"];
  }

  #tiles(status, operators) {
    const { p50, p99, max } = this.epochs.times;
    const bytes = operators.reduce((sum, one) => sum + one.state_bytes, 0);
    const rate = this.epochs.rate;
    const tiles = {
      rate: rate === null ? "–" : count(rate),
      p50: seconds(p50),
      p99: seconds(p99),
      max: seconds(max),
      // After an epoch, not in the midst of one, when some workers have told their frontier and others not.
      lag: this.timeline.unit === "epoch" ? "none" : lag(this.epochs.list.at(-1)?.lag, this.timeline.unit),
      bytes: status.sizes_measured === 1 ? size(bytes) : status.sizes_measured ? `~${size(bytes)}` : "not measured",
      count: status.workers.length,
      imbalance: status.imbalance.toFixed(2),
    };
    for (const [id, text] of Object.entries(tiles)) $(id).textContent = text;
  }

  #fail(error) {
    const since = (this.since = $("alarm").hidden ? Date.now() / 1000 : this.since);
    document.body.classList.add("stale");
    $("alarm").hidden = false;
    this.#reach(false);
    const last = this.run ? " Below is the last that was known." : "";
    if (error instanceof Locked) {
      this.locked = true;
      const how = "Open the address that 'megaphone dashboard' prints.";
      this.#alarm("no access", `This page needs the token that is in its address. ${how}${last}`);
    } else if (error instanceof Gone) {
      const who = "The query is gone: it has ended, or its driver has.";
      const when = `Nobody answers at ${location.host} since ${clock(since)}.`;
      this.#alarm("gone", `${who} ${when} When it runs again, 'megaphone dashboard' prints its new address.${last}`);
    } else if (error instanceof Silent) {
      this.#alarm("no answer", `No answer since ${clock(since)}. The driver is busy, or hangs; still trying.${last}`);
    } else {
      this.#alarm("trouble", `${error.message}${last}`);
    }
  }

  /** Nothing can be asked of who is not there. */
  #reach(there) {
    document.querySelector(".right").inert = !there;
  }

  #alarm(state, words) {
    pill(state, "gone");
    document.title = `${$("name").textContent}: ${state} – Megaphone`;
    if ($("alarm").textContent !== words) $("alarm").textContent = words;
  }
}

function pill(state, kind) {
  if ($("state").textContent !== state) $("state").textContent = state;
  $("state").className = `pill ${kind}`;
}

new Page().look();
