// Requests to the HTTP API of the server. Errors are Error objects with a message for people.

// Each request has a key, because other ports of this host get the cookie, but not what this origin
// stores. The server gives it to the first tab; a new tab asks the others.
const keyName = "mcpwire-key";
const tabs = location.protocol.startsWith("http") ? new BroadcastChannel(keyName) : null;
let asked = null;

function storeKey(key) {
  sessionStorage.setItem(keyName, key);
}

if (tabs) {
  const given = new URLSearchParams(location.search).get("key");
  if (given) {
    storeKey(given);
    history.replaceState(null, "", location.pathname + location.hash);
  }
  tabs.onmessage = (e) => {
    const key = sessionStorage.getItem(keyName);
    if (e.data !== "ask") storeKey(e.data);
    else if (key) tabs.postMessage(key);
  };
}

// withKey returns headers with the key, if a tab of this browser has it.
async function withKey(headers) {
  if (!sessionStorage.getItem(keyName)) {
    asked ||= new Promise((done) => {
      tabs.addEventListener("message", done);
      tabs.postMessage("ask");
      setTimeout(done, 500);
    });
    await asked;
  }
  return { "X-Mcpwire": sessionStorage.getItem(keyName) || "none", ...headers };
}

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
    response = await fetch(path, { credentials: "same-origin", ...init, headers: await withKey(init.headers) });
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
    response = await fetch(path, { credentials: "same-origin", headers: await withKey(), signal });
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Error("No connection to mcpwire. Is it still running?");
  }
  return response.ok ? response.text() : readResponse(response);
}

// apiPost sends a body: an object as JSON, a Blob unchanged.
export function apiPost(path, body, signal) {
  const headers = {};
  if (!(body instanceof Blob)) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(body || {});
  }
  return request(path, { method: "POST", headers, body, signal });
}

// withTicket returns a path that permits one request without the key, for a minute.
export async function withTicket(path) {
  const { ticket } = await apiGet("/api/ticket?path=" + encodeURIComponent(path.split("?")[0]));
  return path + (path.includes("?") ? "&" : "?") + "ticket=" + ticket;
}

// download is a listener for clicks on a link that the browser saves.
export async function download(e) {
  e.preventDefault();
  const a = document.createElement("a");
  a.href = await withTicket(e.currentTarget.getAttribute("href"));
  a.download = "";
  a.click();
}

// payloadPath returns the path of the exact bytes of an event.
export function payloadPath(capture, n) {
  return "/api/payload/" + encodeURIComponent(capture) + "/" + Number(n);
}

// apiPayload requests the bytes of an event, at most limit.
export async function apiPayload(capture, n, limit, signal) {
  const response = await fetch(payloadPath(capture, n), { credentials: "same-origin", headers: await withKey({ Range: "bytes=0-" + (limit - 1) }), signal });
  if (!response.ok) throw new Error(statusMessage(response.status));
  return new Uint8Array(await response.arrayBuffer());
}
