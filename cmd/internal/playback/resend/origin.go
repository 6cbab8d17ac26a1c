package resend

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/printable"
	"mcpwire/internal/trace/httphead"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An Origin has the data to start a new instance of a server and to begin a session like the
// recorded one. It is plain data: callers may change it.
type Origin struct {
	// Capture is the id of the capture.
	Capture string
	// Event is the number of the event with the message.
	Event uint64
	// Name is the server's name in the capture.
	Name string

	Transport capture.Transport
	// Command is the program and its arguments. nil means unknown.
	Command []string
	// Dir is the working directory. Empty means that of this process.
	Dir string
	// Gateway reports that the message went to a gateway with several servers. Command is nil then.
	Gateway bool
	// HeaderFraming frames messages with a Content-Length header instead of a line end.
	HeaderFraming bool
	// URL is the URL for messages or, for [capture.TransportSSE], of the stream. Empty means
	// unknown.
	URL string

	// Modern reports that the session began without a handshake. Revision is the negotiated or
	// requested revision, or that of the requests. Empty means unknown.
	Modern   bool
	Revision string
	// Initialize is the request that began a legacy session. nil means that the capture has none;
	// Run creates one then.
	Initialize []byte
	// StandingStream reports that the client had opened a standing stream by GET.
	StandingStream bool
	// Params has the arguments that headers repeat, by tool name.
	Params map[string][]mcp.HeaderParam

	// Redacted lists the hidden places of the recorded message, as JSON pointers into it.
	// MoreRedacted counts further ones.
	Redacted     []string
	MoreRedacted int
}

// Target returns the command or URL in one line, safe for terminals.
func (o *Origin) Target() string {
	if o.Transport != capture.TransportStdio {
		return printable.Line(o.URL)
	}
	quoted := make([]string, len(o.Command))
	for i, a := range o.Command {
		if quoted[i] = printable.Line(a); a == "" || strings.ContainsAny(a, " \t\n'\"\\$`*?;&|<>()") {
			quoted[i] = "'" + strings.ReplaceAll(quoted[i], "'", `'\''`) + "'"
		}
	}
	return strings.Join(quoted, " ")
}

// Find reads a capture up to event n of a session. It returns the data to send the message again,
// and the message; the caller owns both. The events are those of one capture from its beginning.
// Use [capture.Event.Capture] to separate several captures in a file. Find keeps only the origin.
//
// The error wraps [ErrNotFound], [ErrNotMessage] or [ErrTruncated], or is that of events or of ctx.
// Only [Run] checks whether the server can be started.
func Find(ctx context.Context, events iter.Seq2[*capture.Event, error], session uint64, n uint64) (*Origin, []byte, error) {
	f := finder{session: session}
	for e, err := range events {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, nil, fmt.Errorf("resend: read the capture: %w", err)
		}
		if e.N == n && e.Kind != capture.KindHead && e.Kind != capture.KindGap {
			return f.origin(e)
		}
		if e.N > n {
			break
		}
		f.add(e)
	}
	return nil, nil, fmt.Errorf("resend: event %d: %w", n, ErrNotFound)
}

// FindFile is [Find] for a capture in a file, which may have several.
func FindFile(ctx context.Context, path, captureID string, session, n uint64) (*Origin, []byte, error) {
	r, err := capture.Open(path, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("resend: %w", err)
	}
	defer r.Close()
	return Find(ctx, func(yield func(*capture.Event, error) bool) {
		for e, err := range r.Events() {
			if (err != nil || e.Capture == captureID) && !yield(e, err) {
				return
			}
		}
	}, session, n)
}

// origin returns the origin of the message in e, and the message.
func (f *finder) origin(e *capture.Event) (*Origin, []byte, error) {
	fail := func(err error) (*Origin, []byte, error) {
		return nil, nil, fmt.Errorf("resend: event %d: %w", e.N, err)
	}
	switch {
	case e.Session != f.session:
		return fail(ErrNotFound)
	case e.Kind != capture.KindMessage && e.Kind != capture.KindInvalid, e.Dir != capture.ToServer:
		return fail(ErrNotMessage)
	case e.Cut:
		return fail(ErrTruncated)
	}
	message := slices.Clone(e.Data)
	o := &Origin{
		Capture: e.Capture, Event: e.N, Transport: f.transport(e), HeaderFraming: e.Framing == capture.FramingHeader,
		StandingStream: f.standingStream, Params: f.params, Redacted: RedactedBelow(e, "/msg"), MoreRedacted: e.RedactedMore,
	}
	if h := f.head; h != nil {
		o.Name = h.Name
	}
	if o.Transport == capture.TransportStdio {
		start := f.start
		if start == nil {
			start, o.Gateway = f.lastStart, e.Side == capture.Downstream && f.severalStarts
		}
		if start != nil && !o.Gateway {
			o.Command, o.Dir = start.Command, start.Dir
		}
	} else if f.head != nil {
		o.URL = httphead.TargetURL(f.head.URL, f.target(e))
	}
	f.setHandshake(o, e, message)
	return o, message, nil
}

