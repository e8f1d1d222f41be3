// One message: its body as text, JSON and hex, its fields, its life, and where it lies.

import { get } from "./api.js";
import { badge, facts, h, show, table } from "./dom.js";
import { groupLink, messageLink, topicLink } from "./messages.js";
import { jsonLines } from "./json_text.js";
import { bytes, count, time, visible } from "./words.js";

export async function render(place, parts) {
  const [topic, queue, offset] = parts;
  const asked = { topic, queue, offset };
  const near = (step, text) => (Number(offset) + step >= 0 ? h("a", { class: "button", href: messageLink(topic, queue, Number(offset) + step) }, text) : null);
  place.append(
    h("p", {}, h("a", { href: `#/messages?${new URLSearchParams({ topic })}` }, "Messages"), " of ", h("a", { href: topicLink(topic) }, visible(topic))),
    h("h1", {}, `${visible(topic)}, queue ${visible(queue)}, offset ${visible(offset)}`),
    h("p", { class: "row" }, near(-1, "Offset before"), near(1, "Offset after")),
  );
  let found;
  try {
    found = await get("messages/message", asked);
  } catch (error) {
    place.append(h("p", { class: "fault", role: "alert" }, error.message));
    return;
  }
  if (found.fault) {
    place.append(h("p", { class: "alarm" }, `Its record is damaged: ${found.fault}`), disk(found));
    return;
  }
  const life = h("div", {}, h("p", { class: "quiet", role: "status" }, "Asking the groups…"));
  place.append(h("h2", {}, "Body"), body(found, asked), h("h2", {}, "Its life"), life, h("h2", {}, "Fields"), fields(found), h("h2", {}, "Properties"), properties(found), h("h2", {}, "Where it lies"), disk(found));
  try {
    show(life, events(await get("messages/life", asked)));
  } catch (error) {
    show(life, h("p", { class: "fault", role: "alert" }, error.message));
  }
}

function fields(found) {
  return facts([
    ["Stored", `${time(found.store_timestamp)} by the master at ${found.store_host}`],
    ["Created", `${time(found.born_timestamp)} at ${found.born_host}`],
    ["Keys", found.keys.length ? found.keys.map((key) => [h("a", { href: `#/messages?${new URLSearchParams({ topic: found.topic, by: "key", value: key })}` }, visible(key)), " "]) : "none"],
    ["Tag", found.tags ? visible(found.tags) : "none"],
    ["Unique id", found.uniq_key ? visible(found.uniq_key) : "none"],
    ["Message id", h("code", {}, found.msg_id)],
    ["Size", `${count(found.size)} B in the log, of which ${count(found.stored_body_bytes)} B are the body${found.compression ? `, compressed with ${found.compression}` : ""}`],
    ["Flag", String(found.flag)],
    ["System flag", [`0x${found.sys_flag.toString(16)}`, found.transaction ? [" ", badge("", found.transaction)] : null]],
    ["Reconsume times", String(found.reconsume_times)],
    ["Body CRC", found.body_crc.toString(16).padStart(8, "0")],
  ]);
}

function properties(found) {
  return table(
    "Properties, also those of the store",
    [
      { title: "Name", cell: (row) => visible(row[0]) },
      { title: "Value", cell: (row) => visible(row[1]) },
    ],
    found.properties,
    { empty: "It has none.", hidden: true },
  );
}

function disk(found) {
  const { place } = found;
  return facts([
    ["Log offset", `${count(found.physical_offset)} (physical_offset, the same on every node)`],
    ["File", [h("code", {}, `commitlog/${place.file}`), ` of ${bytes(place.file_size)}`]],
    ["In it", `bytes ${count(place.position)} to ${count(place.position + found.size - 1)}`],
    ["On its disk", place.on_this_disk ? `yes, node ${place.node} has the file` : `no: node ${place.node} has deleted the file, and reads it from another node or the archive`],
  ]);
}

