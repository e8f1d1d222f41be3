// The store of the node that serves this page: how far it is, its files, its archive and its scrub.

import { get, session } from "./api.js";
import { change, changeButton } from "./common.js";
import { badge, facts, h, svg, table } from "./dom.js";
import { pager, refreshed } from "./refreshed.js";
import { bytes, count, seconds, time } from "./words.js";

const PATH = ["store"];
const FILES = 10;
const LEAST_SPAN = 4096;

export function render(place, parts, parameters) {
  const files = h("div", {});
  place.append(h("h1", {}, `Store of ${session.node}`));
  if (parts[0] === "log-files" || parts[0] === "index-files") return renderFiles(place, parts[0], parameters);
  const stop = refreshed(
    place,
    async (signal) => {
      const found = await get("store", {}, { signal });
      if (found.details) found.newest = await get("store/log-files", {}, { signal });
      return found;
    },
    (found, again) => draw(found, again),
    2000,
  );
  place.append(files);
  return stop;
}

function draw(found, again) {
  const details = found.details;
  return [
    ...found.faults.map((each) => h("p", { class: "alarm" }, each)),
    h("h2", {}, "The end of the log"),
    ...positions(found.positions),
    ...(details ? all(found, details, again) : [h("p", { class: "note" }, `Not shown: ${found.missing}.`)]),
  ];
}

const POSITIONS = [
  ["wrote_offset", "Wrote", "appended to the log"],
  ["committed_offset", "Committed", "given to the operating system"],
  ["flushed_offset", "Flushed", "on this disk for certain (fdatasync)"],
  ["confirm_offset", "Confirmed", "on every node of the in-sync set"],
  ["reput_offset", "Reputed", "in consume queues and index: readers see it"],
];

// Where each position stands in the last bytes of the log, down to a little before the last of them.
function positions(found) {
  const end = found.wrote_offset;
  const lowest = Math.min(...POSITIONS.map(([key]) => found[key]));
  const span = Math.max(LEAST_SPAN, Math.round((end - lowest) * 1.25));
  const begin = Math.max(found.min_offset, end - span);
  const width = 900;
  const x = (offset) => (end > begin ? Math.max(2, ((offset - begin) / (end - begin)) * width) : width);
  const behind = (key) => end - found[key];
  const words = `The log from ${count(begin)} to ${count(end)}: ${POSITIONS.map(([key, title]) => `${title} ${count(found[key])}, ${behind(key) ? `${bytes(behind(key))} behind` : "at the end"}`).join("; ")}`;
  return [
    svg(
      "svg",
      { class: "timeline", viewBox: `0 0 ${width} ${POSITIONS.length * 18}`, role: "img", "aria-label": words },
      svg("title", {}, words),
      POSITIONS.map(([key], index) => svg("rect", { class: `leader${index}`, x: 0, y: index * 18 + 2, height: 14, rx: 2, width: x(found[key]) })),
    ),
    h("p", { class: "quiet" }, end > begin ? `The picture shows the last ${bytes(end - begin)} of the log.` : "The log is empty."),
    table(
      "Positions in the log, as log offsets",
      [
        { title: "Position", cell: ([key, title]) => [swatch(key), title] },
        { title: "Log offset", number: true, cell: ([key]) => count(found[key]) },
        { title: "Behind", number: true, cell: ([key]) => (key === "wrote_offset" ? "–" : behind(key) ? bytes(behind(key)) : "nothing") },
        { title: "What is before it is", cell: ([, , meaning]) => meaning },
      ],
      POSITIONS,
      { hidden: true },
    ),
  ];
}

function swatch(key) {
  const index = POSITIONS.findIndex(([each]) => each === key);
  return svg("svg", { class: "swatch", viewBox: "0 0 12 12", "aria-hidden": "true" }, svg("rect", { width: 12, height: 12, rx: 3, class: `leader${index}` }));
}

