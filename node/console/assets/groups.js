// Consumer groups: a list, and each group's page with members, lag as a picture, and moving offsets.

import { get, session } from "./api.js";
import { change, changeButton } from "./common.js";
import { badge, facts, h, show, table } from "./dom.js";
import { choose, filter, link } from "./lists.js";
import { columns } from "./plots.js";
import { pager, refreshed } from "./refreshed.js";
import { topicPage } from "./topics.js";
import { count, seconds, time } from "./words.js";

const KINDS = { own: "tandemlog", classic: "RocketMQ's clients", work: "work queue" };

export function render(place, parts, parameters) {
  return parts.length ? one(place, parts[0], parameters) : list(place, parameters);
}

function list(place, parameters) {
  const rows = h("div", {});
  place.append(
    h("h1", {}, "Groups"),
    filter("Name contains", ["groups"], parameters),
    choose("Sorted by", "sort", [["", "name"], ["lag", "lag"]], ["groups"], parameters),
    rows,
  );
  return refreshed(rows, (signal) => get("groups", Object.fromEntries(parameters), { signal }), (found) => listed(found, parameters));
}

function listed(found, parameters) {
  return [
    found.fault ? h("p", { class: "note" }, found.fault) : null,
    found.partial ? h("p", { class: "note" }, "There are too many queues to count the lag of each group at once: filter by name to see what is missing.") : null,
    table(
      "Consumer groups",
      [
        { title: "Group", cell: (row) => h("a", { href: `#/groups/${encodeURIComponent(row.group)}`, "data-key": `group ${row.group}` }, row.group) },
        { title: "State", cell: state },
        { title: "Kind", cell: (row) => KINDS[row.kind] ?? "–" },
        { title: "Members", number: true, cell: (row) => (row.members === null ? "–" : count(row.members)) },
        { title: "Heard", number: true, cell: heard },
        { title: "Topics", number: true, cell: (row) => count(row.topics) },
        { title: "Lag", number: true, cell: (row) => (row.lag === null ? "–" : count(row.lag)) },
      ],
      found.groups,
      { hidden: true, empty: parameters.get("text") ? "No group has this in its name." : "No group has committed an offset yet." },
    ),
    pager(found, ["groups"], Object.fromEntries(parameters)),
    h("p", { class: "quiet" }, `Lag is in messages, as ${session.node} knows it; of a work queue it is what is not done.`),
  ];
}

const heard = (row) => (row.heard_ms_ago === null ? "–" : `${seconds(row.heard_ms_ago / 1000)} ago`);

function state(row) {
  if (row.state === null) return "–";
  return badge(row.state === "stable" ? "good" : row.state === "empty" ? "" : "warn", row.state === "empty" ? "no members" : row.state);
}

// ---- one group

function one(place, name, parameters) {
  const body = h("div", {});
  const changes = h("div", {});
  const path = ["groups", name];
  place.append(h("p", {}, h("a", { href: "#/groups" }, "Groups")), h("h1", {}, name), body, changes);
  return refreshed(
    body,
    (signal) => get("group", { name, ...Object.fromEntries(parameters) }, { signal }),
    (found, again) => {
      if (!changes.hasChildNodes()) changes.append(reset(found, parameters, again), removal(found));
      return [described(found), memberTable(found), topicTable(found, path, parameters), queueTable(found, path, parameters)];
    },
  );
}

function described(found) {
  const panels = h(
    "div",
    { class: "panels" },
    h("div", { class: "panel" }, h("h3", {}, "Lag"), h("p", { class: "big" }, count(found.lag)), h("p", { class: "quiet" }, `messages in ${count(found.behind)} of ${count(found.queue_count)} queues`)),
    h(
      "div",
      { class: "panel" },
      facts([
        ["State", state(found)],
        ["Kind", KINDS[found.kind] ?? "–"],
        ["Members", count(found.members)],
        ["Last heard", heard(found)],
        ["Epoch", found.epoch],
        ...(found.works ? [["Work queue", h("a", { href: `#/services/leases/${encodeURIComponent(found.group)}`, "data-key": "leases" }, "Leases")]] : []),
      ]),
    ),
  );
  return [h("h2", { class: "hidden" }, "Summary"), panels];
}

