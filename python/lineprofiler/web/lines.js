"use strict";
// Draws the page from the one JSON element. All text goes through textContent, so that no source line is ever markup.
const data = JSON.parse(document.getElementById("lineprofiler-data").textContent);
const HOTSPOTS = 25, OPEN = 12, FOLD = 6;
const byId = (id) => document.getElementById(id);

function make(parent, tag, text, name) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (name) element.className = name;
  parent.append(element);
  return element;
}

// As the text has it: what lies in the middle becomes even (1.25 is 1.2), where toFixed() takes the larger.
function fixed(x, digits) {
  const shown = x.toFixed(digits);
  const inTheMiddle = Math.abs((x * 2 ** (digits + 1)) % 2) === 1;
  return inTheMiddle && Number(shown.at(-1)) % 2 ? (x - Math.sign(x) * 10 ** -(digits + 1)).toFixed(digits) : shown;
}

function duration(ns) {
  if (ns < 999.5) return `${fixed(ns, 0)}ns`;
  if (ns < 999950) return `${fixed(ns / 1e3, 1)}us`;
  if (ns < 999950000) return `${fixed(ns / 1e6, 1)}ms`;
  const s = ns / 1e9;
  if (s < 59.995) return `${fixed(s, 2)}s`;
  const pad = (n) => String(Math.floor(n)).padStart(2, "0");
  return s < 3600 ? `${Math.floor(s / 60)}m ${pad(s % 60)}s` : `${Math.floor(s / 3600)}h ${pad((s % 3600) / 60)}m`;
}

const percent = (part, whole) => (whole > 0 ? (100 * part) / whole : 0);
const heat = (share) => (share >= 40 ? "h5" : share >= 20 ? "h4" : share >= 8 ? "h3" : share >= 2 ? "h2" : share >= 0.5 ? "h1" : "");
const count = (n) => n.toLocaleString("en-US");
const spent = (line) => (data.full ? line.self : line.time);
const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

const whole = data.functions.reduce((sum, f) => sum + f.lines.reduce((s, l) => s + (spent(l) || 0), 0), 0);

function facts() {
  byId("title").textContent = data.title;
  const called = data.functions.filter((f) => f.lines.some((l) => l.ran));
  const list = [
    [data.full ? "self time of the lines" : "time of the lines", duration(whole)],
    ["functions", count(called.length)],
    ["files", count(new Set(called.map((f) => f.file)).size)],
    ["processes", count(data.processes)],
  ];
  if (data.own_cost) list.push(["own cost, subtracted", data.own_cost]);
  for (const [name, value] of list) {
    const box = make(byId("facts"), "div");
    make(box, "dt", name);
    make(box, "dd", value);
  }
  byId("notes").textContent = data.notes.join("\n");
}

// Each hot line with its function; the rows are found when their function has been drawn.
const hot = [];
function hotspots() {
  data.functions.forEach((f, n) => f.lines.forEach((line) => {
    if (spent(line) > 0) hot.push({ f, n, line });
  }));
  hot.sort((a, b) => spent(b.line) - spent(a.line));
  hot.length = Math.min(hot.length, HOTSPOTS);
  const body = byId("hot").tBodies[0];
  for (const each of hot) {
    const row = make(body, "tr");
    const share = percent(spent(each.line), whole);
    make(row, "td", `${fixed(share, 1)} %`, `n ${heat(share)}`);
    make(row, "td", duration(spent(each.line)), "n");
    make(row, "td", count(each.line.hits), "n");
    const link = make(make(row, "td"), "a", `${each.f.short}:${each.line.number}${each.f.kind}`);
    link.href = `#${rowId(each.n, each.line.number)}`;
    link.addEventListener("click", (event) => { event.preventDefault(); go(each); });
    make(row, "td", each.line.text.trim(), "code");
  }
  if (!hot.length) make(make(body, "tr"), "td", "no line took any time");
}

const rowId = (n, number) => `f${n}l${number}`;
const cards = [];

function functions() {
  data.functions.forEach((f, n) => {
    const card = make(byId("functions"), "details");
    const head = make(card, "summary");
    make(head, "b", f.name);
    make(head, "span", `${f.shown}:${f.first}`);
    const figures = [duration(f.time)];
    if (data.full) figures.push(`self ${duration(f.self)}`);
    if (f.awaited) figures.push(`awaited ${duration(f.awaited)}`);
    if (f.calls) figures.push(plural(f.calls, "call"));
    make(head, "span", f.lines.some((l) => l.ran) ? figures.join(" · ") : "never called");
    if (f.note) make(head, "span", f.note, "note");
    card.addEventListener("toggle", () => { if (card.open) draw(card, f, n); });
    cards.push({ card, f, drawn: false });
    if (n < OPEN) { card.open = true; draw(card, f, n); }
  });
  if (!data.functions.length) make(byId("functions"), "p", "No line of the profiled code was executed.");
}