function all(found, details, again) {
  const { log, queues, index } = details;
  const used = found.disk.size_bytes ? (1 - found.disk.free_bytes / found.disk.size_bytes) * 100 : 0;
  return [
    details.read_only_because ? h("p", { class: "note" }, `It takes no puts: ${details.read_only_because}.`) : null,
    h("h2", {}, "What it holds"),
    h(
      "div",
      { class: "panels" },
      panel("Log", bytes(found.positions.wrote_offset - log.min_offset), `from ${count(log.min_offset)}, in ${files(log.files)} of ${bytes(log.file_size)}: ${bytes(log.file_bytes)}`),
      panel("Consume queues", count(queues.queues), `${count(queues.numbered)} messages numbered, ${queues.unit_bytes} bytes each; ${queues.damaged ? `${count(queues.damaged)} are damaged and being rebuilt` : "none is damaged"}`),
      index ? panel("Index", `${count(index.entries)} entries`, index.files ? `in ${files(index.files)}: ${bytes(index.file_bytes)}` : "no file yet") : panel("Index", "off", "messages cannot be found by key"),
      panel("Disk", `${Math.round(used)} % used`, `${bytes(found.disk.free_bytes)} free of ${bytes(found.disk.size_bytes)}, in ${details.directory}`),
    ),
    log.unreadable ? h("p", { class: "alarm" }, `${count(log.unreadable)} files of the log cannot be read.`) : null,
    index?.stopped ? h("p", { class: "alarm" }, `The index has stopped: ${index.stopped}`) : null,
    h("h2", {}, "Log files"),
    logFiles(found.newest.files.slice(0, FILES)),
    found.newest.total > FILES ? h("p", {}, h("a", { href: "#/store/log-files", "data-key": "all log files" }, `All ${count(found.newest.total)} log files`)) : null,
    index
      ? h("p", {}, h("a", { href: "#/store/index-files", "data-key": "all index files" }, `Index files (${count(index.files)})`), index.files ? `: keys of messages stored from ${time(index.begin_ms)} to ${time(index.end_ms)}` : "")
      : null,
    h("h2", {}, "Archive"),
    ...archive(details.archive, log),
    h("h2", {}, "Scrub"),
    ...scrub(found, details.scrub, again),
    h("h2", {}, "Retention"),
    retention(details),
  ].flat();
}

const files = (value) => (value === 1 ? "1 file" : `${count(value)} files`);

function panel(title, value, text) {
  return h("div", { class: "panel" }, h("h3", {}, title), h("p", { class: "big" }, value), h("p", { class: "quiet" }, text));
}

function logFiles(rows) {
  return table(
    "Log files, the newest first",
    [
      { title: "File", cell: (row) => row.name },
      { title: "First offset", number: true, cell: (row) => count(row.first_offset) },
      { title: "Ends before", number: true, cell: (row) => count(row.end_offset) },
      { title: "Used", number: true, cell: (row) => bytes(row.used_bytes) },
      { title: "Of", number: true, cell: (row) => bytes(row.size_bytes) },
    ],
    rows,
    { empty: "The log has no file yet.", hidden: true },
  );
}

function indexFiles(rows) {
  return table(
    "Index files, the newest first",
    [
      { title: "File", cell: (row) => row.name },
      { title: "Entries", number: true, cell: (row) => count(row.entries) },
      { title: "Room for", number: true, cell: (row) => count(row.room) },
      { title: "Stored from", cell: (row) => (row.entries ? time(row.begin_ms) : "–") },
      { title: "To", cell: (row) => (row.entries ? time(row.end_ms) : "–") },
      { title: "Log from", number: true, cell: (row) => count(row.first_offset) },
      { title: "To", number: true, cell: (row) => count(row.end_offset) },
    ],
    rows,
    { empty: "The index has no file yet.", hidden: true },
  );
}

function renderFiles(place, kind, parameters) {
  const first = parameters.get("first") ?? "";
  place.append(h("p", {}, h("a", { href: "#/store" }, "The whole store")), h("h2", {}, kind === "log-files" ? "Log files" : "Index files"));
  const draw = kind === "log-files" ? logFiles : indexFiles;
  return refreshed(place, (signal) => get(`store/${kind}`, { first }, { signal }), (found) => [draw(found.files), pager(found, [...PATH, kind])]);
}

function archive(found, log) {
  if (!found) return [h("p", { class: "quiet" }, "This cluster has no archive: see [archive] url.")];
  const newest = found.newest;
  return [
    ...found.faults.map((each) => h("p", { class: "alarm" }, each)),
    facts([
      ["Where", found.url],
      ["This node", found.working ? badge("good", "archives") : h("span", {}, badge("", "does not archive"), found.waits_for ? ` ${found.waits_for}` : "")],
      ["Archived up to", count(found.archived_end)],
      ["Behind", found.behind_bytes ? `${bytes(found.behind_bytes)} of what is confirmed` : "nothing"],
      ["Put by this node", `${bytes(found.put_bytes)} since it was started`],
      ["Retention keeps from", found.keep_from > log.min_offset ? count(found.keep_from) : "no more than it has to"],
      ...(newest
        ? [
            ["Begins at", count(newest.begin)],
            ["Holds", `${bytes(newest.log_bytes)} of the log in ${count(newest.segments)} objects, and ${count(newest.states)} states${newest.spans > 1 ? `, with ${count(newest.spans - 1)} gaps` : ""}`],
            ["Newest manifest", `${time(newest.written_ms)}, by ${newest.archiver}`],
          ]
        : [["Newest manifest", "none was seen yet"]]),
    ]),
  ];
}

