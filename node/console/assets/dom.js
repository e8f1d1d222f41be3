// Elements from values. All text goes through text nodes, so no value is ever read as markup.

import { visible } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

// h("td", {class: "number"}, "3"): attributes first; on… is a listener, true an empty attribute.
export function h(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false));
  return element;
}

// A table with a caption. columns: [{title, cell: row => child, number: true, key: text}]
export function table(caption, columns, rows, { empty = "Nothing to show.", hidden = false } = {}) {
  if (!rows.length) return h("p", { class: "quiet" }, empty);
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", { class: hidden ? "hidden" : null }, caption),
      h("thead", {}, h("tr", {}, columns.map((each) => h("th", { scope: "col", class: each.number ? "number" : null }, each.title)))),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h(
            "tr",
            {},
            columns.map((each, index) =>
              h(index ? "td" : "th", { scope: index ? null : "row", class: each.number ? "number" : null }, each.cell(row)),
            ),
          ),
        ),
      ),
    ),
  );
}

// A list of terms: [["Topic", "orders"], …]
export function facts(rows) {
  return h("dl", {}, rows.map(([term, value]) => [h("dt", {}, term), h("dd", {}, value)]));
}

export function badge(kind, text) {
  return h("span", { class: `badge ${kind}` }, text);
}

// Asks before a change. `name` must be typed where `typed` is set; resolves to true or false.
export function confirmed({ title, text, name, action, typed = false, danger = false }) {
  return new Promise((resolve) => {
    const input = h("input", { id: "confirm-name", autocomplete: "off", spellcheck: "false" });
    const go = h("button", { type: "submit", class: danger ? "danger" : null, disabled: typed }, action);
    input.addEventListener("input", () => (go.disabled = input.value !== name));
    const dialog = h(
      "dialog",
      { "aria-labelledby": "confirm-title" },
      h(
        "form",
        { method: "dialog" },
        h("h2", { id: "confirm-title" }, visible(title)),
        [].concat(text).map((each) => h("p", {}, visible(each))),
        typed ? [h("label", { for: "confirm-name" }, "Type ", h("strong", {}, visible(name)), " to confirm"), input] : null,
        h("p", { class: "actions" }, h("button", { type: "button", onclick: () => dialog.close("") }, "Cancel"), go),
      ),
    );
    dialog.addEventListener("submit", () => (dialog.returnValue = "yes"));
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    go.value = "yes";
    document.body.append(dialog);
    dialog.showModal();
  });
}

// Replaces the children of `place`, keeping the keyboard's focus on the element of the same data-key.
export function show(place, ...children) {
  const key = document.activeElement?.closest?.("[data-key]")?.dataset.key;
  const scrolled = [...place.querySelectorAll(".scroll")].map((each) => each.scrollLeft);
  place.replaceChildren(...children.flat(Infinity).filter(Boolean));
  [...place.querySelectorAll(".scroll")].forEach((each, index) => (each.scrollLeft = scrolled[index] ?? 0));
  if (key) [...place.querySelectorAll("[data-key]")].find((each) => each.dataset.key === key)?.focus({ preventScroll: true });
}
