// Requests to the HTTP API of the server. Errors are Error objects with a message for people.

async function readResponse(response) {
  let body = null;
  const type = response.headers.get("Content-Type") || "";
  if (type.includes("json")) body = await response.json().catch(() => null);
  if (response.ok) return body;
  const e = new Error(body?.error?.message || statusMessage(response.status));
  e.status = response.status;
  e.detail = body?.error;
  throw e;
}

function statusMessage(status) {
  if (status === 401 || status === 403) return "This page has no access. Open the address again that mcpwire watch --web printed.";
  if (status === 404) return "It was evicted to make room for newer rows.";
  return "The server responded with HTTP status " + status + ".";
}

async function request(path, init) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...init });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Error("No connection to mcpwire. Is it still running?");
  }
  return readResponse(response);
}

// apiGet requests JSON.
export function apiGet(path, signal) {
  return request(path, { signal });
}

// apiText requests a text.
export async function apiText(path, signal) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", signal });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Error("No connection to mcpwire. Is it still running?");
  }
  return response.ok ? response.text() : readResponse(response);
}

// apiPost sends a body: an object as JSON, a Blob unchanged.
export function apiPost(path, body, signal) {
  const headers = { "X-Mcpwire": "1" };
  if (!(body instanceof Blob)) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(body || {});
  }
  return request(path, { method: "POST", headers, body, signal });
}

// payloadPath returns the path of the exact bytes of an event.
export function payloadPath(capture, n) {
  return "/api/payload/" + encodeURIComponent(capture) + "/" + Number(n);
}

// apiPayload requests the bytes of an event, at most limit.
export async function apiPayload(capture, n, limit, signal) {
  const response = await fetch(payloadPath(capture, n), { credentials: "same-origin", headers: { Range: "bytes=0-" + (limit - 1) }, signal });
  if (!response.ok) throw new Error(statusMessage(response.status));
  return new Uint8Array(await response.arrayBuffer());
}
