// What pages share: saying what came of a change, and asking again and again while a page is open.

import { confirmed, h } from "./dom.js";
import { post, session } from "./api.js";
import { visible } from "./words.js";

let clearing = 0;

// A line in the corner, which is read out; it goes after some seconds.
export function say(text) {
  const place = document.getElementById("said");
  place.textContent = visible(text);
  clearTimeout(clearing);
  clearing = setTimeout(() => (place.textContent = ""), 8000);
}

// What is known after a change that failed: only a node that refuses it has done nothing for sure.
export function failed(error) {
  const refused = error.status >= 400 && error.status < 500 && error.kind !== "OutcomeUnknownError" && error.kind !== "TimeoutError";
  return refused ? `Not done: ${error.message}` : `It is not known whether this was done: look before you repeat it. ${error.message}`;
}

// Asks, changes, says. `question` as for `confirmed`; returns the answer, or null if it was not done.
export async function change(path, body, question, done) {
  if (!(await confirmed(question))) return null;
  try {
    const answer = await post(path, { ...body, confirm: question.name });
    say(typeof done === "function" ? done(answer) : done);
    return answer;
  } catch (error) {
    say(failed(error));
    return null;
  }
}

// A button for a change, where this session can make it.
export function changeButton(text, key, onclick, danger = false) {
  return session.writes ? h("button", { type: "button", "data-key": key, class: danger ? "danger" : null, onclick }, text) : null;
}

// Calls `turn(signal)` again and again until the returned function is called; not while the tab is
// hidden. `failed(error)` hears what went wrong, `pause()` is how long to wait after a turn, in ms.
export function repeat(turn, failed, pause = () => 0) {
  const stop = new AbortController();
  const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const shown = () =>
    new Promise((resolve) => {
      if (!document.hidden) resolve();
      else document.addEventListener("visibilitychange", () => resolve(shown()), { once: true });
    });
  (async () => {
    while (!stop.signal.aborted) {
      await shown();
      try {
        await turn(stop.signal);
        await wait(pause());
      } catch (error) {
        if (stop.signal.aborted) return;
        failed(error);
        await wait(500);
      }
    }
  })();
  return () => stop.abort();
}
