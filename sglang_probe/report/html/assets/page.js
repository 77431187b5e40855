// The page itself: what is chosen, which chart is drawn when, light and dark, print.

const state = { run: 0, rank: null, axis: "time", measure: "cost", theme: null, isPrinting: false };
const charts = [];
let plotly = null;

function axisLook() {
  return { color: theme("ink"), gridcolor: theme("grid"), linecolor: theme("line"), tickfont: { size: 12 } };
}

function commonLayout(options) {
  return {
    width: options.width, paper_bgcolor: theme("paper"), plot_bgcolor: theme("paper"), autosize: false,
    font: { family: "system-ui, sans-serif", size: 13, color: theme("ink") }, dragmode: "zoom",
    hoverlabel: { bgcolor: theme("paper"), bordercolor: theme("ink"), font: { color: theme("ink"), size: 12 }, align: "left", namelength: -1 },
  };
}

// Named one by one: by itself Plotly adds a button that sends the chart to a server of its maker's.
const CONFIG = {
  displaylogo: false, responsive: false, showSendToCloud: false, showEditInChartStudio: false, plotlyServerURL: "",
  modeBarButtons: [["toImage"], ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
};

/** A place for a chart, drawn when it comes near the window; `make` returns its figure for a width. */
function chart(name, make, after) {
  const place = el("div", { class: "chart", role: "img", "aria-label": name });
  const one = { place, make, after, isDrawn: false, width: 0 };
  charts.push(one);
  watcher.observe(place);
  return place;
}

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) draw(charts.find((one) => one.place === entry.target));
  }
}, { rootMargin: "400px" });

const sizes = new ResizeObserver((entries) => {
  for (const entry of entries) {
    const one = charts.find((other) => other.place === entry.target);
    if (one && !state.isPrinting && Math.abs(entry.contentRect.width - one.width) > 1) draw(one);
  }
});

function draw(one, width) {
  if (!one || plotly === null) return;
  const room = Math.floor(width || one.place.clientWidth);
  if (!room) return;
  const figure = one.make({ width: room });
  one.width = room;
  plotly.react(one.place, figure.traces, figure.layout, CONFIG);
  if (!one.isDrawn) {
    one.isDrawn = true;
    sizes.observe(one.place);
    if (one.after) one.after(one.place);
    performance.mark("chart");
    document.documentElement.dataset.drawn = String(Number(document.documentElement.dataset.drawn || 0) + 1);
  }
}

/** Draw again what was drawn: another theme, another axis. */
function redraw(width) {
  for (const one of charts) if (one.isDrawn || width) draw(one, width && one.place.clientWidth ? Math.min(width, one.place.clientWidth || width) : width);
}

function pick(place) {
  state.rank = place;
  const picker = document.getElementById("rank");
  if (picker) picker.value = String(place);
  fillRank();
}

/** The parts that are about the picked rank. */
function fillRank() {
  const run = DOC.runs[state.run];
  const rank = (DOC.diff || run).ranks[state.rank];
  const box = document.getElementById("of-rank");
  forget(box);
  box.replaceChildren(...(DOC.diff ? sidesOfRank(rank.label) : ofRank(run, rank)));
  const told = document.getElementById("where");
  if (told) told.textContent = DOC.diff ? "" : where(rank);
  redraw();
  drawWhenIdle();
}

/** The charts that were not scrolled to yet, one after the other: whoever prints or takes a picture has them all. */
function drawWhenIdle() {
  (window.requestIdleCallback || setTimeout)(() => {
    const next = charts.find((one) => !one.isDrawn && one.place.clientWidth);
    if (plotly === null || !next) return;
    draw(next);
    if (next.isDrawn) drawWhenIdle();
  });
}

/** Charts inside an element that is about to go. */
function forget(box) {
  for (let place = charts.length - 1; place >= 0; place -= 1) {
    if (box.contains(charts[place].place)) {
      watcher.unobserve(charts[place].place);
      sizes.unobserve(charts[place].place);
      if (charts[place].isDrawn) plotly.purge(charts[place].place);
      charts.splice(place, 1);
    }
  }
}

function ofRank(run, rank) {
  const span = rank.workers.length > 1 ? budgetSpan(rank.workers) : null;
  return [
    section("memory", `Memory of ${rank.label} over time`, axisChoice(), ...memoryPart(run, rank, {})),
    section("budget", `KV budget of ${rank.label}`, ...budgetPart(rank, span)),
  ];
}

function axisChoice() {
  const options = [["time", "time"], ["steps", "readings"]];
  return choice("Across", options, state.axis, (axis) => { state.axis = axis; redraw(); });
}

