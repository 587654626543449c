// What the page asks the server.

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?]$/.test(text) ? "" : ".");

/** The answer to a request, or an error with a message for the user; a request with a body is a POST. */
export async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "X-Torchsonic": "1" }, body };
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Error("The explorer does not answer. If it was stopped, start it again and reload this page.");
  }
  const answer = await response.json();
  if (!response.ok) throw new Error(capital(answer.error));
  return answer;
}

/**
 * Calls `work` with the newest request: one is under way at a time and the newest waits; those between are dropped.
 */
export function newestOnly(work) {
  let busy = false;
  let waiting = null;
  return async (wanted) => {
    waiting = wanted;
    if (busy) return;
    busy = true;
    while (waiting !== null) {
      const next = waiting;
      waiting = null;
      await work(next);
    }
    busy = false;
  };
}
