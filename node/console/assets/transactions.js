// Transactions that are open: an operator ends those whose producer does not come back.

import { get, session } from "./api.js";
import { change, changeButton } from "./common.js";
import { badge, h, table } from "./dom.js";
import { pager, refreshed } from "./refreshed.js";
import { count, seconds, time, times, visible } from "./words.js";

const PATH = ["services", "transactions"];

export function render(place, _, parameters) {
  const first = parameters.get("first") ?? "";
  return refreshed(place, (signal) => get("services/transactions", { first }, { signal }), draw);
}

function draw(found, again) {
  const decide = (row, outcome) => {
    const commits = outcome === "commit";
    const messages = row.messages === 1 ? "1 message" : `${count(row.messages)} messages`;
    return change(
      "services/transactions/decide",
      { transaction_id: row.transaction_id, outcome },
      {
        title: commits ? "Commit this transaction?" : "Roll this transaction back?",
        text: [
          `It has ${messages} to ${row.topics.join(", ")}, of the producer group ${row.producer_group || "without a name"}.`,
          commits
            ? "The messages are there for readers from then on. Offsets of groups that the producer wanted to commit with them are not committed."
            : "The messages are never there for readers.",
        ],
        name: row.transaction_id,
        action: commits ? "Commit" : "Roll back",
        danger: !commits,
        typed: !commits,
      },
      () => `Transaction ${row.transaction_id} is ${commits ? "committed" : "rolled back"}.`,
    ).then(again);
  };
  const state = (row) =>
    row.decided ? badge("good", "being committed") : row.kept ? h("span", {}, badge("warn", "kept"), h("div", { class: "quiet" }, "no producer is asked any more: it waits for you")) : badge("", "open");
  return [
    h("h2", {}, found.total === 1 ? "1 open transaction" : `${count(found.total)} open transactions`),
    table(
      "Open transactions, the oldest first",
      [
        { title: "Age", cell: (row) => h("time", { title: time(row.begun_ms) }, seconds(Math.max(0, found.now_ms - row.begun_ms) / 1000)) },
        { title: "Transaction", cell: (row) => visible(row.transaction_id) },
        { title: "Producer group", cell: (row) => visible(row.producer_group) },
        { title: "Topics", cell: (row) => visible(row.topics.join(", ")) + (row.of > row.topics.length ? ` and ${row.of - row.topics.length} more` : "") },
        { title: "Messages", number: true, cell: (row) => count(row.messages) },
        { title: "Begun", cell: (row) => time(row.begun_ms) },
        { title: "Producers asked", number: true, cell: (row) => (row.checks ? times(row.checks) : "never") },
        { title: "State", cell: state },
        ...(session.writes
          ? [
              {
                title: "Change",
                cell: (row) =>
                  row.decided
                    ? null
                    : [changeButton("Commit", `commit ${row.transaction_id}`, () => decide(row, "commit")), " ", changeButton("Roll back…", `rollback ${row.transaction_id}`, () => decide(row, "rollback"))],
              },
            ]
          : []),
      ],
      found.transactions,
      { empty: "Every transaction has ended.", hidden: true },
    ),
    pager(found, PATH),
  ];
}