function scrub(found, row, again) {
  const size = Math.max(0, row.log_end - row.log_begin);
  const underWay = row.round_began_ms > 0 && !row.round_ended_ms;
  const done = underWay ? Math.min(size, Math.max(0, row.next_offset - row.log_begin)) : row.round_began_ms ? size : 0;
  const percent = size ? Math.round((100 * done) / size) : 0;
  const state = !row.on ? badge("warn", "off: see [scrub] on") : row.fault ? badge("bad", "stopped") : badge(underWay ? "good" : "", underWay ? "under way" : row.round_began_ms ? "waits for the next round" : "has not begun");
  const begin = () =>
    change(
      "store/scrub",
      {},
      { title: `Read the whole log of ${found.node} again?`, text: `A round through ${bytes(size)} begins now, at the rate of [scrub] bytes_per_s. Puts and reads continue.`, name: found.node, action: "Begin a round" },
      (answer) => `A round through ${bytes(answer.bytes)} begins.`,
    ).then((answer) => answer && again());
  return [
    row.fault ? h("p", { class: "alarm" }, row.fault) : null,
    facts([
      ["State", state],
      ["This round", underWay ? h("span", {}, h("progress", { max: 100, value: percent, "aria-label": "of this round" }), ` ${percent} %, ${bytes(done)} of ${bytes(size)}`) : row.round_ended_ms ? `ended ${time(row.round_ended_ms)}, after ${seconds(Math.max(0, row.round_ended_ms - row.round_began_ms) / 1000)}` : "–"],
      ["Began", row.round_began_ms ? time(row.round_began_ms) : "never"],
      ["Rounds", count(row.rounds)],
      ["Since the node's start", `${bytes(row.checked_bytes)} checked, ${count(row.compared_blocks)} blocks compared with other nodes, ${count(row.damaged_blocks)} damaged, ${count(row.mended_blocks)} mended (${bytes(row.mended_bytes)}), ${count(row.failed_mendings)} mendings failed, ${count(row.rebuilt_queues)} queues rebuilt`],
    ]),
    row.on ? changeButton("Begin a round…", "scrub now", begin) : null,
    row.open ? h("h3", {}, row.open === 1 ? "1 place is not settled" : `${count(row.open)} places are not settled`) : null,
    row.open
      ? table(
          "Places that are not settled",
          [
            { title: "Log from", cell: (each) => count(each.start) },
            { title: "To", number: true, cell: (each) => count(each.end) },
            { title: "State", cell: (each) => (each.lost ? badge("bad", "no whole copy") : badge("warn", "in doubt")) },
            { title: "Since", cell: (each) => time(each.since_ms) },
            { title: "Why", cell: (each) => each.reason },
            { title: "The way out", cell: wayOut },
          ],
          row.open_blocks,
          { hidden: true },
        )
      : null,
  ];
}

// As docs/operations.md, "A bit flips, or a disk begins to fail", has it.
function wayOut(row) {
  return row.lost
    ? "Start the nodes that are down. If no node and no archive has these bytes, the messages in them are lost: docs/damaged-store.md."
    : "A copy that differs needs a third one to tell: a further node, an archive, or `tandemlog verify --against` a backup; then `tandemlog reinit` the wrong node. What could not be mended yet is tried again once a minute.";
}

function retention(details) {
  const row = details.retention;
  return facts([
    ["A log file is kept", `${row.reserved_hours} h after it is full`],
    ["Deleted at", `${row.delete_hours.map((each) => `${String(each).padStart(2, "0")}:00`).join(", ")} local time; at any hour above ${row.disk_max_used_percent} % of the disk`],
    ["Before it expires", row.clean_forcibly ? `above ${row.disk_clean_forcibly_percent} % of the disk, the oldest first` : "never"],
    ["Puts are refused", `above ${row.disk_warning_percent} % of the disk`],
    ["Waits for", details.retention_waits_for === null ? "nothing" : `a part of the node that still needs the log before ${count(details.retention_waits_for)}`],
  ]);
}
