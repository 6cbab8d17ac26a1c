package doctor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/cause"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/text/lazyregexp"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// A webReply is the response to an HTTP request.
type webReply struct {
	status int
	header http.Header
	// body holds at most maxLook bytes.
	body    []byte
	message *jsonrpc.Message
	// head is the time until the response headers.
	head time.Duration
	// took is the time until the body or the first event.
	took time.Duration
	err  error
	// stream is why clients find no response in an event stream. It is empty if that is unknown.
	stream string
	// events reports that an event stream without a response has a line of data.
	events bool
}

const maxLook = 4 << 20

// web examines a server over HTTP.
func (doc *doctor) web(ctx context.Context) {
	u, err := url.Parse(doc.d.Target.URL)
	if err != nil {
		doc.report.section("URL").bad("malformed")
		return
	}
	if !doc.network(ctx, u) {
		doc.report.worse(exit.Unreachable)
		return
	}
	doc.endpoint(ctx, u)
}

// endpoint examines a server that accepts connections.
func (doc *doctor) endpoint(ctx context.Context, u *url.URL) {
	s := doc.report.section(sectionHandshakes)
	var spoken []mcp.Revision
	var last webReply
	for _, rev := range newestFirst() {
		doc.report.status("handshake for %v", rev)
		r := doc.postHandshake(ctx, rev, nil)
		if ctx.Err() != nil {
			return
		}
		negotiated := doc.webHandshake(s, rev, &r)
		if negotiated {
			if len(spoken) == 0 {
				doc.report.speaks = rev.String()
			}
			spoken = append(spoken, rev)
			doc.timing(s, &r)
			if kind := wireclient.MediaType(r.header); len(spoken) == 1 && kind != "application/json" && !isEventStream(r.header) {
				s.bad("a message has the Content-Type %s: hosts read it only as application/json or text/event-stream", cmp.Or(safe.Clip(kind, 60), "of nothing: the header is missing")).
					hint("the server must send Content-Type: application/json with JSON")
			}
		}
		last = r
		if r.status == http.StatusUnauthorized {
			doc.authorization(ctx, &r)
			return
		}
		if r.status >= 300 && r.status < 400 || r.err != nil || r.status == http.StatusForbidden || r.status == http.StatusProxyAuthRequired {
			// Other revisions would give the same result.
			break
		}
	}
	if len(spoken) == 0 {
		doc.noWeb(ctx, s, &last, u)
		return
	}
	if doc.spared {
		s.note("the rules are not checked: that sends requests that no client sends, and the server is on another machine").hint("--quick=false checks them")
	}
	doc.origins(ctx, spoken[0], u)
	doc.rules(ctx, spoken)
}

// host returns the host of the URL.
func (doc *doctor) host() string {
	u, err := url.Parse(doc.d.Target.URL)
	if err != nil {
		return ""
	}
	return u.Host
}

// postHandshake posts a handshake and ends the session that it opens.
func (doc *doctor) postHandshake(ctx context.Context, rev mcp.Revision, tweak func(*http.Request)) webReply {
	limited, cancel := context.WithTimeout(ctx, doc.connect)
	defer cancel()
	r := doc.send(limited, &wireclient.Request{URL: doc.d.Target.URL, Body: targets.HandshakeRequest(rev), Edit: tweak})
	c := doc.d.RawHTTP(maxLook)
	c.BeginSession(r.header, rev.String())
	c.EndSession(wireclient.Request{URL: doc.d.Target.URL})
	return r
}

// send makes one request and reads its response. From an event stream it reads the first response.
func (doc *doctor) send(ctx context.Context, q *wireclient.Request) webReply {
	c := doc.d.RawHTTP(maxLook)
	c.MaxStream = maxLook
	x, err := c.NewExchange(ctx, q)
	if err != nil {
		return webReply{err: err}
	}
	defer x.End(nil)
	x.Limit(max(doc.wait, doc.connect), context.DeadlineExceeded)
	start := time.Now()
	if err := x.Do(); err != nil {
		return webReply{err: kit.Innermost(err), took: time.Since(start)}
	}
	r := webReply{status: x.Status(), header: x.Response.Header, head: time.Since(start)}
	in, err := x.Find(isReply)
	if in != nil {
		r.body = in.Data
	}
	if !errors.Is(err, wireclient.ErrTooLarge) || in == nil { // the beginning is sufficient
		r.err = err
	}
	if err != nil && x.IsStream() {
		r.stream, r.events = streamFault(x.Head()), bytes.Contains(x.Head(), []byte("data:"))
	}
	r.took = time.Since(start)
	var m jsonrpc.Message
	if jsonrpc.Parse(bytes.TrimSpace(r.body), &m, 0) == nil {
		r.message = &m
	}
	return r
}

