// The timelines: a group of rows for every view, one row a device.

const HEAD = 26;
/// Of the lines under idle time, by cause: those for what is nobody's fault and for transfers.
const GAP_DASHES = [[7, 2], [3, 3], null, [1, 2], null];
const OP_COLOURS = ["forward", "backward", "input", "weight", "again"];

/// The stripes that tell operations apart where colours do not: none on F and B, which fill most of
/// a timeline, and one kind each on I, W and R.
function stripes(g, op) {
  const key = `stripes ${op}`;
  if (palette.has(key)) return palette.get(key);
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const t = tile.getContext("2d");
  t.strokeStyle = t.fillStyle = colour(`on-${OP_COLOURS[op]}`);
  t.globalAlpha = 0.3;
  t.beginPath();
  if (OPS[op] === "I") { t.moveTo(-1, 7); t.lineTo(7, -1); }
  if (OPS[op] === "R") { t.moveTo(-1, -1); t.lineTo(7, 7); t.moveTo(-1, 7); t.lineTo(7, -1); }
  t.stroke();
  if (OPS[op] === "W") { t.fillRect(1, 1, 2, 2); t.fillRect(4, 4, 2, 2); }
  const pattern = OPS[op] === "F" || OPS[op] === "B" ? null : g.createPattern(tile, "repeat");
  palette.set(key, pattern);
  return pattern;
}

class Timelines {
  constructor(canvas, runs) {
    Object.assign(this, { canvas, runs, lit: null });
    listen(canvas, this);
  }

  /// Which views are shown, from above to below.
  choose(groups) {
    this.groups = groups;
    const rows = groups.reduce((sum, group) => sum + group.view.rows.length, 0);
    this.rowHeight = Math.max(3, Math.min(30, Math.floor(640 / Math.max(rows, 1))));
    let y = 22;
    for (const group of groups) {
      group.top = y + HEAD;
      y = group.top + group.view.rows.length * this.rowHeight + 6;
    }
    this.height = y + 4;
  }

