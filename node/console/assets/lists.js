// What pages with lists share: the filter's text and the page are in the address, so that going
// back, a reload and a link show the same rows.

import { h } from "./dom.js";
import { address } from "./refreshed.js";

// The same page with other parameters, from its first row on; an empty one is left out.
export function link(path, parameters, changes) {
  return address(path, { ...Object.fromEntries(parameters), first: "", ...changes });
}

// A field that filters by name, on Enter or with its button.
export function filter(label, path, parameters) {
  const input = h("input", { id: "filter", type: "search", "data-key": "filter", value: parameters.get("text") ?? "", maxlength: 255 });
  return h(
    "form",
    {
      role: "search",
      class: "row",
      onsubmit: (event) => {
        event.preventDefault();
        location.hash = link(path, parameters, { text: input.value.trim() });
      },
    },
    h("div", {}, h("label", { for: "filter" }, label), input),
    h("button", { type: "submit", "data-key": "filter go" }, "Filter"),
  );
}

// Links, one of which is what is shown: choices are [value, text]; an empty value is the default.
export function choose(words, name, choices, path, parameters) {
  const now = parameters.get(name) ?? "";
  return h(
    "p",
    { class: "row" },
    h("span", { class: "quiet" }, words),
    choices.map(([value, text]) => h("a", { href: link(path, parameters, { [name]: value }), "data-key": `${name} ${value}`, "aria-current": value === now ? "true" : null }, text)),
  );
}
