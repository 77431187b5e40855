// The budget as a waterfall, from the pre-load memory at the top to what is left at the bottom.

const LEAST_DRAWN = 2 ** 19; // bytes: less is 0.000 GiB, and stands in the table

function budgetFigure(worker, options) {
  const narrow = options.width < 560;
  const bars = worker.bars.filter((bar) => bar.measure !== "relative" || Math.abs(bar.bytes) >= LEAST_DRAWN);
  const off = Math.max(0, ...Object.values(worker.off)) || null;
  const isBelow = (bar) => bar.measure === "total" && bar.bytes < 0;
  const look = (bar) => (isBelow(bar) ? LOOKS.below : LOOKS[bar.kind]);
  const texts = bars.map((bar) => (bar.measure === "relative" ? signed(gib(bar.bytes, off)) : gib(bar.bytes, off)));
  const reach = reachOf(bars);
  const room = (reach.most - reach.least || 1) * (narrow ? 0.5 : 0.14);
  // A waterfall takes one colour for each direction: bars in the same places below it carry the categories'.
  const clear = { marker: { color: "rgba(0,0,0,0)", line: { color: theme("ink"), width: 0.8 } } };
  const trace = {
    type: "waterfall", orientation: "h", showlegend: false,
    measure: bars.map((bar) => bar.measure),
    y: bars.map((bar, place) => place),
    x: bars.map((bar) => bar.bytes / GIB),
    text: texts, textposition: "outside", cliponaxis: false, constraintext: "none",
    hovertext: bars.map((bar) => `<b>${label(bar.name)}</b><br>${both(bar.bytes, off)}`), hoverinfo: "text",
    connector: { line: { color: theme("line"), width: 1 } },
    increasing: clear, decreasing: clear, totals: clear,
    outsidetextfont: { color: theme("ink"), size: narrow ? 11 : 13 },
  };
  const painted = bars.map((bar, place) => ({
    type: "bar", orientation: "h", showlegend: false, hoverinfo: "skip",
    y: [place], base: [reach.from[place] / GIB], x: [bar.bytes / GIB],
    marker: {
      color: look(bar)[0],
      pattern: { shape: look(bar)[1], fgcolor: theme("pattern"), fgopacity: 0.75, size: 6, solidity: 0.25, fillmode: "overlay" },
    },
  }));
  return {
    traces: [...painted, trace],
    layout: {
      ...commonLayout(options),
      height: 60 + 40 * bars.length,
      margin: { l: 8, r: 8, t: 8, b: 44 },
      hovermode: "closest",
      barmode: "overlay",
      bargap: 0.3, waterfallgap: 0.3,
      xaxis: { ...axisLook(), title: { text: "GiB" }, zeroline: true, zerolinecolor: theme("ink"), zerolinewidth: 2,
        range: [Math.min(reach.least, reach.told - room) / GIB, (reach.most + room) / GIB] },
      yaxis: { ...axisLook(), autorange: "reversed", automargin: true, showgrid: false, fixedrange: true,
        tickvals: bars.map((bar, place) => place), ticktext: bars.map((bar) => label(bar.name, narrow ? 22 : 40)) },
    },
  };
}

/** Where each bar begins, how far all of them reach, and where the lowest says its figure, to its left: what Plotly's own waterfall computes, for the colours below it. */
function reachOf(bars) {
  let sum = 0;
  const from = [];
  let least = 0;
  let most = 0;
  let told = Infinity;
  for (const bar of bars) {
    from.push(bar.measure === "relative" ? sum : 0);
    sum = bar.measure === "relative" ? sum + bar.bytes : bar.bytes;
    least = Math.min(least, sum);
    most = Math.max(most, sum);
    if (bar.bytes < 0) told = Math.min(told, sum);
  }
  return { from, least, most, told };
}

function budgetTable(worker) {
  const rows = worker.bars.map((bar) => [
    bar.name, { absolute: "", relative: "added", total: "comes to" }[bar.measure], gib(bar.bytes), count(bar.bytes),
  ]);
  return table("The budget, term by term", ["term", "", "#GiB", "#bytes"], rows);
}
