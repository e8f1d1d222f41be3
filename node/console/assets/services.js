// What stands between putting and reading: dead letters, delayed messages, open transactions, leases.

import { h } from "./dom.js";
import * as deadLetters from "./dead_letters.js";
import * as delayed from "./delayed.js";
import * as leases from "./leases.js";
import * as transactions from "./transactions.js";

const SECTIONS = {
  "dead-letters": { title: "Dead letters", page: deadLetters },
  delayed: { title: "Delayed", page: delayed },
  transactions: { title: "Open transactions", page: transactions },
  leases: { title: "Leases", page: leases },
};

export function render(place, parts, parameters) {
  const name = Object.hasOwn(SECTIONS, parts[0] ?? "") ? parts[0] : "dead-letters";
  const links = Object.entries(SECTIONS).map(([each, { title }]) =>
    h("li", {}, h("a", { href: `#/services/${each}`, "aria-current": each === name ? "true" : null }, title)),
  );
  const body = h("div", {});
  place.append(h("h1", {}, "Services"), h("nav", { "aria-label": "Services" }, h("ul", {}, links)), body);
  return SECTIONS[name].page.render(body, parts.slice(1), parameters);
}
