// Topics: a list with filter and pages, and each topic's own page with its queues and groups.

import { get, session } from "./api.js";
import { change, changeButton } from "./common.js";
import { badge, facts, h, show, table } from "./dom.js";
import { choose, filter, link } from "./lists.js";
import { line } from "./plots.js";
import { pager, refreshed } from "./refreshed.js";
import { bytes, count, rate, time } from "./words.js";

const QUEUES = 8;
const MAX_QUEUES = 65536;

export const topicPage = (name) => `#/topics/${encodeURIComponent(name)}`;

export function render(place, parts, parameters) {
  return parts.length ? one(place, parts[0], parameters) : list(place, parameters);
}

function list(place, parameters) {
  const rows = h("div", {});
  const system = h("input", {
    type: "checkbox",
    id: "system",
    "data-key": "system",
    checked: parameters.get("system") === "1",
    onchange: () => (location.hash = link(["topics"], parameters, { system: system.checked ? "1" : "" })),
  });
  place.append(
    h("h1", {}, "Topics"),
    session.writes ? creation() : "",
    h("div", { class: "row" }, filter("Name contains", ["topics"], parameters), h("p", { class: "check" }, system, " ", h("label", { for: "system" }, "show the store's own, retry and dead-letter topics"))),
    choose("Sorted by", "sort", [["", "name"], ["rate", "messages per second"]], ["topics"], parameters),
    rows,
  );
  return refreshed(rows, (signal) => get("topics", Object.fromEntries(parameters), { signal }), (found) => listed(found, parameters));
}

function listed(found, parameters) {
  const plot = (row, index, words, color) => (row.plots ? line(row.plots[index], { words: `${row.topic}: ${words}`, format: (value) => `${rate(value)}/s`, color, width: 100, height: 24 }) : null);
  return [
    table(
      "Topics",
      [
        { title: "Topic", cell: (row) => h("a", { href: topicPage(row.topic), "data-key": `topic ${row.topic}` }, row.topic) },
        { title: "Queues", number: true, cell: (row) => queuesOf(row) },
        { title: "Messages", number: true, cell: (row) => (row.messages === null ? "–" : count(row.messages)) },
        { title: "In /s", number: true, cell: (row) => rate(row.rates?.[0]) },
        { title: "In, 5 min", cell: (row) => plot(row, 0, "messages in", "a") },
        { title: "Out /s", number: true, cell: (row) => rate(row.rates?.[2]) },
        { title: "Out, 5 min", cell: (row) => plot(row, 1, "messages out", "b") },
        { title: "Bytes in /s", number: true, cell: (row) => (row.rates ? bytes(row.rates[1]) : "–") },
        { title: "May", cell: (row) => permission(row) },
      ],
      found.topics,
      { hidden: true, empty: parameters.get("text") ? "No topic has this in its name." : "There is no topic yet." },
    ),
    pager(found, ["topics"], Object.fromEntries(parameters)),
    h("p", { class: "quiet" }, `Rates are those of ${session.node} over the last 5 seconds${elsewhere(found)}. Messages are those that its log still has.`, found.hidden ? ` ${count(found.hidden)} topics of the store's own are hidden.` : ""),
  ];
}

// A slave takes no puts: its rates of messages in are 0.
const elsewhere = (found) => (found.master && found.master !== session.node ? `; messages come in at the master, ${found.master}` : "");

const queuesOf = (row) => (row.read_queues === row.write_queues ? count(row.read_queues) : `${count(row.read_queues)} read, ${count(row.write_queues)} written`);

function permission(row) {
  const text = row.readable ? (row.writable ? "read, write" : "read only") : row.writable ? "write only" : "neither read nor write";
  return row.readable && row.writable ? text : badge("warn", text);
}

function creation() {
  const name = h("input", { id: "new-topic", required: true, maxlength: 255, autocomplete: "off", spellcheck: "false" });
  const queues = h("input", { id: "new-queues", type: "number", min: 1, max: MAX_QUEUES, value: QUEUES, required: true });
  const create = async (event) => {
    event.preventDefault();
    const topic = name.value.trim();
    const made = await change(
      "topics/create",
      { topic, queues: Number(queues.value) },
      { title: `Create the topic ${topic}?`, text: `It gets ${count(Number(queues.value))} queues. More can be added later; one that holds messages cannot be taken away.`, name: topic, action: "Create" },
      `${topic} was created.`,
    );
    if (made) location.hash = topicPage(topic);
  };
  return h(
    "details",
    {},
    h("summary", {}, "Create a topic"),
    h("form", { class: "row", onsubmit: create }, h("div", {}, h("label", { for: "new-topic" }, "Name"), name), h("div", {}, h("label", { for: "new-queues" }, "Queues"), queues), h("button", { type: "submit" }, "Create")),
  );
}

// ---- one topic

function one(place, name, parameters) {
  const body = h("div", {});
  const changes = h("div", { class: "row" });
  place.append(h("p", {}, h("a", { href: "#/topics" }, "Topics")), h("h1", {}, name), changes, body);
  let last = null;
  return refreshed(
    body,
    (signal) => get("topic", { name, first: parameters.get("first") }, { signal }),
    (found, again) => {
      const first = !last;
      last = found;
      if (first) changes.append(...actions(() => last, again));
      return [described(found), queueTable(found), groupTable(found)];
    },
  );
}

