// What is asked for rather than streamed: why, the rules of a persona, the draft of what was seen, one decision in full.

import { byId, bytes, clock, copy, fetchJson, make, paste, visible } from "./dom.js";

const query = (path, words) => `${path}?${new URLSearchParams(words)}`;

/** The host or request that a question is about, whatever words are around it. */
export function asked(text) {
  const words = text.split(/\s+/).map((word) => word.replace(/[?!,;"'()]+$/g, ""));
  const at = words.findIndex((word) => /[.:]/.test(word));
  if (at < 0) return words.at(-1) || "";
  return /^[A-Z]+(-[A-Z]+)*$/.test(words[at - 1] || "") ? `${words[at - 1]} ${words[at]}` : words[at];
}

export async function explain(text, persona) {
  const box = byId("why");
  const target = asked(text);
  if (!target || !persona) return;
  const close = make("button", { type: "button", class: "quiet close", "aria-label": "close", click: () => { box.hidden = true; } }, "×");
  try {
    const answer = await fetchJson(query("/api/why", { target, persona }));
    box.dataset.verdict = answer.verdict;
    box.replaceChildren(...inWords(answer), close);
  } catch (error) {
    box.dataset.verdict = "deny";
    box.replaceChildren(make("p", {}, visible(error.message)), close);
  }
  box.hidden = false;
}

function inWords(answer) {
  const allowed = answer.verdict === "allow";
  const parts = [
    make("h2", {}, `${allowed ? "allowed" : "blocked"}: `, make("span", { class: "mono" }, answer.asked)),
    make("p", {}, visible(answer.sentence)),
  ];
  if (answer.detail) parts.push(make("p", { class: "soft" }, visible(answer.detail)));
  if (answer.rule) parts.push(make("p", { class: "soft" }, `rule: ${visible(answer.rule)} ${answer.terms}`));
  if (answer.remedy.length) parts.push(make("p", { class: "soft" }, "what would allow it:"), ...answer.remedy.map(paste));
  return parts;
}

export async function showRules(persona) {
  const box = byId("panel-rules");
  if (!persona) return;
  try {
    const rules = await fetchJson(query("/api/rules", { persona }));
    box.replaceChildren(
      make("div", { class: "panel-head" }, make("h2", {}, `Persona ${visible(rules.name)}`)),
      make("p", { class: "soft" }, visible(rules.description)),
      ...section("allow", rules.allow, "nothing is allowed"), ...section("deny", rules.deny, "nothing is denied beyond what is not listed"));
  } catch (error) {
    box.replaceChildren(make("p", {}, visible(error.message)));
  }
}

function section(title, rules, none) {
  const items = rules.map((rule) => make("li", {},
    make("div", { class: "pattern" }, visible(rule.host), make("span", { class: "soft" }, rule.ports.length ? `  ${rule.ports.join(", ")}` : "  every port")),
    make("div", { class: "where" }, [rule.terms, rule.source].filter(Boolean).map(visible).join(" · "))));
  const body = items.length ? make("ul", { class: "rules" }, ...items) : make("p", { class: "soft" }, none);
  return [make("h3", {}, `${title} (${rules.length})`), body];
}

export async function showDraft(persona) {
  const box = byId("panel-draft");
  if (!persona) return;
  const answer = await fetch(query("/api/draft", { persona }));
  const text = await answer.text();
  const take = make("button", { type: "button", click: () => copy(text, take) }, "copy");
  const again = make("button", { type: "button", click: () => showDraft(persona) }, "refresh");
  box.replaceChildren(
    make("div", { class: "panel-head" }, make("h2", {}, "A policy of what was seen"), again, take),
    make("pre", { class: "draft" }, text));
}

/** One decision with everything that is known of it. */
export function showDetails(row, { filter, why }) {
  const dialog = byId("details");
  const facts = Object.entries(factsOf(row)).filter(([, value]) => value);
  const shut = (then) => () => { dialog.close(); then(); };
  dialog.replaceChildren(
    make("h2", { class: "mono" }, `${visible(row.host)}${row.port ? `:${row.port}` : ""}`),
    make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", { class: "mono" }, visible(value))])),
    make("div", { class: "buttons" },
      make("button", { type: "button", click: shut(() => filter(row.host)) }, "only this host"),
      make("button", { type: "button", click: shut(() => why(row)) }, "why?"),
      make("button", { type: "button", autofocus: true, click: shut(() => {}) }, "close")));
  dialog.showModal();
}

function factsOf(row) {
  const end = row.end;
  const program = row.process && [row.process.exe, row.process.pid && `pid ${row.process.pid}`, row.process.command].filter(Boolean).join("  ");
  return {
    verdict: row.verdict === "note" ? "" : row.would_deny ? `allow, would be ${row.would_deny}` : row.verdict,
    reason: row.reason,
    rule: row.rule,
    request: row.method && `${row.method} ${row.path}`,
    status: end?.status,
    persona: row.persona,
    via: row.via,
    program,
    time: `${clock(row.at)}  ${row.ts}`,
    session: `${row.session} #${row.id}`,
    address: end?.ip,
    ended: end && `${end.outcome} after ${(end.ms / 1000).toFixed(2)} s`,
    bytes: end && `${bytes(end.up) || "0 B"} up, ${bytes(end.down) || "0 B"} down`,
    count: row.count,
  };
}
