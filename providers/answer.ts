/**
 * Who answers, and whether with a stream at all: the `fetch` of every vendor's SDK. What a stream says is the readers' matter; answers that
 * are an error by their status are the SDK's.
 */

/** As much of a wrong answer as an error's message shows. */
const shown = 200;

/** For a wire whose streams are text. */
export async function fetchStream(input: string | URL | Request, init?: RequestInit): Promise<Response> {
  const answer = await fetchDirect(input, init);
  const type = answer.headers.get("content-type") ?? "";
  return answer.ok && /json|html/i.test(type) ? whole(type, await answer.text()) : answer;
}

/** `fetch`, but a redirect is an error. */
export async function fetchDirect(input: string | URL | Request, init?: RequestInit): Promise<Response> {
  // Followed, a redirect would take the transcript, and on some platforms the key, to whomever it names (CASES H02).
  const answer = await fetch(input, { ...init, redirect: "manual" });
  const location = answer.headers.get("location");
  if (answer.status >= 300 && answer.status < 400 && location !== null) {
    await answer.body?.cancel();
    const message = `redirects to ${location.slice(0, shown)}. Set the vendor's base URL to where it answers`;
    return Response.json({ error: { message } }, { status: answer.status });
  }
  return answer;
}

/**
 * A 200 that is no stream. Read as one it would hold no event, so that a wrong key or a spent quota looks like a broken connection and is
 * asked again (CASES B11). What is a stream under another name is read as one.
 */
function whole(type: string, text: string): Response {
  if (!/^\s*[{[<]/.test(text)) {
    return new Response(text, { headers: { "content-type": "text/event-stream" } });
  }
  const body = parsed(text);
  if (body?.error === undefined) throw noStream(type, text);
  return new Response(`event: error\ndata: ${JSON.stringify(body)}\n\n`, {
    headers: { "content-type": "text/event-stream" },
  });
}

export function noStream(type: string, text: string): Error {
  return new Error(`expected a stream, got ${type}: ${text.slice(0, shown).toWellFormed()}`);
}

/** What an answer holds, where it is JSON; undefined: it is none. */
export function parsed(text: string): any {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