// `latest` gives what was seen last.
function actions(latest, again) {
  const name = latest().topic;
  const input = h("input", { id: "queues", type: "number", min: 1, max: MAX_QUEUES, value: latest().write_queues, required: true });
  const resize = async (event) => {
    event.preventDefault();
    const queues = Number(input.value);
    const found = latest();
    const text = [`It has ${queuesOf(found)} now. Producers and consumers use the new number within seconds.`, "Messages with the same sharding key may go to another queue than before."];
    if (await change("topics/queues", { topic: name, queues }, { title: `Give ${name} ${count(queues)} queues?`, text, name, action: "Change" }, `${name} has ${count(queues)} queues.`)) await again();
  };
  const remove = async () => {
    const found = latest();
    const groups = found.group_count ? `Groups that have offsets in it or work on it: ${count(found.group_count)}.` : "No group has committed an offset in it or works on it.";
    const text = [`It holds ${count(found.messages)} messages. ${groups}`, "It takes no more messages. Those in the log stay there until they expire; a topic of the same name that is created before then has them again."];
    if (await change("topics/delete", { topic: name }, { title: `Delete the topic ${name}?`, text, name, action: "Delete", typed: true, danger: true }, `${name} was deleted.`)) location.hash = "#/topics";
  };
  const controls = [
    h("a", { class: "button", href: `#/messages?${new URLSearchParams({ topic: name })}` }, "Messages"),
  ];
  if (session.writes && !latest().system) {
    controls.push(
      h("form", { class: "row", onsubmit: resize }, h("div", {}, h("label", { for: "queues" }, "Queues"), input), h("button", { type: "submit", "data-key": "resize" }, "Change the number")),
      changeButton("Delete", "delete topic", remove, true),
    );
  }
  return controls;
}

function described(found) {
  const panel = (title, index, words, plot, color) =>
    h(
      "div",
      { class: "panel" },
      h("h3", {}, title),
      h("p", { class: "big" }, found.rates ? `${rate(found.rates[index])}/s` : "–"),
      plot ? line(plot, { words, format: (value) => `${rate(value)}/s`, color, width: 300, height: 40 }) : h("p", { class: "quiet" }, "no plot: it is not among the topics with the most traffic"),
      h("p", { class: "quiet" }, found.rates ? `${bytes(found.rates[index + 1])}/s` : ""),
    );
  return [
    h("h2", { class: "hidden" }, "Summary"),
    h(
      "div",
      { class: "panels" },
      panel(`In, at ${session.node}${elsewhere(found)}`, 0, "Messages in", found.plots?.[0], "a"),
      panel(`Out, at ${session.node}`, 2, "Messages out", found.plots?.[1], "b"),
      h(
        "div",
        { class: "panel" },
        facts([
          ["Messages", count(found.messages)],
          ["Queues", queuesOf(found)],
          ["May", permission(found)],
          ["Oldest", found.oldest < 0 ? "–" : time(found.oldest)],
          ["Newest", found.newest < 0 ? "–" : time(found.newest)],
          ...(found.order ? [["Order", "marked as ordered"]] : []),
          ...Object.entries(found.attributes).map(([key, value]) => [key, value]),
        ]),
      ),
    ),
  ];
}

function queueTable(found) {
  const at = (ms) => (ms < 0 ? "–" : h("span", { class: "nowrap" }, time(ms)));
  return [
    h("h2", {}, "Queues"),
    table(
      "Queues of the topic",
      [
        { title: "Queue", cell: (row) => h("a", { href: `#/messages?${new URLSearchParams({ topic: found.topic, queue: row.queue_id })}`, "data-key": `queue ${row.queue_id}` }, row.queue_id) },
        { title: "min_offset", number: true, cell: (row) => count(row.min_offset) },
        { title: "max_offset", number: true, cell: (row) => count(row.max_offset) },
        { title: "Messages", number: true, cell: (row) => count(row.messages) },
        { title: "Oldest", cell: (row) => at(row.oldest) },
        { title: "Newest", cell: (row) => at(row.newest) },
      ],
      found.queues,
      { hidden: true },
    ),
    pager(found, ["topics", found.topic]),
  ];
}

function groupTable(found) {
  return [
    h("h2", {}, "Groups that have offsets or work here"),
    table(
      "Groups",
      [
        { title: "Group", cell: (row) => h("a", { href: `#/groups/${encodeURIComponent(row.group)}?${new URLSearchParams({ topic: found.topic })}`, "data-key": `group ${row.group}` }, row.group) },
        { title: "Lag in this topic", number: true, cell: (row) => (row.lag === null ? "–" : count(row.lag)) },
      ],
      found.groups,
      { hidden: true, empty: "No group has committed an offset in this topic or works on it." },
    ),
    found.partial ? h("p", { class: "note" }, "There are too many groups and queues to count each lag at once: those without a lag are at the end.") : null,
    found.group_count > found.groups.length ? h("p", { class: "quiet" }, `${count(found.group_count - found.groups.length)} more with less lag: see Groups.`) : null,
  ];
}
