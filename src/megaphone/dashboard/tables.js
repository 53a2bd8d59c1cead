/** Workers and plans as tables. A cell is only touched if it says something else: what is selected stays selected. */

import { clock, count, seconds, size } from "./words.js";

const PLANS = 50;

export function showWorkers(table, workers, measured) {
  const most = Math.max(...workers.map((one) => one.records_per_s), 1e-9);
  const about = measured === 1 ? size : (bytes) => (measured ? `~${size(bytes)}` : "?");
  const rows = workers.map((one) => [
    one.worker,
    one.host,
    one.pid,
    size(one.memory_bytes),
    about(one.state_bytes),
    one.bins,
    { text: count(one.records_per_s), part: one.records_per_s / most },
    { text: `${Math.round(100 * one.busy)} %`, part: one.busy },
  ]);
  fill(table, rows);
}

export function showHistory(table, history) {
  const rows = history.slice(-PLANS).reverse().map((one) => [
    one.number,
    one.latency_target === null ? one.strategy : `${one.strategy}, ${seconds(one.latency_target)}`,
    clock(one.asked_s),
    one.phase,
    `${one.bins_moved} of ${one.bins}`,
    `${one.steps_completed} of ${one.steps}`,
    size(one.bytes_moved),
    one.began_s === null ? "–" : seconds(one.seconds),
  ]);
  fill(table, rows);
}

function fill(table, rows) {
  const body = table.tBodies[0];
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((cells, i) => {
    const row = body.rows[i] ?? body.insertRow();
    cells.forEach((cell, j) => put(row.cells[j] ?? row.insertCell(), cell));
  });
}

function put(cell, told) {
  const { text = told, part } = Object(told);
  if (cell.textContent !== String(text)) cell.textContent = text;
  if (part === undefined) return;
  cell.className = "bar";
  cell.style.setProperty("--part", Math.min(1, part).toFixed(3));
}
