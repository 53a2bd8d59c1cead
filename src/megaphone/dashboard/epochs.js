/** The epochs of the last ten minutes, as the driver has told them. Times are the driver's, not the browser's. */

const KEPT_S = 600;
const MINUTE_S = 60;
const RATE_S = 10;

export class Epochs {
  constructor() {
    this.list = [];
    this.now = 0;
  }

  /** The last one known, to ask for those after it. */
  get last() {
    return this.list.length ? this.list[this.list.length - 1].epoch : -1;
  }

  /** Take in what /timeline answered. */
  add(told) {
    this.now = told.now_s;
    told.epoch.forEach((epoch, i) => {
      this.list.push({
        epoch,
        began: told.began_s[i],
        seconds: told.seconds[i],
        ended: told.began_s[i] + (told.seconds[i] ?? 0),
        records: told.records[i],
        lag: told.lag[i],
        moved: told.bins_moved[i],
      });
    });
    const first = this.list.findIndex((one) => one.ended >= this.now - KEPT_S);
    if (first > 0) this.list.splice(0, first);
  }

  /** Those that ended in the last so many seconds. */
  within(span) {
    return this.list.filter((one) => one.ended >= this.now - span);
  }

  /** Median, 99th percentile and maximum of the last minute's epoch times. */
  get times() {
    const taken = this.within(MINUTE_S).map((one) => one.seconds).filter((one) => one !== null).sort((a, b) => a - b);
    const at = (part) => taken[Math.max(0, Math.ceil(part * taken.length) - 1)];
    return { p50: at(0.5), p99: at(0.99), max: at(1) };
  }

  /** Records a second, over the last epochs that fill ten seconds. */
  get rate() {
    let records = 0;
    for (let i = this.list.length - 1; i >= 0; i--) {
      records += this.list[i].records;
      const span = this.now - this.list[i].began;
      if (span >= RATE_S || i === 0) return span > 0 ? records / span : 0;
    }
    return null;
  }

  /** Seconds since the last one ended. */
  get silence() {
    return this.list.length ? this.now - this.list[this.list.length - 1].ended : 0;
  }
}
