// A part of a page that is loaded again and again, and pages of its table.

import { repeat } from "./common.js";
import { h, show } from "./dom.js";
import { count } from "./words.js";

// Shows draw(await load(signal), again) in `place`, and again after `pause` ms, or longer where the
// answer takes long, so that looking on costs the node little; `again()` does it at once. A request
// that is wrong itself is not repeated. Returns a function that ends it.
export function refreshed(place, load, draw, pause = 5000) {
  let took = 0;
  const fault = h("p", { class: "fault", role: "alert" });
  const body = h("div", {}, h("p", { class: "quiet" }, "Loading…"));
  place.append(fault, body);
  let ended = false;
  const turn = async (signal) => {
    const began = performance.now();
    const found = await load(signal);
    took = performance.now() - began;
    if (ended) return;
    fault.textContent = "";
    show(body, draw(found, again));
  };
  const failed = (error) => {
    if (ended) return;
    fault.textContent = error.message;
    if (error.status >= 400 && error.status < 500 && error.status !== 429) {
      body.replaceChildren();
      end();
    }
  };
  const again = () => turn().catch(failed);
  const stop = repeat(turn, failed, () => Math.max(pause, 100 * took));
  const end = () => {
    ended = true;
    stop();
  };
  return end;
}

// Links to the pages before and after `found` ({first, rows, total}). `path` and `parameters` make the
// address of a page: #/path?…&first=100
export function pager(found, path, parameters = {}) {
  if (found.total <= found.rows && !found.first) return null;
  const link = (text, first) =>
    h("a", { href: address(path, { ...parameters, first: first || "" }), "data-key": `page ${text}` }, text);
  const last = Math.min(found.first + found.rows, found.total);
  const end = Math.floor(Math.max(0, found.total - 1) / found.rows) * found.rows;
  return h(
    "nav",
    { class: "row", "aria-label": "Pages of the table" },
    found.first ? [link("First", 0), link("Before", Math.max(0, found.first - found.rows))] : null,
    h("span", { class: "quiet" }, found.total ? `${count(Math.min(found.first + 1, found.total))} to ${count(last)} of ${count(found.total)}` : "none"),
    last < found.total ? [link("After", last), link("Last", end)] : null,
  );
}

// #/services/leases/GROUP?first=100
export function address(path, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== null && value !== undefined);
  const query = new URLSearchParams(given).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}