/** The chart of a rank's memory and its tables; `span` is the scale that several share. */
function memoryPart(run, rank, span) {
  const memory = rank.memory;
  if (memory.why) {
    return [el("p", { class: "none" }, `No chart: ${memory.why}.`), memory.steps.name.length ? lazily("Steps as a table", () => stepsTable(run, rank)) : null];
  }
  const said = `Memory of ${rank.label} by category over time; the table below has the same figures`;
  return [
    el("div", { class: "beside" }, chart(said, (options) => memoryFigure(run, rank, state.axis, { ...options, ...span })), legendTable(run, rank)),
    sentences(memory.notes),
    lazily("Every reading as a table", () => momentsTable(run, rank)),
    lazily("Every step as a table", () => stepsTable(run, rank)),
    rank.failures.map((lines) => el("div", { class: "failure" }, el("b", null, lines[0]), el("pre", null, lines.slice(1).join("\n")))),
  ];
}

function budgetPart(rank, span) {
  const made = [];
  for (const worker of rank.workers) {
    const title = rank.workers.length > 1 ? el("h3", null, worker.model ? `${worker.name}: ${worker.model}` : worker.name) : null;
    const lines = el("pre", { class: "formula" }, worker.lines.join("\n"));
    if (worker.why) made.push(title, el("p", { class: "none" }, `No chart: ${worker.why}.`), worker.lines.length ? lines : null);
    else {
      const said = `Budget of ${rank.label}, ${worker.name}, as a waterfall; the table below has the same figures`;
      made.push(title, lines, chart(said, (options) => budgetFigure(worker, { ...options, span })), lazily("The budget as a table", () => budgetTable(worker)));
    }
  }
  if (!rank.workers.length) made.push(el("p", { class: "none" }, "No chart: no model was loaded and no budget made on this rank, as far as is recorded."));
  if (rank.pre_load.length) {
    const [title, ...lines] = rank.pre_load;
    made.push(el("h3", null, title), lines.map((line) => el("p", { class: "way" }, line)));
  }
  return made;
}

function heatPart(run) {
  if (!run.heat.phases.length) return [el("p", { class: "none" }, "No chart: no rank recorded a step.")];
  state.measure = ["cost", "free"].find((measure) => run.heat.odd[measure]) || "cost";
  const holder = el("div");
  const fill = () => {
    forget(holder);
    const said = `${MEASURES[state.measure][0]} of each phase on each rank; the table below has the same figures and picks ranks by keyboard`;
    holder.replaceChildren(
      chart(said, (options) => heatFigure(run, state.measure, state.rank, options), (place) => {
        place.on("plotly_click", (event) => pick(run.heat.rows[event.points[0].pointIndex[0]].ranks[0]));
      }),
      ...sentences(heatNotes(run, state.measure)),
      lazily("The same as a table", () => heatTable(run, state.measure, pick)));
  };
  fill();
  return [
    choice("Colour by", Object.entries(MEASURES).map(([value, [text]]) => [value, run.heat.odd[value] ? `${text} (${run.heat.odd[value]})` : text]), state.measure, (measure) => { state.measure = measure; fill(); }),
    run.ranks.length > 1 ? oddPart(run) : null,
    holder,
  ];
}

const MANY_ODD = 12;

/** Which ranks stand out by their memory or by how they ended, and which took long. */
function oddPart(run) {
  const heat = run.heat;
  const buttons = (places) => [places.slice(0, MANY_ODD).map((place) => el("button", { type: "button", onclick: () => pick(place) }, run.ranks[place].label)),
    places.length > MANY_ODD ? " …" : ""];
  const memory = heat.host ? "the host's memory sets no rank apart" : "memory is within 0.125 GiB of the median everywhere";
  const apart = run.ranks.length === 2 && !heat.host ? ["cost", "free"].filter((measure) => heat.odd[measure]) : [];
  const said = [];
  for (const [places, what] of [[heat.ended, "how it ended"], [heat.outliers.filter((place) => !heat.ended.includes(place)), "memory"]]) {
    const verb = places.length === 1 ? "stands" : "stand";
    if (places.length) said.push([`${plural(places.length, "rank")} of ${count(run.ranks.length)} ${verb} out by ${what}: `, buttons(places)]);
  }
  if (apart.length) said.push([`The two ranks are more than 0.125 GiB apart: see ${apart.map((measure) => MEASURES[measure][0]).join(", ")}.`]);
  if (!said.length) said.push([`No rank stands out: ${run.ranks.length === 2 && !heat.host ? "memory of the two is within 0.125 GiB everywhere" : memory}, and all ended alike.`]);
  if (heat.slow.length) said.push([`${plural(heat.slow.length, "rank")} took much longer or shorter in a phase, and differ${heat.slow.length === 1 ? "s" : ""} in nothing else: `, buttons(heat.slow)]);
  return said.map((line) => el("p", { class: "note" }, line));
}

