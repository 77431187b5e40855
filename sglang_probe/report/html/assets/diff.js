// A comparison: what differs first, then the runs side by side.

LOOKS.worse = ["#d55e00", "\\"];
LOOKS.better = ["#009e73", ""];

function diffParts() {
  const diff = DOC.diff;
  const parts = [
    el("section", { class: "look", "aria-label": "In one look" },
      diff.says.map((line, place) => el("p", { class: place === 0 || !diff.changes ? "outcome" : "also" }, line)),
      diff.causes.map((line) => el("p", { class: "also" }, line)),
      diff.do.map((one) => el("p", { class: "also" }, `${one.about}: `, el("b", null, one.do))),
      diff.notes.map((line) => el("p", { class: "note" }, line))),
    section("numbers", "Main numbers", sidesTable("Main numbers of each run", diff.numbers)),
    section("made", "What they were made of", ...madePart(diff)),
  ];
  if (diff.arithmetic) parts.push(section("arithmetic", `What changed the budget of the tightest rank (${diff.arithmetic.name})`, ...arithmeticPart(diff)));
  if (diff.kinds.length) parts.push(section("kinds", "Phases and categories that differ, in GiB if no unit is named", ...diff.kinds.map(kindPart)));
  if (diff.ranks.length) parts.push(rankPicker(DOC.runs[state.run]), el("div", { id: "of-rank" }));
  parts.push(section("findings", "Findings about each", sides((run) => [el("h3", null, run.head.outcome), ...findings(run)])));
  parts.push(section("processes", "Processes and GPUs", sides((run) => processes(run))));
  parts.push(section("provenance", "What each was made of", sides((run) => provenance(run))));
  return parts;
}

/** A column for each run, below its name; one below the other where the window is narrow. */
function sides(make) {
  return el("div", { class: "sides" }, DOC.runs.map((run) => el("div", null, el("p", { class: "side" }, sideName(run)), make(run))));
}

const sideName = (run) => `${run.side}: ${run.name}`;

/** Cells that are not the same are set apart from those that are. */
function sidesTable(caption, rows) {
  const cells = rows.map(([name, ...values]) => {
    const differs = new Set(values).size > 1;
    return [name, ...values.map((value) => (differs ? el("b", null, value) : value))];
  });
  return table(caption, ["", ...DOC.diff.sides], cells, { class: "plain" });
}

function madePart(diff) {
  const made = diff.made.map((one) => sidesTable(one.title, one.rows));
  if (!made.length) made.push(el("p", null, diff.nothing_made));
  if (diff.aside.length) made.push(details("Differs, and does not count", el("ul", null, diff.aside.map((line) => el("li", null, line)))));
  return made;
}

function arithmeticPart(diff) {
  const work = { ...diff.arithmetic, fails: false };
  return [
    chart("What changed the budget, part by part, as a waterfall; the text below has the same figures", (options) => budgetFigure(work, options)),
    lazily("The same as a table", () => budgetTable(work)),
    details("How the parts add up", el("pre", { class: "formula" }, work.lines.join("\n"))),
  ];
}

function kindPart(kind) {
  const headings = ["", ...DOC.diff.sides.map((side) => `#${side}`), ...(DOC.diff.changes ? ["#change"] : [])];
  const rows = kind.rows.map((row) => {
    const depth = row[row.length - 1];
    return [el("span", { class: "step", style: `padding-left: ${depth}em` }, row[0]), ...row.slice(1, -1)];
  });
  return el("div", null, rows.length ? table(kind.who, headings, rows) : el("p", null, kind.who),
    kind.not_reached.map((line) => el("p", { class: "note" }, line)));
}

/** The picked rank on every side that has it. */
function sidesOfRank(label) {
  const found = DOC.runs.map((run) => [run, run.ranks.find((rank) => rank.label === label)]).filter(([, rank]) => rank);
  const { lacks } = DOC.diff.ranks.find((rank) => rank.label === label);
  const drawn = found.map(([, rank]) => rank).filter((rank) => !rank.memory.why);
  const times = sharedTimes(drawn);
  const span = { ...rangeOf(drawn), times };
  const budget = budgetSpan(found.flatMap(([, rank]) => rank.workers));
  const side = (make) => el("div", { class: "sides" }, found.map(([run, rank]) => el("div", null,
    el("p", { class: "side" }, sideName(run)), el("p", { class: "note" }, where(rank)), make(run, rank))));
  const missing = lacks.length ? el("p", { class: "note" }, `${lacks.join(", ")} ${lacks.length === 1 ? "has" : "have"} no rank ${label}.`) : null;
  const scales = drawn.length > 1 && !times ? el("p", { class: "note" }, "GiB are on one scale; the time axes are not: the runs took too unlike times, and each chart shows its own.") : null;
  return [
    section("memory", `Memory of ${label} over time`, missing, axisChoice(), scales, side((run, rank) => memoryPart(run, rank, span))),
    section("budget", `KV budget of ${label}`, side((run, rank) => budgetPart(rank, budget))),
  ];
}

const LONGEST_TIMES = 3; // by how much one time axis for all may be longer than the shortest one's own

/** One time axis for all sides; null where it would leave too little of it to one of them. */
function sharedTimes(ranks) {
  const own = ranks.map((rank) => timesOf(rank.memory));
  if (!own.length) return null;
  const [start, until] = [Math.min(...own.map(([from]) => from)), Math.max(...own.map(([, to]) => to))];
  return own.every(([from, to]) => until - start <= LONGEST_TIMES * (to - from)) ? [start, until] : null;
}

/** One scale for all sides: what is taller is more. */
function rangeOf(ranks) {
  let most = 0;
  let least = 0;
  for (const rank of ranks) {
    const { held, total } = rank.memory;
    const columns = Object.values(held);
    total.forEach((bytes, place) => {
      most = Math.max(most, bytes || 0, columns.reduce((sum, column) => sum + Math.max(column[place] || 0, 0), 0));
      least = Math.min(least, columns.reduce((sum, column) => sum + Math.min(column[place] || 0, 0), 0));
    });
  }
  return most ? { most: (most / GIB) * 1.05, least: (least / GIB) * 1.05 } : {};
}
