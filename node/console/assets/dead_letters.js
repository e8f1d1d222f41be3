// Dead letters: the groups that have some, those of one group, and one of them.

import { get, post, session } from "./api.js";
import { change, changeButton, failed, say } from "./common.js";
import { confirmed, facts, h, table } from "./dom.js";
import { address, refreshed } from "./refreshed.js";
import { bytes, count, time, times, visible } from "./words.js";
import { age, renderGroups } from "./work_groups.js";

const SECTION = "dead-letters";

export function render(place, [group, number], parameters) {
  if (group === undefined) return renderAll(place, parameters);
  return number === undefined ? renderGroup(place, group, parameters) : renderOne(place, group, number);
}

function renderAll(place, parameters) {
  return renderGroups(
    place,
    SECTION,
    parameters,
    [
      { title: "Dead letters", number: true, cell: (row) => count(row.dead_letters) },
      { title: "Being written", number: true, cell: (row) => count(row.dead) },
      { title: "Not acknowledged", number: true, cell: (row) => count(row.unacked) },
      { title: "Oldest of those", number: true, cell: (row, found) => age(row.oldest_unacked_ms, found.now_ms) },
    ],
    "No group has dead letters or work.",
  );
}

const calls = (group) => `services/dead-letters/${encodeURIComponent(group)}`;
const back = (group) => h("p", {}, h("a", { href: address(["services", SECTION]) }, "All groups"), " · ", h("a", { href: address(["services", "leases", group]) }, "Leases of this group"));

function origin(row) {
  if (!row.origin_topic) return "not known";
  const place = `${visible(row.origin_topic)} ${row.origin_queue_id < 0 ? "" : row.origin_queue_id}`;
  if (row.origin_queue_id < 0 || row.origin_queue_offset < 0) return place;
  return h("a", { href: address(["messages", row.origin_topic, String(row.origin_queue_id), String(row.origin_queue_offset)]), "data-key": `origin ${row.queue_offset}` }, `${place} at ${row.origin_queue_offset}`);
}

function resendOne(group, row, again) {
  return change(
    `${calls(group)}/resend`,
    { numbers: [row.queue_offset] },
    {
      title: `Send dead letter ${row.queue_offset} again?`,
      text: `A copy goes to ${row.origin_topic || "the topic that it came from"}, where it is a new message: each group that reads this topic gets it.`,
      name: group,
      action: "Resend",
    },
    (answer) => (answer.refused.length ? `Not sent: ${answer.refused[0].reason}` : `Dead letter ${row.queue_offset} was sent again.`),
  ).then((answer) => answer && again());
}

// In parts, so that no request lasts for long; what was sent stays sent if one of them fails. Those
// that come back meanwhile have numbers from found.end on, and are not sent once more.
async function resendAll(group, found, again) {
  const wanted = await confirmed({
    title: `Send all ${count(found.left)} dead letters of ${group} again?`,
    text: ["A copy of each goes to the topic that it came from, where it is a new message: each group that reads this topic gets it.", "Those that come from now on are not sent."],
    name: group,
    action: "Resend all",
  });
  if (!wanted) return;
  let sent = 0;
  const refused = [];
  try {
    for (let first = 0; first !== null; ) {
      const answer = await post(`${calls(group)}/resend`, { first, before: found.end, confirm: group });
      sent += answer.sent;
      refused.push(...answer.refused);
      first = answer.next;
      if (first !== null) say(`${count(sent)} dead letters were sent again so far.`);
    }
    say(`${count(sent)} dead letters were sent again.${refused.length ? ` ${count(refused.length)} were not: ${refused[0].reason}` : ""}`);
  } catch (error) {
    say(`${count(sent)} dead letters were sent again. Those after them: ${failed(error)}`);
  }
  again();
}

function purge(group, found, again) {
  return change(
    `${calls(group)}/purge`,
    { before: found.end },
    {
      title: `Forget the dead letters of ${group}?`,
      text: [`${count(found.left)} dead letters are forgotten. They cannot be listed or sent again.`, "Those that come from now on stay."],
      name: group,
      action: "Purge",
      typed: true,
      danger: true,
    },
    (answer) => `${count(answer.purged)} dead letters of ${group} are forgotten.`,
  ).then((answer) => answer && again());
}

function renderGroup(place, group, parameters) {
  const first = parameters.get("first") ?? "";
  const path = ["services", SECTION, group];
  place.append(h("h2", {}, `Dead letters of ${group}`), back(group));
  return refreshed(
    place,
    (signal) => get(calls(group), { first }, { signal }),
    (found, again) => [
      h("p", {}, found.left ? `${count(found.left)} dead letters, the oldest first.` : "There are none."),
      found.left
        ? h("p", { class: "row" }, changeButton("Resend all", "resend all", () => resendAll(group, found, again)), changeButton("Purge all…", "purge all", () => purge(group, found, again), true))
        : null,
      table(
        `Dead letters of ${group}`,
        [
          { title: "Number", cell: (row) => h("a", { href: address([...path, String(row.queue_offset)]), "data-key": `letter ${row.queue_offset}` }, row.queue_offset) },
          { title: "From", cell: origin },
          { title: "Delivered", number: true, cell: (row) => times(row.attempts) },
          { title: "Why", cell: (row) => visible(row.last_error) || "no error was given" },
          { title: "Dead since", cell: (row) => time(row.store_timestamp) },
          { title: "Size", number: true, cell: (row) => bytes(row.size) },
          ...(session.writes ? [{ title: "Change", cell: (row) => changeButton("Resend", `resend ${row.queue_offset}`, () => resendOne(group, row, again)) }] : []),
        ],
        found.letters,
        { empty: first ? "No dead letter has this number or a later one." : "", hidden: true },
      ),
      h("p", { class: "row" }, first ? h("a", { href: address(path), "data-key": "page first" }, "From the oldest") : null, found.next !== null ? h("a", { href: address(path, { first: found.next }), "data-key": "page next" }, "After") : null),
    ],
    10000,
  );
}

async function renderOne(place, group, number) {
  const path = ["services", SECTION, group];
  const found = await get(`${calls(group)}/${encodeURIComponent(number)}`);
  const done = () => (location.hash = address(path));
  place.append(
    h("h2", {}, `Dead letter ${found.queue_offset} of ${group}`),
    h("p", {}, h("a", { href: address(path) }, `All dead letters of ${group}`)),
    facts([
      ["Why", visible(found.last_error) || "no error was given"],
      ["Delivered", times(found.attempts)],
      ["First delivered", found.first_attempt_ms ? time(found.first_attempt_ms) : "not known"],
      ["Last delivered", found.last_attempt_ms ? time(found.last_attempt_ms) : "not known"],
      ["Dead since", time(found.store_timestamp)],
      ["From", origin(found)],
      ["Message id", visible(found.origin_message_id) || "not known"],
    ]),
    changeButton("Resend", "resend", () => resendOne(group, found, done)) ?? "",
    h("h3", {}, "Body"),
    ...body(found.body),
    h("h3", {}, "Properties"),
    table("Properties", [{ title: "Name", cell: ([name]) => visible(name) }, { title: "Value", cell: ([, value]) => visible(value) }], found.properties, { hidden: true }),
  );
}

function body(found) {
  if (found.fault) return [h("p", { class: "fault" }, found.fault)];
  const size = bytes(found.size);
  return [
    h("p", { class: "quiet" }, `${size}${found.cut ? ", of which this is the begin" : ""}${found.text === null ? ", not text: as hex" : ""}`),
    found.size ? h("pre", { tabindex: "0" }, found.text === null ? found.hex : visible(found.text)) : null,
  ].filter(Boolean);
}
