// Connections that are held while a person decides. Keys work on the first question, and only once it has stood there
// for a moment: a key that was meant for something else must not answer a question nobody has read.

import { byId, fetchJson, make, visible, words } from "./dom.js";

const ARMED_AFTER = 600;
const CHOICES = [
  ["once", "y", "once", "let through what waits now"],
  ["session", "s", "session", "while this gate runs"],
  ["always", "a", "always", "and write it to my policy"],
  ["no", "n", "no", "refuse"],
];

export class Questions {
  constructor() {
    this.box = byId("questions");
    this.shown = new Map(); // id → its card
    this.offset = 0; // of the gate's clock from ours, in seconds
    setInterval(() => this.tick(), 250);
  }

  show(message) {
    const wanted = new Map(message.pending.map((question) => [question.id, question]));
    for (const [id, card] of this.shown) if (!wanted.has(id)) this.drop(id, card);
    for (const [id, question] of wanted) {
      if (!this.shown.has(id)) this.append(question);
      this.update(this.shown.get(id), question);
    }
    document.title = wanted.size ? `(${wanted.size}) egress` : "egress";
    this.arm();
  }

  append(question) {
    const buttons = CHOICES.map(([choice, key, label, about]) =>
      make("button", { type: "button", class: choice, title: about, click: () => this.answer(question.id, choice) },
        label, make("kbd", {}, key)));
    const card = make("article", { class: "question", "data-id": question.id },
      make("h2", {}, `${visible(question.host)}:${question.port}`), make("p"),
      make("div", { class: "buttons" }, ...buttons), make("span", { class: "left" }));
    this.shown.set(question.id, card);
    this.box.append(card);
  }

  update(card, question) {
    card.question = question;
    this.describe(card);
  }

  describe(card) {
    const { persona, reason, count, asked, deadline } = card.question;
    const now = Date.now() / 1000 + this.offset;
    const left = Math.max(0, deadline - now);
    const waiting = count > 1 ? `${count} connections wait` : "one connection waits";
    card.querySelector("p").textContent = `${visible(persona)} asks (${words(reason)}); ${waiting}, ${Math.ceil(left)} s left`;
    card.querySelector(".left").style.transform = `scaleX(${Math.min(1, left / Math.max(1, deadline - asked))})`;
  }

  drop(id, card) {
    card.remove();
    this.shown.delete(id);
  }

  get first() {
    return this.box.querySelector(".question");
  }

  arm() {
    const first = this.first;
    if (!first || first.dataset.armed || first.dataset.arming) return;
    first.dataset.arming = "true";
    setTimeout(() => { first.dataset.armed = "true"; }, ARMED_AFTER);
  }

  /** Whether the key was an answer. */
  pressed(key) {
    const choice = CHOICES.find((each) => each[1] === key);
    const first = this.first;
    if (!choice || !first || !first.dataset.armed) return false;
    this.answer(Number(first.dataset.id), choice[0]);
    return true;
  }

  async answer(id, choice) {
    const card = this.shown.get(id);
    for (const button of card.querySelectorAll("button")) button.disabled = true;
    try {
      await fetchJson("/api/answer", { method: "POST", body: JSON.stringify({ id, choice }) });
    } catch (error) {
      card.querySelector("p").textContent = `not answered: ${error.message}`;
      for (const button of card.querySelectorAll("button")) button.disabled = false;
    }
  }

  tick() {
    for (const card of this.shown.values()) this.describe(card);
  }
}
