// What each host has come to: blocked ones first, with the last half hour as a line of bars.

import { byId, bytes, draw, make, visible } from "./dom.js";
import { BUCKETS, minutes } from "./store.js";

const SHOWN = 100;
const HEIGHT = 26;
const STEP = 92 / BUCKETS;

export class Hosts {
  constructor(store, chosen) {
    this.store = store;
    this.list = make("ul", { class: "hosts" });
    this.list.addEventListener("click", (event) => {
      const item = event.target.closest("li");
      if (item) chosen(item.dataset.host);
    });
    this.about = make("span", { class: "soft" });
    byId("panel-hosts").append(make("div", { class: "panel-head" }, make("h2", {}, "Hosts"), this.about), this.list);
    this.dirty = true;
    setInterval(() => this.paint(), 1000);
  }

  changed() {
    if (!this.dirty) {
      this.dirty = true;
      setTimeout(() => this.paint(), 200);
    }
  }

  paint() {
    const hosts = [...this.store.hosts.values()].filter((host) => host.allow + host.deny > 0);
    hosts.sort((one, other) => other.deny - one.deny || other.allow - one.allow || other.last - one.last);
    this.about.textContent = hosts.length > SHOWN ? `${SHOWN} of ${hosts.length}` : String(hosts.length);
    this.list.replaceChildren(...hosts.slice(0, SHOWN).map((host) => item(host, Date.now())));
    this.dirty = false;
  }
}

function item(host, now) {
  const sums = make("span", { class: "sums" });
  if (host.deny) sums.append(make("b", {}, `${host.deny} blocked`), host.allow ? " · " : "");
  if (host.allow) sums.append(`${host.allow} allowed`);
  if (host.down || host.up) sums.append(` · ${[bytes(host.up) && `${bytes(host.up)} up`, bytes(host.down) && `${bytes(host.down)} down`].filter(Boolean).join(", ")}`);
  return make("li", { "data-host": host.name, title: visible(host.name) },
    make("span", { class: "name" }, make("bdi", {}, visible(host.name))), spark(host, now), sums);
}

function spark(host, now) {
  const allow = minutes(host, "allow", now);
  const deny = minutes(host, "deny", now);
  const most = Math.max(1, ...allow.map((count, place) => count + deny[place]));
  const scale = (HEIGHT - 2) / most;
  const picture = draw("svg", { viewBox: `0 0 92 ${HEIGHT}`, role: "img", "aria-label": "the last half hour, by minute" });
  picture.append(draw("rect", { class: "spark-base", x: 0, y: HEIGHT - 1, width: 92, height: 1 }));
  picture.append(bars("spark-allow", allow, () => 0, scale), bars("spark-deny", deny, (place) => allow[place], scale));
  return picture;
}

function bars(name, counts, below, scale) {
  const path = counts.map((count, place) => {
    const top = HEIGHT - 1 - (below(place) + count) * scale;
    return count ? `M${(place * STEP).toFixed(1)} ${top.toFixed(1)}h${(STEP - 0.8).toFixed(1)}v${(count * scale).toFixed(1)}h-${(STEP - 0.8).toFixed(1)}z` : "";
  });
  return draw("path", { class: name, d: path.join("") });
}