function rankPicker(run) {
  const ranks = DOC.diff ? DOC.diff.ranks : run.ranks;
  if (ranks.length === 0) return null;
  const odd = new Set(DOC.diff ? [] : run.heat.outliers);
  const { picked, picked_why: why } = DOC.diff || run;
  const options = ranks.map((rank, place) => el("option", { value: place }, [
    rank.label.slice(0, 80),
    odd.has(place) ? "stands out" : null,
    DOC.diff && rank.lacks.length ? `not in ${rank.lacks.join(", ")}` : null,
    place === picked ? why : null,
  ].filter((part) => part).join(" - ")));
  const picker = el("select", { id: "rank", onchange: (event) => pick(Number(event.target.value)) }, options);
  picker.value = String(state.rank);
  return el("div", { class: "bar", id: "ranks-bar" }, el("label", { for: "rank" }, "Rank"), picker, el("span", { id: "where" }));
}

function runPicker() {
  if (DOC.runs.length < 2 || DOC.diff) return null;
  const picker = el("select", { id: "run", onchange: (event) => { state.run = Number(event.target.value); state.rank = null; build(); } },
    DOC.runs.map((run, place) => el("option", { value: place }, `${run.name.slice(0, 80)} (${run.ended})`)));
  picker.value = String(state.run);
  return el("div", { class: "bar" }, el("label", { for: "run" }, "Run"), picker);
}

function themeSwitch() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (state.theme === null ? system.matches : state.theme === "dark");
  const button = el("button", { type: "button", id: "theme" });
  const show = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Switch to light" : "Switch to dark");
  };
  button.addEventListener("click", () => { setTheme(isDark() ? "light" : "dark"); show(); });
  system.onchange = () => { show(); if (state.theme === null) redraw(); };
  show();
  return button;
}

function setTheme(name) {
  state.theme = name;
  if (name === null) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  redraw();
}

function runParts(run) {
  const parts = [headline(run), facts(run)];
  if (run.ranks.length) {
    parts.push(rankPicker(run), el("div", { id: "of-rank" }));
    parts.push(section("heat", "Ranks and phases", ...heatPart(run)));
  } else {
    const why = "No charts: no rank of this run is known. It ended before its first rank began, or what was read names none.";
    parts.push(el("p", { class: "none" }, why));
  }
  parts.push(section("processes", "Processes and GPUs", ...processes(run)));
  parts.push(section("findings", "Findings", ...findings(run)));
  parts.push(section("provenance", "What the run was made of", ...provenance(run)));
  return parts;
}

function build() {
  const page = document.getElementById("page");
  forget(page);
  const run = DOC.runs[state.run];
  if (run && state.rank === null) state.rank = (DOC.diff || run).picked;
  const title = DOC.diff ? DOC.diff.title : run ? run.name : "No run";
  const parts = DOC.diff ? diffParts() : run ? runParts(run) : [el("p", { class: "none" }, "What was read holds no run of a server.")];
  page.replaceChildren(
    el("header", null, el("div", null, el("p", { class: "maker" }, `SGLang Probe ${DOC.version}`), el("h1", null, title)), el("div", { class: "controls" }, runPicker(), themeSwitch())),
    el("main", null, parts, section("reading", "What was read, and what was lost", ...(run ? reading(run) : [DOC.read.map((line) => el("p", null, line))]))));
  if (document.getElementById("of-rank")) fillRank();
}

/** Unpack plotly.js and run it: a script of ours by its hash, like this one. */
async function unpack() {
  const packed = atob(document.getElementById("plotly").textContent);
  const bytes = new Uint8Array(packed.length);
  for (let place = 0; place < packed.length; place += 1) bytes[place] = packed.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = el("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
  plotly = window.Plotly;
}

function printing(isOn) {
  state.isPrinting = isOn;
  const kept = printing.kept;
  if (isOn) {
    printing.kept = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    for (const one of charts) draw(one, 680);
    return;
  }
  if (kept === undefined) delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = kept;
  redraw();
}

window.addEventListener("beforeprint", () => printing(true));
window.addEventListener("afterprint", () => printing(false));
build();
unpack().then(() => charts.filter((one, place) => !place || one.place.getBoundingClientRect().top < innerHeight + 400).forEach((one) => draw(one)))
  .then(drawWhenIdle)
  .catch((error) => {
    document.querySelectorAll(".chart").forEach((place) => { place.textContent = `No chart: this browser cannot unpack plotly.js (${error}); the tables have all figures.`; });
  });