// isReply reports whether an event is a response or names the endpoint. As in clients, only the
// data of unnamed events are messages.
func isReply(in *wireclient.Received) bool {
	var m jsonrpc.Message
	return in.SSE.Event == wireclient.EventEndpoint || in.Kind == capture.KindMessage && jsonrpc.Parse(in.Data, &m, 0) == nil && wireclient.IsAnswer(&m)
}

var (
	eventName = lazyregexp.New(`(?m)^event: ?(\S+)`)
	eventData = lazyregexp.New(`(?m)^data: ?\{`)
)

// streamFault returns why clients find no response in an event stream that begins with head.
func streamFault(head []byte) string {
	text := bytes.TrimLeft(head, "\xef\xbb\xbf \r\n")
	name := eventName().FindSubmatch(text)
	switch {
	case len(text) == 0:
		return "the event stream ends without an event"
	case text[0] == '{' || text[0] == '[':
		return "its Content-Type is text/event-stream, and the body is plain JSON, not an event stream"
	case eventData().Match(text) && !bytes.HasSuffix(bytes.ReplaceAll(text, []byte("\r"), nil), []byte("\n\n")):
		return "the last event has no empty line at its end, so clients discard it"
	case eventData().Match(text) && name != nil && string(name[1]) != "message":
		return fmt.Sprintf("the response is in an event named %q: clients ignore other events than \"message\"", name[1])
	}
	return "the event stream ends without the response"
}

// isEventStream reports whether a response is an event stream.
func isEventStream(h http.Header) bool { return wireclient.MediaType(h) == "text/event-stream" }

// webHandshake reports the outcome of one handshake. It returns whether the server speaks the
// revision.
func (doc *doctor) webHandshake(s *doctorSection, rev mcp.Revision, r *webReply) bool {
	head := fmt.Sprintf("%v  POST %s", rev, targets.HandshakeMethod(rev))
	status := fmt.Sprintf("HTTP %d", r.status)
	took := kit.ShortTime(r.took)
	switch {
	case r.err != nil && r.status == 0:
		s.note("%s: %s", head, webFailure(r.err))
	case r.message != nil && r.message.Kind == jsonrpc.KindResponse:
		var result struct {
			ProtocolVersion   string   `json:"protocolVersion"`
			SupportedVersions []string `json:"supportedVersions"`
		}
		// The loop below notices missing members.
		_ = json.Unmarshal(r.message.Result, &result)
		for _, v := range append(result.SupportedVersions, result.ProtocolVersion) {
			if v == rev.String() {
				session := ""
				if r.header.Get("Mcp-Session-Id") != "" {
					session = ", with a session"
				}
				s.good("%s: negotiated, %s, %s%s, in %s", head, status, safe.Clip(r.header.Get("Content-Type"), 60), session, took)
				s.lacks(rev, r.message.Result)
				return true
			}
		}
		s.note("%s: responded with version %s, %s, in %s", head, safe.Clip(strings.Join(append(result.SupportedVersions, result.ProtocolVersion), " "), 60), status, took)
	case r.message != nil && r.message.Kind == jsonrpc.KindError:
		e := r.message.Err()
		s.note("%s: %s, error %d %s, in %s", head, status, int(e.Code), safe.Clip(e.Message, 100), took)
	case r.stream != "" && !errors.Is(r.err, context.DeadlineExceeded):
		s.note("%s: %s, %s", head, status, safe.Clip(r.stream, 200))
	case r.err != nil:
		s.note("%s: %s, and then %s", head, status, webFailure(r.err))
	default:
		kind := cmp.Or(r.header.Get("Content-Type"), "no content type")
		s.note("%s: %s, %s, %d bytes that are not a message, in %s", head, status, safe.Clip(kind, 60), len(r.body), took)
	}
	return false
}