function events(found) {
  return [
    h(
      "ol",
      { class: "life" },
      found.events.map((each) =>
        h(
          "li",
          {},
          h("span", { class: "when" }, each.at === null ? "now" : time(each.at)),
          h("span", {}, visible(each.text), " ", each.group ? h("a", { href: groupLink(each.group) }, `group ${each.group}`) : null, " ", each.place ? h("a", { href: messageLink(each.place.topic, each.place.queue_id, each.place.queue_offset) }, "show it") : null, each.place?.topic.startsWith("%DLQ%") ? [" ", h("a", { href: "#/services" }, "all dead letters")] : null),
        ),
      ),
    ),
    found.not_known.length ? [h("h3", {}, "What is not known"), h("ul", {}, found.not_known.map((each) => h("li", {}, visible(each))))] : null,
  ];
}

// ---- body

function body(found, asked) {
  const given = found.body;
  const file = `api/messages/body?${new URLSearchParams(asked)}`;
  if (given.fault) return h("p", { class: "alarm" }, `It cannot be shown: ${given.fault}`);
  const data = Uint8Array.from(atob(given.shown), (letter) => letter.charCodeAt(0));
  const whole = given.shown_bytes === given.bytes;
  // as a stream, so that a character that the end of what is shown cuts is left out
  const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(data, { stream: !whole });
  return h(
    "div",
    {},
    h("p", { class: "row" }, h("span", {}, said(given, text)), h("a", { class: "button", href: file, download: "" }, `Download ${bytes(given.bytes)}`)),
    given.not_utf8_at >= 0 ? h("p", { class: "note" }, `It is not UTF-8: byte ${count(given.not_utf8_at)} is the first that is not. As text, such bytes are shown as \ufffd; the tab Hex has them as they are.`) : null,
    whole ? null : h("p", { class: "note" }, `The first ${count(given.shown_bytes)} of ${count(given.bytes)} bytes are shown.`),
    tabs("body", [
      ["Text", () => h("pre", { tabindex: "0" }, text ? visible(text) : "(empty)")],
      ["JSON", () => asJson(text, whole && given.not_utf8_at < 0)],
      ["Hex", () => h("pre", { class: "hex", tabindex: "0" }, hex(data))],
    ], looksLikeJson(text) && whole ? 1 : 0),
  );
}

function said(given, text) {
  const marks = visible(text) === text ? "" : "; characters that cannot be seen, or turn the text around them, are shown by their number, such as \u27e800\u27e9";
  return `${count(given.bytes)} bytes${marks}`;
}

function looksLikeJson(text) {
  if (!/^\s*[[{]/.test(text)) return false;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

function asJson(text, complete) {
  if (!complete) return h("p", { class: "quiet" }, "Only a body that is shown whole, and is UTF-8, can be read as JSON.");
  try {
    return h("pre", { tabindex: "0" }, visible(jsonLines(text)));
  } catch (error) {
    return h("p", { class: "quiet" }, `It is not JSON: ${visible(error.message)}`);
  }
}

function hex(data) {
  const lines = [];
  for (let at = 0; at < data.length; at += 16) {
    const row = [...data.subarray(at, at + 16)];
    const digits = row.map((each) => each.toString(16).padStart(2, "0"));
    const letters = row.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : "."));
    lines.push(`${at.toString(16).padStart(8, "0")}  ${digits.join(" ").padEnd(47)}  ${letters.join("")}`);
  }
  return lines.join("\n") || "(empty)";
}

// Tabs by the pattern of ARIA: arrows, Home and End move, Tab leaves. rows: [[title, () => panel]]
function tabs(name, rows, first) {
  const panel = h("div", { role: "tabpanel", id: `${name}-panel`, "aria-labelledby": `${name}-tab-${first}` });
  const buttons = rows.map(([title], index) => h("button", { type: "button", role: "tab", id: `${name}-tab-${index}`, "aria-controls": panel.id, onclick: () => choose(index) }, title));
  const choose = (chosen) => {
    buttons.forEach((each, index) => {
      each.setAttribute("aria-selected", String(index === chosen));
      each.tabIndex = index === chosen ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", buttons[chosen].id);
    panel.replaceChildren(rows[chosen][1]());
  };
  const move = (event) => {
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    const next = (to + rows.length) % rows.length;
    choose(next);
    buttons[next].focus();
  };
  choose(first);
  return h("div", {}, h("div", { class: "tabs", role: "tablist", "aria-label": "The body as", onkeydown: move }, buttons), panel);
}