  draw() {
    const g = prepare(this.canvas, this.height);
    const width = this.canvas.clientWidth;
    drawRuler(g, width, this.height);
    for (const group of this.groups) {
      g.fillStyle = colour("ink");
      g.font = "600 13px system-ui, 'DejaVu Sans', sans-serif";
      // What stands in parentheses gives way where the title is too long.
      const fits = g.measureText(group.title).width < width - 16;
      g.fillText(fits ? group.title : group.title.replace(/ \([^)]*\)/, ""), 8, group.top - 11);
      group.view.rows.forEach((row, device) => this.drawRow(g, width, group, row, device));
      this.drawPortals(g, width, group);
    }
    if (this.lit) this.drawJourney(g, width);
  }

  drawRow(g, width, group, row, device) {
    const [h, y] = [this.rowHeight, group.top + device * this.rowHeight];
    g.fillStyle = colour("idle");
    g.fillRect(GUTTER, y, width - GUTTER, h - 1);
    if (h >= 11 || device % Math.ceil(11 / h) === 0) {
      g.fillStyle = colour("soft");
      g.font = "12px system-ui, 'DejaVu Sans', sans-serif";
      g.fillText(`device ${device}`, 8, y + Math.max(h, 11) / 2);
    }
    const first = after(row.end, span.from);
    const last = after(row.start, span.to);
    g.save();
    g.beginPath();
    g.rect(GUTTER, y, width - GUTTER, h);
    g.clip();
    if (last - first > (width - GUTTER) / 3) this.drawMix(g, width, row, y, h);
    else this.drawSpans(g, width, group, row, first, last, y, h);
    this.drawGaps(g, width, group.view.gaps[device], y, h);
    g.restore();
  }

  drawSpans(g, width, group, row, first, last, y, h) {
    const scale = (width - GUTTER) / (span.to - span.from);
    const chunks = group.run.chunks;
    g.font = `${Math.min(12, h - 4)}px system-ui, "DejaVu Sans", sans-serif`;
    g.textAlign = "center";
    for (let i = first; i < last; i++) {
      const op = row.lane.op[i];
      const from = GUTTER + (row.start[i] - span.from) * scale;
      const long = (row.end[i] - row.start[i]) * scale;
      const gap = long > 3 ? 1 : 0;
      g.fillStyle = colour(OP_COLOURS[op]);
      g.fillRect(from, y, Math.max(long - gap, 0.4), h - 4);
      // Further chunks of the model on the same device are paler.
      const chunk = chunks[row.lane.stage[i]];
      if (chunk > 0 && long > 2) {
        g.globalAlpha = Math.min(0.5, 0.28 * chunk);
        g.fillStyle = colour("page");
        g.fillRect(from, y, long - gap, h - 4);
        g.globalAlpha = 1;
      }
      if (long < 5 || h < 10) continue;
      const pattern = stripes(g, op);
      if (pattern) {
        g.fillStyle = pattern;
        g.fillRect(from, y, long - gap, h - 4);
      }
      const [left, right] = [Math.max(from, GUTTER), Math.min(from + long, width)];
      const letter = OPS[op];
      const label = `${letter}${row.lane.micro[i]}`;
      const text = right - left > 8 * label.length + 2 ? label : right - left > 10 ? letter : "";
      if (text) {
        g.fillStyle = colour(`on-${OP_COLOURS[op]}`);
        g.fillText(text, (left + right) / 2, y + (h - 4) / 2 + 0.5);
      }
    }
    g.textAlign = "left";
  }

  /// Where there are more spans than pixels: in every column the shares of the operations, as
  /// heights, and idle time above them.
  drawMix(g, width, row, y, h) {
    const sums = prefixes(row);
    const nanoseconds = (span.to - span.from) / (width - GUTTER);
    const before = (op, i, t) => {
      if (i < 0) return 0;
      const running = row.lane.op[i] === op ? Math.min(t, row.end[i]) - row.start[i] : 0;
      return sums[op][i] + running;
    };
    const [columns, lines] = [Math.ceil(width - GUTTER), h - 4];
    const image = new ImageData(columns, Math.max(lines, 1));
    const pixels = new Uint32Array(image.data.buffer).fill(pixel("idle"));
    const colours = OP_COLOURS.map(pixel);
    let t = span.from;
    let place = after(row.start, t) - 1;
    for (let x = 0; x < columns; x++) {
      const next = t + nanoseconds;
      const nextPlace = after(row.start, next) - 1;
      let [share, line] = [0, lines];
      for (let op = 0; op < OPS.length; op++) {
        if (sums[op][row.n] === 0) continue;
        share += (before(op, nextPlace, next) - before(op, place, t)) / nanoseconds;
        const top = lines * (1 - share) + 0.5;
        while (line > top) pixels[--line * columns + x] = colours[op];
      }
      [t, place] = [next, nextPlace];
    }
    this.strip ||= document.createElement("canvas");
    [this.strip.width, this.strip.height] = [image.width, image.height];
    this.strip.getContext("2d").putImageData(image, 0, 0);
    g.imageSmoothingEnabled = false;
    g.drawImage(this.strip, GUTTER, y);
  }

  /// Idle time is blank, and underlined in the colour and the dashes of its cause.
  drawGaps(g, width, gaps, y, h) {
    if (h < 9 || !gaps) return;
    const scale = (width - GUTTER) / (span.to - span.from);
    const [first, last] = [after(gaps.end, span.from), after(gaps.start, span.to)];
    if (last - first > (width - GUTTER) / 3) return;
    for (let i = first; i < last; i++) {
      const cause = CAUSES[gaps.cause[i]];
      const from = Math.max(GUTTER, GUTTER + (gaps.start[i] - span.from) * scale);
      const to = Math.min(width, GUTTER + (gaps.end[i] - span.from) * scale);
      const dash = GAP_DASHES[gaps.cause[i]];
      g.fillStyle = colour(cause);
      if (!dash) {
        g.fillRect(from, y + h - 4, Math.max(to - from, 0.4), 3);
        continue;
      }
      for (let x = from; x < to; x += dash[0] + dash[1]) {
        g.fillRect(x, y + h - 4, Math.max(Math.min(dash[0], to - x), 0.4), 3);
      }
    }
  }

  /// The tensors that pass stages: an arc from giver to taker, as far as they can be told apart; those of the
  /// micro-batch that is pointed at are drawn in full.
  drawPortals(g, width, group) {
    const portals = portalsOf(group.run, group.view);
    const lit = this.lit && this.lit.group === group ? this.lit.micro : -1;
    const shown = portals.filter(({ start, end }) => end > span.from && start < span.to);
    const crowded = shown.length > (width - GUTTER) / 10;
    const scale = (width - GUTTER) / (span.to - span.from);
    const x = (t) => GUTTER + (t - span.from) * scale;
    const y = (device) => group.top + device * this.rowHeight + (this.rowHeight - 4) / 2;
    const bottom = group.top + group.view.rows.length * this.rowHeight;
    g.save();
    g.beginPath();
    g.rect(GUTTER, group.top - 10, width - GUTTER, bottom - group.top + 10);
    g.clip();
    g.strokeStyle = g.fillStyle = colour("portal");
    for (const { start, end, from, to, micro } of shown) {
      if (crowded && micro !== lit) continue;
      const [x0, y0, x1, y1] = [x(start), y(from), x(end), y(to)];
      const bend = Math.min(40, 6 + (x1 - x0) / 2);
      g.globalAlpha = micro === lit ? 1 : lit >= 0 ? 0.2 : 0.7;
      g.lineWidth = micro === lit ? 2.5 : 1.5;
      g.setLineDash([5, 3]);
      g.beginPath();
      g.moveTo(x0, y0);
      g.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
      g.stroke();
      g.setLineDash([]);
      g.beginPath();
      g.arc(x1, y1, 2.5, 0, 2 * Math.PI);
      g.fill();
    }
    g.restore();
  }

  /// The way of one micro-batch through the devices: its spans outlined and joined.
  drawJourney(g, width) {
    const { group, micro } = this.lit;
    const scale = (width - GUTTER) / (span.to - span.from);
    const x = (t) => GUTTER + (t - span.from) * scale;
    g.save();
    g.beginPath();
    g.rect(GUTTER, 20, width - GUTTER, this.height - 20);
    g.clip();
    g.strokeStyle = colour("ink");
    g.lineWidth = 1.5;
    let before = null;
    for (const [device, i] of journey(group.view, micro)) {
      const row = group.view.rows[device];
      const y = group.top + device * this.rowHeight;
      const [from, to] = [x(row.start[i]), x(row.end[i])];
      g.globalAlpha = 1;
      g.strokeRect(from + 0.5, y + 0.5, Math.max(to - from - 2, 1), this.rowHeight - 5);
      const middle = y + (this.rowHeight - 4) / 2;
      if (before && before.device !== device) {
        g.globalAlpha = 0.75;
        g.beginPath();
        g.moveTo(before.to, before.middle);
        g.lineTo(from, middle);
        g.stroke();
      }
      before = { device, to, middle };
    }
    g.restore();
  }

  leave() {
    if (!this.lit) return;
    this.lit = null;
    redraw();
  }

  point(x, y) {
    const group = this.groups.find(({ top, view }) => y >= top && y < top + view.rows.length * this.rowHeight);
    const before = this.lit;
    this.lit = null;
    let text = "";
    if (group && x >= GUTTER) {
      const device = Math.min(group.view.rows.length - 1, Math.floor((y - group.top) / this.rowHeight));
      text = this.tell(group, device, timeAt(this.canvas, x));
    }
    const key = (lit) => lit && `${this.groups.indexOf(lit.group)} ${lit.micro}`;
    if (key(before) !== key(this.lit)) redraw();
    return text;
  }

  /// What a device does at a moment.
  tell(group, device, t) {
    const row = group.view.rows[device];
    const pixel = (span.to - span.from) / (this.canvas.clientWidth - GUTTER);
    let i = after(row.start, t) - 1;
    // A span thinner than a pixel is hit beside it, too.
    if (i + 1 < row.n && row.start[i + 1] - t < pixel && (i < 0 || row.end[i] < t)) i += 1;
    if (i >= 0 && t <= row.end[i] + (row.end[i] - row.start[i] < pixel ? pixel : 0)) {
      const { op, micro, stage } = { op: row.lane.op[i], micro: row.lane.micro[i], stage: row.lane.stage[i] };
      this.lit = { group, micro };
      const long = row.end[i] - row.start[i];
      const lines = [
        `${OPS[op]}${micro}  ${OP_NAMES[op]}`,
        `stage ${stage}, micro-batch ${micro}, device ${device} (${group.run.devices[device] || ""})`,
        `${showTimeOf(group.run, row.start[i])} to ${showTimeOf(group.run, row.end[i])}: ${showTimeOf(group.run, long)}`,
      ];
      const predicted = !group.view.predicted && group.run.views.find((view) => view.predicted);
      if (predicted) {
        const other = predicted.rows[device];
        const expected = other.end[i] - other.start[i];
        const off = expected > 0 ? ` (${long >= expected ? "+" : "−"}${Math.abs((100 * (long - expected)) / expected).toFixed(0)} %)` : "";
        lines.push(`predicted ${showTimeOf(group.run, expected)}${off}, from ${showTimeOf(group.run, other.start[i])}`);
      }
      if (row.start[i] > row.ready[i]) lines.push(`waited ${showTimeOf(group.run, row.start[i] - row.ready[i])} for the processor`);
      const levels = group.view.levels[device];
      if (levels) lines.push(`memory ${showBytes(levels.bytes[Math.max(0, after(levels.time, (row.start[i] + row.end[i]) / 2) - 1)] || 0)}`);
      return lines.join("\n");
    }
    const gaps = group.view.gaps[device];
    const gap = gaps ? after(gaps.start, t) - 1 : -1;
    if (gap >= 0 && t < gaps.end[gap]) {
      return `idle ${showTimeOf(group.run, gaps.end[gap] - gaps.start[gap])}: ${CAUSE_WORDS[gaps.cause[gap]]} (${CAUSES[gaps.cause[gap]]})`;
    }
    return "";
  }
}