func webFailure(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no response in time"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed before the response"
	}
	return safe.Clip(err.Error(), 200)
}

// timing reports slow responses and delayed event streams.
func (doc *doctor) timing(s *doctorSection, r *webReply) {
	if r.took > slowStart {
		doc.report.slow = "it is slow: a response took " + kit.ShortTime(r.took)
		s.odd("the response took %s: some hosts time out after 10 s", kit.ShortTime(r.took))
	}
	if isEventStream(r.header) && r.took-r.head > 2*time.Second {
		s.odd("the first event arrived %s after the stream's header", kit.ShortTime(r.took-r.head)).hint("a proxy may buffer: turn off buffering (X-Accel-Buffering: no) and compression for text/event-stream")
	}
	if r.header.Get("Content-Encoding") != "" && isEventStream(r.header) {
		s.odd("the event stream is compressed, which delays events").hint("do not compress text/event-stream")
	}
}

// noWeb reports why no handshake succeeded.
func (doc *doctor) noWeb(ctx context.Context, s *doctorSection, r *webReply, u *url.URL) {
	doc.report.worse(exit.Unreachable)
	kind, _, _ := strings.Cut(strings.ToLower(r.header.Get("Content-Type")), ";")
	c := r.cause(u)
	switch {
	case r.status == 0:
		l := s.bad("no response over HTTP: %s", webFailure(r.err)).hint("check that this is a web server")
		if errors.Is(r.err, context.DeadlineExceeded) {
			doc.report.noAnswer = true
			l.hint("if it is slow, set a --connect-timeout longer than %s. Check that it is a web server", kit.ShortTime(doc.connect))
		}
		doc.report.next(append(kit.PlainArgs("curl", "-v"), doc.names.URL(u.String()))...)
	case r.status >= 300 && r.status < 400:
		doc.redirected(s, r, u)
	case r.status == http.StatusForbidden && !c.Specific:
		doc.forbidden(ctx, s, r, u)
	case !c.Specific && (r.status == http.StatusBadRequest || r.status == http.StatusNotFound || r.status == http.StatusMethodNotAllowed || r.status < 300 && kind == "text/html"):
		doc.elsewhere(ctx, s, r, u)
	case r.status < 300 && r.stream != "":
		if errors.Is(r.err, context.DeadlineExceeded) {
			r.stream = "no response in the event stream within " + kit.ShortTime(doc.connect)
			doc.report.noAnswer = true
		}
		l := s.bad("%s", safe.Clip(r.stream, 200)).hint("send each message as an event: a line data: MESSAGE, and an empty line; or as application/json")
		if doc.report.noAnswer && !r.events {
			l.hint("the stream opens, and no event comes: mcpwire does not know why. See the server's log for what it waits for")
		}
	case c.Known:
		if r.status == http.StatusProxyAuthRequired {
			doc.report.worse(exit.Auth)
		}
		what := safe.Clip(c.What, 240)
		if status := fmt.Sprintf("HTTP %d", r.status); !strings.Contains(what, status) {
			what = status + ": " + what
		}
		if text := r.said(); !c.Specific && text != "" {
			what += ": it says: " + text
		}
		if who := r.response(u).Who(); !c.Specific && who.Known {
			what += ": " + safe.Clip(who.What, 200)
		}
		s.bad("%s", what).detail(bodyLines(r)...).hint("%s", safe.Line(c.Fix))
		doc.report.nextOnce("after fixing that", doc.mcpwire("doctor")...)
	case r.message != nil && r.message.Kind == jsonrpc.KindError:
		s.bad("HTTP %d, it refuses the handshake with error %d %s", r.status, int(r.message.Err().Code), safe.Clip(r.message.Err().Message, 200)).
			hint("mcpwire does not know the remedy: the error should give the cause")
		doc.report.next(doc.mcpwire("send", "-v")...)
	default:
		what := fmt.Sprintf("HTTP %d, and no revision could be negotiated", r.status)
		if text := r.said(); text != "" {
			what += ": it says: " + text
		}
		s.bad("%s", what).detail(bodyLines(r)...).hint("mcpwire does not know why: the body, above, may say it")
		doc.report.next(doc.mcpwire("send", "-v")...)
	}
}

// cause returns the cause that the response itself gives.
func (r *webReply) cause(u *url.URL) cause.Cause { return r.response(u).Find() }

