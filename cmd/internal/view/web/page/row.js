// A row of the timeline, as the server sends it. All rows have the same shape, which keeps 100,000
// of them small and fast.

const none = [];

export class Row {
  constructor(q) {
    this.q = q;
    this.kids = null; // rows inside it, in order of q
    this.depth = 0; // in the list
    this.frame = false;
    this.run = null; // rows of progress that this one stands for
  }

  // update takes the members of a ROW, see the comment of the Go package.
  update(j) {
    this.p = j.p || 0;
    this.n = j.n || 0;
    this.rn = j.rn || 0;
    this.c = j.c || "";
    this.ci = j.ci || 0;
    this.si = j.si || 0;
    this.s = j.s || 0;
    this.srv = j.srv || "";
    this.sd = j.sd || "";
    this.o = j.o || none;
    this.k = j.k || "";
    this.at = j.at || 0;
    this.d = j.d || "";
    this.m = j.m || "";
    this.tg = j.tg || "";
    this.id = j.id ?? "";
    this.st = j.st || "";
    this.cd = j.cd || 0;
    this.msg = j.msg || "";
    this.rq = j.rq || 0;
    this.rs = j.rs || 0;
    this.l = j.l ?? -1;
    this.la = j.la ?? -1;
    this.ws = j.ws || null;
    this.done = !!j.done;
    this.sum = j.sum || "";
    this.g = j.g || "";
    this.role = j.role || "";
    this.era = j.era || "";
    this.rev = j.rev || "";
    this.http = j.http || 0;
    this.stream = !!j.stream;
    this.ended = !!j.ended;
    this.nev = j.nev || 0;
    this.findings = j.findings || null;
    this.rounds = j.rounds || 0;
    this.task = j.task || "";
    this.x = j.x || "";
    this.in = j.in || 0;
    return this;
  }
}

// isPending reports whether a row is not complete, so that its timer runs.
export function isPending(r) {
  return r.st === "pending" || (r.stream && !r.ended && r.l < 0) || (r.st === "task" && r.l < 0);
}

// isError reports whether a row is or has an error.
export function isError(r) {
  return r.st === "error" || r.st === "iserror" || r.st === "http" || r.st === "unanswered" || r.k === "invalid" || r.k === "gap";
}

// hasFindings reports whether a row has findings.
export function hasFindings(r) {
  return r.findings !== null;
}

// realRow returns the row that the server knows: the newest of a run of progress.
export function realRow(r) {
  return r.run ? r.run[r.run.length - 1] : r;
}

// progressOf returns the newest progress of a row as {text, share}, or null. share is from 0 to 1, or
// -1 if the total is unknown.
export function progressOf(r) {
  const list = r.run || r.kids;
  for (let i = (list?.length || 0) - 1; i >= 0; i--) {
    if (list[i].k !== "progress") continue;
    const [value, total] = list[i].tg.split("/").map(Number);
    return { text: list[i].tg, share: total > 0 && value >= 0 ? Math.min(1, value / total) : -1 };
  }
  return null;
}

// rowEnd returns the time at which a row ended, or now.
export function rowEnd(r, now) {
  if (r.l >= 0) return r.at + r.l;
  return isPending(r) ? Math.max(now, r.at) : r.at;
}

// rowRef returns the name of a row in links.
export function rowRef(r) {
  return r.c + "/" + r.n;
}

// toneOf returns the name of the color of a row; its glyph has the same meaning.
export function toneOf(r) {
  switch (r.k) {
    case "request":
    case "http":
      switch (r.st) {
        case "error":
        case "http":
        case "unanswered":
          return "bad";
        case "iserror":
          return "tool";
        case "cancelled":
          return "quiet";
        case "pending":
        case "task":
        case "input_required":
          return "wait";
      }
      return r.d === "s2c" ? "asked" : "ask";
    case "stderr":
    case "eof":
    case "exit":
    case "start":
    case "body":
    case "sse":
      return "quiet";
    case "stdout":
    case "invalid":
    case "response":
    case "gap":
      return "warn";
  }
  return "note";
}

// statusWords are those of trace.Status.Word in Go.
export const statusWords = { ok: "ok", error: "error", iserror: "tool failed", input_required: "needs input", task: "task", cancelled: "cancelled", pending: "pending", unanswered: "no response", http: "HTTP error" };

// statusText returns the status of a row in words.
export function statusText(r) {
  let s = statusWords[r.st] || "";
  if (r.cd && (r.st === "error" || r.st === "http")) return s.replace("HTTP error", "HTTP") + " " + r.cd;
  if (r.st === "task" || (r.task && r.st === "ok")) return "task " + (r.task || "");
  if (r.stream && !r.ended && r.l < 0) return "open";
  if (!s && r.http) return "HTTP " + r.http;
  if (s === "ok" && r.rounds > 1) return "ok, " + r.rounds + " rounds";
  return s;
}

const kindWords = {
  request: "request", notification: "notification", response: "stray response", invalid: "not a message", progress: "progress", log: "log", stdout: "stray stdout", stderr: "stderr",
  start: "start", exit: "exit", eof: "end of input", http: "HTTP", sse: "SSE event", body: "HTTP body", gap: "gap", note: "note", translate: "translated",
};

// kindText returns the kind of a row in words.
export function kindText(r) {
  if (r.k === "request") {
    if (r.role === "retry") return "retry";
    if (r.role === "poll") return "poll";
    if (r.role === "forwarded") return "forwarded";
    return r.d === "s2c" ? "request from the server" : "request";
  }
  return kindWords[r.k] || r.k;
}