function memberTable(found) {
  return [
    h("h2", {}, "Members"),
    table(
      "Members of the group",
      [
        { title: "Client", cell: (row) => row.client_id },
        { title: "Host", cell: (row) => row.host },
        { title: "Queues", number: true, cell: (row) => count(row.queues) },
        { title: "Which", cell: (row) => [row.assigned, row.moving ? [" ", badge("warn", "moving")] : null] },
        { title: "Heard", number: true, cell: heard },
        { title: "Instance", cell: (row) => row.instance_id || "–" },
        { title: "Member", cell: (row) => row.member_id },
      ],
      found.member_rows,
      { hidden: true, empty: found.kind === "work" ? "Members of a work queue are leases: see Services." : "No member is there." },
    ),
    found.members > found.member_rows.length ? h("p", { class: "quiet" }, `${count(found.members - found.member_rows.length)} more members are not shown.`) : null,
  ];
}

function topicTable(found, path, parameters) {
  if (!found.topics.length) return null;
  const chosen = parameters.get("topic");
  return [
    h("h2", {}, "Topics"),
    found.topics.length > 1
      ? columns(
          found.topics.map((row) => ({ value: row.lag, words: `${row.topic}: ${count(row.lag)}` })),
          { words: `Lag by topic, the most first: ${found.topics.slice(0, 5).map((row) => `${row.topic} ${count(row.lag)}`).join(", ")}` },
        )
      : null,
    table(
      "Lag by topic",
      [
        { title: "Topic", cell: (row) => h("a", { href: topicPage(row.topic), "data-key": `topic ${row.topic}` }, row.topic) },
        { title: "Queues", number: true, cell: (row) => h("a", { href: link(path, parameters, { topic: row.topic }), "data-key": `queues ${row.topic}`, "aria-label": `Show the ${row.queues} queues of ${row.topic}`, "aria-current": row.topic === chosen ? "true" : null }, count(row.queues)) },
        { title: "Lag", number: true, cell: (row) => count(row.lag) },
      ],
      found.topics,
      { hidden: true },
    ),
    found.topic_count > found.topics.length ? h("p", { class: "quiet" }, `${count(found.topic_count - found.topics.length)} more topics with less lag are not shown.`) : null,
  ];
}

function queueTable(found, path, parameters) {
  const topic = parameters.get("topic");
  const waits = (row) => (row.since === null ? "–" : seconds(Math.max(0, found.now_ms - row.since) / 1000));
  return [
    h("h2", {}, topic ? `Queues of ${topic}` : "Queues"),
    topic ? h("p", {}, h("a", { href: link(path, parameters, { topic: "" }), "data-key": "all topics" }, "Show the queues of all topics")) : null,
    found.queues.length
      ? columns(
          found.queues.map((row) => ({ value: row.lag, words: `${row.topic} ${row.queue_id}: ${count(row.lag)}` })),
          { words: `Lag of the ${count(found.queues.length)} queues in the table below: at most ${count(Math.max(...found.queues.map((row) => row.lag)))}` },
        )
      : null,
    table(
      "Lag by queue",
      [
        { title: "Topic", cell: (row) => row.topic },
        { title: "Queue", number: true, cell: (row) => row.queue_id },
        { title: "Committed", number: true, cell: (row) => (row.committed === null ? "–" : count(row.committed)) },
        { title: "End", number: true, cell: (row) => count(row.end) },
        { title: "Lag", number: true, cell: (row) => count(row.lag) },
        { title: "Waits since", cell: (row) => (row.since === null ? "–" : h("span", { class: "nowrap" }, time(row.since))) },
        { title: "For", number: true, cell: waits },
        { title: "Read by", cell: (row) => row.owner ?? "–" },
      ],
      found.queues,
      { hidden: true, empty: "The group has neither an offset nor work in a topic that exists." },
    ),
    pager(found, path, Object.fromEntries(parameters)),
  ];
}

// ---- moving offsets: shown first, and done when it is confirmed

