// Work queues: what consumers have in hand, what waits for another attempt, and since when.

import { get } from "./api.js";
import { facts, h, table } from "./dom.js";
import { address, pager, refreshed } from "./refreshed.js";
import { count, seconds, times } from "./words.js";
import { age, renderGroups } from "./work_groups.js";

const NUMBERS = [
  { title: "Leased", number: true, cell: (row) => count(row.leased) },
  { title: "Waits for a retry", number: true, cell: (row) => count(row.waiting_retry) },
  { title: "Comes again now", number: true, cell: (row) => count(row.ready) },
  { title: "Unacked", number: true, cell: (row) => count(row.unacked) },
];
const oldest = { title: "Oldest unacked", number: true, cell: (row, found) => age(row.oldest_unacked_ms, found.now_ms) };

export function render(place, [group], parameters) {
  if (group !== undefined) return renderGroup(place, group, parameters);
  const letters = { title: "Dead letters", number: true, cell: (row) => (row.dead_letters ? h("a", { href: address(["services", "dead-letters", row.group]), "data-key": `dead ${row.group}` }, count(row.dead_letters)) : "0") };
  return renderGroups(place, "leases", parameters, [...NUMBERS, oldest, letters], "No group has a work queue.");
}

function renderGroup(place, group, parameters) {
  const first = parameters.get("first") ?? "";
  place.append(
    h("h2", {}, `Work of ${group}`),
    h("p", {}, h("a", { href: address(["services", "leases"]) }, "All groups"), " · ", h("a", { href: address(["services", "dead-letters", group]) }, "Dead letters of this group"), " · ", h("a", { href: address(["groups", group]) }, "Members")),
  );
  return refreshed(
    place,
    (signal) => get(`services/groups/${encodeURIComponent(group)}`, { first }, { signal }),
    (found) => [
      h(
        "div",
        { class: "panels" },
        panel("Leased", count(found.leased), "a consumer has them in hand"),
        panel("Waits for a retry", count(found.waiting_retry), "they failed, and come again after a pause"),
        panel("Comes again now", count(found.ready), "for the next consumer that asks"),
        panel("Oldest unacked", age(found.oldest_unacked_ms, found.now_ms), "since it was first delivered"),
        panel("Dead letters", count(found.dead_letters), found.dead ? `and ${count(found.dead)} being written` : "none is being written"),
      ),
      h("h3", {}, "Policy"),
      policy(found.policy),
      h("h3", {}, "Attempts"),
      table(
        "Messages that are not done, by how often they were delivered",
        [
          { title: "Delivered", cell: (row) => times(row.number) },
          { title: "Messages", number: true, cell: (row) => count(row.messages) },
        ],
        found.attempts.map((messages, index) => ({ number: index + 1, messages })).filter((each) => each.messages),
        { empty: "Every message that was delivered is done." },
      ),
      h("h3", {}, "Queues"),
      table(
        "Queues, those with unacked messages first",
        [
          { title: "Topic", cell: (row) => row.topic },
          { title: "Queue", number: true, cell: (row) => row.queue_id },
          ...NUMBERS,
          { ...oldest, cell: (row) => oldest.cell(row, found) },
          { title: "All done before", number: true, cell: (row) => count(row.floor) },
          { title: "Next to deliver", number: true, cell: (row) => count(row.next_offset) },
          { title: "Not delivered yet", number: true, cell: (row) => count(Math.max(0, row.max_offset - row.next_offset)) },
        ],
        found.queues,
        { empty: "No queue has been read from yet." },
      ),
      pager(found, ["services", "leases", group]),
    ],
    3000,
  );
}

function panel(title, value, text) {
  return h("div", { class: "panel" }, h("h3", {}, title), h("p", { class: "big" }, value), h("p", { class: "quiet" }, text));
}

// "2 h" and not "2 h 0 min"
const pause = (ms) => seconds(ms / 1000).replace(/ 0 (s|min|h)$/, "");

function policy(found) {
  const pauses = found.levels_ms.length
    ? found.levels_ms.map(pause).join(", ") + "; then the last one again"
    : `${pause(found.initial_ms)}, times ${found.multiplier} each time, at most ${pause(found.max_ms)}`;
  const order = { none: "in any order", queue: "one message of a queue at a time", key: "one message of a sharding key at a time" };
  return facts([
    ["Deliveries", `at most ${found.max_attempts}, then it is a dead letter`],
    ["Pauses", pauses],
    ["Order", order[found.ordering] ?? found.ordering],
    ["Begins", found.start === "latest" ? "with what comes after its first read" : "with the first message that is there"],
  ]);
}