func (r *webReply) response(u *url.URL) *cause.Response {
	return &cause.Response{Status: r.status, Host: u.Host, Path: u.Path, Header: r.header.Get, Body: string(r.body[:min(len(r.body), 8<<10)])}
}

var (
	unseen = lazyregexp.New(`(?is)<(script|style)\b.*?</(script|style)>|<[^>]*>`)
	// plainStatus matches a body that says no more than its status.
	plainStatus = lazyregexp.New(`(?i)^(?:[\W\d]|error|http|not|allowed|forbidden|internal|server|bad|request|method|unauthorized|unavailable|service|gateway|nginx)*$`)
)

// said returns what a body says: the message in a JSON value, or the text of a page. It is "" if
// that is no more than the status.
func (r *webReply) said() string {
	var value any
	text := string(r.body[:min(len(r.body), 8<<10)])
	if json.Unmarshal(r.body, &value) == nil {
		text = messageIn(value, 0)
	}
	text = strings.Join(strings.Fields(html.UnescapeString(unseen().ReplaceAllString(text, " "))), " ")
	if plainStatus().MatchString(text) {
		return ""
	}
	return safe.Clip(text, 300)
}

// messageIn returns the message in a JSON value that reports an error.
func messageIn(value any, depth int) string {
	switch v := value.(type) {
	case string:
		return v
	case []any:
		var list []string
		for _, item := range v[:min(len(v), 4)] {
			if text := messageIn(item, depth+1); text != "" && depth < 4 {
				list = append(list, text)
			}
		}
		return strings.Join(list, "; ")
	case map[string]any:
		for _, name := range []string{"error_description", "message", "msg", "detail", "errors", "error", "title", "reason"} {
			if text := messageIn(v[name], depth+1); text != "" && depth < 4 {
				if place, ok := v["loc"].([]any); ok { // FastAPI
					text = strings.Trim(fmt.Sprint(place), "[]") + ": " + text
				}
				for _, more := range []string{"detail", "details", "hint", "data"} {
					if m, ok := v[more].(string); ok && m != "" && !strings.Contains(text, m) {
						text += ": " + m
					}
				}
				return text
			}
		}
	}
	return ""
}

// bodyLines returns the first lines of a body.
func bodyLines(r *webReply) []string {
	var lines []string
	for line := range strings.Lines(string(r.body[:min(len(r.body), 2000)])) {
		if line = strings.TrimSpace(line); line != "" && len(lines) < 3 {
			lines = append(lines, safe.Clip(line, 120))
		}
	}
	return lines
}

func (doc *doctor) redirected(s *doctorSection, r *webReply, u *url.URL) {
	where := r.header.Get("Location")
	target, err := u.Parse(where)
	if where == "" || err != nil {
		s.bad("HTTP %d, a redirect without a Location", r.status)
		return
	}
	c := r.cause(u)
	if c.Specific {
		s.bad("%s", safe.Clip(c.What, 240)).hint("%s", safe.Line(c.Fix))
		return // a page for people
	}
	s.bad("HTTP %d: the server is at %s", r.status, targets.SafeURL(target.String())).hint("%s", safe.Line(c.Fix))
	if strings.EqualFold(target.Scheme, "http") || strings.EqualFold(target.Scheme, "https") {
		doc.report.next(doc.elsewhereArgs(target.String(), "doctor")...)
	}
}

// guesses lists common paths of endpoints.
var guesses = []string{"/mcp", "/sse", "/", "/api/mcp", "/mcp/", "/v1/mcp"}

