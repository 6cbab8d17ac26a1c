// Package web serves the live view in the browser: an embedded page and the
// HTTP API that it uses, on top of a [watch.Hub].
//
//	s := web.New(hub, nil)
//	l, err := net.Listen("tcp", "127.0.0.1:0")
//	fmt.Println(s.URL(l.Addr())) // with the token
//	err = s.Serve(ctx, l)
//
// # Access control
//
// Recorded traffic is private, and the browser also runs the pages of
// strangers. Therefore:
//
//   - [Server.Serve] listens on loopback addresses only, unless
//     Options.AllowRemote is set.
//   - The Host header must be localhost, an allowed address or an allowed
//     name. This prevents DNS rebinding.
//   - GET /?token=T sets a cookie (HttpOnly, SameSite=Strict, with the port
//     in its name) and redirects to /?key=K. The page keeps the key in
//     sessionStorage, and removes it from the address. All other requests
//     need the cookie.
//   - Requests of the API also need the key, in the header X-Mcpwire.
//     Browsers send the cookie to all ports of a host, so other servers there
//     can have it; the key belongs to the origin. A new tab gets the key from
//     the other tabs of the origin.
//   - What cannot have a header, a link or an EventSource, has ticket=T in
//     place of the key. GET /api/ticket?path=P responds with {"ticket":T},
//     which permits GET requests for the path P for a minute.
//   - Requests from another site, according to Sec-Fetch-Site and Origin,
//     are rejected. A POST must have one of these headers, and X-Mcpwire.
//   - The Content-Security-Policy lets the page load only its own files,
//     blob: and data: images, and blob: audio. It allows no inline script.
//   - Captured data is sent as JSON or as an attachment of type
//     application/octet-stream, never in a form that a browser renders.
//
// # API
//
// Bodies are JSON (application/json; charset=utf-8) unless stated
// otherwise. SEQ is the number of a row ("q"). An error has a status of at
// least 400 and the body
//
//	{"error":{"message":TEXT}}
//
// Status 401 means that the cookie or the key is missing, 403 another site, 404 an
// unknown row, event or capture (it may have been evicted), 413 too large,
// and 503 too many requests. Members that are empty, zero or false are
// omitted, except those marked "always".
//
//	GET /                 the page, page/index.html
//	GET /static/main.css  its style sheet, dist/main.css
//	GET /static/main.js   its script, dist/main.js
//
// # Stream
//
//	GET /api/stream?filter=F&after=ID
//
// responds with an event stream. ID is the last event id that the page has
// received, to resume there. EventSource sends it as Last-Event-ID when it
// reconnects. A page that opens a new EventSource, after a 503 or after a
// reload that kept the rows, sends it as after=. If the stream cannot
// resume (another hub, an old id, a filter that searches payloads), hello
// has reset:true and everything is sent again. A filter with a syntax error
// results in status 400; use /api/filter to check it first. The events are:
//
//	hello     the first event, repeated before everything is sent again:
//	          {"hub":ID always, "reset":BOOL always, "now":TIME always,
//	          "version":N, "tool":"mcpwire 1.2", "rows":N rows of the model,
//	          "total":TOTAL as below, "filter":F}. If reset is true, drop all
//	          rows, sessions and sources: they follow.
//	rows      [ROW…] at most 500, added or changed. A ROW is complete and
//	          replaces the one with the same q. Most come in the order of
//	          q, but a row inside another may come first.
//	total     {"rows":N rows that the timeline has had, regardless of the
//	          filter, "evicted":N of them that are no longer in memory,
//	          "whole":true if the filter is applied to all of them by reading
//	          their files again, "matches":N that match then, "read":N that it
//	          was applied to so far, "running":N other filters that are
//	          applied so, if this one would be one too many}
//	facets    the rows that the timeline has had, regardless of the filter, by
//	          property:
//	          {"server":[{"v":NAME,"i":SI,"n":COUNT}…],"kind":…,"status":…,
//	          "finding":…}. At most once a second.
//	gone      [SEQ…] at most 5000 rows to drop. Some may never have come.
//	sources   [SOURCE…] all sources
//	older     N finished captures that are not read, if there are any
//	sessions  [CARD…] added or changed. A CARD replaces the one with the
//	          same capture and session. First all (the newest 500), then
//	          at most once a second.
//	searching {"share":0…1, "busy":BOOL always} while a filter searches
//	          payloads or files. At most four times a second; the last has
//	          busy:false.
//	synced    {"version":N} once, when everything that existed at the
//	          beginning has been sent. Until then, the page can show that
//	          it is loading.
//
// With a filter, the stream has only the matching rows of the timeline and
// the rows inside them. If rows were evicted, they are found in the files again:
// the numbers of the rows then differ from those without this filter, and are
// valid while a stream with the filter is open. Durations are in milliseconds; points in time are
// milliseconds since 1970, with fractions. A ROW is:
//
//	q      SEQ (always)
//	p      SEQ of the row that contains it
//	n      number of its first event
//	rn     number of the event with the response
//	c      id of the capture (always)
//	ci     index of the capture: its letter precedes n if there are several
//	si     index of the server's name, for its color
//	s      number of the session in the capture
//	srv    name of the server, followed by the side. A row is sent again if
//	       the name of one of a gateway's servers becomes known.
//	sd     side of a bridge: "downstream" or "upstream"
//	o      [SEQ…] linked rows on a bridge's other side
//	k      kind (always): request notification response invalid progress
//	       log stdout stderr start exit eof http sse body gap note translate
//	at     time (always)
//	d      "c2s" or "s2c"
//	m      method
//	tg     target: tool, prompt, URI
//	id     request id as JSON text
//	st     "ok" "error" "iserror" "input_required" "task" "cancelled"
//	       "pending" "unanswered" "http"
//	cd     error code, or HTTP status
//	msg    error message
//	rq     bytes of the request
//	rs     bytes of the response
//	l      total time, with further rounds and the task; absent while
//	       pending: count from at
//	la     time until its own response, if not equal to l
//	ws     [[FROM,TO]…] when the server waited for the client or its user, since at;
//	       at most 16
//	done   true when nothing more is expected
//	sum    summary in words, safe to show
//	g      glyph, one character
//	role   "asked" "retry" "poll"
//	era    "legacy" "modern"
//	rev    revision in force
//	http   HTTP status
//	stream true if the response is an event stream; it is open until ended
//	ended  true if the HTTP round trip has ended
//	nev    number of events of the stream
//	findings  [errors, warnings, others], including rows inside it; absent
//	       if all are 0
//	rounds number of rounds
//	task   state of the task that it became: "working" "completed" …
//	x      excerpt of text, or of arguments or params: texts, then name=value
//	       for others; up to some hundred bytes
//	in     SEQ of the first row inside it that made it match the filter, if it
//	       does not match by itself
//
// A SOURCE is a capture that is followed or was read:
//
//	id (always)  path  name  transport  err
//	state     "live" (a tap runs), "growing", "complete", "broken off"
//	read size bytes
//	restart   true if POST /api/restart can succeed
//	held      what a tap with --intercept holds: a live.Intercepted whose
//	          messages have no data
//
// A CARD is a session: a trace.SessionInfo, as "session" in a DETAIL.
//
// # Other requests
//
// GET /api/row/SEQ?hex=1 responds with a DETAIL: a [detail.Detail] with the
// additional member "row":ROW. With hex=1, raw has hex dumps.
//
// GET /api/payload/CAPTURE/N responds with the exact bytes of the payload
// of event N, as an attachment of type application/octet-stream. It
// supports Range.
//
// GET /api/filter?text=F checks a filter. Both responses have status 200:
//
//	{"ok":true,"text":F}
//	{"error":{"message":TEXT,"at":COLUMN in characters, from 1}}
//
// GET /api/copy/SEQ?as=call|curl responds with a command line. Status 422
// says why that is impossible:
//
//	{"text":COMMAND,"variables":[NAME…],"notes":[TEXT…]}
//
// GET /api/tools responds with {"tools":[STAT…],"methods":[STAT…]}, both
// always. A STAT is:
//
//	srv  name (always)
//	calls ok errors iserrors cancelled unanswered
//	p50 p95 max    ms
//	in out def    bytes of requests, responses and the definition
//	hist      [[UPPER ms, COUNT]…] at most 48, without empty ends
//
// GET /api/picture/sequence?of=SCOPE&filter=F&width=W responds with a picture of the
// messages between hosts, bridges and servers: see package picture. SCOPE is
// CAPTURE, CAPTURE/SESSION or absent for everything; W is the width in px. With
// as=mermaid it is a diagram for Mermaid. GET
// /api/picture/overview?filter=F&width=W responds with the overview. Both are
// attachments of type application/octet-stream. The page inserts only elements
// and attributes that it knows.
//
// GET /api/resend/SEQ responds with the message to send again and its
// target, a command or URL:
//
//	{"target":TEXT,"message":TEXT,"note":TEXT}
//
// The user must see the target before the message is sent, because a
// capture may come from a stranger. Above 1 MiB, message is absent and note
// says so. Status 422 has the reason why the message cannot be sent.
//
// POST /api/resend sends the message of a row to a new instance of the
// server, which takes up to two minutes:
//
//	{"row":SEQ,"message":TEXT,"target":TEXT}
//
// An absent message means the recorded one. target must be the one from
// GET; otherwise the response is a 409 with the current target:
//
//	{"error":{"message":TEXT,"target":TEXT}}
//
// Show this target and post again with it. On success the response is as
// follows, and the stream sends the rows of the new capture. note says
// what went wrong:
//
//	{"capture":ID,"n":N of the request,"rn":N of the response,
//	 "row":SEQ of the request, unless it is not there yet,"ms":MS,
//	 "response":TEXT up to 64 KiB,"note":TEXT}
//
// GET /api/callable responds with {"tools":[TOOL…]}, the tools in recorded
// results of tools/list, the newest of each server. GET /api/callable/SEQ
// responds with a TOOL and more members: SEQ is a row of tools/list, with
// name=NAME, or a row of a call:
//
//	TOOL: {"row":SEQ of tools/list,"c":CAPTURE,"srv":SERVER,"name":NAME,
//	       "title":TEXT,"about":TEXT,"hints":["read-only"…]}
//	"schema":INPUT SCHEMA, absent if too large
//	"target":TEXT as in GET /api/resend, or "note":TEXT why not
//	"recorded":[{"q":SEQ,"at":TIME,"st":STATUS,"ms":MS,"x":EXCERPT}…] calls
//
// POST /api/validate checks arguments, and responds with {"problems":
// [{"at":JSON POINTER,"message":TEXT}…],"note":TEXT why the schema could not
// be used}. POST /api/call calls the tool in a new instance of the server,
// and responds as POST /api/resend does:
//
//	{"row":SEQ of tools/list,"name":NAME,"arguments":JSON TEXT,"target":TEXT}
//
// POST /api/diff compares two rows. A CHANGE is a jsondiff.Change; op
// "more" means that there are more changes. notes has what could not be
// compared:
//
//	{"a":SEQ,"b":SEQ}
//	{"request":[CHANGE…] always,"response":[CHANGE…] always,"notes":[TEXT…]}
//	CHANGE: {"op":"add"|"remove"|"replace"|"more","pointer":JSON POINTER,
//	         "first":POINTER in a,"old":JSON TEXT,"new":JSON TEXT,
//	         "cut":BOOL}
//
// POST /api/open?name=NAME opens a capture in the body, also .gz or .zst,
// up to 1 GiB. It responds with {"path"}, and the stream sends the rows.
//
// POST /api/restart/CAPTURE responds with {} or an error.
//
// GET /api/held/CAPTURE responds with what the tap holds, a live.Intercepted.
// The messages have their secrets, so that they can be edited. POST
// /api/held/CAPTURE sends the tap a live.Decision, and responds with {}, or with
// status 422 if the tap rejects it.
//
// GET /api/export.html?filter=F responds with a self-contained page
// (text/html), as an attachment: see below.
//
// GET /api/save?filter=F responds with a redacted capture of what the
// filter shows, as an attachment (*.mcpcap.ndjson).
//
// # The page
//
// Folder page has the source: index.html, ES modules below main.js and style
// sheets below main.css, with the colors and rules of package picture. go
// generate bundles each of the two into one file of
// folder dist, with esbuild, which is a requirement of the separate module in
// folder bundle. A test there fails if dist is stale. The rules of the page,
// which a test checks:
//
//   - index.html has one style sheet and one script, and nothing inline. An
//     icon is a <link rel="icon" href="data:,…">.
//   - Nothing is loaded from elsewhere, and no file loads another.
//   - Captured text becomes text nodes and attributes, never HTML.
//
// # Exported page
//
// export.html is the page with the style sheet, the script and the data inside.
// Its Content-Security-Policy has their hashes and allows nothing else. The
// server redacts all secrets again, even in captures that are already redacted.
//
// If the page has a <script type="application/json" id="mcpwire-data">, it
// reads its data from there and does not use the API:
//
//	{"hello":as in the stream, "exported":TIME, "rows":[ROW…],
//	 "sessions":[CARD…], "sources":[SOURCE…], "tools":as /api/tools,
//	 "facets":as in the stream, "pictures":{"overview":SVG,
//	 "sequences":{SCOPE:SVG…}, "mermaid":{SCOPE:TEXT…}},
//	 "details":{"SEQ":DETAIL…},
//	 "left":{"rows":N, "details":N, "note":TEXT}}
//
// left counts what was omitted. It is absent if the page has everything.
//
// # Concurrency
//
// A [Server] is safe for concurrent use. It serves 32 streams and 64 other
// requests at a time. Of the requests that keep payloads in memory, 8 run
// at a time and others wait. [Server.Serve] waits for its goroutines.
//
// # Errors
//
// Serve returns the errors of httpserve.Serve, which wrap
// httpserve.ErrRemoteAddress for an address that other machines can reach.
package web
