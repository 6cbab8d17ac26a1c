// Package ui is the web face of the live view: one embedded page (folder page) and the HTTP API that it uses, over a [watch.Hub].
//
//	s, err := ui.New(hub, nil)
//	l, err := net.Listen("tcp", "127.0.0.1:0")
//	fmt.Println(s.URL(l.Addr())) // with the token
//	err = s.Serve(ctx, l)
//
// # Who gets in
//
// What goes over the wire of a server is private, and the browser runs the pages of strangers. Therefore:
//
//   - [Server.Serve] listens on this machine's loopback only, unless told otherwise;
//   - the Host header must be localhost, an address, or a name that was allowed, so that no page can have its own name point here;
//   - GET /?token=T sets a cookie (HttpOnly, SameSite=Strict, its name has the port in it) and redirects to /. Everything else needs the cookie;
//   - requests that a browser says come from another site (Sec-Fetch-Site, Origin) are refused; a POST has to have the header X-Mcpwire: 1 besides, and one of the two;
//   - the page may load nothing but its own files, and run no inline script (Content-Security-Policy), and pictures and sounds are blob: or data:;
//   - captured data goes out as JSON, or as an attachment of type application/octet-stream, and never as something that a browser would render.
//
// What is left: browsers send a cookie to all ports of a host, so that another program of this machine that serves pages to the same browser, at the same host, gets to see it.
//
// # API
//
// Everything is JSON (application/json; charset=utf-8) unless it says otherwise. SEQ is a row's number ("q"). An answer that is no success has a status of 400 and above and
// the body {"error":{"message":TEXT}}; 401 is "no cookie", 403 "not from here", 404 "no such row, event or capture" (it made room), 413 "too large", 503 "too many at once".
// Members that are empty, zero or false are left out, unless it says "always".
//
//	GET /                              the page, index.html
//	GET /static/NAME                   the other files of folder page, flat: *.js, *.css, *.svg, *.png
//
// GET /api/stream?filter=F&after=ID is an event stream. To resume, ID is the last event id that was received: EventSource sends it by itself as Last-Event-ID when it reconnects,
// and a page that opens a new EventSource (after a 503, or after a reload with rows kept) gives it as after=. If it cannot be resumed there (another hub, too old, another kind of
// filter) hello has reset:true, and everything comes again. A filter that is not understood is a 400, before any event: ask /api/filter first. Events:
//
//	hello     always first, and again when everything comes again. {"hub":ID, "version":N, "reset":BOOL, "tool":"mcpwire 1.2", "now":UNIXMS of this machine, "rows":N how many the model has, "total":N see below, "filter":F}; hub, reset, now always.
//	          reset:true means: forget all rows, sessions and sources, they follow
//	rows      [ROW…] at most 500: added or changed. A row comes whole each time and replaces the one with the same q. Mostly in the order of q, but one inside another may come first
//	total     N: how many rows the timeline has had, whatever the filter is, with those that made room. At most once a second, when it has changed
//	gone      [SEQ…] at most 5000: forget these. May name rows that never came
//	sources   [SOURCE…] all of them
//	sessions  [CARD…] added or changed: a card replaces the one with the same capture and session. At the beginning all (the newest 500), later at most once a second
//	searching {"share":0…1, "busy":BOOL always} while a filter looks into payloads: at most four times a second, the last with busy:false
//	synced    {"version":N} once, after everything that was there at the beginning has come. Until then a page may show that it loads
//
// With a filter only the rows of the timeline come for which it holds, with all that is inside them. Times are in ms: points in time since 1970, with fractions. ROW:
//
//	q    SEQ (always)                      p   SEQ of the row that it stands in
//	n    number of its first event         rn  number of the event with the response      ev [N…] numbers of all its events, at most 32
//	c    id of the capture (always)        s   number of the session in it                srv name of the server, with the side
//	sd   "downstream" "upstream": side of a bridge    o   [SEQ…] rows of a bridge's other side that it was made of or became
//	k    kind: request notification response invalid progress log stdout stderr start exit eof http sse body gap note xlate (always)
//	at   when (always)                     t   ms since the capture began                 d   "c2s" or "s2c"
//	m    method                            tg  target: tool, prompt, URI                  id  JSON text of the request's id
//	st   "ok" "error" "iserror" "input_required" "task" "cancelled" "pending" "unanswered" "http"
//	cd   code of the error, or of HTTP     msg message of the error
//	rq   bytes of the request              rs  bytes of the response
//	l    ms until it was over, with further rounds and the task; absent as long as it is pending: count from at
//	la   ms until its own response, if that is another number than l
//	sv   ms that the server took           hu  ms for which the server waited for the client or its user
//	ws   [[FROM,TO]…] when that was: ms since at, at most 16
//	done true when nothing more is due     sum summary in plain words, safe to show       g   glyph, one character
//	role "asked" "retry" "poll"            era "legacy" "modern"                          rev revision in force
//	http status of HTTP                    stream true if the response is an event stream, which is open as long as not "ended"
//	ended true: the HTTP exchange is over  nev events of the stream
//	findings [errors, warnings, others] with those inside; absent if all are 0
//	more how many rows inside it made room rounds N                                       task state of the task that it became: "working" "completed" …
//	x    excerpt: arguments, params, text, as the peer wrote it (up to some hundred bytes)
//
// SOURCE, a capture that is followed or was read:
//
//	id (always) path name transport state ("live" a tap runs, "growing", "complete", "broken off") err TEXT read BYTES size BYTES restart true if POST /api/restart can work
//
// CARD, a session, is a wireview.SessionInfo: the same as "session" in a DETAIL:
//
//	capture (id) session (number) name (of the server) transport tool redact ("default" "custom" "off") era offered answered supported (revisions)
//	client server {"name","version","capabilities":["tools","tools.listChanged"…]} command [ARG…] pid exited exitCode signal rows first last (RFC 3339)
//
// The others:
//
//	GET  /api/row/SEQ?hex=1            DETAIL: a detail.Detail (internal/view/detail/detail.go has its members), and besides "row":ROW and "frames":[detail.EventLine…]. With hex=1, raw has
//	                                   hexadecimal digits
//	GET  /api/payload/CAPTURE/N        exact bytes of the payload of event N, as an attachment; Range works; application/octet-stream
//	GET  /api/filter?text=F            {"ok":true,"text":F as it is understood} or {"error":{"message","at":COLUMN in characters from 1}}, both 200
//	GET  /api/copy/SEQ?as=call|curl    {"text":COMMAND, "variables":[NAME…], "notes":[TEXT…]} or a 422 that says why there is none
//	GET  /api/sessions                 [CARD…]
//	GET  /api/sources                  [SOURCE…]
//	GET  /api/tools                    {"tools":[STAT…],"methods":[STAT…]} both always. STAT: srv name (always) calls ok errors iserrors cancelled unanswered
//	                                   p50 p95 max mean (ms) in out def (bytes: requests, responses, definition) hist [[UPPER ms, COUNT]…] at most 48, without empty ones at the ends
//	GET  /api/resend/SEQ               {"target":TEXT, "message":TEXT, "note":TEXT} what would be sent, and what to: the command or URL. The user has to see the target before it is run: a
//	                                   capture may be a stranger's. message is absent if it is above 1 MiB; note says so. 422 says why it cannot be sent
//	POST /api/resend                   {"row":SEQ,"message":TEXT,"target":TEXT} message absent: as recorded; target: as it was got; if it is
//	                                   another or none, 409 {"error":{"message","target":TEXT}}: show the target, and post again with it. Goes to a fresh copy of the
//	                                   server, and takes up to two minutes → {"capture":ID,"n":N of the request,"rn":N of the response,"ms","response":TEXT up to 64 KiB,"note":TEXT if it did not
//	                                   go well}. The new capture's rows come by the stream. 422 if it cannot be sent
//	POST /api/diff                     {"a":SEQ,"b":SEQ} → {"request":[CHANGE…],"response":[CHANGE…]} always. CHANGE is a jsondiff.Change: {"op":"add"|"remove"|"replace"|"more","pointer":JSON POINTER,
//	                                   "first":POINTER in a,"old":JSON TEXT,"new":JSON TEXT,"cut":BOOL}; "more": there are more. "notes":[TEXT…] says what could not be compared
//	POST /api/open?name=NAME           body: a capture, also .gz, .zst; up to 1 GiB. → {"path"}. Its rows come by the stream
//	POST /api/restart/CAPTURE          {} or an error
//	GET  /api/export.html?filter=F     a page that opens alone, as an attachment: see below. text/html
//	GET  /api/save?filter=F            the capture of what the filter shows, redacted, as an attachment: *.mcpcap.ndjson
//
// # The exported page
//
// export.html is index.html with everything in it: it is made here from the files of folder page, and every secret is hidden in it again, whatever the capture did. For that, the
// files keep to a few rules, which a test checks:
//
//   - index.html has each <link rel="stylesheet" href="/static/NAME.css"> and the one <script type="module" src="/static/NAME.js"></script> on a line of its own, and no other
//     script or style; it loads nothing else (an icon is a <link rel="icon" href="data:,…">);
//   - a module imports by lines `import {a, b} from "./name.js";` alone (on one line, no "as", no default, no * and no dynamic import), and exports by `export` in front of a declaration
//     (const, let, function, async function, class) at the beginning of a line. No name of the top level is used by two modules, so that they can be put one behind the
//     other. No cycles. No top-level await;
//   - no "</script" and no "<!--" in a module, no "</style" and no url( but of data: in a style sheet.
//
// The page takes its data from <script type="application/json" id="mcpwire-data"> if that is there, and then asks the API for nothing:
//
//	{"hello":as in the stream, "exported":MS, "rows":[ROW…], "sessions":[CARD…], "sources":[SOURCE…], "tools":as /api/tools,
//	 "details":{"SEQ":DETAIL…}, "left":{"rows":N, "details":N, "note":TEXT}} left: what is not in it; absent if all is
//
// # Concurrency
//
// A Server may be used by any number of goroutines. It serves 32 streams and 64 other requests at once; of those that hold payloads, 8 run and others wait. [Server.Serve] waits for all that it started.
//
// # Errors
//
// New returns those of the page's files. Serve returns what streamable.Serve does: it wraps streamable.ErrRemoteAddress for an address that others reach.
package web
