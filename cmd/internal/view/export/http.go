package export

import (
	"bufio"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/detail"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/printable"
	"mcpwire/internal/trace/httphead"
)

// A roundTrip is an HTTP round trip that is being collected.
type roundTrip struct {
	key    roundTripKey
	server string
	// url is the server's URL, or "" if the capture does not have it.
	url     string
	session uint64
	// n is the number of the first event.
	n     uint64
	began time.Time
	// answered is when the head of the response came.
	answered time.Time
	ended    time.Time
	last     time.Time

	request   *capture.Request
	response  *capture.Response
	sent      body
	received  body
	events    []streamEvent
	endReason string
}

type roundTripKey struct {
	capture string
	number  uint64
}

// A body is the body of an HTTP message, up to a limit.
type body struct {
	data      []byte
	wireBytes int64
	cut       bool
}

// A streamEvent is an event of an event stream.
type streamEvent struct {
	at   time.Time
	sse  capture.SSE
	data string
}

// size returns the approximate memory of a round trip, in bytes.
func (rt *roundTrip) size() int {
	const overhead = 200 // of an event
	return len(rt.sent.data) + 2*len(rt.received.data) + overhead*len(rt.events)
}

func (b *body) add(e *capture.Event, data []byte, limit int) {
	b.wireBytes += cmp.Or(e.Len, int64(len(e.Data)))
	if room := limit - len(b.data); len(data) > room {
		data, b.cut = data[:max(0, room)], true
	}
	b.data = append(b.data, data...)
	b.cut = b.cut || e.Cut
}

// A collector yields the HTTP round trips of a capture when they end, and the unfinished ones at
// the end.
type collector struct {
	// limit limits bodies, in bytes.
	limit int
	// bufferedBytes is the size of all open round trips.
	bufferedBytes int
	open          map[roundTripKey]*roundTrip
	order         []roundTripKey
	heads         map[string]*capture.Head
	omitted       Omitted
	each          func(x *roundTrip) error
	count         int
}

func newCollector(limit int, each func(x *roundTrip) error) *collector {
	return &collector{limit: limit, open: map[roundTripKey]*roundTrip{}, heads: map[string]*capture.Head{}, each: each}
}

// run reads all events. The error may be [ErrNoHTTP].
func (co *collector) run(events Events) error {
	for e, err := range events {
		if err == nil {
			err = co.add(e)
		}
		if err != nil {
			return err
		}
	}
	for len(co.order) > 0 {
		if err := co.finish(co.order[0]); err != nil {
			return err
		}
	}
	if co.count == 0 {
		return ErrNoHTTP
	}
	return nil
}

func (co *collector) add(e *capture.Event) error {
	if e.Head != nil {
		co.heads[e.Capture] = e.Head
		return nil
	}
	k := roundTripKey{e.Capture, e.Exchange}
	if e.Kind == capture.KindRequest {
		return co.begin(k, e)
	}
	rt := co.open[k]
	if e.Exchange == 0 || rt == nil {
		if e.Kind != capture.KindTail {
			co.omitted.Events++
		}
		return nil
	}
	rt.last = e.At
	switch e.Kind {
	case capture.KindResponse:
		rt.response, rt.answered = e.Response, e.At
	case capture.KindMessage, capture.KindInvalid, capture.KindBody, capture.KindSSE:
		before := rt.size()
		co.payload(rt, e)
		co.bufferedBytes += rt.size() - before
		for co.bufferedBytes > maxBufferedBytes && len(co.order) > 1 {
			if err := co.finish(co.order[0]); err != nil {
				return err
			}
		}
	case capture.KindEnd:
		rt.ended, rt.endReason = e.At, string(e.Data)
		return co.finish(k)
	default:
		co.omitted.Events++
	}
	return nil
}

func (co *collector) begin(k roundTripKey, e *capture.Event) error {
	if co.open[k] != nil {
		if err := co.finish(k); err != nil {
			return err
		}
	}
	for len(co.order) >= maxOpenRoundTrips {
		if err := co.finish(co.order[0]); err != nil {
			return err
		}
	}
	rt := &roundTrip{key: k, session: e.Session, n: e.N, began: e.At, last: e.At, request: e.Request}
	if h := co.heads[k.capture]; h != nil {
		rt.server = h.Name
		if e.Side != capture.Downstream { // downstream, clients use the bridge's URL
			rt.url = h.URL
		}
	}
	co.open[k] = rt
	co.order = append(co.order, k)
	return nil
}

