// Questions to the node. An error becomes a Fault, whose message is a sentence for people.

export class Fault extends Error {
  constructor(message, status, kind) {
    super(message);
    this.status = status;
    this.kind = kind;
  }
}

export const session = {};

export async function startSession() {
  Object.assign(session, await get("session"));
  return session;
}

export function get(path, parameters = {}, options = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined && value !== null);
  const query = new URLSearchParams(given).toString();
  return ask(path + (query ? `?${query}` : ""), options);
}

export function post(path, body) {
  return ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-CSRF-Token": session.csrf },
    body: JSON.stringify(body),
  });
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(`api/${path}`, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Fault("This node does not answer.", 0, "Away");
  }
  if (answer.status === 401 && path !== "login") {
    location.reload(); // the node sends the page to log in
    return new Promise(() => {});
  }
  let body;
  try {
    body = await answer.json();
  } catch {
    throw new Fault(`The node's answer cannot be read (status ${answer.status}).`, answer.status, "");
  }
  if (!answer.ok) throw new Fault(body.error, answer.status, body.kind);
  return body;
}
