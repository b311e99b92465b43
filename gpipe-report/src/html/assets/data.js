// What the page was given, unpacked into typed arrays. Times are nanoseconds since the step began.

const OPS = "FBIWR";
const OP_NAMES = ["forward", "backward", "input gradient", "weight gradient", "recompute"];
const CAUSES = ["fill", "drain", "imbalance", "transfer", "processor"];
const CAUSE_WORDS = [
  "the pipeline fills", "the pipeline drains", "waiting for a slower stage",
  "waiting for a transfer", "waiting for the processor",
];

/// The actions of one device: "0F0 0F1 0B0" becomes three arrays.
function unpackLane(text) {
  const words = text === "" ? [] : text.split(" ");
  const lane = {
    stage: new Int32Array(words.length),
    op: new Uint8Array(words.length),
    micro: new Int32Array(words.length),
  };
  words.forEach((word, i) => {
    const at = word.search(/[A-Z]/);
    lane.stage[i] = +word.slice(0, at);
    lane.op[i] = OPS.indexOf(word[at]);
    lane.micro[i] = +word.slice(at + 1);
  });
  return lane;
}

/// The times of those actions: for each the time until it could begin, until it began, and how long
/// it took, one after the other.
function unpackTimes(lane, flat) {
  const n = lane.op.length;
  const row = { lane, n, ready: new Float64Array(n), start: new Float64Array(n), end: new Float64Array(n) };
  let now = 0;
  for (let i = 0; i < n; i++) {
    row.ready[i] = now += flat[3 * i];
    row.start[i] = now += flat[3 * i + 1];
    row.end[i] = now += flat[3 * i + 2];
  }
  return row;
}

/// What a device holds from moment to moment: time since the last change and bytes, in turns.
function unpackLevels(flat) {
  const n = flat.length / 2;
  const levels = { n, time: new Float64Array(n), bytes: new Float64Array(n), most: 0, least: Infinity };
  let now = 0;
  for (let i = 0; i < n; i++) {
    levels.time[i] = now += flat[2 * i];
    levels.bytes[i] = flat[2 * i + 1];
    levels.most = Math.max(levels.most, levels.bytes[i]);
    levels.least = Math.min(levels.least, levels.bytes[i]);
  }
  return levels;
}

/// When and why a device idles: cause, time since the end of the last gap, and length, in turns.
function unpackGaps(flat) {
  const n = flat.length / 3;
  const gaps = { n, cause: new Uint8Array(n), start: new Float64Array(n), end: new Float64Array(n) };
  let now = 0;
  for (let i = 0; i < n; i++) {
    gaps.cause[i] = flat[3 * i];
    gaps.start[i] = now += flat[3 * i + 1];
    gaps.end[i] = now += flat[3 * i + 2];
  }
  return gaps;
}

/// All that is drawn of a run: its views are the prediction, if it has one, and the measured steps.
function unpackRun(run) {
  const lanes = run.lanes.map(unpackLane);
  const views = run.views.map((view) => {
    const rows = view.spans.map((flat, device) => unpackTimes(lanes[device], flat));
    const end = rows.reduce((end, row) => Math.max(end, row.n ? row.end[row.n - 1] : 0), 0);
    return {
      label: view.label, predicted: view.predicted, rows, end,
      levels: view.levels.map(unpackLevels), gaps: view.gaps.map(unpackGaps),
    };
  });
  return { ...run, views };
}

/// The first place in an ascending array whose value is more than `value`.
function after(array, value) {
  let low = 0, high = array.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (array[middle] > value) high = middle; else low = middle + 1;
  }
  return low;
}

/// For each action of a row, how long each operation ran before it: the mix of any stretch of time
/// is the difference of two places, however many spans lie between.
function prefixes(row) {
  if (row.before) return row.before;
  row.before = Array.from(OPS, () => new Float64Array(row.n + 1));
  for (let i = 0; i < row.n; i++) {
    for (const sums of row.before) sums[i + 1] = sums[i];
    row.before[row.lane.op[i]][i + 1] += row.end[i] - row.start[i];
  }
  return row.before;
}

/// The spans of one micro-batch in a view, in order of time, as [device, place].
function journey(view, micro) {
  if (!view.journeys) {
    view.journeys = new Map();
    view.rows.forEach((row, device) => {
      for (let i = 0; i < row.n; i++) {
        const m = row.lane.micro[i];
        if (!view.journeys.has(m)) view.journeys.set(m, []);
        view.journeys.get(m).push([device, i]);
      }
    });
    const start = ([device, i]) => view.rows[device].start[i];
    for (const list of view.journeys.values()) list.sort((a, b) => start(a) - start(b));
  }
  return view.journeys.get(micro) || [];
}

/// The transits of tensors that pass stages in a view: the devices and the times of giver and taker.
function portalsOf(run, view) {
  if (view.portals) return view.portals;
  view.portals = [];
  if (run.portals.length === 0) return view.portals;
  const pass = new Map();
  view.rows.forEach((row, device) => {
    for (let i = 0; i < row.n; i++) {
      const op = OPS[row.lane.op[i]];
      const back = op === "B" || op === "I";
      if (op !== "F" && !back) continue;
      pass.set(`${row.lane.stage[i]} ${row.lane.micro[i]} ${back}`, { device, start: row.start[i], end: row.end[i] });
    }
  });
  for (const [key, { device, end }] of pass) {
    const [stage, micro, back] = key.split(" ");
    for (const [from, to] of run.portals) {
      const [giver, taker] = back === "true" ? [to, from] : [from, to];
      const taken = giver === +stage && pass.get(`${taker} ${micro} ${back}`);
      if (taken) view.portals.push({ start: end, end: taken.start, from: device, to: taken.device, micro: +micro });
    }
  }
  return view.portals;
}

function showTime(ns) {
  const sign = ns < 0 ? "−" : "";
  const size = Math.abs(ns);
  if (size < 1e3) return `${sign}${size.toFixed(0)} ns`;
  for (const [unit, scale] of [["µs", 1e3], ["ms", 1e6], ["s", 1e9]]) {
    const value = size / scale;
    if (value < 999.5 || unit === "s") return `${sign}${value.toPrecision(value < 99.95 ? 3 : 4)} ${unit}`;
  }
}

/// A time of a run: as a share of the predicted step where no step was measured.
function showTimeOf(run, ns) {
  return run.relative ? `${((100 * ns) / run.views[0].end).toFixed(1)} %` : showTime(ns);
}

/// Two numbers of bytes, with one unit if it suits both.
function showRange(least, most) {
  const [low, high] = [showBytes(least), showBytes(most)];
  const [number, unit] = low.split(" ");
  return low === high ? low : high.endsWith(` ${unit}`) ? `${number}–${high}` : `${low}–${high}`;
}

function showBytes(bytes) {
  let value = bytes, unit = "B";
  for (const next of ["KiB", "MiB", "GiB", "TiB"]) {
    if (value < 1023.95) break;
    value /= 1024;
    unit = next;
  }
  return `${unit === "B" ? value : value.toFixed(1)} ${unit}`;
}
