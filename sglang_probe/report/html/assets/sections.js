// The parts of the page that are words and tables.

const OUTCOMES = { ready: "READY", failed: "FAILED", died: "DIED", starting: "STARTING", unknown: "UNKNOWN" };

function headline(run) {
  const head = run.head;
  const leading = run.findings[0];
  const rest = head.outcome.startsWith(OUTCOMES[run.ended]) ? head.outcome.slice(OUTCOMES[run.ended].length) : head.outcome;
  const edge = run.findings.length && run.findings[0].severity !== "info" ? `leads-${run.findings[0].severity}` : "";
  return el("section", { class: `look ${run.ended} ${edge}`, "aria-label": "In one look" },
    el("p", { class: "outcome" }, el("span", { class: "badge" }, OUTCOMES[run.ended]), rest.replace(/^[ :,]+/, "")),
    head.why ? el("p", { class: "why" }, head.why) : null,
    head.error ? el("p", { class: "error" }, head.error) : null,
    head.loud.map((line) => el("p", { class: "loud" }, line)),
    leading ? finding(leading.severity === "info" ? { ...leading, word: "" } : leading) : el("p", null, "No rule says anything about this run."));
}

function facts(run) {
  const rows = run.head.facts.map(([name, text]) => [el("dt", null, name), el("dd", null, text)]);
  return el("section", { "aria-label": "The run" }, el("dl", { class: "facts" }, rows));
}

function finding(found) {
  return el("article", { class: `finding ${found.severity}` },
    el("h3", null, el("span", { class: "word" }, found.word), ` ${found.title} `, el("small", null, `(${found.confidence})`)),
    el("p", null, found.says),
    found.levers.length ? el("ul", { class: "levers" }, found.levers.map((lever) => el("li", null, lever))) : null,
    found.formula.length ? el("pre", { class: "formula" }, found.formula.join("\n")) : null,
    found.notes.length ? el("ul", { class: "notes" }, found.notes.map((note) => el("li", null, note))) : null);
}

function findings(run) {
  if (!run.findings.length) return [el("p", null, "No rule says anything about this run.")];
  return run.findings.map(finding);
}

function where(rank) {
  const place = [rank.host, rank.pid === null ? null : `pid ${rank.pid}`].filter((part) => part !== null);
  const card = rank.cpu ? "CPU: its memory is the host's" : rank.device === null ? null : `GPU ${rank.device}`;
  const size = rank.total === null ? "" : ` of ${gib(rank.total)} GiB`;
  const device = card === null ? null : `${card}${rank.card && !rank.cpu ? ` ${rank.card}` : ""}${size}`;
  return [...place, device].filter((part) => part !== null).join(", ") || "as its log tells";
}

const figureHeading = (name) => (["pid", "total", "steps", "events", "lost", "at last", "at most"].includes(name) ? `#${name}` : name);

/** The columns in which any row says something. */
function told(columns, rows) {
  return columns.map((_, place) => place).filter((place) => rows.some((row) => row[place] !== null && row[place] !== ""));
}

function processes(run) {
  const bytes = new Set(["total", "at last", "at most"]);
  const shown = (columns, rows, caption) => {
    const kept = told(columns, rows);
    const cells = rows.map((row) => kept.map((place) => (bytes.has(columns[place]) && row[place] !== null
      ? el("span", { title: `${count(row[place])} B` }, `${gib(row[place])} GiB`) : row[place])));
    return table(caption, kept.map((place) => figureHeading(columns[place])), cells);
  };
  const made = [];
  if (run.neighbours.length) made.push(shown(DOC.neighbour_columns, run.neighbours, "Other processes on the cards, strangers first"));
  if (!run.processes.length) return [el("p", null, "No process of this run is known: a log may name none.")];
  const list = () => shown(DOC.process_columns, run.processes, "Processes of the run");
  made.push(run.processes.length > 24 ? lazily(plural(run.processes.length, "process").replace("processs", "processes"), list) : list());
  return made;
}

function provenance(run) {
  const made = [];
  if (run.differs.length) made.push(table("Facts in which processes of the run differ", ["what", "value", "who"], run.differs));
  const small = run.provenance.filter((one) => one.rows.length <= 12);
  for (const one of run.provenance) {
    const list = () => table(one.title, ["name", "value"], one.rows, { class: "plain" });
    made.push(details(`${one.title} (${one.rows.length})`, list()));
    if (small.includes(one) && made.length === 1) made[0].open = true;
  }
  return made.length ? made : [el("p", null, "Nothing was recorded of what the run was made of.")];
}

const MANY_LINES = 12;

function reading(run) {
  const runs = DOC.diff ? DOC.runs : [run];
  const parts = runs.flatMap((one) => one.gaps.map((part) => (DOC.diff ? { ...part, title: `${part.title}, ${one.side}` } : part)));
  const list = (lines) => el("ul", null, lines.map((line) => el("li", null, line)));
  const gaps = parts.map((part) => [el("h3", null, part.title), part.lines.length > MANY_LINES
    ? [list(part.lines.slice(0, MANY_LINES)), details(`and ${plural(part.lines.length - MANY_LINES, "more line")}`, list(part.lines.slice(MANY_LINES)))]
    : list(part.lines)]);
  if (DOC.diff) return [el("ul", null, DOC.read.map((line) => el("li", null, line))), gaps];
  const [first, ...others] = DOC.read;
  return [el("p", null, first), others.length ? el("ul", null, others.map((line) => el("li", null, line))) : null, gaps];
}

function section(id, title, ...children) {
  return el("section", { id, "aria-labelledby": `${id}-title` }, el("h2", { id: `${id}-title` }, title), ...children);
}
