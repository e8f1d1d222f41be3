// The shell: which page is shown, by the address behind #, and what all pages have in common.

import { Fault, get, post, session, startSession } from "./api.js";
import { h, show } from "./dom.js";
import { zone } from "./words.js";

const PAGES = {
  cluster: { title: "Cluster", load: () => import("./cluster.js") },
  topics: { title: "Topics", load: () => import("./topics.js") },
  messages: { title: "Messages", load: () => import("./messages.js") },
  groups: { title: "Groups", load: () => import("./groups.js") },
  services: { title: "Services", load: () => import("./services.js") },
  store: { title: "Store", load: () => import("./store.js") },
};

const main = document.getElementById("main");
let leave = () => {};
let turn = 0;

// #/topics/orders?page=2 is the page topics, its parts ["orders"], and its parameters.
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [name, ...parts] = path.split("/").map(decodeURIComponent);
  return { name: Object.hasOwn(PAGES, name) ? name : "cluster", parts, parameters: new URLSearchParams(query) };
}

async function route() {
  const { name, parts, parameters } = address();
  const mine = ++turn;
  leave();
  leave = () => {};
  drawPages(name);
  document.title = [PAGES[name].title, ...parts, session.cluster_id].join(" · ");
  try {
    const page = await PAGES[name].load();
    if (mine !== turn) return;
    const place = h("div", {});
    main.replaceChildren(place);
    leave = (await page.render(place, parts, parameters)) ?? (() => {});
    if (mine !== turn) leave();
  } catch (error) {
    if (mine === turn) showFault(error);
  }
}

function showFault(error) {
  if (!(error instanceof Fault)) console.error(error);
  main.replaceChildren(
    h("h1", {}, "This page cannot be shown"),
    h("p", { class: "fault", role: "alert" }, error.message),
    h("button", { type: "button", onclick: route }, "Try again"),
  );
}

function drawPages(current) {
  const links = Object.entries(PAGES).map(([name, page]) =>
    h("li", {}, h("a", { href: `#/${name}`, "aria-current": name === current ? "page" : null }, page.title)),
  );
  document.getElementById("pages").replaceChildren(...links);
}

function drawWho() {
  const out = async () => {
    await post("logout", {});
    location.reload();
  };
  show(
    document.getElementById("who"),
    h("span", {}, session.asks_who ? session.name : "no log-in: everyone who reaches this port"),
    session.writes ? null : h("span", { class: "badge", title: session.read_only_because }, "read-only"),
    session.asks_who && !session.by_certificate ? h("button", { type: "button", onclick: out }, "Log out") : null,
  );
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});

async function start() {
  try {
    await startSession();
  } catch (error) {
    showFault(error);
    return;
  }
  document.getElementById("cluster-name").textContent = session.cluster_id;
  document.getElementById("zone").textContent = `Times are those of this browser's zone: ${zone()}.`;
  drawWho();
  window.addEventListener("hashchange", async () => {
    await route();
    main.focus({ preventScroll: true });
  });
  await route();
}

await start();
