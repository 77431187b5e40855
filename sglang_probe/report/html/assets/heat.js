// Ranks beside phases, coloured by how far a figure is from the median of all ranks, so that what is odd stands out.

const MEASURES = {
  cost: ["cost", "GiB", (cell) => gib(cell), (cell) => both(cell)],
  seconds: ["seconds", "s", (cell) => seconds(cell), (cell) => `${seconds(cell)} s`],
  free: ["free after", "GiB", (cell) => gib(cell), (cell) => both(cell)],
};

function heatFigure(run, measure, picked, options) {
  const heat = run.heat;
  const [, unit, short, long] = MEASURES[measure];
  const scale = measure === "seconds" ? 1 : GIB;
  const narrow = options.width < 560;
  const apart = heat.rows.map((row) => row.cells[measure].map((cell, place) => {
    const usual = heat.median[measure][place];
    return cell === null || usual === null ? null : farthest(row, measure, place, usual) / scale;
  }));
  // The root makes a difference of seconds readable beside one of minutes; the bar at the side has the real figures.
  const root = (value) => (value === null ? null : Math.sign(value) * Math.sqrt(Math.abs(value)));
  const least = measure === "seconds" ? 1 : 0.125; // what does not stand out stays pale
  const most = Math.max(least, ...apart.flat().map((value) => Math.abs(value ?? 0)));
  const marks = [-most, -most / 4, 0, most / 4, most];
  const room = (options.width - 180) / heat.phases.length;
  const withText = heat.rows.length <= 24 && room >= 55;
  const isFlat = room >= 105;
  const hover = heat.rows.map((row) => row.cells[measure].map((cell, place) => {
    const several = row.ranks.length > 1
      ? `<br>${plural(row.ranks.length, "rank")}, from ${short(row.least[measure][place])} to ${short(row.most[measure][place])} ${unit}`
      : "";
    return `<b>${label(row.name)}</b>, ${label(heat.phases[place])}<br>${label(MEASURES[measure][0])} ` +
      `${cell === null ? "unknown" : long(cell)}<br>median of all ranks ${short(heat.median[measure][place])} ${unit}${several}`;
  }));
  const at = heat.rows.findIndex((row) => row.ranks.includes(picked));
  return {
    traces: [{
      type: "heatmap", z: apart.map((row) => row.map(root)), zmin: -Math.sqrt(most), zmax: Math.sqrt(most), zmid: 0,
      x: heat.phases.map((_, place) => place), y: heat.rows.map((_, place) => place), xgap: 2, ygap: heat.rows.length > 60 ? 0 : 2,
      colorscale: [[0, "#0072b2"], [0.5, theme("middle")], [1, "#d55e00"]],
      hovertext: hover, hoverinfo: "text", hoverongaps: true, showscale: !narrow,
      text: withText ? heat.rows.map((row) => row.cells[measure].map(short)) : undefined,
      texttemplate: withText ? "%{text}" : undefined, textfont: { size: 11 },
      colorbar: { title: { text: `${unit} from the median`, side: "right", font: { size: 11 } }, thickness: 12, tickvals: marks.map(root),
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
      shapes: at < 0 ? [] : [{ type: "rect", xref: "paper", x0: 0, x1: 1, y0: at - 0.5, y1: at + 0.5,
        line: { color: theme("focus"), width: 2.5 }, fillcolor: "rgba(0,0,0,0)" }],
    },
  };
}

/** Of a row of several ranks the one that is farthest from the median decides the colour: none is hidden by others. */
function farthest(row, measure, place, usual) {
  const low = row.least[measure][place] - usual;
  const high = row.most[measure][place] - usual;
  return Math.abs(low) > Math.abs(high) ? low : high;
}

function heatTable(run, measure, pick) {
  const heat = run.heat;
  const [name, unit, short] = MEASURES[measure];
  const rows = heat.rows.map((row) => [
    el("button", { type: "button", onclick: () => pick(row.ranks[0]) }, row.name),
    ...row.cells[measure].map(short), row.stands_out ? "stands out" : "",
  ]);
  rows.push([el("b", null, "median"), ...heat.median[measure].map(short), ""]);
  return table(`${name} of each phase, ${unit}`, ["rank", ...heat.phases.map((phase) => `#${phase}`), ""], rows);
}