// payload adds a part of a body.
func (co *collector) payload(rt *roundTrip, e *capture.Event) {
	if e.Dir == capture.ToServer {
		rt.sent.add(e, e.Data, co.limit)
		return
	}
	event := e.SSE
	if event == nil && rt.isEventStream() {
		event = &capture.SSE{} // a bridge records only the messages of a stream
	}
	if event == nil {
		rt.received.add(e, e.Data, co.limit)
		return
	}
	before := len(rt.received.data)
	rt.received.add(e, appendSSE(nil, event, e.Data), co.limit)
	if len(rt.events) == maxStreamEvents {
		rt.received.cut = true
	}
	if !rt.received.cut && len(rt.received.data) > before {
		rt.events = append(rt.events, streamEvent{e.At, *event, string(e.Data)})
	}
}

// isEventStream reports whether the response is an event stream, according to its head.
func (rt *roundTrip) isEventStream() bool {
	return rt.response != nil && trace.IsEventStream(trace.HeaderValue(rt.response.Headers, "Content-Type"))
}

func (co *collector) finish(k roundTripKey) error {
	co.order = slices.DeleteFunc(co.order, func(o roundTripKey) bool { return o == k })
	rt := co.open[k]
	delete(co.open, k)
	co.bufferedBytes -= rt.size()
	co.count++
	if rt.sent.cut || rt.received.cut {
		co.omitted.Cut++
	}
	return co.each(rt)
}

// appendSSE appends an event of an event stream in a possible wire form. Captures do not contain
// the original line ends and spaces.
func appendSSE(b []byte, s *capture.SSE, data []byte) []byte {
	if s == nil {
		s = &capture.SSE{}
	}
	line := func(name, value string) {
		b = append(append(append(append(b, name...), ": "...), value...), '\n')
	}
	lines := func(name, text string) {
		for one := range strings.SplitSeq(text, "\n") {
			line(name, one)
		}
	}
	if s.HasComment {
		lines("", s.Comment)
	}
	if s.Event != "" {
		line("event", s.Event)
	}
	if s.HasID {
		line("id", s.ID)
	}
	if s.HasRetry {
		line("retry", strconv.FormatInt(s.Retry.Milliseconds(), 10))
	}
	if s.HasData || len(data) > 0 {
		lines("data", string(data))
	}
	return append(b, '\n')
}

// HAR writes the HTTP round trips of a capture as HTTP Archive 1.2
// (http://www.softwareishard.com/blog/har-12-spec/), in the order in which they ended. Event
// streams are in the text of the response and, as single events, in its member _sse. The member
// _mcp has the numbers of the capture. Other events are omitted. The error may be [ErrNoHTTP].
func HAR(w io.Writer, events Events, opts *Options) (Omitted, error) {
	o := opts.withDefaults()
	bw := bufio.NewWriterSize(w, 64<<10)
	enc := json.NewEncoder(bw)
	enc.SetEscapeHTML(false)
	head, _ := json.Marshal(harCreator{o.Tool, o.Version})
	bw.WriteString(`{"log":{"version":"1.2","creator":`)
	bw.Write(head)
	bw.WriteString(`,"entries":[` + "\n")
	first := true
	x := newCollector(o.MaxBody, func(x *roundTrip) error {
		if !first {
			bw.WriteByte(',')
		}
		first = false
		return enc.Encode(harEntryOf(x))
	})
	if err := x.run(events); err != nil {
		return x.omitted, err
	}
	bw.WriteString("]}}\n")
	return x.omitted, bw.Flush()
}

