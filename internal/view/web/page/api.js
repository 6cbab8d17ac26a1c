// The HTTP API of the server that the page came from. Errors are Error objects with a message for people.

async function answer(response) {
  let body = null;
  const type = response.headers.get("Content-Type") || "";
  if (type.includes("json")) body = await response.json().catch(() => null);
  if (response.ok) return body;
  const e = new Error(body?.error?.message || explain(response.status));
  e.status = response.status;
  e.detail = body?.error;
  throw e;
}

function explain(status) {
  if (status === 401 || status === 403) return "This page may not read any more. Open the address that mcpwire watch --web printed once more.";
  if (status === 404) return "It is gone: it made room for newer rows.";
  return "The server answered with HTTP status " + status + ".";
}

async function request(path, init) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...init });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Error("No connection to mcpwire. Does it still run?");
  }
  return answer(response);
}

// apiGet asks for JSON.
export function apiGet(path, signal) {
  return request(path, { signal });
}

// apiPost sends a body: an object goes as JSON, a Blob as it is.
export function apiPost(path, body, signal) {
  const headers = { "X-Mcpwire": "1" };
  if (!(body instanceof Blob)) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(body || {});
  }
  return request(path, { method: "POST", headers, body, signal });
}

// payloadPath is where the exact bytes of an event are.
export function payloadPath(capture, n) {
  return "/api/payload/" + encodeURIComponent(capture) + "/" + Number(n);
}

// apiPayload asks for the bytes of an event, not more than limit.
export async function apiPayload(capture, n, limit, signal) {
  const response = await fetch(payloadPath(capture, n), { credentials: "same-origin", headers: { Range: "bytes=0-" + (limit - 1) }, signal });
  if (!response.ok) throw new Error(explain(response.status));
  return new Uint8Array(await response.arrayBuffer());
}