function draw(card, f, n) {
  if (cards[n].drawn) return;
  cards[n].drawn = true;
  const awaits = f.lines.some((l) => l.awaited);
  const table = make(make(card, "div", undefined, "scroll"), "table");
  make(table, "caption", `Lines of ${f.name}`, "unseen");
  const head = make(make(table, "thead"), "tr");
  const names = ["line", "hits", "time", ...(data.full ? ["self"] : []), ...(awaits ? ["awaited"] : []), "per hit", "%"];
  for (const name of names) make(head, "th", name, "n").scope = "col";
  make(head, "th", "source").scope = "col";
  const body = make(table, "tbody");
  const width = names.length + 1;
  for (const part of folded(f)) {
    if (part.length >= FOLD && part.every((line) => !line.ran)) fold(body, part, width, (line, before) => row(body, f, n, line, awaits, before));
    else for (const line of part) row(body, f, n, line, awaits, null);
  }
}

// Stretches of lines that ran, and of lines that did not, in turn; the first line of a function stays with what ran.
function folded(f) {
  const parts = [];
  let last = null;
  f.lines.forEach((line, n) => {
    const kind = line.ran || n === 0;
    if (kind !== last) parts.push([]);
    last = kind;
    parts[parts.length - 1].push(line);
  });
  return parts;
}

function fold(body, lines, width, show) {
  const tr = make(body, "tr", undefined, "fold");
  const cell = make(tr, "td");
  cell.colSpan = width;
  const cold = lines.filter((line) => line.executable).length;
  const button = make(cell, "button", `⋮ ${plural(lines.length, "line")}, ${cold ? `${count(cold)} with code that never ran` : "without code of this function"}`);
  button.type = "button";
  button.addEventListener("click", () => { for (const line of lines) show(line, tr); tr.remove(); });
}

function row(body, f, n, line, awaits, before) {
  const tr = document.createElement("tr");
  body.insertBefore(tr, before);
  tr.id = rowId(n, line.number);
  const share = percent(line.time, f.time);
  tr.className = line.ran ? heat(share) : line.executable ? "cold" : "";
  const cells = line.ran
    ? [count(line.hits), duration(line.time), ...(data.full ? [duration(line.self)] : []),
      ...(awaits ? [line.awaited ? duration(line.awaited) : ""] : []),
      line.hits ? duration(line.time / line.hits) : "", fixed(share, 1)]
    : Array(4 + (data.full ? 1 : 0) + (awaits ? 1 : 0)).fill("");
  make(tr, "td", String(line.number), "n no");
  for (const cell of cells) make(tr, "td", cell, "n");
  make(tr, "td", line.text || " ", "code");
  if (!line.ran && line.executable) tr.title = "never ran";
}

let at = -1;
function go(each) {
  at = hot.indexOf(each);
  const { card, f } = cards[each.n];
  card.hidden = false;
  card.open = true;
  draw(card, f, each.n);
  for (const marked of document.querySelectorAll("tr.at")) marked.classList.remove("at");
  const tr = byId(rowId(each.n, each.line.number));
  tr.classList.add("at");
  tr.tabIndex = -1;
  tr.focus({ preventScroll: true });
  tr.scrollIntoView({ block: "center" });
}

function filter() {
  const word = byId("filter").value.toLowerCase();
  let shown = 0;
  for (const { card, f } of cards) {
    const found = !word || `${f.name} ${f.file}`.toLowerCase().includes(word) || f.lines.some((l) => l.text.toLowerCase().includes(word));
    card.hidden = !found;
    shown += found ? 1 : 0;
  }
  byId("count").textContent = word ? `${shown} of ${plural(cards.length, "function")}` : "";
}

facts();
hotspots();
functions();
byId("filter").addEventListener("input", filter);
byId("open").addEventListener("click", () => { for (const { card } of cards) card.open = true; });
byId("close").addEventListener("click", () => { for (const { card } of cards) card.open = false; });
document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === "Escape" && typing) event.target.blur();
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { event.preventDefault(); byId("filter").focus(); }
  if (hot.length && event.key === "n") go(hot[(at + 1) % hot.length]);
  if (hot.length && event.key === "p") go(hot[(at + hot.length - 1 + (at < 0 ? 1 : 0)) % hot.length]);
});