type (
	harCreator struct {
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	harEntry struct {
		Started string `json:"startedDateTime"`
		// Time is in milliseconds.
		Time     float64     `json:"time"`
		Request  harRequest  `json:"request"`
		Response harResponse `json:"response"`
		Cache    struct{}    `json:"cache"`
		Timings  harTimings  `json:"timings"`
		Comment  string      `json:"comment,omitempty"`
		MCP      harMCP      `json:"_mcp"`
	}
	harRequest struct {
		Method      string     `json:"method"`
		URL         string     `json:"url"`
		Version     string     `json:"httpVersion"`
		Cookies     []harPair  `json:"cookies"`
		Headers     []harPair  `json:"headers"`
		Query       []harPair  `json:"queryString"`
		PostData    *harPosted `json:"postData,omitempty"`
		HeadersSize int        `json:"headersSize"`
		BodySize    int64      `json:"bodySize"`
	}
	harPosted struct {
		Type string `json:"mimeType"`
		// Text excludes a member params.
		Text    string `json:"text"`
		Comment string `json:"comment,omitempty"`
	}
	harResponse struct {
		Status      int        `json:"status"`
		Text        string     `json:"statusText"`
		Version     string     `json:"httpVersion"`
		Cookies     []harPair  `json:"cookies"`
		Headers     []harPair  `json:"headers"`
		Content     harContent `json:"content"`
		Redirect    string     `json:"redirectURL"`
		HeadersSize int        `json:"headersSize"`
		BodySize    int64      `json:"bodySize"`
		SSE         []harEvent `json:"_sse,omitempty"`
	}
	harContent struct {
		Size int64  `json:"size"`
		Type string `json:"mimeType"`
		Text string `json:"text,omitempty"`
		// Encoding is "base64" or empty.
		Encoding string `json:"encoding,omitempty"`
		Comment  string `json:"comment,omitempty"`
	}
	harTimings struct {
		Send    float64 `json:"send"`
		Wait    float64 `json:"wait"`
		Receive float64 `json:"receive"`
	}
	harPair struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
	harEvent struct {
		Time  string  `json:"time"`
		ID    *string `json:"id,omitempty"`
		Event string  `json:"event,omitempty"`
		// Retry is in milliseconds.
		Retry   *int64  `json:"retry,omitempty"`
		Comment *string `json:"comment,omitempty"`
		Data    *string `json:"data,omitempty"`
	}
	harMCP struct {
		Capture  string `json:"capture"`
		Server   string `json:"server,omitempty"`
		Session  uint64 `json:"session,omitempty"`
		Exchange uint64 `json:"exchange"`
		// Event is the number of the first event.
		Event uint64 `json:"event"`
	}
)

// unknownSize is HAR's value for an unknown size. Captures do not have the size of headers on the
// wire.
const unknownSize = -1

func harEntryOf(rt *roundTrip) harEntry {
	ended := rt.ended
	if ended.IsZero() {
		ended = rt.last
	}
	e := harEntry{
		Started: formatTime(rt.began), Time: trace.Millis(max(0, ended.Sub(rt.began))), Request: harRequestOf(rt), Response: harResponseOf(rt),
		Comment: rt.endReason, MCP: harMCP{rt.key.capture, rt.server, rt.session, rt.key.number, rt.n},
	}
	if rt.answered.IsZero() {
		e.Timings.Wait = e.Time
	} else {
		e.Timings.Wait, e.Timings.Receive = trace.Millis(max(0, rt.answered.Sub(rt.began))), trace.Millis(max(0, ended.Sub(rt.answered)))
	}
	return e
}

func harRequestOf(rt *roundTrip) harRequest {
	q := rt.request
	r := harRequest{
		Method: q.Method, URL: fullURL(rt.url, q), Version: q.Proto, Cookies: []harPair{}, Headers: pairs(q.Headers), Query: []harPair{},
		HeadersSize: unknownSize, BodySize: rt.sent.wireBytes,
	}
	if u, err := url.Parse(r.URL); err == nil {
		for _, part := range strings.Split(u.RawQuery, "&") {
			if k, v, _ := strings.Cut(part, "="); k != "" {
				k, _ = url.QueryUnescape(k)
				v, _ = url.QueryUnescape(v)
				r.Query = append(r.Query, harPair{k, v})
			}
		}
	}
	if len(rt.sent.data) > 0 {
		r.PostData = &harPosted{Type: trace.HeaderValue(q.Headers, "Content-Type"), Text: strings.ToValidUTF8(string(rt.sent.data), "\ufffd"), Comment: cutComment(&rt.sent)}
	}
	return r
}

func harResponseOf(rt *roundTrip) harResponse {
	r := harResponse{Cookies: []harPair{}, Headers: []harPair{}, HeadersSize: unknownSize, BodySize: rt.received.wireBytes}
	r.Content = harContent{Size: rt.received.wireBytes, Comment: cutComment(&rt.received)}
	if p := rt.response; p != nil {
		r.Status, r.Version, r.Headers = p.Status, p.Proto, pairs(p.Headers)
		r.Content.Type, r.Redirect = trace.HeaderValue(p.Headers, "Content-Type"), trace.HeaderValue(p.Headers, "Location")
	}
	if utf8.Valid(rt.received.data) {
		r.Content.Text = string(rt.received.data)
	} else {
		r.Content.Text, r.Content.Encoding = base64.StdEncoding.EncodeToString(rt.received.data), "base64"
	}
	for _, v := range rt.events {
		h := harEvent{Time: formatTime(v.at), Event: v.sse.Event}
		if v.sse.HasID {
			h.ID = &v.sse.ID
		}
		if v.sse.HasRetry {
			ms := v.sse.Retry.Milliseconds()
			h.Retry = &ms
		}
		if v.sse.HasComment {
			h.Comment = &v.sse.Comment
		}
		if v.data != "" || v.sse.HasData {
			h.Data = &v.data
		}
		r.SSE = append(r.SSE, h)
	}
	return r
}

func cutComment(b *body) string {
	if b.cut {
		return "only the beginning: " + strconv.FormatInt(b.wireBytes, 10) + " bytes in all"
	}
	return ""
}

// fullURL returns the URL of a request. The URL of the server may be unknown.
func fullURL(server string, q *capture.Request) string {
	if server != "" {
		return httphead.TargetURL(server, q.URL)
	}
	if to, err := url.Parse(q.URL); err == nil && to.IsAbs() {
		return q.URL
	}
	return "http://" + cmp.Or(trace.HeaderValue(q.Headers, "Host"), "localhost") + q.URL
}

func pairs(list []capture.Header) []harPair {
	out := make([]harPair, 0, len(list))
	for _, h := range list {
		out = append(out, harPair{h.Name, h.Value})
	}
	return out
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// Curl writes the HTTP requests of a capture as a shell script with one curl command for each, in
// the order in which they ended. Variables stand for redacted secrets and other missing data, and
// comments name them. The exception is a session id: the script takes it from the response that
// begins the session, so that it runs as a whole. A request that cannot be a command line becomes
// a comment with the reason. The error may be [ErrNoHTTP].
func Curl(w io.Writer, events Events, opts *Options) (Omitted, error) {
	o := opts.withDefaults()
	bw := bufio.NewWriterSize(w, 64<<10)
	bw.WriteString("#!/bin/sh\nset -u # fail if a variable below is not set\n")
	x := newCollector(o.MaxBody, func(x *roundTrip) error {
		fmt.Fprintf(bw, "\n# event #%d, %s %s", x.n, printable.Line(clip.String(x.request.Method, maxPCAPCol)), printable.Line(clip.String(x.request.URL, maxPCAPCol)))
		if x.response != nil {
			fmt.Fprintf(bw, ": HTTP %d", x.response.Status)
		}
		body := x.sent.data
		if x.sent.cut {
			body = nil
		}
		c, err := detail.CurlRequest(x.url, x.request, x.sent.wireBytes > 0, body)
		if err != nil {
			fmt.Fprintf(bw, "\n# %s\n", printable.Line(err.Error()))
			return bw.Flush()
		}
		for _, note := range c.Notes {
			fmt.Fprintf(bw, "\n# %s", printable.Line(note))
		}
		if beginsSession(x) {
			fmt.Fprintf(bw, "\n# the answer names the session\nanswer=$(%s)\n%s\n", c.Text, sessionScript)
		} else {
			fmt.Fprintf(bw, "\n%s\necho\n", c.Text)
		}
		return bw.Flush()
	})
	err := x.run(events)
	return x.omitted, err
}

const sessionHeader = "Mcp-Session-Id"

// sessionScript prints a response and sets the variable for its session id.
const sessionScript = `printf '%s\n' "$answer"
MCPWIRE_MCP_SESSION_ID=$(printf '%s\n' "$answer" | tr -d '\r' | sed -n 's/^[Mm][Cc][Pp]-[Ss]ession-[Ii][Dd]: *//p' | head -n 1)`

// beginsSession reports whether the response has a session id that the capture has redacted.
func beginsSession(rt *roundTrip) bool {
	return rt.response != nil && trace.HeaderValue(rt.request.Headers, sessionHeader) == "" && resend.Placeholders(trace.HeaderValue(rt.response.Headers, sessionHeader)) != nil
}