function reset(found, parameters, again) {
  const to = h("select", { id: "reset-to" }, [["latest", "the end: skip what waits"], ["earliest", "the beginning: read all again"], ["time", "a time"]].map(([value, text]) => h("option", { value }, text)));
  const at = h("input", { id: "reset-time", type: "datetime-local", step: 1, disabled: true });
  const chosen = parameters.get("topic");
  const names = [...new Set([...(chosen ? [chosen] : []), ...found.topics.map((row) => row.topic)])];
  const topic = h("select", { id: "reset-topic" }, h("option", { value: "" }, "all topics that it has offsets of"), names.map((name) => h("option", { value: name, selected: name === chosen }, name)));
  const plan = h("div", { role: "status", "aria-live": "polite" });
  const forget = () => plan.replaceChildren();
  to.addEventListener("change", () => {
    at.disabled = to.value !== "time";
    at.required = !at.disabled;
    forget();
  });
  at.addEventListener("change", forget);
  topic.addEventListener("change", forget);
  const look = async (event) => {
    event.preventDefault();
    const wanted = { to: to.value, topic: topic.value, ...(to.value === "time" ? { time: new Date(at.value).getTime() } : {}) };
    plan.replaceChildren(h("p", { class: "quiet" }, "Looking what would change…"));
    try {
      const planned = await get("groups/reset", { name: found.group, ...wanted });
      plan.replaceChildren(...drawn(planned, wanted).filter(Boolean));
    } catch (error) {
      plan.replaceChildren(h("p", { class: "fault" }, error.message));
    }
  };
  const drawn = (planned, wanted) => [
    h("h3", {}, "What would change"),
    h("p", {}, said(planned)),
    changeTable(planned),
    planned.moved ? changeButton("Reset the offsets", "reset", () => apply(planned, wanted), true) : null,
  ];
  const apply = async (planned, wanted) => {
    const texts = [said(planned), `Members that come from now on continue there.${wanted.to === "latest" ? " Messages that have come since you looked are not skipped." : ""}`, "It is refused if the group has committed since you looked."];
    const done = await change("groups/reset", { group: found.group, topic: wanted.topic, plan: planned.plan }, { title: `Reset the offsets of ${found.group}?`, text: texts, name: found.group, action: "Reset", danger: true }, (answer) => `Done. ${said(answer)}`);
    if (!done) return;
    plan.replaceChildren(h("h3", {}, "Done"), h("p", {}, said(done)), changeTable(done));
    await again();
  };
  return h(
    "section",
    { "aria-labelledby": "reset" },
    h("h2", { id: "reset" }, "Reset offsets"),
    h("p", { class: "quiet" }, "First it is shown what would change. A group is reset only while it has no members: their next commit would undo it."),
    h("form", { class: "row", onsubmit: look }, h("div", {}, h("label", { for: "reset-to" }, "Continue at"), to), h("div", {}, h("label", { for: "reset-time" }, "Time"), at), h("div", {}, h("label", { for: "reset-topic" }, "In"), topic), h("button", { type: "submit", "data-key": "plan" }, "Show what would change")),
    plan,
  );
}

function said(answer) {
  if (!answer.queues) return "The group has no offsets here: nothing is to be reset.";
  if (!answer.moved) return `All ${count(answer.queues)} queues are there already: nothing changes.`;
  const parts = [answer.skipped ? `${count(answer.skipped)} messages are skipped` : "", answer.again ? `${count(answer.again)} messages are read again` : ""].filter(Boolean);
  return `${count(answer.moved)} of ${count(answer.queues)} queues move${parts.length ? `: ${parts.join(", ")}` : ""}.`;
}

function changeTable(answer) {
  if (!answer.changes.length) return "";
  const shift = (row) => (row.shift === null ? "no offset before" : row.shift > 0 ? `${count(row.shift)} skipped` : `${count(-row.shift)} again`);
  return h(
    "div",
    {},
    table(
      answer.moved > answer.changes.length ? `The ${answer.changes.length} queues that move most, of ${count(answer.moved)}` : "Queues that move",
      [
        { title: "Topic", cell: (row) => row.topic },
        { title: "Queue", number: true, cell: (row) => row.queue_id },
        { title: "From", number: true, cell: (row) => (row.before === null ? "–" : count(row.before)) },
        { title: "To", number: true, cell: (row) => count(row.after) },
        { title: "Messages", number: true, cell: shift },
      ],
      answer.changes,
    ),
  );
}

function removal(found) {
  const remove = async () => {
    const text = ["Its offsets are deleted with it. A consumer that comes later under this name begins as a new group does.", "It is refused while the group has members."];
    if (await change("groups/delete", { group: found.group }, { title: `Delete the group ${found.group}?`, text, name: found.group, action: "Delete", typed: true, danger: true }, `${found.group} was deleted.`)) location.hash = "#/groups";
  };
  return session.writes ? h("section", {}, h("h2", {}, "Delete"), changeButton("Delete the group", "delete group", remove, true)) : "";
}
