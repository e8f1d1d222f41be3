// Messages of a topic: browsed page by page, or found by offset, time, key, tag, id or filter.
// What is shown stands in the address, so that a page can be sent to somebody and Back goes back.

import { get, session } from "./api.js";
import { change } from "./common.js";
import { badge, h, show, table } from "./dom.js";
import { bytes, count, time, visible } from "./words.js";

const BY = {
  newest: { text: "the newest" },
  oldest: { text: "the oldest", forward: true },
  offset: { text: "from an offset", label: "Queue offset", forward: true },
  time: { text: "from a time", label: "Stored at or after (local time)", forward: true },
  key: { text: "with a key or unique id", label: "Key", index: true },
  tag: { text: "with a tag (where the store indexes tags)", label: "Tag", index: true },
  id: { text: "with a message id", label: "Message id (offset id, or unique id with a topic)", index: true },
};

export async function render(place, parts, parameters) {
  if (parts.length) return (await import("./message.js")).render(place, parts);
  const asked = Object.fromEntries(parameters);
  asked.by = Object.hasOwn(BY, asked.by) ? asked.by : "newest";
  const found = h("div", {});
  place.append(h("h1", {}, asked.topic ? ["Messages of ", h("a", { href: topicLink(asked.topic) }, visible(asked.topic))] : "Messages"), form(asked), found, sending(asked));
  if (BY[asked.by].index ? asked.value : asked.topic) await draw(found, asked);
}

export const topicLink = (name) => `#/topics/${encodeURIComponent(name)}`;
export const groupLink = (name) => `#/groups/${encodeURIComponent(name)}`;
export const messageLink = (topic, queue, offset) => `#/messages/${encodeURIComponent(topic)}/${queue}/${offset}`;

function address(asked) {
  const given = Object.entries(asked).filter(([, value]) => value !== "" && value !== undefined);
  return `#/messages?${new URLSearchParams(given)}`;
}

// A time of an address: ms since 1970.
function moment(text) {
  if (!/^\d{1,15}$/.test(text ?? "")) throw new Error(`The time in the address cannot be read: ${visible(text ?? "there is none")}. Give it again.`);
  return text;
}

const local = (text) => (/^\d{1,15}$/.test(text ?? "") ? time(Number(text)).replace(" ", "T") : "");

function form(asked) {
  const names = h("datalist", { id: "topic-names" });
  const topic = h("input", { id: "topic", value: asked.topic ?? "", list: "topic-names", autocomplete: "off", spellcheck: "false", maxlength: 255 });
  const queue = h("input", { id: "queue", value: asked.queue ?? "", inputmode: "numeric", size: 6, placeholder: "all" });
  const by = h("select", { id: "by" }, Object.entries(BY).map(([name, each]) => h("option", { value: name, selected: name === asked.by }, each.text)));
  const value = h("input", { id: "value", value: asked.by === "time" ? local(asked.value) : (asked.value ?? ""), autocomplete: "off", spellcheck: "false" });
  const label = h("label", { for: "value" });
  const where = h("input", { id: "where", value: asked.where ?? "", size: 40, autocomplete: "off", spellcheck: "false", placeholder: "amount > 5 AND region IN ('eu')" });
  const field = (name, text, input) => h("div", {}, h("label", { for: name }, text), input);
  const valued = h("div", {}, label, value);
  const browsed = [field("queue", "Queue", queue), field("where", "Filter (SQL92, over properties)", where)];
  const fit = () => {
    const { label: text, index } = BY[by.value];
    valued.hidden = !text;
    label.textContent = text ?? "";
    value.type = by.value === "time" ? "datetime-local" : "text";
    if (by.value === "time") value.step = "0.001";
    value.required = by.value === "time";
    browsed.forEach((each) => (each.hidden = Boolean(index)));
  };
  by.addEventListener("change", () => {
    value.value = "";
    fit();
  });
  let asking = 0;
  const suggest = async () => {
    const mine = ++asking;
    try {
      const { topics } = await get("messages/topics", { like: topic.value });
      if (mine === asking) show(names, topics.map((each) => h("option", { value: each })));
    } catch {
      // names are a convenience: the page itself says what is wrong
    }
  };
  let typing = 0;
  topic.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(suggest, 200);
  });
  topic.addEventListener("focus", suggest, { once: true });
  const submit = (event) => {
    event.preventDefault();
    const next = { topic: topic.value.trim(), by: by.value, value: BY[by.value].label ? value.value : "" };
    // in the address it is the same moment for everyone
    if (by.value === "time") next.value = String(new Date(value.value).getTime());
    if (!BY[by.value].index) Object.assign(next, { queue: queue.value.trim(), where: where.value.trim() });
    const to = address(next);
    if (to === location.hash) dispatchEvent(new HashChangeEvent("hashchange"));
    else location.hash = to;
  };
  fit();
  return h(
    "form",
    { class: "row", onsubmit: submit, "aria-label": "Find messages" },
    field("topic", "Topic", [topic, names]),
    field("by", "Show", by),
    valued,
    browsed,
    h("button", { type: "submit" }, "Show"),
  );
}

