package export

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"mcpwire/capture"
)

// HAR writes the HTTP exchanges of a capture as HTTP Archive 1.2 (http://www.softwareishard.com/blog/har-12-spec/), in the order in which they ended. Event streams are in the text of the
// response, and event by event in its member _sse; _mcp has the numbers of the capture. What is not HTTP has no place there; a capture without any leads to [ErrNoHTTP].
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
	count, err := x.run(events)
	if err == nil && count == 0 {
		err = ErrNoHTTP
	}
	if err != nil {
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
		Started  string      `json:"startedDateTime"`
		Time     float64     `json:"time"` // milliseconds
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
		Type    string `json:"mimeType"`
		Text    string `json:"text"` // there is no member params beside it
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
		Size     int64  `json:"size"`
		Type     string `json:"mimeType"`
		Text     string `json:"text,omitempty"`
		Encoding string `json:"encoding,omitempty"` // "base64"
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
		Time    string  `json:"time"`
		ID      *string `json:"id,omitempty"`
		Event   string  `json:"event,omitempty"`
		Retry   *int64  `json:"retry,omitempty"` // milliseconds
		Comment *string `json:"comment,omitempty"`
		Data    *string `json:"data,omitempty"`
	}
	harMCP struct {
		Capture  string `json:"capture"`
		Server   string `json:"server,omitempty"`
		Session  uint64 `json:"session,omitempty"`
		Exchange uint64 `json:"exchange"`
		Event    uint64 `json:"event"` // number of the first
	}
)

// unknownSize is what HAR has for a size that nobody knows: that of headers on the wire is not in a capture.
const unknownSize = -1

func harEntryOf(rt *roundTrip) harEntry {
	ended := rt.ended
	if ended.IsZero() {
		ended = rt.last
	}
	e := harEntry{
		Started: formatTime(rt.began), Time: millis(ended.Sub(rt.began)), Request: harRequestOf(rt), Response: harResponseOf(rt),
		Comment: rt.endReason, MCP: harMCP{rt.key.capture, rt.server, rt.session, rt.key.number, rt.n},
	}
	if rt.answered.IsZero() {
		e.Timings.Wait = e.Time
	} else {
		e.Timings.Wait, e.Timings.Receive = millis(rt.answered.Sub(rt.began)), millis(ended.Sub(rt.answered))
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
		r.PostData = &harPosted{Type: headerValue(q.Headers, "Content-Type"), Text: strings.ToValidUTF8(string(rt.sent.data), "\ufffd"), Comment: cutComment(&rt.sent)}
	}
	return r
}

func harResponseOf(rt *roundTrip) harResponse {
	r := harResponse{Cookies: []harPair{}, Headers: []harPair{}, HeadersSize: unknownSize, BodySize: rt.received.wireBytes}
	r.Content = harContent{Size: rt.received.wireBytes, Comment: cutComment(&rt.received)}
	if p := rt.response; p != nil {
		r.Status, r.Version, r.Headers = p.Status, p.Proto, pairs(p.Headers)
		r.Content.Type, r.Redirect = headerValue(p.Headers, "Content-Type"), headerValue(p.Headers, "Location")
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

// fullURL returns the URL of a request: archives want a whole one.
func fullURL(server string, q *capture.Request) string {
	if strings.Contains(q.URL, "://") {
		return q.URL
	}
	if base, err := url.Parse(server); server != "" && err == nil {
		if to, err := url.Parse(q.URL); err == nil {
			return base.ResolveReference(to).String()
		}
	}
	host := headerValue(q.Headers, "Host")
	if host == "" {
		host = "localhost"
	}
	return "http://" + host + q.URL
}

func pairs(list []capture.Header) []harPair {
	out := make([]harPair, 0, len(list))
	for _, h := range list {
		out = append(out, harPair{h.Name, h.Value})
	}
	return out
}

// headerValue returns the first value of a header field, or "".
func headerValue(list []capture.Header, name string) string {
	for _, h := range list {
		if strings.EqualFold(h.Name, name) {
			return h.Value
		}
	}
	return ""
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

func millis(d time.Duration) float64 { return float64(max(0, d)) / float64(time.Millisecond) }

func millisText(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

func cutLine(s string) (line, rest string, more bool) { return strings.Cut(s, "\n") }
