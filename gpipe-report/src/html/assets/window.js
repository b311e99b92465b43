// The stretch of time that the canvases show, which they share, and how hands move it.

const GUTTER = 92;
const span = { from: 0, to: 1, most: 1, relative: false, charts: [] };

/// Shows another stretch, inside the whole and never less than 100 ns.
function show(from, to) {
  const length = Math.min(span.most, Math.max(100, to - from));
  span.from = Math.min(Math.max(0, from), span.most - length);
  span.to = span.from + length;
  redraw();
}

let asked = false;
function redraw() {
  if (asked) return;
  asked = true;
  requestAnimationFrame(() => {
    asked = false;
    for (const chart of span.charts) {
      const { top, bottom, width } = chart.canvas.getBoundingClientRect();
      // What nobody sees is drawn when it is scrolled to, or has room.
      chart.stale = width <= GUTTER || (chart.drawn && (bottom < 0 || top > window.innerHeight));
      if (!chart.stale) chart.draw();
      chart.drawn = true;
    }
  });
}

/// Zooms by a factor around a moment.
function zoom(factor, at = (span.from + span.to) / 2) {
  show(at - (at - span.from) * factor, at + (span.to - at) * factor);
}

function timeAt(canvas, x) {
  const width = canvas.clientWidth - GUTTER;
  return span.from + ((x - GUTTER) / width) * (span.to - span.from);
}

/// Makes a canvas as sharp as the screen and gives its context, cleared, in CSS pixels.
function prepare(canvas, height) {
  const scale = Math.min(window.devicePixelRatio || 1, 16000 / height);
  const width = canvas.clientWidth;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.height = `${height}px`;
  }
  const g = canvas.getContext("2d");
  g.setTransform(scale, 0, 0, scale, 0, 0);
  g.fillStyle = colour("page");
  g.fillRect(0, 0, width, height);
  return g;
}

const palette = new Map();
function colour(name) {
  if (!palette.has(name)) {
    palette.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }
  return palette.get(name);
}

/// A colour such as #2f6fb7 as a pixel of an image: its bytes are red, green, blue and opacity.
function pixel(name) {
  const hex = parseInt(colour(name).slice(1), 16);
  return new Uint32Array(new Uint8Array([hex >> 16, hex >> 8, hex, 255]).buffer)[0];
}

/// Ticks at round times, about one every 110 pixels.
function ticks(width) {
  const rough = ((span.to - span.from) * 110) / Math.max(width, 110);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const list = [];
  for (let t = Math.ceil(span.from / step) * step; t <= span.to; t += step) list.push(t);
  return list;
}

/// Draws the ruler and the lines that go down from it.
function drawRuler(g, width, height) {
  g.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  g.textBaseline = "middle";
  g.textAlign = "center";
  const scale = (width - GUTTER) / (span.to - span.from);
  for (const t of ticks(width - GUTTER)) {
    const x = GUTTER + (t - span.from) * scale;
    g.fillStyle = colour("line");
    g.fillRect(Math.round(x), 20, 1, height - 20);
    g.fillStyle = colour("soft");
    if (x > GUTTER - 1 && x < width - 26) g.fillText(t === 0 ? "0" : span.relative ? `${((100 * t) / span.most).toFixed(0)} %` : showTime(t), x, 11);
  }
  g.textAlign = "left";
}

/// Zooming, moving and pointing on a canvas. `point(x, y)` tells what is there as text, or nothing.
function listen(canvas, chart) {
  const tip = document.getElementById("tip");
  const fingers = new Map();
  const hide = () => { tip.hidden = true; chart.leave(); };
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 150), timeAt(canvas, event.offsetX));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      move(event.deltaX || event.deltaY);
    }
  }, { passive: false });
  const move = (pixels) => {
    const by = (pixels * (span.to - span.from)) / (canvas.clientWidth - GUTTER);
    show(span.from + by, span.to + by);
  };
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event.offsetX);
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = fingers.get(event.pointerId);
    if (before === undefined) {
      const text = chart.point(event.offsetX, event.offsetY);
      tip.hidden = !text;
      if (!text) return;
      tip.textContent = text;
      const { width, height } = tip.getBoundingClientRect();
      const right = event.clientX + 16 + width < window.innerWidth;
      tip.style.left = `${right ? event.clientX + 14 : Math.max(4, event.clientX - 14 - width)}px`;
      tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, window.innerHeight - height - 8))}px`;
      return;
    }
    tip.hidden = true;
    fingers.set(event.pointerId, event.offsetX);
    if (fingers.size === 1) return move(before - event.offsetX);
    const other = [...fingers].find(([id]) => id !== event.pointerId)[1];
    const [old, now] = [Math.abs(before - other), Math.abs(event.offsetX - other)];
    if (old > 8 && now > 8) zoom(old / now, timeAt(canvas, other));
  });
  for (const name of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(name, (event) => fingers.delete(event.pointerId));
  }
  canvas.addEventListener("pointerleave", hide);
  canvas.addEventListener("dblclick", (event) => zoom(0.25, timeAt(canvas, event.offsetX)));
  canvas.addEventListener("keydown", (event) => {
    const keys = {
      ArrowLeft: () => move(-80), ArrowRight: () => move(80), "+": () => zoom(0.6), "=": () => zoom(0.6),
      "-": () => zoom(1 / 0.6), 0: () => show(0, span.most), Escape: hide,
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    keys[event.key]();
  });
}
