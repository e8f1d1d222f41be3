// The table of groups from which dead letters and leases are chosen.

import { get } from "./api.js";
import { h, table } from "./dom.js";
import { address, pager, refreshed } from "./refreshed.js";
import { count, seconds } from "./words.js";

// `section` of the page of services; `order` puts its own columns first.
export function renderGroups(place, section, parameters, columns, empty) {
  const name = parameters.get("name") ?? "";
  const first = parameters.get("first") ?? "";
  const path = ["services", section];
  const input = h("input", { id: "group-name", value: name, autocomplete: "off", spellcheck: "false" });
  const find = (event) => {
    event.preventDefault();
    location.hash = address(path, { name: input.value.trim() });
  };
  place.append(
    h("form", { class: "row", onsubmit: find }, h("div", {}, h("label", { for: "group-name" }, "Part of a group's name"), input), h("button", { type: "submit" }, "Find"), name ? h("a", { href: address(path) }, "All with work") : null),
  );
  return refreshed(
    place,
    (signal) => get("services/groups", { name, first }, { signal }),
    (found) => [
      table(
        "Groups, those with dead letters first",
        [
          { title: "Group", cell: (row) => h("a", { href: address([...path, row.group]), "data-key": `group ${row.group}` }, row.group) },
          ...columns.map((each) => ({ ...each, cell: (row) => (row.works ? each.cell(row, found) : "–") })),
        ],
        found.groups,
        { empty: name ? `No group's name has “${name}” in it.` : empty },
      ),
      found.partial ? h("p", { class: "note" }, "There are too many groups to look at each before they are sorted: some may stand among those with dead letters and have none.") : null,
      pager(found, path, { name }),
      !name && found.others ? h("p", { class: "quiet" }, `${count(found.others)} more groups have neither dead letters nor work: find one by its name.`) : null,
    ],
  );
}

export function age(ms, now) {
  return ms ? seconds(Math.max(0, now - ms) / 1000) : "–";
}