async function draw(place, asked) {
  show(place, h("p", { class: "quiet", role: "status" }, "Looking…"));
  try {
    if (BY[asked.by].index) show(place, indexed(await get("messages/find", { topic: asked.topic, [asked.by]: asked.value }), asked));
    else show(place, browsed(await get("messages", question(asked)), asked));
  } catch (error) {
    show(place, h("p", { class: "fault", role: "alert" }, error.message));
  }
}

function question(asked) {
  const { topic, queue, where, at } = asked;
  const direction = asked.direction ?? (BY[asked.by].forward ? "forward" : "back");
  const begin = {};
  if (!at && asked.by === "offset") begin.offset = asked.value.trim() || "0";
  if (!at && asked.by === "time") begin.time = moment(asked.value);
  return { topic, queue, where, at, direction, ...begin };
}

function indexed(found, asked) {
  return [
    rows(`Messages ${BY[asked.by].text.replace(/ \(.*/, "")} ${visible(asked.value)}`, found.rows, "No message has it."),
    found.more ? h("p", { class: "note" }, `These are the newest ${found.rows.length}: there are more. The command tandemlog query lists all.`) : null,
  ];
}

function browsed(found, asked) {
  const forward = Boolean(BY[asked.by].forward);
  const direction = question(asked).direction;
  // a page that was read the other way is shown in the order of the pages before
  const list = (direction === "forward") === forward ? found.rows : [...found.rows].reverse();
  const turn = (text, at, to, ended) =>
    ended ? h("span", { class: "quiet" }, `no ${text.toLowerCase()}`) : h("a", { class: "button", href: address({ ...asked, at, direction: to }), "data-key": text }, text);
  const older = turn("Older messages", found.older, "back", direction === "back" && found.ended);
  const newer = turn("Newer messages", found.newer, "forward", direction === "forward" && found.ended);
  const left = found.queues_with_messages - found.read.length;
  const later = asked.where ? "None of these messages fits the filter: look further." : "This node does not have the next messages yet: look again.";
  const empty = found.ended ? "No messages here." : later;
  return [
    asked.queue === undefined && left > 0
      ? h("p", { class: "note" }, `${found.read.length} of ${found.queues_with_messages} queues with messages are read, those that were written to last. Give a queue to read another one.`)
      : null,
    rows(`Messages, ${forward ? "the oldest" : "the newest"} first`, list, empty),
    h("p", { class: "row" }, forward ? [older, newer] : [newer, older], h("span", { class: "quiet", role: "status" }, `${count(found.looked_at)} messages were looked at${asked.where ? `, ${count(found.rows.length)} fit the filter` : ""}.`)),
    h("details", {}, h("summary", {}, "What the queues hold"), held(found)),
  ];
}

function held(found) {
  return table(
    "Queues that are read",
    [
      { title: "Queue", cell: (row) => row.queue_id },
      { title: "First offset", number: true, cell: (row) => count(row.min_offset) },
      { title: "End", number: true, cell: (row) => count(row.max_offset) },
      { title: "Oldest stored", cell: (row) => (row.min_timestamp < 0 ? "–" : time(row.min_timestamp)) },
      { title: "Newest stored", cell: (row) => (row.max_timestamp < 0 ? "–" : time(row.max_timestamp)) },
    ],
    found.read,
    { empty: `None of its ${found.queues} queues holds a message.`, hidden: true },
  );
}

