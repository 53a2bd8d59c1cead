/** The query behind the page. It is asked where the page came from, with the token from the page's address. */

const PATIENCE_MS = 10_000;
const LONG_MS = 180_000; // A rescale answers when its new workers are there.

/** Nobody answers, or the query has ended. */
export class Gone extends Error {}
/** The token is not the right one. */
export class Locked extends Error {}
/** Somebody is there, and says nothing. */
export class Silent extends Error {}
/** It was understood, and will not be done; the message says why. */
export class Refused extends Error {}

const KINDS = { "no such query": Gone };

export class Query {
  /** The one that the address names. The token leaves the address bar, and stays in this tab. */
  static fromAddress() {
    const given = new URLSearchParams(location.hash.slice(1));
    if (given.has("token")) {
      sessionStorage.setItem("token", given.get("token"));
      sessionStorage.setItem("query", given.get("query") ?? "");
      history.replaceState(null, "", location.pathname);
    }
    return new Query(sessionStorage.getItem("token"), sessionStorage.getItem("query"));
  }

  constructor(token, id) {
    this.token = token;
    this.id = id || null;
  }

  /** Look at another query of the same control. */
  choose(id) {
    this.id = id;
    sessionStorage.setItem("query", id);
  }

  /** Every query of the control. */
  statuses() {
    return this.#ask("/status", { method: "GET" }, PATIENCE_MS);
  }

  get(path, options = {}) {
    const given = new URLSearchParams(this.id ? { ...options, query: this.id } : options);
    return this.#ask(`${path}?${given}`, { method: "GET" }, PATIENCE_MS);
  }

  post(path, wish = {}) {
    const body = JSON.stringify(this.id ? { ...wish, query: this.id } : wish);
    return this.#ask(path, { method: "POST", body }, LONG_MS);
  }

  async #ask(path, request, patience) {
    if (!this.token) throw new Locked("no token");
    const headers = { Authorization: `Bearer ${this.token}`, "Content-Type": "application/json" };
    let answer;
    try {
      answer = await fetch(path, { ...request, headers, cache: "no-store", signal: AbortSignal.timeout(patience) });
    } catch (error) {
      throw error.name === "TimeoutError" ? new Silent("no answer") : new Gone("nobody answers");
    }
    if (answer.ok) return answer.json();
    if (answer.status === 401) throw new Locked("wrong token");
    const { error, kind } = await answer.json().catch(() => ({ error: `status ${answer.status}`, kind: "" }));
    throw new (KINDS[kind] ?? Refused)(error);
  }
}
