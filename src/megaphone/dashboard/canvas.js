/** What both pictures need of a canvas: sharp lines, the page's colours, and a tip beside the pointer. */

/** Fit a canvas to its place on the page; its context, in the page's pixels. */
export function fit(canvas) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "11px system-ui, sans-serif";
  return { context, width, height };
}

/** A colour of the page, by its name in page.css. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** From 0 to 1 the colours of the ramp, in so many shades. */
export function ramp(shades = 64) {
  const [low, mid, high] = ["ramp-low", "ramp-mid", "ramp-high"].map((name) => rgb(colour(name)));
  return Array.from({ length: shades }, (_, i) => {
    const part = (i / (shades - 1)) * 2;
    const [from, to, at] = part < 1 ? [low, mid, part] : [mid, high, part - 1];
    return `rgb(${from.map((value, j) => Math.round(value + (to[j] - value) * at)).join(" ")})`;
  });
}

function rgb(hex) {
  const full = hex.length === 4 ? hex.replace(/[0-9a-f]/gi, "$&$&") : hex;
  return [1, 3, 5].map((i) => parseInt(full.slice(i, i + 2), 16));
}

/** Show a few words beside a place on the canvas, where there is room for them. */
export function tip(output, words, x, y) {
  output.hidden = false;
  if (output.textContent !== words) output.textContent = words;
  const { clientWidth: width } = output.parentElement;
  output.style.left = `${Math.max(0, Math.min(x + 12, width - output.offsetWidth - 4))}px`;
  output.style.top = `${y + 14}px`;
}
