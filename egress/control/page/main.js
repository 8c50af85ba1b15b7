// The page: a stream of events on one side, keys and buttons on the other.

import { byId, make, visible } from "./dom.js";
import { Hosts } from "./hosts.js";
import { List } from "./list.js";
import { explain, showDetails, showDraft, showRules } from "./panels.js";
import { Questions } from "./questions.js";
import { Store, matcher } from "./store.js";

const RETRY = 2000;
const search = byId("search");
const personas = byId("persona");
const store = new Store();
const questions = new Questions();
const list = new List(store, open);
const hosts = new Hosts(store, only);
let verdict = "";
let state = null;
let newest = 0;

// ── the stream

function listen() {
  const source = new EventSource(newest ? `/api/events?after=${newest}` : "/api/events");
  source.onopen = () => live("on", "live");
  source.onerror = () => {
    live("off", "the gate does not answer");
    if (source.readyState === EventSource.CLOSED) setTimeout(listen, RETRY); // else the browser tries by itself
  };
  source.addEventListener("records", (event) => {
    newest = Number(event.lastEventId);
    list.added(store.add(JSON.parse(event.data)));
    hosts.changed();
  });
  source.addEventListener("state", (event) => tell(JSON.parse(event.data)));
  source.addEventListener("questions", (event) => questions.show(JSON.parse(event.data)));
}

function live(how, words) {
  byId("live").dataset.state = how;
  byId("live").textContent = words;
}

function tell(now) {
  if (!state || String(now.personas) !== String(state.personas)) offer(now);
  if (state && now.generation !== state.generation) refresh();
  state = now;
  questions.offset = now.now - Date.now() / 1000;
  byId("session").textContent = now.session;
  byId("count-allowed").textContent = now.allowed.toLocaleString("en");
  byId("count-blocked").textContent = now.blocked.toLocaleString("en");
  byId("count-open").textContent = now.open.toLocaleString("en");
  byId("count-policy").textContent = `#${now.generation}`;
  byId("alarm").hidden = !now.failing;
  byId("alarm").textContent = now.failing ? `nothing passes: the audit log cannot be written: ${visible(now.failing)}` : "";
}

// ── which rows

/** Personas to choose from, those of this gate's doors first. */
function offer(now) {
  const chosen = personas.value;
  const others = now.personas.filter((name) => !now.doors.includes(name));
  const options = [...now.doors, ...others].map((name) => make("option", { value: name }, visible(name)));
  personas.replaceChildren(make("option", { value: "" }, "every persona"), ...options);
  personas.value = chosen;
  refresh();
}

/** Whose rules, draft and answers are shown. */
function persona() {
  const seen = store.rows.findLast((row) => row.persona)?.persona;
  return personas.value || state?.doors[0] || seen || personas.options[1]?.value || "";
}

function sift() {
  list.filter(matcher(search.value.startsWith("why ") ? "" : search.value, verdict, personas.value));
}

function show(wanted) {
  verdict = wanted;
  for (const button of byId("verdicts").children) button.setAttribute("aria-pressed", String(button.dataset.verdict === wanted));
  sift();
}

function only(host) {
  search.value = host;
  choose("live");
  sift();
}

// ── what is beside them

function choose(tab) {
  document.body.dataset.tab = tab;
  const shown = tab === "live" ? "hosts" : tab;
  for (const name of ["hosts", "rules", "draft"]) byId(`panel-${name}`).hidden = name !== shown;
  const narrow = matchMedia("(max-width: 1000px)").matches;
  for (const button of byId("tabs").children) button.setAttribute("aria-selected", String(button.dataset.tab === (narrow ? tab : shown)));
  refresh();
}

function refresh() {
  const { tab } = document.body.dataset;
  if (tab === "rules") showRules(persona());
  if (tab === "draft") showDraft(persona());
}

/** What a row was about, as it can be asked again: the request, where it was looked into. */
function asked(row) {
  if (!row.port) return row.host;
  const scheme = row.port === 80 ? "http" : "https";
  return row.method ? `${row.method} ${scheme}://${target(row)}${row.path}` : target(row);
}

function open(row) {
  const why = () => explain(asked(row), row.persona || persona());
  showDetails(row, { filter: only, why: () => { choose("live"); why(); } });
}

function askAboutSelected() {
  const row = list.selected;
  if (row && row.host && row.verdict !== "note") explain(asked(row), row.persona || persona());
}

const target = (row) => (row.host.includes(":") ? `[${row.host}]:${row.port}` : `${row.host}:${row.port}`);

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const root = document.documentElement;
  const now = root.dataset.theme || (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
}

// ── keys

const KEYS = [
  ["/", "filter, or ask why (Enter asks)", () => search.focus()],
  ["1", "all decisions", () => show("")],
  ["2", "blocked only", () => show("deny")],
  ["3", "allowed only", () => show("allow")],
  ["j", "next row", () => list.move(1)],
  ["k", "previous row", () => list.move(-1)],
  ["Enter", "the selected row in full", () => list.openSelected()],
  ["w", "why is the selected row as it is?", askAboutSelected],
  ["g", "back to the newest", () => list.top()],
  [" ", "hold the list still, or let it go", () => list.pause()],
  ["h", "hosts", () => choose("hosts")],
  ["r", "rules", () => choose("rules")],
  ["d", "draft policy", () => choose("draft")],
  ["t", "light or dark", theme],
  ["?", "these keys", help],
];
const ANSWERS = [["y", "allow once"], ["s", "for this session"], ["a", "always"], ["n", "no"]];
const SAME = { ArrowDown: "j", ArrowUp: "k" };

function help() {
  const dialog = byId("keys");
  const lines = [...ANSWERS.map(([key, words]) => [key, `answer the first question: ${words}`]), ...KEYS, ["Esc", "clear, close"]];
  dialog.replaceChildren(
    make("h2", {}, "Keys"),
    make("dl", {}, ...lines.flatMap(([key, words]) => [make("dt", {}, make("kbd", {}, key === " " ? "space" : key)), make("dd", {}, words)])),
    make("div", { class: "buttons" }, make("button", { type: "button", click: () => dialog.close() }, "close")));
  dialog.showModal();
}

function escape() {
  search.value = "";
  search.blur();
  byId("why").hidden = true;
  sift();
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "Escape") return escape();
  if (event.target.closest("input, select")) return;
  if (event.target.closest("button") && ["Enter", " "].includes(event.key)) return;
  const key = SAME[event.key] || event.key;
  const known = KEYS.find((each) => each[0] === key);
  if (!event.repeat && questions.pressed(key)) return event.preventDefault();
  if (known) {
    event.preventDefault();
    known[2]();
  }
});

// ── buttons

search.addEventListener("input", sift);
search.addEventListener("keydown", (event) => event.key === "Enter" && explain(search.value, persona()));
personas.addEventListener("change", () => { sift(); refresh(); });
byId("verdicts").addEventListener("click", (event) => "verdict" in event.target.dataset && show(event.target.dataset.verdict));
byId("pause").addEventListener("click", () => list.pause());
byId("tabs").addEventListener("click", (event) => event.target.dataset.tab && choose(event.target.dataset.tab));
byId("theme").addEventListener("click", theme);
byId("help").addEventListener("click", help);

const kept = localStorage.getItem("theme");
if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
choose("live");
listen();
