// Small plots as SVG, each with its numbers in words for who cannot see it.

import { svg } from "./dom.js";

// A line of values (null: a gap). `words` says what it shows.
export function line(values, { words, width = 160, height = 32, format = String, color = "a" } = {}) {
  const known = values.filter((each) => each !== null);
  const most = Math.max(0, ...known);
  const step = width / Math.max(1, values.length - 1);
  const y = (value) => height - 2 - (most ? (value / most) * (height - 4) : 0);
  let path = "";
  let open = false;
  values.forEach((value, index) => {
    if (value === null) {
      open = false;
      return;
    }
    path += `${open ? "L" : "M"}${(index * step).toFixed(1)} ${y(value).toFixed(1)}`;
    open = true;
  });
  const last = known.length ? known[known.length - 1] : null;
  const said = last === null ? `${words}: no value yet` : `${words}: now ${format(last)}, at most ${format(most)}`;
  return svg(
    "svg",
    { class: `plot ${color}`, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said, width, height },
    svg("title", {}, said),
    svg("line", { class: "axis", x1: 0, x2: width, y1: height - 2, y2: height - 2 }),
    path ? svg("path", { d: path, class: "line" }) : null,
  );
}

// Bars that fill a row: rows of {label, value, words}; the longest is as wide as there is room.
export function bars(rows, { words, width = 320, format = String } = {}) {
  const most = Math.max(1, ...rows.map((each) => each.value));
  const height = rows.length * 18;
  return svg(
    "svg",
    { class: "bars", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words, width, height },
    svg("title", {}, `${words}: ${rows.map((each) => `${each.label} ${format(each.value)}`).join(", ")}`),
    rows.map((each, index) => [
      svg("rect", { x: 0, y: index * 18 + 2, height: 12, width: Math.max(each.value ? 1 : 0, (each.value / most) * width), rx: 2 }),
    ]),
  );
}

// One column for each row of {value, words}; the highest fills the height.
export function columns(rows, { words, width = 900, height = 80 } = {}) {
  const most = Math.max(1, ...rows.map((each) => each.value));
  const step = Math.min(60, width / Math.max(1, rows.length));
  const tall = (value) => (value ? Math.max(2, (value / most) * (height - 4)) : 0);
  return svg(
    "svg",
    { class: "bars columns", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words, width, height },
    svg("title", {}, words),
    svg("line", { class: "axis", x1: 0, x2: width, y1: height - 1, y2: height - 1 }),
    rows.map((each, index) =>
      svg("rect", { x: index * step + step * 0.1, width: step * 0.8, y: height - 2 - tall(each.value), height: tall(each.value), rx: 1 }, svg("title", {}, each.words)),
    ),
  );
}
