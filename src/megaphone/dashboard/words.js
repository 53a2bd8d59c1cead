/** Numbers for people. */

/** Bytes, as `megaphone status` writes them. */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (bytes < 999.5) return `${bytes.toFixed(unit === "B" || bytes >= 9.95 ? 0 : 1)} ${unit}`;
    bytes /= 1000;
  }
  return `${bytes.toFixed(1)} TB`;
}

/** How many. */
export function count(number) {
  if (number < 10 && number % 1) return number.toFixed(1);
  if (number < 1e5) return Math.round(number).toLocaleString("en");
  return number < 1e6 ? `${Math.round(number / 1e3)} k` : `${(number / 1e6).toFixed(number < 1e8 ? 1 : 0)} M`;
}

/** How long, from milliseconds to hours. */
export function seconds(time) {
  if (time === null || time === undefined || Number.isNaN(time)) return "–";
  if (time < 0.9995) return `${Math.round(time * 1000)} ms`;
  if (time < 9.995) return `${time.toFixed(2)} s`;
  if (time < 90) return `${time.toFixed(1)} s`;
  if (time < 5400) return `${Math.floor(time / 60)} min ${Math.round(time % 60)} s`;
  return `${(time / 3600).toFixed(1)} h`;
}

/** How long something may take: in whole seconds, since nobody can promise more. */
export function about(time) {
  if (time < 1) return "less than 1 s";
  return `about ${time < 90 ? `${Math.round(time)} s` : seconds(time)}`;
}

/** A distance between two times of an operator, by what a step of its time is. */
export function lag(distance, unit) {
  if (distance === null || distance === undefined) return "–";
  return unit === "microsecond" ? seconds(distance / 1e6) : count(distance);
}

/** The time of day. */
export function clock(unix) {
  return new Date(unix * 1000).toLocaleTimeString("en-GB");
}
