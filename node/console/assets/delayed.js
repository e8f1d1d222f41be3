// Messages that come later: how many by when, and the next ones.

import { get, session } from "./api.js";
import { change, changeButton } from "./common.js";
import { h, svg, table } from "./dom.js";
import { address, refreshed } from "./refreshed.js";
import { bytes, count, seconds, time, visible } from "./words.js";

const PATH = ["services", "delayed"];
const WIDTH = 240;

export function render(place, _, parameters) {
  const topic = parameters.get("topic") ?? "";
  const most = parameters.get("count") ?? "";
  const input = h("input", { id: "delayed-topic", value: topic, autocomplete: "off", spellcheck: "false" });
  const find = (event) => {
    event.preventDefault();
    location.hash = address(PATH, { topic: input.value.trim() });
  };
  place.append(
    h("form", { class: "row", onsubmit: find }, h("div", {}, h("label", { for: "delayed-topic" }, "Topic to which they come"), input), h("button", { type: "submit" }, "Show"), topic ? h("a", { href: address(PATH) }, "All topics") : null),
  );
  return refreshed(
    place,
    (signal) => get("services/delayed", { topic, count: most }, { signal }),
    (found, again) => [...byDue(found.bars), ...next(found, topic, again)],
  );
}

function byDue(rows) {
  if (!rows) return [h("p", { class: "quiet" }, "How many come by when is shown to those who may read every topic.")];
  const all = rows.reduce((sum, each) => sum + each.count, 0);
  const most = Math.max(1, ...rows.map((each) => each.count));
  const bar = (row) =>
    svg("svg", { class: "bars", viewBox: `0 0 ${WIDTH} 12`, width: WIDTH, height: 12, "aria-hidden": "true" }, svg("rect", { x: 0, y: 0, height: 12, rx: 2, width: row.count ? Math.max(1, (row.count / most) * WIDTH) : 0 }));
  return [
    h("h2", {}, all === 1 ? "1 message waits" : `${count(all)} messages wait`),
    all
      ? table(
          "By the time at which they come; each row has those after the row before it",
          [
            { title: "Comes", cell: (row) => row.label },
            { title: "Messages", number: true, cell: (row) => count(row.count) },
            { title: "Share", cell: bar },
          ],
          rows,
        )
      : null,
  ];
}

function next(found, topic, again) {
  const due = (row) => {
    const left = (row.deliver_at_ms - found.now_ms) / 1000;
    return left >= 0 ? `in ${seconds(left)}` : `${seconds(-left)} overdue`;
  };
  const recall = (row) =>
    change(
      "services/delayed/recall",
      { recall_handle: row.recall_handle },
      {
        title: "Call this message back?",
        text: `It would come to ${row.topic} at ${time(row.deliver_at_ms)}. It never comes then.`,
        name: row.unique_key,
        action: "Recall",
        danger: true,
      },
      "The message was called back.",
    ).then((answer) => answer && again());
  const shown = found.messages.length;
  return [
    h("h2", {}, topic ? `The next to come to ${topic}` : "The next to come"),
    table(
      "Delayed messages, the next to come first",
      [
        { title: "Comes", cell: (row) => h("time", { title: time(row.deliver_at_ms) }, due(row)) },
        { title: "At", cell: (row) => time(row.deliver_at_ms) },
        { title: "Topic", cell: (row) => h("a", { href: address(["topics", row.topic]), "data-key": `topic ${row.physical_offset}` }, visible(row.topic)) },
        { title: "Queue", number: true, cell: (row) => (row.queue_id < 0 ? "–" : row.queue_id) },
        { title: "Waits since", cell: (row) => time(row.store_timestamp) },
        { title: "Body", number: true, cell: (row) => bytes(row.body_bytes) },
        { title: "Unique key", cell: (row) => visible(row.unique_key) },
        ...(session.writes ? [{ title: "Change", cell: (row) => (row.recall_handle ? changeButton("Recall…", `recall ${row.physical_offset}`, () => recall(row)) : null) }] : []),
      ],
      found.messages,
      { empty: topic ? `No message waits for ${topic}.` : "No message waits for its time.", hidden: true },
    ),
    shown === found.count && shown < found.most ? h("p", {}, h("a", { href: address(PATH, { topic, count: found.most }), "data-key": "more" }, `Show ${found.most}`)) : null,
  ];
}