// elsewhere looks for the endpoint: as HTTP+SSE at the same URL, and at other paths.
func (doc *doctor) elsewhere(ctx context.Context, s *doctorSection, r *webReply, u *url.URL) {
	what := fmt.Sprintf("HTTP %d: no MCP endpoint at %s", r.status, safe.Line(u.Path))
	if r.status == http.StatusBadRequest {
		what = "HTTP 400, and no revision could be negotiated"
	}
	page := strings.HasPrefix(strings.ToLower(r.header.Get("Content-Type")), "text/html")
	if page {
		what = fmt.Sprintf("HTTP %d with a web page: %s is for people", r.status, safe.Line(u.Path))
	}
	if doc.oldTransport(ctx, u.String()) {
		s.good("this is an endpoint of HTTP+SSE, the transport of the first revision").hint("hosts that only know Streamable HTTP cannot use it")
		doc.report.exit, doc.report.cause = exit.OK, ""
		doc.oldHandshake(ctx, s, u)
		return
	}
	l := s.bad("%s", what)
	for _, path := range guesses {
		other := *u
		other.Path, other.RawPath = path, ""
		if path == u.Path || ctx.Err() != nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, min(doc.wait, maxGuess))
		found := doc.send(limited, &wireclient.Request{URL: other.String(), Body: targets.HandshakeRequest(mcp.LatestLegacyRevision)})
		cancel()
		if bytes.Equal(found.body, r.body) && found.status == r.status {
			continue // it responds so everywhere
		}
		if found.message != nil && found.status != http.StatusNotFound || found.status == http.StatusUnauthorized {
			l.hint("an endpoint is at %s", targets.SafeURL(other.String()))
			doc.report.next(doc.elsewhereArgs(other.String(), "doctor")...)
			return
		}
		if strings.HasSuffix(path, "/sse") && doc.oldTransport(ctx, other.String()) {
			l.hint("an HTTP+SSE endpoint is at %s", targets.SafeURL(other.String()))
			doc.report.next(doc.elsewhereArgs(other.String(), "info", "--transport", "sse")...)
			return
		}
	}
	who := r.response(u).Who()
	if text := r.said(); r.message != nil && r.message.Kind == jsonrpc.KindError {
		l.Text += fmt.Sprintf(": error %d %s", int(r.message.Err().Code), safe.Clip(r.message.Err().Message, 200))
	} else if text != "" {
		l.Text += ": it says: " + text
	}
	if who.Known {
		l.Text += ": " + safe.Clip(who.What, 200)
	}
	s.r.cause = l.Text
	l.detail(bodyLines(r)...)
	if page && r.status == http.StatusMethodNotAllowed {
		l.hint("a web site is at this URL, and no MCP endpoint at the usual paths: check the host, the port and the path, and whether the proxy forwards the path to the MCP server")
	} else {
		l.hint("tried %s too: see the server's documentation for its path", strings.Join(guesses, " "))
	}
	if who.Known {
		l.Hint = safe.Line(who.Fix) + "; " + l.Hint
	}
	doc.report.nextOnce("with the right URL", kit.PlainArgs("mcpwire", "doctor", "URL")...)
}

// oldHandshake makes a handshake over HTTP+SSE.
func (doc *doctor) oldHandshake(ctx context.Context, s *doctorSection, u *url.URL) {
	doc.report.status("handshake over HTTP+SSE")
	c, err := doc.d.Dial(ctx)
	status, isStatus := errors.AsType[*streamable.StatusError](err)
	switch {
	case err == nil:
		s.good("%v  %s: negotiated", c.Revision(), mcp.MethodInitialize)
		doc.report.speaks = c.Revision().String()
		_ = c.Close() // nothing was sent but the handshake
		doc.report.next(doc.mcpwire("info", "--transport", "sse")...)
	case isStatus:
		c := (&cause.Response{Status: status.StatusCode, Host: u.Host, Body: status.Text}).Find()
		if !c.Specific { // the status is not about this URL
			c = cause.Cause{What: status.Text}
			if status.StatusCode == http.StatusNotFound {
				c.Fix = "perhaps the path for messages, which the stream names, lacks the prefix of a proxy or of the application that mounts the server"
			}
		}
		doc.explain(s, fmt.Sprintf("the HTTP+SSE stream opens, and messages to the server get HTTP %d", status.StatusCode), c, true)
		doc.report.next(doc.mcpwire("info", "--transport", "sse")...)
	case ctx.Err() == nil:
		s.bad("the HTTP+SSE stream opens, and the handshake fails: %s", safe.Clip(kit.Innermost(err).Error(), 200)).hint("see the server's log")
	}
}

// oldTransport reports whether a GET opens an HTTP+SSE stream.
func (doc *doctor) oldTransport(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, min(doc.wait, maxGuess))
	defer cancel()
	r := doc.send(ctx, &wireclient.Request{Method: http.MethodGet, URL: address})
	return r.status == http.StatusOK && isEventStream(r.header) && r.err == nil && r.message == nil && len(r.body) > 0
}