function rows(caption, list, empty) {
  return table(
    caption,
    [
      { title: "Queue, offset", cell: (row) => (row.fault ? `${row.queue_id}, ${row.queue_offset}` : h("a", { href: messageLink(row.topic, row.queue_id, row.queue_offset) }, `${row.queue_id}, ${row.queue_offset}`)) },
      { title: "Stored", cell: (row) => (row.fault ? "–" : h("span", { class: "number" }, time(row.store_timestamp))) },
      { title: "Keys", cell: (row) => h("span", { class: "keys" }, visible(row.keys ?? "")) },
      { title: "Tag", cell: (row) => visible(row.tags ?? "") },
      { title: "Size", number: true, cell: (row) => bytes(row.size) },
      { title: "Body", cell: (row) => preview(row) },
    ],
    list,
    { empty },
  );
}

function preview(row) {
  if (row.fault) return h("span", { class: "fault" }, row.fault);
  if (row.compressed && !row.preview) return h("span", { class: "quiet" }, `compressed, ${bytes(row.body_bytes)}`);
  return [row.compressed ? [badge("", "compressed"), " "] : null, h("code", {}, visible(row.preview))];
}

// ---- send one

function sending(asked) {
  if (!session.sends) return null;
  const input = (name, more = {}) => h("input", { id: `send-${name}`, autocomplete: "off", spellcheck: "false", ...more });
  const fields = {
    topic: input("topic", { value: asked.topic ?? "", maxlength: 255, required: true }),
    queue: input("queue", { inputmode: "numeric", size: 6, placeholder: "any" }),
    keys: input("keys"),
    tags: input("tags", { size: 10 }),
    delay: input("delay", { type: "number", min: 0, step: 0.001, size: 8, placeholder: "0" }),
  };
  const body = h("textarea", { id: "send-body", spellcheck: "false" });
  const properties = h("textarea", { id: "send-properties", spellcheck: "false", rows: 3, placeholder: "name=value, one in a line" });
  const encoding = h("select", { id: "send-encoding" }, h("option", { value: "text" }, "text, sent as UTF-8"), h("option", { value: "base64" }, "base64 of its bytes"));
  const fault = h("p", { class: "fault", role: "alert" });
  const done = h("p", { role: "status" });
  const field = (name, text, element) => h("div", {}, h("label", { for: `send-${name}` }, text), element);
  const submit = async (event) => {
    event.preventDefault();
    fault.textContent = "";
    const given = {};
    for (const line of properties.value.split("\n").filter((each) => each.trim())) {
      const at = line.indexOf("=");
      if (at < 1) {
        fault.textContent = `Properties: ${visible(line)} is no name=value`;
        return;
      }
      given[line.slice(0, at).trim()] = line.slice(at + 1);
    }
    if (!/^\d*$/.test(fields.queue.value.trim())) {
      fault.textContent = "Queue: give its number, or nothing";
      return;
    }
    const topic = fields.topic.value.trim();
    const message = {
      topic,
      queue: fields.queue.value.trim() === "" ? null : Number(fields.queue.value),
      keys: fields.keys.value,
      tags: fields.tags.value.trim(),
      properties: given,
      delay_ms: Math.round(Number(fields.delay.value) * 1000),
      encoding: encoding.value,
      body: body.value,
    };
    const question = { title: `Send a message to ${topic}?`, text: "Consumers get it like any other message, and it cannot be taken back.", name: topic, action: "Send" };
    const sent = await change("messages/send", message, question, (answer) => `Stored in queue ${answer.queue_id} of ${answer.topic}.`);
    if (!sent) return;
    show(
      done,
      sent.deliver_at_ms ? `It comes to ${sent.topic} at ${time(sent.deliver_at_ms)}.` : ["Sent: ", h("a", { href: messageLink(sent.topic, sent.queue_id, sent.queue_offset) }, `${sent.topic}, queue ${sent.queue_id}, offset ${sent.queue_offset}`)],
    );
  };
  return h(
    "details",
    { class: "send" },
    h("summary", {}, "Send a message"),
    h(
      "form",
      { onsubmit: submit, "aria-label": "Send a message" },
      h("div", { class: "row" }, field("topic", "Topic", fields.topic), field("queue", "Queue", fields.queue), field("keys", "Keys, by spaces", fields.keys), field("tags", "Tag", fields.tags), field("delay", "Delay in seconds", fields.delay)),
      field("properties", "Properties", properties),
      field("body", "Body", body),
      h("div", { class: "row" }, field("encoding", "The body is", encoding), h("button", { type: "submit" }, "Send…")),
      fault,
      done,
    ),
  );
}
