// A rank's memory over time: the categories stacked, the total as ceiling, and the phases below on the same clock.

/** Where things stand on the horizontal axis: seconds, or one place for each reading, so that short phases show. */
function scaleOf(memory, axis, shared) {
  if (axis === "time") {
    const [start, until] = shared || timesOf(memory);
    return { at: (second) => second, start, until, title: "seconds since the run began" };
  }
  const place = (second) => {
    let low = 0;
    let high = memory.at.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (memory.at[middle] <= second) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return { at: place, start: 0, until: memory.at.length + 1, title: "readings, one after the other" };
}

/** From when to when a rank's chart goes, in seconds since the run began. */
function timesOf(memory) {
  const known = (column) => column.filter((second) => second !== null);
  const start = Math.min(memory.at[0], ...known(memory.steps.begin));
  const end = Math.max(memory.at[memory.at.length - 1], ...known(memory.steps.end));
  return [start, end + Math.max(end - start, 1e-3) * 0.04];
}

const BETWEEN = 160; // points of the time axis at which a hover finds what was held there, besides the readings

/** Points of the axis, each with the number of the reading that held there: [place, number]. Two readings at one time
 *  must not share a place of the other axis, so there they stand by their number. */
function pointsOf(memory, scale, axis) {
  const last = memory.at.length - 1;
  if (axis !== "time") return [...memory.at.map((_, number) => [number + 1, number]), [scale.until, last]];
  const points = memory.at.map((second, number) => [second, number]);
  const [first] = memory.at;
  let number = 0;
  for (let step = 1; step <= BETWEEN; step += 1) {
    const second = first + ((scale.until - first) * step) / BETWEEN;
    while (number < last && memory.at[number + 1] <= second) number += 1;
    points.push([second, number]);
  }
  return points.sort((one, other) => one[0] - other[0] || one[1] - other[1]);
}

/** The columns that a rank has, from the bottom of the stack to its top, and what each is called there. */
const keysOf = (run, memory) => run.keys.filter((key) => memory.held[key]);
const calledOf = (memory, key) => memory.called[key] || DOC.categories[key];

const BEFORE = 40; // points ahead of the first reading, at which nothing is known

function memoryTraces(run, memory, scale, axis, narrow) {
  const points = pointsOf(memory, scale, axis);
  const x = points.map(([place]) => place);
  const held = (column) => points.map(([, number]) => column[number]);
  const traces = [];
  for (const key of keysOf(run, memory)) {
    const drawn = {
      x, name: label(calledOf(memory, key)), hoverinfo: "skip", mode: "lines", showlegend: false, meta: key,
      line: { shape: "hv", width: 0.6, color: theme("line") },
      fillcolor: colour(key),
      fillpattern: { shape: LOOKS[key][1], fgcolor: theme("pattern"), fgopacity: 0.75, size: 6, solidity: 0.25,
        bgcolor: colour(key), fillmode: "overlay" },
    };
    const column = held(memory.held[key]);
    const positive = column.map((bytes) => (bytes === null ? null : Math.max(bytes, 0) / GIB));
    const negative = column.map((bytes) => Math.min(bytes ?? 0, 0) / GIB);
    if (positive.some((value) => value)) traces.push({ ...drawn, y: positive, stackgroup: "held" });
    if (negative.some((value) => value)) {
      traces.push({ ...drawn, y: negative, fill: "tozeroy", name: `${drawn.name}, negative`,
        fillpattern: { ...drawn.fillpattern, shape: LOOKS.below[1], bgcolor: LOOKS.below[0] } });
    }
  }
  const totals = held(memory.total);
  if (totals.some((bytes) => bytes !== null)) {
    traces.push({
      x, y: totals.map((bytes) => (bytes === null ? null : bytes / GIB)), name: "total", mode: "lines",
      line: { shape: "hv", width: 2.5, color: theme("ink"), dash: "dash" }, showlegend: false, hoverinfo: "skip",
    });
  }
  return [...traces, hoverTrace(run, memory, scale, points, axis, narrow)];
}

/** One box for all categories, of those that held anything: a line at half height that is not seen, but found. */
function hoverTrace(run, memory, scale, points, axis, narrow) {
  const keys = [...keysOf(run, memory)].reverse();
  const amount = (bytes, off) => `<b>${gib(bytes, off)}</b> GiB${narrow ? "" : `, ${count(bytes)} B`}`;
  const said = (number) => {
    const after = `after ${label(run.names[memory.read_at[number]], narrow ? 24 : 60)}`;
    const lines = keys.filter((key) => memory.held[key][number]).map((key) =>
      `<span style="color:${colour(key)}">■</span> ${label(calledOf(memory, key))} ${amount(memory.held[key][number], memory.off[key])}`);
    const total = memory.total[number] === null ? [] : [`total ${amount(memory.total[number])}`];
    return [after, ...lines, ...total].join("<br>");
  };
  const texts = memory.at.map((_, number) => said(number));
  const most = Math.max(...memory.at.map((_, number) => memory.total[number]
    || keys.reduce((sum, key) => sum + Math.max(memory.held[key][number] || 0, 0), 0)));
  const [first] = points[0];
  const before = Array.from({ length: BEFORE }, (_, step) => scale.start + ((first - scale.start) * step) / BEFORE);
  const when = (place) => (axis === "time" ? `${seconds(place)} s, ` : "");
  return {
    type: "scatter", mode: "markers", marker: { opacity: 0, size: 1 }, showlegend: false, name: "",
    x: [...before, ...points.map(([place]) => (axis === "time" ? place : place + 0.5))],
    y: [...before, ...points].map(() => most / GIB / 2),
    text: [...before.map((place) => `${when(place)}before the first reading`), ...points.map(([place, number]) => when(place) + texts[number])],
    hoverinfo: "text", hoverlabel: { font: { size: narrow ? 10 : 12 } },
  };
}

/** The phases as bars, a lane for each level of nesting. */
function phaseTrace(run, memory, scale, slivers) {
  const beside = new Set([...slivers.values()].map(({ place }) => place));
  const steps = memory.steps;
  const shown = steps.name.map((_, place) => place).filter((place) => steps.begin[place] !== null);
  const ends = shown.map((place) => (steps.end[place] === null ? null : steps.end[place]));
  const from = shown.map((place) => Math.max(scale.at(steps.begin[place]), 0));
  const to = ends.map((end, number) => (end === null ? scale.until : Math.max(scale.at(end), from[number])));
  const said = (place) => {
    const off = steps.off[place];
    return `<b>${label(run.names[steps.name[place]], 80)}</b> ${label(steps.state[place])}<br>` +
      `${seconds(steps.seconds[place])} s, cost ${both(steps.cost[place], off)}<br>free after ${both(steps.free[place], off)}`;
  };
  const failed = (place) => steps.state[place] !== "ok";
  return {
    type: "bar", orientation: "h", xaxis: "x", yaxis: "y2", showlegend: false,
    base: from, x: to.map((end, number) => end - from[number]), y: shown.map((place) => steps.depth[place]),
    text: shown.map((place) => (beside.has(place) ? "" : label(run.names[steps.name[place]], 40))), textposition: "inside",
    insidetextanchor: "middle", textangle: 0, constraintext: "inside",
    hovertext: shown.map(said), hoverinfo: "text", width: 0.9,
    marker: {
      color: shown.map((place) => (failed(place) ? LOOKS.below[0] : theme("bar"))),
      line: { width: 1, color: theme("paper") },
    },
    insidetextfont: { color: shown.map((place) => (failed(place) ? "#ffffff" : theme("ink"))), size: 11 },
  };
}

const LETTER = 6.4; // pixels of a letter in a label of eleven points

/** Of each lane the last phase that did not end well, where its bar has no room for its name; at the right end where
 *  nothing says when it began. */
function sliversOf(run, memory, scale, perUnit) {
  const steps = memory.steps;
  const lanes = new Map();
  steps.name.forEach((name, place) => {
    if (steps.state[place] === "ok") return;
    const from = steps.begin[place] === null ? scale.until : scale.at(steps.begin[place]);
    const to = steps.end[place] === null ? scale.until : Math.max(scale.at(steps.end[place]), from);
    const text = `${run.names[name]}: ${stateWord(steps.state[place])}`;
    if ((to - from) * perUnit < LETTER * Math.min(run.names[name].length, 40) + 8) lanes.set(steps.depth[place], { place, from, to, text });
    else lanes.delete(steps.depth[place]);
  });
  return lanes;
}

/** Their names, beside their bars. */
function phaseWords(slivers, scale, perUnit) {
  return [...slivers].map(([depth, { from, to, text }]) => {
    const isLeft = (from - scale.start) * perUnit > LETTER * Math.min(text.length, 40) + 12;
    return {
      xref: "x", yref: "y2", x: isLeft ? from : to, y: depth, text: `<b>${label(text, 40)}</b>`, showarrow: false,
      xanchor: isLeft ? "right" : "left", xshift: isLeft ? -3 : 3, font: { size: 11, color: theme("bad") }, bgcolor: theme("paper"), borderpad: 1,
    };
  });
}

/** Lines where a phase of the second level begins or ends. */
function phaseLines(memory, scale) {
  const steps = memory.steps;
  const deepest = Math.min(Math.max(...steps.depth, 0), 1);
  const places = new Set();
  steps.depth.forEach((depth, place) => {
    if (depth !== deepest || steps.begin[place] === null) return;
    places.add(scale.at(steps.begin[place]));
    if (steps.end[place] !== null) places.add(scale.at(steps.end[place]));
  });
  return [...places].map((x) => ({
    type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, layer: "above",
    line: { color: theme("line"), width: 1, dash: "dot" },
  }));
}

function memoryFigure(run, rank, axis, options) {
  const memory = rank.memory;
  const scale = scaleOf(memory, axis, options.times);
  const lanes = Math.max(...memory.steps.depth, 0) + 1;
  const narrow = options.width < 560;
  const laneShare = Math.min(0.06 * lanes, 0.3);
  const margin = { l: narrow ? 48 : 64, r: 12, t: 12, b: 48 };
  const perUnit = (options.width - margin.l - margin.r) / (scale.until - scale.start);
  const slivers = sliversOf(run, memory, scale, perUnit);
  const layout = {
    ...commonLayout(options),
    height: options.height || (narrow ? 420 : 520),
    margin,
    hovermode: "closest",
    hoverdistance: -1,
    bargap: 0,
    xaxis: { ...axisLook(), title: { text: scale.title }, range: [scale.start, scale.until], anchor: "y2",
      showspikes: true, spikemode: "across", spikethickness: 1, spikedash: "dot", spikecolor: theme("ink") },
    yaxis: { ...axisLook(), title: { text: "GiB" }, domain: [laneShare + 0.03, 1], rangemode: "tozero",
      zeroline: true, zerolinecolor: theme("ink"), zerolinewidth: 1.5, ...(options.most ? { range: [options.least, options.most] } : {}) },
    yaxis2: { domain: [0, laneShare], range: [lanes - 0.5, -0.5], showticklabels: false, showgrid: false,
      zeroline: false, fixedrange: true, title: { text: narrow ? "" : "phases", font: { size: 11 } } },
    shapes: phaseLines(memory, scale),
    annotations: phaseWords(slivers, scale, perUnit),
    uniformtext: { mode: "hide", minsize: 9 },
  };
  return { traces: [...memoryTraces(run, memory, scale, axis, narrow), phaseTrace(run, memory, scale, slivers)], layout };
}

/** What the memory was spent on at the last reading: the chart's legend, with its figures. */
function legendTable(run, rank) {
  const memory = rank.memory;
  const last = memory.at.length - 1;
  const total = memory.total[last];
  const rows = [...keysOf(run, memory)].reverse().map((key) => {
    const bytes = memory.held[key][last];
    const share = total && bytes !== null ? `${rounded((100 * bytes) / total, 1)} %` : "-";
    return [el("span", null, swatch(key), calledOf(memory, key)), gib(bytes, memory.off[key]), share, count(bytes)];
  });
  rows.push([el("b", null, "total"), gib(total), total ? "100.0 %" : "-", count(total)]);
  return table("At the last reading", ["category", "#GiB", "#share", "#bytes"], rows, { class: "legend" });
}

function momentsTable(run, rank) {
  const memory = rank.memory;
  const headings = ["after", "#second", ...keysOf(run, memory).map((key) => `#${calledOf(memory, key)}`), "#total"];
  const rows = memory.at.map((second, place) => [
    run.names[memory.read_at[place]], seconds(second),
    ...keysOf(run, memory).map((key) => gib(memory.held[key][place], memory.off[key])), gib(memory.total[place]),
  ]);
  return table("Every reading, in GiB", headings, rows);
}

function stepsTable(run, rank) {
  const steps = rank.memory.steps;
  const rows = steps.name.map((name, place) => [
    el("span", { class: "step", style: `padding-left: ${steps.depth[place]}em` }, run.names[name]),
    steps.state[place], seconds(steps.seconds[place]), gib(steps.before[place], steps.off[place]),
    gib(steps.free[place], steps.off[place]), gib(steps.cost[place], steps.off[place]), count(steps.cost[place]),
  ]);
  const headings = ["phase", "state", "#seconds", "#free before, GiB", "#free after, GiB", "#cost, GiB", "#cost, bytes"];
  return table("Every step", headings, rows);
}
