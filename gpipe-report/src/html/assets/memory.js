// Memory over time: a strip a device, the measured bytes as an area, the predicted as a line.

class Memory {
  constructor(canvas) {
    this.canvas = canvas;
    listen(canvas, this);
  }

  /// Strips for the devices of one or two runs.
  choose(groups) {
    this.strips = [];
    for (const { run, views } of groups) {
      const counted = views.filter((view) => view.levels.length > 0);
      run.devices.forEach((name, device) => {
        if (counted.length > 0) this.strips.push({ run, device, views: counted, single: groups.length === 1 });
      });
    }
    for (const strip of this.strips) {
      const levels = strip.views.map((view) => view.levels[strip.device]).filter((levels) => levels && levels.n > 0);
      strip.most = Math.max(0, ...levels.map((levels) => levels.most));
      strip.least = Math.min(strip.most, ...levels.map((levels) => levels.least));
    }
    // What changes fills the strips.
    const changing = this.strips.reduce((most, strip) => Math.max(most, strip.most - strip.least), 1);
    // A limit far above would press everything else to the ground: it is only told.
    const above = this.strips.map(({ run, device, least }) => run.limits[device] - least);
    this.range = Math.max(1.1 * changing, ...above.filter((limit) => limit < 3 * changing).map((limit) => 1.05 * limit));
    this.rowHeight = Math.max(18, Math.min(64, Math.floor(560 / Math.max(this.strips.length, 1))));
    this.height = 24 + this.strips.length * this.rowHeight + 4;
  }

  draw() {
    if (this.strips.length === 0) return;
    const g = prepare(this.canvas, this.height);
    const width = this.canvas.clientWidth;
    drawRuler(g, width, this.height);
    this.strips.forEach((strip, row) => {
      const top = 24 + row * this.rowHeight;
      const h = this.rowHeight - 5;
      const base = top + h;
      g.fillStyle = colour("soft");
      g.font = "12px system-ui, 'DejaVu Sans', sans-serif";
      g.fillText(`${strip.single ? "" : `${strip.run.mark} `}device ${strip.device}`, 8, top + Math.min(h / 2, 14));
      if (h > 30) {
        g.font = "11px system-ui, 'DejaVu Sans', sans-serif";
        g.fillText(showRange(strip.least, strip.most), 8, top + 32, GUTTER - 12);
      }
      g.save();
      g.beginPath();
      g.rect(GUTTER, top, width - GUTTER, this.rowHeight);
      g.clip();
      g.fillStyle = colour("panel");
      g.fillRect(GUTTER, top, width - GUTTER, h);
      for (const view of strip.views) {
        const levels = view.levels[strip.device];
        if (!levels || levels.n === 0) continue;
        const dense = this.path(g, width, levels, view.end, (bytes) => this.heightOf(strip, bytes, base, h));
        if (view.predicted) {
          // Dashes of a line that turns at every pixel would be seen by nobody and cost the most.
          g.setLineDash(dense ? [] : [5, 3]);
          g.strokeStyle = colour("second");
        } else {
          g.setLineDash([]);
          g.strokeStyle = colour("first");
          g.save();
          const line = new Path2D(this.line);
          line.lineTo(this.lastX, base);
          line.lineTo(this.firstX, base);
          g.globalAlpha = 0.28;
          g.fillStyle = colour("first");
          g.fill(line);
          g.restore();
        }
        g.lineWidth = 1.3;
        g.stroke(this.line);
      }
      g.setLineDash([8, 4, 2, 4]);
      g.strokeStyle = colour("limit");
      const limit = strip.run.limits[strip.device];
      if (limit > 0 && limit - strip.least < this.range) {
        const y = this.heightOf(strip, limit, base, h);
        g.beginPath();
        g.moveTo(GUTTER, y);
        g.lineTo(width, y);
        g.stroke();
      }
      g.restore();
    });
  }

  /// Where a number of bytes lies in a strip, whose foot is the least that the device holds.
  heightOf(strip, bytes, base, h) {
    return base - 3 - ((bytes - strip.least) / this.range) * (h - 4);
  }

  /// The steps of a line; where many fall on one pixel, the highest. Says if there are many.
  path(g, width, levels, end, y) {
    const scale = (width - GUTTER) / (span.to - span.from);
    const x = (t) => GUTTER + (t - span.from) * scale;
    const first = Math.max(0, after(levels.time, span.from) - 1);
    const last = after(levels.time, Math.min(span.to, end));
    this.line = new Path2D();
    this.firstX = x(levels.time[first]);
    let [pixel, high] = [this.firstX, levels.bytes[first]];
    this.line.moveTo(pixel, y(high));
    for (let i = first + 1; i < last; i++) {
      const at = x(levels.time[i]);
      if (at - pixel < 0.5) {
        high = Math.max(high, levels.bytes[i]);
        continue;
      }
      this.line.lineTo(pixel, y(high));
      this.line.lineTo(at, y(high));
      high = levels.bytes[i];
      this.line.lineTo(at, y(high));
      pixel = at;
    }
    this.lastX = x(Math.min(end, span.to));
    this.line.lineTo(pixel, y(high));
    this.line.lineTo(this.lastX, y(high));
    return last - first > (width - GUTTER) / 4;
  }

  leave() {}

  point(x, y) {
    const strip = this.strips[Math.floor((y - 24) / this.rowHeight)];
    if (!strip || y < 24 || x < GUTTER) return "";
    const t = timeAt(this.canvas, x);
    const lines = [`device ${strip.device} at ${showTimeOf(strip.run, t)}`];
    for (const view of strip.views) {
      const levels = view.levels[strip.device];
      if (!levels || levels.n === 0 || t > view.end) continue;
      const i = Math.max(0, after(levels.time, t) - 1);
      lines.push(`${view.predicted ? "predicted" : "measured"} ${showBytes(levels.bytes[i])}, at most ${showBytes(levels.most)}`);
    }
    const limit = strip.run.limits[strip.device];
    if (limit > 0) lines.push(`limit ${showBytes(limit)}`);
    return lines.join("\n");
  }
}
