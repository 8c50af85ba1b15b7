// How elements are made here: from text, never from markup. What came over the wire was chosen by whoever was refused.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

/** An element with attributes (functions are listeners), and children that are elements or text. */
export function make(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined).map(asNode));
  return element;
}

const asNode = (child) => (child instanceof Node ? child : document.createTextNode(String(child)));

/** Printable ASCII on one line: no character that would reorder, hide or imitate others. */
export function visible(text) {
  return String(text ?? "").replace(/[^\x20-\x7e]/gu, (sign) => `\\u{${sign.codePointAt(0).toString(16)}}`);
}

/** A word of the log's vocabulary as people write it: `not_listed`, `port_not_listed`. */
export const words = (reason) => visible(reason).replaceAll("_", " ");

export function bytes(count) {
  if (!count) return "";
  const power = Math.min(4, Math.floor(Math.log10(count) / 3));
  const scaled = count / 1000 ** power;
  return `${scaled < 10 && power ? scaled.toFixed(1) : Math.round(scaled)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}

export function clock(moment) {
  const date = new Date(moment);
  return Number.isNaN(date.getTime()) ? "" : date.toTimeString().slice(0, 8);
}

/** A line to paste elsewhere, with the button that takes it along. */
export function paste(text) {
  const button = make("button", { type: "button", click: () => copy(text, button) }, "copy");
  return make("div", { class: "paste" }, make("code", {}, text), button);
}

export async function copy(text, button) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "copied";
  } catch {
    button.textContent = "not allowed";
  }
  setTimeout(() => { button.textContent = label; }, 1200);
}

export async function fetchJson(path, options) {
  const answer = await fetch(path, options);
  if (!answer.ok) throw new Error((await answer.text()).trim() || `status ${answer.status}`);
  return answer.json();
}
