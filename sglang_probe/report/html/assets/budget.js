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
  const { least, most } = options.span || reach;
  const names = bars.map((bar) => label(bar.name, narrow ? 22 : 40));
  // What a figure beside its bar takes of the axis: the names' share of the width is Plotly's to find, and near this.
  const figure = FIGURE * Math.max(...texts.map((text) => text.length)) + 10;
  const isLeft = bars.map((_, place) => reach.right[place] < 0);
  const plot = Math.max(options.width - 16 - 7 * Math.max(...bars.map((bar) => Math.min(bar.name.length, narrow ? 22 : 40))), 3 * figure);
  const room = ((most - least || 1) * figure) / (plot - figure * (isLeft.includes(true) ? 2 : 1));
  // A waterfall takes one colour for each direction: bars in the same places below it carry the categories'.
  const clear = { marker: { color: "rgba(0,0,0,0)", line: { color: theme("ink"), width: 0.8 } } };
  const trace = {
    type: "waterfall", orientation: "h", showlegend: false,
    measure: bars.map((bar) => bar.measure),
    y: bars.map((bar, place) => place),
    x: bars.map((bar) => bar.bytes / GIB),
    textposition: "none", hovertext: bars.map((bar) => `<b>${label(bar.name)}</b><br>${both(bar.bytes, off)}`), hoverinfo: "text",
    connector: { line: { color: theme("line"), width: 1 } },
    increasing: clear, decreasing: clear, totals: clear,
  };
  // Right of its bar a figure meets neither the names nor the line at zero; left of it where the bar ends below zero.
  const told = {
    type: "scatter", mode: "text", showlegend: false, hoverinfo: "skip", cliponaxis: false, y: bars.map((bar, place) => place),
    x: bars.map((_, place) => (isLeft[place] ? reach.left[place] : reach.right[place]) / GIB),
    text: texts.map((text, place) => (isLeft[place] ? `${text} ` : ` ${text}`)),
    textposition: isLeft.map((is) => (is ? "middle left" : "middle right")), textfont: { color: theme("ink"), size: narrow ? 11 : 13 },
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
    traces: [...painted, trace, told],
    layout: {
      ...commonLayout(options),
      height: 60 + 40 * bars.length,
      margin: { l: 8, r: 8, t: 8, b: 44 },
      hovermode: "closest",
      barmode: "overlay",
      bargap: 0.3, waterfallgap: 0.3,
      xaxis: { ...axisLook(), title: { text: "GiB" }, zeroline: true, zerolinecolor: theme("ink"), zerolinewidth: 2,
        range: [(least - (isLeft.includes(true) ? room : 0)) / GIB, (most + room) / GIB] },
      yaxis: { ...axisLook(), autorange: "reversed", automargin: true, showgrid: false, fixedrange: true,
        tickvals: bars.map((bar, place) => place), ticktext: names },
    },
  };
}

const FIGURE = 7.4; // pixels of a digit

/** Where each bar begins and ends, and how far all of them reach: what Plotly's own waterfall computes. */
function reachOf(bars) {
  let sum = 0;
  const from = [];
  let least = 0;
  let most = 0;
  const left = [];
  const right = [];
  for (const bar of bars) {
    from.push(bar.measure === "relative" ? sum : 0);
    sum = bar.measure === "relative" ? sum + bar.bytes : bar.bytes;
    least = Math.min(least, sum);
    most = Math.max(most, sum);
    left.push(Math.min(from[from.length - 1], sum));
    right.push(Math.max(from[from.length - 1], sum));
  }
  return { from, left, right, least, most };
}

/** One scale for several budgets: what is longer is more. */
function budgetSpan(workers) {
  const found = workers.filter((worker) => !worker.why).map((worker) => reachOf(worker.bars));
  return found.length ? { least: Math.min(...found.map((one) => one.least)), most: Math.max(...found.map((one) => one.most)) } : null;
}

function budgetTable(worker) {
  const rows = worker.bars.map((bar) => [
    bar.name, { absolute: "", relative: "added", total: "comes to" }[bar.measure], gib(bar.bytes), count(bar.bytes),
  ]);
  return table("The budget, term by term", ["term", "", "#GiB", "#bytes"], rows);
}
