// Ranks beside phases, coloured by how far a figure is from the median of all ranks, so that what is odd stands out.

const MEASURES = {
  cost: ["cost", "GiB", gib, both],
  seconds: ["seconds", "s", (cell) => seconds(cell), (cell) => `${seconds(cell)} s`],
  free: ["free after", "GiB", gib, both],
};

/** A measure whose figures have the decimals that a run's bear. */
function measureOf(run, measure) {
  const [name, unit, short, long] = MEASURES[measure];
  return [name, unit, (cell) => short(cell, run.heat.off), (cell) => long(cell, run.heat.off)];
}

/** By how much a cell is off the median; 0 where that is within what is alike, so that colour and sentence agree. */
function offMedian(run, measure) {
  const { rows, median, alike } = run.heat;
  return rows.map((row) => row.cells[measure].map((cell, place) => {
    if (cell === null || median[measure][place] === null) return null;
    const off = farthest(row, measure, place, median[measure][place]);
    return alike[measure][place] !== null && Math.abs(off) > alike[measure][place] ? off : 0;
  }));
}

const PALE = 0.3; // the least tint of a cell that is off

function heatFigure(run, measure, picked, options) {
  const heat = run.heat;
  const [, unit, short, long] = measureOf(run, measure);
  const scale = measure === "seconds" ? 1 : GIB;
  const narrow = options.width < 560;
  const apart = offMedian(run, measure).map((row) => row.map((off) => (off === null ? null : off / scale)));
  const most = Math.max(0, ...apart.flat().map((value) => Math.abs(value ?? 0)));
  const isFlatMap = most === 0;
  const reach = most || 1;
  const marks = [-reach, -reach / 2, 0, reach / 2, reach];
  const tint = (strength, end) => mixed(theme("middle"), end, PALE + (1 - PALE) * strength);
  const room = (options.width - 180) / heat.phases.length;
  const withText = heat.rows.length <= 24 && room >= 55;
  const isFlat = room >= 105;
  const written = heat.rows.map((row) => row.cells[measure].map((cell, place) => {
    const [word, mark] = STATES[row.states[place]] || ["", ""];
    return [withText ? short(cell) : "", mark, isFlat && withText ? word : ""].filter((part) => part).join(" ");
  }));
  const hover = heat.rows.map((row) => row.cells[measure].map((cell, place) => {
    const several = row.ranks.length > 1
      ? `<br>${plural(row.ranks.length, "rank")}, from ${short(row.least[measure][place])} to ${short(row.most[measure][place])} ${unit}`
      : "";
    const ended = row.states[place] ? ` <b>${label(stateWord(row.states[place]))}</b>` : "";
    return `<b>${label(row.name)}</b>, ${label(heat.phases[place])}${ended}<br>${label(MEASURES[measure][0])} ` +
      `${cell === null ? "unknown" : long(cell)}<br>median of all ranks ${short(heat.median[measure][place])} ${unit}${several}`;
  }));
  const at = heat.rows.findIndex((row) => row.ranks.includes(picked));
  return {
    traces: [{
      type: "heatmap", z: apart, zmin: -reach, zmax: reach,
      x: heat.phases.map((_, place) => place), y: heat.rows.map((_, place) => place), xgap: 2, ygap: heat.rows.length > 60 ? 0 : 2,
      colorscale: [[0, BLUE], [0.4999, tint(0, BLUE)], [0.4999, theme("middle")], [0.5001, theme("middle")], [0.5001, tint(0, ORANGE)], [1, ORANGE]],
      hovertext: hover, hoverinfo: "text", hoverongaps: true, showscale: !narrow && !isFlatMap,
      text: written, texttemplate: "%{text}", textfont: { size: 11 },
      colorbar: { title: { text: `${unit} from the median`, side: "right", font: { size: 11 } }, thickness: 12, tickvals: marks,
        ticktext: marks.map((value) => signed(rounded(value, value && Math.abs(value) < 1 ? 3 : 1))), outlinewidth: 0 },
    }],
    layout: {
      ...commonLayout(options),
      height: Math.max(150, 90 + heat.rows.length * (heat.rows.length > 24 ? 17 : 26)) + (narrow ? 60 : 30),
      margin: { l: 8, r: isFlat || !narrow ? 8 : 64, t: 8, b: 8 },
      hovermode: "closest",
      xaxis: { ...axisLook(), side: "top", automargin: true, showgrid: false, fixedrange: true, zeroline: false,
        tickvals: heat.phases.map((_, place) => place), ticktext: heat.phases.map((phase) => label(phase)),
        tickangle: isFlat ? 0 : -50, tickfont: { size: 11 } },
      yaxis: { ...axisLook(), autorange: "reversed", automargin: true, showgrid: false, fixedrange: true, zeroline: false,
        tickvals: heat.rows.map((_, place) => place), ticktext: heat.rows.map((row) => label(row.name, narrow ? 16 : 32)), tickfont: { size: 11 } },
      shapes: [...endedShapes(heat), ...(at < 0 ? [] : [{ type: "rect", xref: "paper", x0: 0, x1: 1, y0: at - 0.5, y1: at + 0.5,
        line: { color: theme("focus"), width: 2.5 }, fillcolor: "rgba(0,0,0,0)" }])],
    },
  };
}