// setHandshake sets how the session began.
func (f *finder) setHandshake(o *Origin, e *capture.Event, message []byte) {
	current := &f.handshake
	// The handshake came on a connection with another number, or the capture began after it.
	if current.request == nil && !f.modern {
		current = &f.lastHandshake
	}
	header := ""
	if q := f.requests[e.Exchange]; q != nil {
		header = q.version
	}
	rev, _ := mcp.ParseRevision(header)
	switch version := RevisionOf(message); {
	case version != "":
		o.Modern, o.Revision = true, version
	case f.handshake.request == nil && (f.modern || rev.Modern()):
		o.Modern, o.Revision = true, header
	case current.request != nil:
		o.Initialize, o.Revision = current.request, current.revision
	default:
		o.Revision = header
	}
}

// RedactedBelow returns the hidden places of a message, as pointers into it. prefix begins the
// pointers of the event to places in the message.
func RedactedBelow(e *capture.Event, prefix string) (list []string) {
	for _, p := range e.Redacted {
		if rest, ok := strings.CutPrefix(p, prefix); ok && (rest == "" || rest[0] == '/') {
			list = append(list, rest)
		} else if p == "/raw" || p == "/b64" {
			list = append(list, "")
		}
	}
	return list
}

// server returns the command or URL from the options or the capture.
func (o *Origin) server(opts *Options) (command []string, address *url.URL, err error) {
	if o.Transport == capture.TransportStdio {
		if command = opts.Command; len(command) == 0 {
			command = o.Command
		}
		if len(command) == 0 && o.Gateway {
			return nil, nil, ErrGateway
		}
		if len(command) == 0 {
			return nil, nil, fmt.Errorf("resend: %w: it has no command", ErrNoServer)
		}
		return command, nil, o.refuseRedacted("command", command)
	}
	raw := cmp.Or(opts.URL, o.URL)
	if raw == "" {
		return nil, nil, fmt.Errorf("resend: %w: it has no URL", ErrNoServer)
	}
	if err := o.refuseRedacted("URL", []string{raw}); err != nil {
		return nil, nil, err
	}
	u, err := url.Parse(raw)
	if err != nil {
		if outer, ok := errors.AsType[*url.Error](err); ok {
			err = outer.Err // without the URL, which may contain secrets
		}
		return nil, nil, fmt.Errorf("resend: %w: the URL: %w", ErrNoServer, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return nil, nil, fmt.Errorf("resend: %w: the URL is not an HTTP URL", ErrNoServer)
	}
	u.Fragment, u.RawFragment = "", ""
	return nil, u, nil
}

const (
	maxRequests   = 4096    // remembered pending HTTP exchanges
	maxInitialize = 1 << 20 // bytes of an initialize request
)

// A finder stores the context of the message to send again.
type finder struct {
	session uint64
	head    *capture.Head
	// start is the start of the session's process.
	start *capture.Start
	// lastStart is the last start of any session.
	lastStart *capture.Start
	// severalStarts reports that sessions have started different commands.
	severalStarts bool
	// handshake is that of the session.
	handshake handshake
	// lastHandshake is the last one of any session.
	lastHandshake handshake
	// modern reports that the session has modern requests.
	modern         bool
	standingStream bool
	// sseRequest opened the stream of HTTP+SSE.
	sseRequest *request
	requests   map[uint64]*request
	params     map[string][]mcp.HeaderParam
}

// A handshake is the beginning of a legacy session.
type handshake struct {
	request    []byte
	id         jsonrpc.ID
	revision   string
	session    uint64
	negotiated bool
}

// A request is the relevant part of an HTTP request's head.
type request struct {
	method, target, version string
}

// add notes an event before the message.
func (f *finder) add(e *capture.Event) {
	switch e.Kind {
	case capture.KindHead:
		*f = finder{session: f.session, head: e.Head} // another capture in the same file
	case capture.KindStart:
		if s := f.lastStart; s != nil && !slices.Equal(s.Command, e.Start.Command) {
			f.severalStarts = true
		}
		if f.lastStart = e.Start; e.Session == f.session {
			f.start = e.Start
		}
	case capture.KindRequest:
		f.request(e)
	case capture.KindResponse:
		if q := f.requests[e.Exchange]; q != nil && q.method == http.MethodGet && e.Response != nil && e.Response.Status == http.StatusOK {
			f.standingStream = true
		}
	case capture.KindEnd:
		delete(f.requests, e.Exchange)
	case capture.KindSSE:
		if e.Session == f.session && e.SSE != nil && e.SSE.Event == wireclient.EventEndpoint && f.sseRequest == nil {
			f.sseRequest = f.requests[e.Exchange]
		}
	case capture.KindMessage:
		if e.Dir == capture.ToServer {
			f.addClientMessage(e)
		} else {
			f.addServerMessage(e)
		}
	}
}

func (f *finder) request(e *capture.Event) {
	if e.Session != f.session || e.Request == nil {
		return
	}
	if f.requests == nil || len(f.requests) >= maxRequests {
		f.requests = map[uint64]*request{}
	}
	q := &request{method: e.Request.Method, target: strings.Clone(e.Request.URL)}
	for _, h := range e.Request.Headers {
		if strings.EqualFold(h.Name, wireclient.HeaderVersion) {
			q.version = strings.TrimSpace(h.Value)
		}
	}
	f.requests[e.Exchange] = q
}

func (f *finder) addClientMessage(e *capture.Event) {
	if e.Session == f.session && !f.modern && RevisionOf(e.Data) != "" {
		f.modern = true
	}
	if len(e.Data) > maxInitialize || e.Cut || !bytes.Contains(e.Data, []byte(mcp.MethodInitialize)) {
		return
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(e.Data, &m, 0) != nil || m.Kind != jsonrpc.KindRequest || string(m.Method) != mcp.MethodInitialize {
		return
	}
	h := handshake{request: bytes.Clone(e.Data), id: m.ID.Clone(), session: e.Session}
	if v, ok := m.Param("protocolVersion"); ok {
		h.revision = jsonwire.Text(v)
	}
	f.lastHandshake = h
	if e.Session == f.session {
		f.handshake = h
	}
}

func (f *finder) addServerMessage(e *capture.Event) {
	for _, h := range []*handshake{&f.handshake, &f.lastHandshake} {
		h.setRevision(e)
	}
	if !bytes.Contains(e.Data, []byte("x-mcp-header")) {
		return
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(e.Data, &m, 0) != nil || m.Kind != jsonrpc.KindResponse {
		return
	}
	f.params = wireclient.LearnParams(f.params, m.Result)
}

// setRevision stores the revision from the response to initialize.
func (h *handshake) setRevision(e *capture.Event) {
	if h.request == nil || h.negotiated || e.Session != h.session {
		return
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(e.Data, &m, 0) != nil || m.Kind != jsonrpc.KindResponse || !m.ID.Equal(h.id) {
		return
	}
	h.negotiated = true
	if v := jsonwire.Text(jsonwire.Lookup(m.Result, "protocolVersion")); v != "" {
		h.revision = v
	}
}

// transport returns the transport of the message in e.
func (f *finder) transport(e *capture.Event) capture.Transport {
	switch {
	case f.sseRequest != nil:
		return capture.TransportSSE
	case e.Exchange > 0, f.lastStart == nil && f.head != nil && f.head.Transport == capture.TransportHTTP:
		return capture.TransportHTTP
	}
	return capture.TransportStdio
}

// target returns the target of the HTTP request that leads to the server.
func (f *finder) target(e *capture.Event) string {
	if f.sseRequest != nil {
		return f.sseRequest.target
	}
	if q := f.requests[e.Exchange]; q != nil {
		return q.target
	}
	return ""
}

// SyntheticInitialize returns an initialize request for a session without a recorded one. It uses
// the revision, or the newest one with a handshake if that has none. tool is the name and version
// of the client. form declares support for form elicitation.
func SyntheticInitialize(revision, tool string, id jsonrpc.ID, form bool) []byte {
	r, ok := mcp.ParseRevision(revision)
	if !ok || r.Modern() {
		_, r = era.Newest(mcp.Revisions())
	}
	name, version, _ := strings.Cut(tool, " ")
	offer := era.ClientProfile{Info: mcp.Implementation{Name: name, Version: version}, Form: form}
	f := era.Of(r)
	capabilities, _ := offer.Capabilities(f)
	return jsonrpc.AppendRequest(nil, id, mcp.MethodInitialize, offer.AppendInitialize(nil, f, capabilities))
}
