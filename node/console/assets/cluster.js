// The nodes, who leads, who is in sync and why not, and the last minutes: updated as it changes.

import { get, session } from "./api.js";
import { change, changeButton, repeat } from "./common.js";
import { badge, facts, h, show, svg, table } from "./dom.js";
import { line } from "./plots.js";
import { bytes, count, rate, seconds, time } from "./words.js";

export function render(place) {
  const alarms = h("div", { role: "alert" });
  const top = h("div", {});
  const plots = h("div", {});
  const older = h("p", { class: "fault", role: "status" });
  place.append(h("h1", {}, "Cluster"), alarms, top, plots, older);
  let seen = "";
  let last = null;
  let since = 0;
  const banner = document.getElementById("connection");

  const live = repeat(
    async (signal) => {
      const found = await get("cluster", { seen }, { signal });
      seen = found.seen;
      last = found;
      since = 0;
      if (banner.hasChildNodes()) banner.replaceChildren();
      const texts = found.nodes.flatMap(alarmsOf);
      if (alarms.dataset.texts !== JSON.stringify(texts)) {
        alarms.dataset.texts = JSON.stringify(texts);
        alarms.replaceChildren(...texts.map((each) => h("p", { class: "alarm" }, each)));
      }
      show(top, h("h2", { class: "hidden" }, "Summary"), summary(found), nodes(found), history(found));
    },
    () => {
      since ||= Date.now();
      const others = (last?.nodes ?? []).filter((each) => each.node !== last.answered_by && each.http_endpoint);
      show(
        banner,
        `Node ${last?.answered_by ?? session.node} has not answered since ${time(since)}: what is below is older. `,
        others.length ? "Ask another node: " : "",
        others.map((each) => [h("a", { href: consoleOf(each) }, each.node), " "]),
      );
    },
  );
  let span = "minutes";
  let drawn = 0;
  const rates = repeat(
    async (signal) => {
      const found = await get("cluster/rates", { span }, { signal });
      show(plots, pictures(found.plots, span, (chosen) => (span = chosen)));
      drawn = Date.now();
      older.textContent = "";
    },
    (error) => {
      const what = drawn ? `These plots are of ${time(drawn)}, and not newer` : "There are no plots";
      older.textContent = `${what}: ${error.message}`;
    },
    () => 2000,
  );
  return () => {
    live();
    rates();
    banner.replaceChildren();
  };
}

function alarmsOf(row) {
  return [row.alarm, ...row.faults].filter(Boolean).map((each) => `${row.node}: ${each}`);
}

function consoleOf(row) {
  const [, host, port] = /^(.*):(\d+)$/.exec(row.http_endpoint);
  // a node that listens on every address is reached as this one is
  const name = host === "0.0.0.0" || host === "[::]" ? location.hostname : host;
  return `${location.protocol}//${name}:${port}/console/`;
}

function summary(found) {
  const master = found.nodes.find((each) => each.node === found.master);
  const inSync = found.nodes.filter((each) => each.in_sync && each.heard).length;
  const none = found.lost_master ? `${found.lost_master} was the last master: it does not answer` : found.elections?.reason || "no node says that it is the master";
  const elections = found.elections;
  return h(
    "div",
    { class: "panels" },
    h("div", { class: "panel" }, h("h3", {}, "Master"), master ? h("p", { class: "big" }, master.node) : h("p", { class: "big bad" }, "none"), h("p", { class: "quiet" }, master ? `epoch ${master.epoch}, up for ${seconds(master.uptime_seconds)}` : none)),
    h("div", { class: "panel" }, h("h3", {}, "In sync"), h("p", { class: "big" }, found.master ? `${inSync} of ${found.nodes.length}` : "not known"), h("p", { class: "quiet" }, found.master ? "" : "no master counts them; ", `replication ${found.replication}, flush ${found.flush}, at least ${found.min_in_sync} in sync for a put`)),
    h("div", { class: "panel" }, h("h3", {}, "Elections"), elections ? facts([["Coordinator", elections.coordinator.join(", ")], ["Heard from", elections.age_seconds < 0 ? "never" : `${seconds(elections.age_seconds)} ago`], ...(elections.paused ? [["Paused", "nothing is elected until it is resumed"]] : [])]) : h("p", {}, "Roles are configured: nobody is elected.")),
    h("div", { class: "panel" }, h("h3", {}, `Disk of ${found.answered_by}`), h("p", { class: "big" }, `${Math.round((1 - found.disk.free_bytes / found.disk.size_bytes) * 100)} % used`), h("p", { class: "quiet" }, `${bytes(found.disk.free_bytes)} free of ${bytes(found.disk.size_bytes)}`)),
  );
}