const [BLUE, ORANGE] = ["#0072b2", "#d55e00"];

/** A colour between two, both as #rrggbb. */
function mixed(from, to, share) {
  const part = (text, place) => parseInt(text.slice(1 + 2 * place, 3 + 2 * place), 16);
  return `#${[0, 1, 2].map((place) => Math.round(part(from, place) * (1 - share) + part(to, place) * share).toString(16).padStart(2, "0")).join("")}`;
}

/** A frame round each cell that did not end well. */
function endedShapes(heat) {
  return heat.rows.flatMap((row, at) => row.states.map((state, place) => (state === null ? null : {
    type: "rect", x0: place - 0.47, x1: place + 0.47, y0: at - 0.42, y1: at + 0.42, fillcolor: "rgba(0,0,0,0)",
    line: { color: theme("bad"), width: 1.5, dash: state === "error" || state === "died" ? "solid" : "dot" },
  })).filter((shape) => shape));
}

/** What the marks, the colours and the dashes of the map mean, of those that are in it. */
function heatNotes(run, measure) {
  const heat = run.heat;
  const held = new Set(heat.rows.flatMap((row) => row.states));
  const marks = Object.entries(STATES).filter(([state]) => held.has(state)).map(([, [word, mark]]) => `${mark} ${word}`);
  const alike = measure === "seconds" ? "0.2 s, or as much again as the median," : "0.125 GiB";
  const two = run.ranks.length === 2 ? " (of two ranks: of each other)" : "";
  const colours = heat.host && measure !== "seconds"
    ? "No colours: on a CPU these figures are the host's, at whatever moment they were read."
    : `A figure within ${alike} of the median${two} has no colour; beyond, colours are linear up to the farthest one.`;
  return [
    marks.length ? `Framed: ${marks.join(", ")}.` : null,
    ...heat.why[measure].map((reason) => `No figure in ${reason}.`),
    `${colours}${measure === "cost" ? " A cost is without that of phases inside." : ""}`,
    "Click a row, or a button of the table, to pick its rank.",
  ].filter((line) => line);
}

/** Of a row of several ranks the one that is farthest from the median decides the colour: none is hidden by others. */
function farthest(row, measure, place, usual) {
  const low = row.least[measure][place] - usual;
  const high = row.most[measure][place] - usual;
  return Math.abs(low) > Math.abs(high) ? low : high;
}

function heatTable(run, measure, pick) {
  const heat = run.heat;
  const [name, unit, short] = measureOf(run, measure);
  const rows = heat.rows.map((row) => [
    el("button", { type: "button", onclick: () => pick(row.ranks[0]) }, row.name),
    ...row.cells[measure].map((cell, place) => (row.states[place] ? `${short(cell)} ${stateWord(row.states[place])}` : short(cell))),
    row.stands_out ? "stands out" : "",
  ]);
  rows.push([el("b", null, "median"), ...heat.median[measure].map(short), ""]);
  return table(`${name} of each phase, ${unit}`, ["rank", ...heat.phases.map((phase) => `#${phase}`), ""], rows);
}
