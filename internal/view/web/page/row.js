// A row of the timeline, as the server sends it. All rows have the same shape, which keeps 100,000 of them small and quick.

const none = [];

export class Row {
  constructor(q) {
    this.q = q;
    this.kids = null; // rows inside, by q
    this.depth = 0; // in the list
    this.frame = false;
  }

  take(j) {
    this.p = j.p || 0;
    this.n = j.n || 0;
    this.rn = j.rn || 0;
    this.c = j.c || "";
    this.s = j.s || 0;
    this.srv = j.srv || "";
    this.sd = j.sd || "";
    this.o = j.o || none;
    this.k = j.k || "";
    this.at = j.at || 0;
    this.t = j.t || 0;
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
    this.sv = j.sv ?? -1;
    this.hu = j.hu || 0;
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
    this.more = j.more || 0;
    this.rounds = j.rounds || 0;
    this.task = j.task || "";
    this.x = j.x || "";
    return this;
  }
}

// isPending tells whether a row still waits for something, so that its timer counts.
export function isPending(r) {
  return r.st === "pending" || (r.stream && !r.ended && r.l < 0) || (r.st === "task" && r.l < 0);
}

// isError tells whether a row went wrong.
export function isError(r) {
  return r.st === "error" || r.st === "iserror" || r.st === "http" || r.st === "unanswered" || r.k === "invalid" || r.k === "gap";
}

// hasFindings tells whether something was found in a row.
export function hasFindings(r) {
  return r.findings !== null;
}

// rowEnd is when a row was over, or now.
export function rowEnd(r, now) {
  if (r.l >= 0) return r.at + r.l;
  return isPending(r) ? Math.max(now, r.at) : r.at;
}

// rowRef is what a link calls a row.
export function rowRef(r) {
  return r.c + "/" + r.n;
}

// toneOf is the colour of a row, by name; its glyph says the same.
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

const statusWords = { ok: "ok", error: "error", iserror: "tool failed", input_required: "needs input", task: "task", cancelled: "cancelled", pending: "pending", unanswered: "no answer", http: "HTTP" };

// statusText says what became of a row.
export function statusText(r) {
  let s = statusWords[r.st] || "";
  if (r.st === "error" || r.st === "http") return r.cd ? s + " " + r.cd : s;
  if (r.st === "task" || (r.task && r.st === "ok")) return "task " + (r.task || "");
  if (r.stream && !r.ended && r.l < 0) return "open";
  if (!s && r.http) return "HTTP " + r.http;
  if (s === "ok" && r.rounds > 1) return "ok, " + r.rounds + " rounds";
  return s;
}

const kindWords = {
  request: "request", notification: "notification", response: "stray response", invalid: "no message", progress: "progress", log: "log", stdout: "stray stdout", stderr: "stderr",
  start: "start", exit: "exit", eof: "end of input", http: "HTTP", sse: "SSE event", body: "HTTP body", gap: "gap", note: "note", translate: "translated",
};

// kindText says what a row is.
export function kindText(r) {
  if (r.k === "request") {
    if (r.role === "retry") return "retry";
    if (r.role === "poll") return "poll";
    return r.d === "s2c" ? "request of the server" : "request";
  }
  return kindWords[r.k] || r.k;
}