function nodes(found) {
  const roster = new Map((found.elections?.roster ?? []).map((each) => [each.node, each]));
  const standing = (row) => {
    if (row.state === "unreachable") return badge("bad", row.state);
    if (!row.heard) return badge("warn", `last heard: ${row.state}`);
    return badge(row.in_sync ? "good" : "warn", row.in_sync ? "in sync" : row.state);
  };
  const why = (row) => [row.detail, row.in_sync ? "" : roster.get(row.node)?.why_not_in_sync].filter(Boolean);
  const switchTo = (row) =>
    change(
      "cluster/master",
      { node: row.node },
      {
        title: `Make ${row.node} the master?`,
        text: "The present master holds puts back until this node has the whole log. Nothing is lost and no put fails.",
        name: row.node,
        action: "Switch the master",
      },
      `Asked for ${row.node} as the next master: the table shows it when it leads.`,
    );
  return [
    h("h2", {}, "Nodes"),
    table(
      "Nodes of the cluster",
      [
        { title: "Node", cell: (row) => (row.node === found.answered_by || !row.http_endpoint ? row.node : h("a", { href: consoleOf(row), "data-key": `node ${row.node}` }, row.node)) },
        { title: "Role", cell: (row) => badge(row.node === found.master ? "good" : "", row.node === found.lost_master ? "last master" : row.role) },
        { title: "State", cell: (row) => [standing(row), ...why(row).map((each) => h("div", { class: "quiet" }, each))] },
        { title: "Epoch", number: true, cell: (row) => row.epoch },
        { title: "Log", number: true, cell: (row) => h("span", { title: `${row.min_offset} to ${row.wrote_offset}` }, bytes(row.wrote_offset - row.min_offset)) },
        { title: "Confirmed", number: true, cell: (row) => count(row.confirm_offset) },
        { title: "Lag", number: true, cell: (row) => (row.role === "master" ? "–" : !row.lag_measured ? "not known" : `${bytes(row.lag_bytes)}, ${seconds(row.lag_seconds)}`) },
        { title: "Up", number: true, cell: (row) => seconds(row.uptime_seconds) },
        { title: "Endpoint", cell: (row) => row.endpoint },
        { title: "Version", cell: (row) => row.version },
        ...(session.writes && found.elections ? [{ title: "Change", cell: (row) => (found.master && row.role !== "master" && row.in_sync && row.heard ? changeButton("Make master", `switch ${row.node}`, () => switchTo(row)) : null) }] : []),
      ],
      [...found.nodes].sort((a, b) => a.node.localeCompare(b.node)),
      { hidden: true },
    ),
  ];
}

function history(found) {
  if (!found.terms?.length) return null;
  const terms = found.terms;
  const names = [...new Set(found.nodes.map((each) => each.node).concat(terms.map((each) => each.leader)))].sort();
  const color = (name) => `leader${names.indexOf(name) % 5}`;
  const width = 900;
  // by rank and not by time: a term of a week would leave no room for one of seconds
  const each = width / terms.length;
  const lasted = (index) => seconds(((terms[index + 1]?.began_ms ?? Date.now()) - terms[index].began_ms) / 1000);
  const words = `Leaders, the oldest first: ${terms.map((term, index) => `${term.leader} in epoch ${term.epoch} for ${lasted(index)}`).join("; ")}`;
  return [
    h("h2", {}, "Leaders"),
    svg(
      "svg",
      { class: "timeline", viewBox: `0 0 ${width} 24`, role: "img", "aria-label": words },
      svg("title", {}, words),
      terms.map((term, index) => svg("rect", { x: index * each, y: 2, width: each, height: 20, rx: 3, class: color(term.leader) })),
    ),
    table(
      "Terms, the newest first",
      [
        { title: "Epoch", cell: (row) => row.epoch },
        { title: "Leader", cell: (row) => [svg("svg", { class: "swatch", viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("rect", { width: 12, height: 12, rx: 3, class: color(row.leader) })), row.leader] },
        { title: "Began", cell: (row) => time(row.began_ms) },
        { title: "Lasted", number: true, cell: (row) => lasted(terms.indexOf(row)) },
        { title: "Why", cell: (row) => [row.reason, row.unclean ? [" ", badge("bad", "unclean")] : null, row.lost_bytes ? ` ${bytes(row.lost_bytes)} lost` : null] },
      ],
      [...terms].reverse(),
      { hidden: true },
    ),
  ];
}

const OWN = [
  ["puts/s", "Messages in", (value) => `${rate(value)}/s`],
  ["put bytes/s", "Bytes in", (value) => `${bytes(value)}/s`],
  ["gets/s", "Messages out", (value) => `${rate(value)}/s`],
  ["get bytes/s", "Bytes out", (value) => `${bytes(value)}/s`],
  ["put p99", "Put, 99 of 100 within", (value) => seconds(value)],
  ["flush behind", "Written, not flushed", bytes],
  ["confirm behind", "Written, not confirmed", bytes],
  ["reput behind", "Confirmed, not dispatched", bytes],
];

function pictures(plots, span, choose) {
  const panel = (title, values, format, color) => {
    const known = values.filter((each) => each !== null);
    return h("div", { class: "panel" }, h("h3", {}, title), h("p", { class: "big" }, known.length ? format(known[known.length - 1]) : "–"), line(values, { words: title, format, width: 300, height: 40, color }));
  };
  const members = Object.keys(plots).filter((each) => each.startsWith("log ")).sort();
  const button = (name, text) => h("button", { type: "button", "data-key": `span ${name}`, "aria-pressed": String(span === name), onclick: () => choose(name) }, text);
  return [
    h("h2", {}, `Traffic of ${session.node}`),
    h("p", { class: "row" }, button("minutes", "5 minutes"), button("hours", "3 hours"), h("span", { class: "quiet" }, span === "hours" ? "a value each 30 s" : "a value each second")),
    h("div", { class: "panels" }, OWN.filter(([key]) => plots[key]).map(([key, title, format]) => panel(title, plots[key], format))),
    members.length ? h("h2", {}, "Log and lag of each node") : null,
    h("div", { class: "panels" }, members.flatMap((key) => {
      const node = key.slice(4, -2);
      return [panel(`${node}: written`, plots[key], (value) => `${bytes(value)}/s`), panel(`${node}: lag`, plots[`lag ${node}`], bytes, "b")];
    })),
  ];
}
