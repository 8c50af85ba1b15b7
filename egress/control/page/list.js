// Ten thousand rows, of which some thirty are elements: those in sight, moved about as the list scrolls.
// The newest is on top. Who has scrolled down reads on undisturbed, and is told how many came meanwhile.

import { byId, bytes, clock, make, visible, words } from "./dom.js";

const SPARE = 6; // rows above and below those in sight

export class List {
  constructor(store, opened) {
    this.store = store;
    this.opened = opened;
    this.box = byId("rows");
    this.sizer = this.box.querySelector(".sizer");
    this.wanted = () => true;
    this.view = []; // the rows that are wanted, the oldest first
    this.pool = [];
    this.selected = null;
    this.paused = false;
    this.unseen = 0;
    this.box.addEventListener("scroll", () => this.paint(), { passive: true });
    this.box.addEventListener("click", (event) => this.clicked(event));
    byId("newer").addEventListener("click", () => this.top());
    new ResizeObserver(() => this.paint()).observe(this.box);
  }

  get height() {
    return parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row")) || 30;
  }

  filter(wanted) {
    this.wanted = wanted;
    this.view = this.store.rows.filter(wanted);
    this.box.scrollTop = 0;
    this.unseen = 0;
    this.paint();
  }

  added(rows) {
    const fresh = rows.filter(this.wanted);
    const atTop = this.box.scrollTop < this.height && !this.paused;
    this.view.push(...fresh);
    this.trim();
    this.resize();
    if (!atTop && fresh.length) {
      this.box.scrollTop += fresh.length * this.height;
      this.unseen += fresh.length;
    }
    this.paint();
  }

  /** Drop from the view what the store has dropped. */
  trim() {
    const oldest = this.store.rows[0];
    let gone = 0;
    while (gone < this.view.length && oldest && this.view[gone].number < oldest.number) gone += 1;
    if (gone) this.view.splice(0, gone);
  }

  resize() {
    this.sizer.style.height = `${this.view.length * this.height}px`;
  }

  top() {
    this.paused = false;
    byId("pause").setAttribute("aria-pressed", "false");
    this.box.scrollTop = 0;
    this.paint();
  }

  pause() {
    this.paused = !this.paused;
    byId("pause").setAttribute("aria-pressed", String(this.paused));
    if (!this.paused) this.top();
  }

  paint() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.paintNow();
    });
  }

  paintNow() {
    this.resize();
    const height = this.height;
    const first = Math.max(0, Math.floor(this.box.scrollTop / height) - SPARE);
    const last = Math.min(this.view.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / height) + SPARE);
    for (let place = first; place < last; place += 1) this.place(place - first, place, height);
    for (const spare of this.pool.splice(Math.max(0, last - first))) spare.remove();
    byId("empty").hidden = this.view.length > 0;
    if (this.box.scrollTop < height && !this.paused) this.unseen = 0;
    byId("newer").hidden = this.unseen === 0;
    byId("newer").textContent = `${this.unseen} newer ↑`;
  }

  place(slot, place, height) {
    const row = this.view[this.view.length - 1 - place];
    this.pool[slot] ??= this.box.appendChild(blank());
    const element = this.pool[slot];
    element.style.transform = `translateY(${place * height}px)`;
    element.dataset.key = row.key;
    element.setAttribute("aria-selected", String(this.selected === row));
    fill(element, row);
  }

  clicked(event) {
    const element = event.target.closest(".row");
    const row = element && this.view.find((each) => each.key === element.dataset.key);
    if (!row) return;
    this.selected = row;
    this.paint();
    this.opened(row);
  }

  /** The selection goes so many rows down the list. */
  move(by) {
    if (!this.view.length) return;
    const now = this.selected ? this.view.length - 1 - this.view.indexOf(this.selected) : -1;
    const next = Math.max(0, Math.min(this.view.length - 1, now >= this.view.length ? 0 : now + by));
    this.selected = this.view[this.view.length - 1 - next];
    const top = next * this.height;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    const bottom = top + this.height - this.box.clientHeight;
    if (bottom > this.box.scrollTop) this.box.scrollTop = bottom;
    this.paint();
  }

  openSelected() {
    if (this.selected) this.opened(this.selected);
  }
}

const PARTS = ["time", "verdict", "host", "who", "via", "reason", "size"];

function blank() {
  const row = make("div", { class: "row", role: "option" }, ...PARTS.map((name) => make("span", { class: name })));
  row.children[2].append(document.createTextNode(""), make("small"));
  return row;
}

function fill(element, row) {
  const [time, verdict, host, who, via, reason, size] = element.children;
  const would = Boolean(row.would_deny);
  element.dataset.verdict = row.verdict;
  element.dataset.would = String(would);
  time.textContent = clock(row.at);
  verdict.textContent = { allow: would ? "observed" : "allowed", deny: "blocked" }[row.verdict] || "";
  verdict.dataset.verdict = would ? "would" : row.verdict;
  host.firstChild.data = visible(row.host) || "–";
  host.lastChild.textContent = `${row.port ? `:${row.port}` : ""}${request(row)}`;
  host.title = visible(row.host);
  who.textContent = visible(row.persona);
  via.textContent = visible(row.via);
  reason.textContent = words(would ? `would be ${row.would_deny}` : row.reason) + (row.count ? ` ×${row.count}` : "");
  size.textContent = row.end ? bytes(row.end.down) : "";
}

const request = (row) => (row.method ? `  ${visible(row.method)} ${visible(row.path)}` : "");
