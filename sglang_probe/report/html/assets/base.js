// Elements, figures and colours. Text from outside reaches the page through textContent alone, and Plotly escaped.

const GIB = 2 ** 30;
const DOC = JSON.parse(document.getElementById("document").textContent);

/** An element: attributes by name (`on...` a listener), then children; a string is text, null is nothing. */
function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(name, String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return made;
}

/** A text in a label of Plotly's, which reads tags and entities in it: none of ours is one. */
function label(text, longest = 60) {
  const cut = text.length > longest ? `${text.slice(0, longest - 1)}…` : text;
  return cut.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
}

/** Halves go to the even neighbour, as in Python: 0.0625 is 0.062 in the terminal, and must be here. */
function rounded(value, places) {
  const scaled = Math.abs(value) * 10 ** places;
  let whole = Math.floor(scaled);
  const rest = scaled - whole;
  if (rest > 0.5 || (rest === 0.5 && whole % 2 === 1)) whole += 1;
  const digits = String(whole).padStart(places + 1, "0");
  const text = places ? `${digits.slice(0, -places)}.${digits.slice(-places)}` : digits;
  return value < 0 && whole > 0 ? `-${text}` : text;
}

/** How a step that did not end well stands, in a word and a mark that does without colour. */
const STATES = { error: ["failed", "✕"], died: ["died", "†"], interrupted: ["interrupted", "⊘"], open: ["open", "…"] };
const stateWord = (state) => (STATES[state] || [state])[0];

/** Bytes as GiB with as many decimals as they bear (`off`: how far they may be off). */
function gib(bytes, off) {
  if (bytes === null || bytes === undefined) return "-";
  let places = 3;
  if (off && off * 1000 > GIB) places = off * 20 <= GIB ? 2 : 1;
  return rounded(bytes / GIB, places);
}

const signed = (text) => (text.startsWith("-") || text === "-" || Number(text) === 0 ? text : `+${text}`);
const THOUSANDS = new Intl.NumberFormat("en-US");
const count = (number) => (number === null || number === undefined ? "-" : THOUSANDS.format(number));
const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Seconds with three decimals below ten, fewer above. */
function seconds(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  return rounded(value, size < 9.9995 ? 3 : size < 99.995 ? 2 : size < 999.95 ? 1 : 0);
}

/** GiB and bytes, as a hover says them. */
function both(bytes, off) {
  if (bytes === null || bytes === undefined) return "unknown";
  const far = off ? ` ± ${gib(off)}` : "";
  return `${gib(bytes, off)}${far} GiB (${count(bytes)} B)`;
}

// Of each category a colour and a pattern, as in every chart; the others are the waterfall's own.
const LOOKS = {
  ...DOC.looks,
  sum: ["#5b6770", ""],
  slack: ["#e69f00", "/"],
  other: ["#56b4e9", "/"],
  below: ["#d55e00", "\\"],
};

const theme = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

function colour(key) {
  return key === "free" ? theme("free") : LOOKS[key][0];
}

/** A swatch for a table, with the chart's pattern drawn by the style sheet. */
function swatch(key) {
  const drawn = el("span", { class: "swatch", "data-pattern": LOOKS[key][1] || null, "aria-hidden": "true" });
  drawn.style.setProperty("--swatch", key === "free" ? "var(--free)" : LOOKS[key][0]); // the theme may change
  return drawn;
}

/** A table: headings (a leading # makes a column of figures), then rows of texts or elements. */
function table(caption, headings, rows, attributes) {
  const figures = headings.map((heading) => heading.startsWith("#"));
  const cell = (value, place) => {
    const content = value === null || value === undefined ? "-" : value instanceof Node ? value : String(value);
    return el(place ? "td" : "th", { class: figures[place] ? "figure" : null, scope: place ? null : "row" }, content);
  };
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
    el("table", attributes,
      el("caption", null, caption),
      el("thead", null, el("tr", null, headings.map((heading, place) =>
        el("th", { scope: "col", class: figures[place] ? "figure" : null }, heading.replace(/^#/, ""))))),
      el("tbody", null, rows.map((row) => el("tr", null, row.map(cell))))));
}

function details(summary, ...children) {
  return el("details", null, el("summary", null, summary), ...children);
}

/** What stands behind a chart, made when it is opened: 512 ranks have many rows. */
function lazily(summary, make) {
  const box = details(summary);
  const fill = () => { if (box.childElementCount === 1) box.append(make()); };
  box.addEventListener("toggle", () => { if (box.open) fill(); });
  return box;
}

const sentences = (lines) => lines.map((line) => el("p", { class: "note" }, line));

function choice(name, options, chosen, choose) {
  const buttons = options.map(([value, text]) => el("button", {
    type: "button",
    "aria-pressed": String(value === chosen),
    onclick: () => {
      for (const [place, [other]] of options.entries()) {
        buttons[place].setAttribute("aria-pressed", String(other === value));
      }
      choose(value);
    },
  }, text));
  return el("div", { class: "choice", role: "group", "aria-label": name }, el("span", null, name), buttons);
}
