package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"mcpwire/check"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// A driver runs steps on a connection in one revision.
type driver struct {
	r    *run
	job  *job
	conn conn
	// stdio is nil over HTTP.
	stdio *stdioConn
	// http is nil over stdio.
	http *httpConn
	rev  mcp.Revision
	// negotiated reports that the server accepted the revision.
	negotiated bool
	// silent reports that the handshake got no response at all.
	silent bool
	// answered reports that the handshake got a response.
	answered bool
	// handshakeTime is the time from the start of the process to the reply to the handshake, or to
	// the end of the wait for one.
	handshakeTime time.Duration
	// alive reports that initialize got a response although server/discover did not.
	alive bool
	// disturbed reports that the server responds to nothing after server/discover, but another
	// process of it responds to initialize.
	disturbed bool
	// sentInitialize reports that initialize was also sent, before the response to server/discover.
	sentInitialize bool
	// fallsBack reports that server/discover got an error after which a client sends initialize.
	fallsBack bool
	// first is the reply to the handshake.
	first reply
	// buffered reports that it came only after the server's input ended.
	buffered bool
	// usual reports that hosts send the requests of the current step.
	usual bool
	// stale reports that a request got no response in time, so that later steps need another
	// connection.
	stale bool
	// offered is the version in the response to the unknown version.
	offered      string
	capabilities []byte
	// firstEntries holds the first entry of each list.
	firstEntries map[string][]byte
	idCount      int

	// failure and reportRefusal are set if the server does not support the revision. reportRefusal
	// reports it as a finding.
	failure       error
	reportRefusal func()
}

func (r *run) open(ctx context.Context, j *job, rev mcp.Revision, handshake bool) (*driver, error) {
	v := &driver{r: r, job: j, rev: rev, firstEntries: map[string][]byte{}}
	if r.stdio() {
		p, err := openStdio(ctx, r, j)
		if err != nil {
			return nil, err
		}
		v.conn, v.stdio = p, p
	} else {
		v.http = newHTTPConn(r, j, rev.Modern())
		v.conn = v.http
	}
	if !handshake {
		return v, nil
	}
	if err := v.handshake(ctx); err != nil {
		v.conn.close()
		return nil, err
	}
	if v.negotiated && v.sentInitialize {
		v.conn.close()
		return r.open(ctx, j, rev, true)
	}
	return v, nil
}

// initializeDelay is how long a server may take for server/discover before initialize is also sent:
// a legacy server may never answer the first. It also limits waits for optional responses.
const initializeDelay = 5 * time.Second

// handshake determines whether the server supports the revision. It returns an error if the server
// rejects every request.
func (d *driver) handshake(ctx context.Context) error {
	var a reply
	if d.rev.Modern() {
		a = d.discover(ctx)
		supported := texts(elements(jsonwire.Lookup(a.result, "supportedVersions"), maxPages))
		d.negotiated = a.succeeded() && slices.Contains(supported, d.rev.String())
		if d.negotiated {
			d.r.serverVersions.Store(&supported)
		}
	} else {
		a = d.send(ctx, outgoing{body: request(d.nextID(), mcp.MethodInitialize, d.r.initialize(d.rev.String())), id: d.lastID(), wait: d.r.connectTimeout(d.job)})
		d.negotiated = a.succeeded() && jsonwire.Text(jsonwire.Lookup(a.result, "protocolVersion")) == d.rev.String()
	}
	if a.state == timedOut {
		// The rule about failed handshakes reports it.
		d.r.recorder.waive(a.requestEvent)
	}
	d.first = a
	if d.stdio != nil {
		d.handshakeTime = time.Since(d.stdio.started)
		if a.state == timedOut && !d.alive && !d.disturbed {
			d.handshakeTime = d.r.connectTimeout(d.job)
		}
	}
	d.silent = a.state == timedOut && !d.alive
	d.fallsBack = d.rev.Modern() && a.failed() && !a.failed(mcp.CodeHeaderMismatch, mcp.CodeMissingRequiredClientCapability, mcp.CodeUnsupportedProtocolVersion)
	if d.silent && d.stdio != nil && d.r.observes {
		d.awaitEnd(ctx)
	}
	d.answered = a.state == answered || d.alive
	if a.state == answered {
		d.r.noteStart(a.took)
	}
	switch {
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden, a.status == http.StatusProxyAuthRequired:
		return &StatusError{a.status, a.header}
	case d.http != nil && a.state == disconnected && a.status == 0:
		return a.err
	case !d.negotiated:
		d.failure = d.refusalError(&a)
		d.reportRefusal = func() { d.report("no-handshake", &a, "%s", errorText(d.failure)) }
		return nil
	}
	d.capabilities = jsonwire.Lookup(a.result, "capabilities")
	if d.rev.Modern() {
		return nil
	}
	if d.http != nil {
		version := ""
		if era.Of(d.rev).VersionHeader {
			version = d.rev.String()
		}
		d.http.BeginSession(a.header, version)
	}
	d.notify(ctx, mcp.NotificationInitialized, nil)
	return nil
}

// awaitEnd closes the input of a server that does not respond, because buffered output comes then.
func (d *driver) awaitEnd(ctx context.Context) {
	d.stdio.closeInput()
	b := d.send(ctx, outgoing{receiveOnly: true, stopAt: wireclient.IsAnswer, wait: maxExitTime})
	d.buffered = b.state == stoppedEarly
}

// errorText returns an error's text without the lines of standard error that may follow.
func errorText(err error) string {
	text, _, _ := strings.Cut(err.Error(), "; last stderr lines:")
	quoted := show(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// discover sends server/discover. If a process does not answer soon, it also sends initialize: the
// response distinguishes a slow server from one that ignores server/discover.
func (d *driver) discover(ctx context.Context) reply {
	if d.stdio == nil {
		return d.call(ctx, mcp.MethodDiscover, object{}, func(q *outgoing) { q.wait = d.r.opts.Connect })
	}
	wait := d.r.connectTimeout(d.job)
	soon := min(initializeDelay, wait)
	if d.r.supported() != nil {
		soon = wait
	}
	a := d.call(ctx, mcp.MethodDiscover, object{}, func(q *outgoing) { q.wait = soon })
	rest := wait - soon
	if a.state != timedOut || rest <= 0 {
		return a
	}
	first, second := d.lastID(), d.nextID()
	other := func(m *jsonrpc.Message) bool { return wireclient.IsAnswer(m) && m.ID.Equal(jsonrpc.ID(second)) }
	q := outgoing{body: request(second, mcp.MethodInitialize, d.r.initialize(mcp.LatestLegacyRevision.String())), id: first, stopAt: other, wait: min(rest, initializeDelay)}
	b := d.send(ctx, q)
	if rest -= initializeDelay; b.state == timedOut && rest > 0 && ctx.Err() == nil {
		requestEvent := b.requestEvent
		q.receiveOnly, q.wait = true, rest
		b, d.disturbed = d.awaitEither(ctx, q)
		b.requestEvent = requestEvent
		if d.disturbed {
			d.r.recorder.waive(requestEvent)
			d.report("unanswered", &a, "%s: no response, and none to initialize after it, which another process answers", mcp.MethodDiscover)
			return a
		}
	}
	// Modern servers do not know initialize.
	d.r.recorder.waive(b.requestEvent)
	if d.alive = b.state == stoppedEarly; d.alive {
		d.r.recorder.waive(b.event)
		d.r.noteStart(soon + b.took)
		if late := d.send(ctx, outgoing{id: first, receiveOnly: true, wait: lateReplyTimeout}); late.state == answered {
			b = late
		}
	}
	switch {
	case b.state == answered:
		d.sentInitialize = true
		b.requestEvent, b.took = a.requestEvent, soon+b.took
		return b
	case b.state == disconnected:
		b.requestEvent, b.event = a.requestEvent, a.event
		return b
	}
	// There was no response to either.
	return a
}

// awaitEither waits for the response to q, and sends initialize to another process meanwhile. It
// returns the reply, and reports whether the other process responded first.
func (d *driver) awaitEither(ctx context.Context, q outgoing) (a reply, other bool) {
	limited, cancel := context.WithTimeout(ctx, q.wait)
	defer cancel()
	answered := make(chan bool, 1)
	d.r.others.Go(func() {
		v, err := d.r.open(limited, d.job, mcp.LatestLegacyRevision, true)
		if err != nil {
			answered <- false
			return
		}
		if v.answered {
			cancel()
		}
		answered <- v.answered
		v.conn.close()
		d.r.recorder.discard([]uint64{v.session()}, "it shows whether server/discover disturbs the server")
	})
	a = d.send(limited, q)
	cancel()
	other = <-answered && a.state == disconnected && errors.Is(a.err, context.Canceled)
	if ended := a.state == disconnected && limited.Err() != nil && ctx.Err() == nil && (errors.Is(a.err, context.Canceled) || errors.Is(a.err, context.DeadlineExceeded)); ended {
		a.state, a.err = timedOut, nil
	}
	return a, other
}

func (d *driver) refusalError(a *reply) error {
	method := mcp.MethodInitialize
	if d.rev.Modern() {
		method = mcp.MethodDiscover
	}
	switch {
	case a.succeeded():
		return fmt.Errorf("the response to %s of %v names another version", method, d.rev)
	case a.state == timedOut:
		return fmt.Errorf("%s of %v: no response within %v: the server is slow, or waits for something", method, d.rev, d.r.opts.Connect)
	}
	if exit, ok := errors.AsType[*stdio.ExitError](a.err); ok {
		return fmt.Errorf("%s of %v: %w", method, d.rev, exit)
	}
	return fmt.Errorf("%s of %v: %s", method, d.rev, d.describeReply(a))
}

// nextID returns a new id, lastID the latest one.
func (d *driver) nextID() string {
	d.idCount++
	return d.lastID()
}

func (d *driver) lastID() string { return strconv.Itoa(d.idCount) }

// params adds the metadata that the revision requires.
func (d *driver) params(p object) object {
	if d.rev.Modern() {
		if p == nil {
			p = object{}
		}
		if _, has := p["_meta"]; !has {
			p["_meta"] = d.r.meta(d.rev.String())
		}
	}
	return p
}

// call sends a correct request, changed by tweaks.
func (d *driver) call(ctx context.Context, method string, params object, tweaks ...func(*outgoing)) reply {
	q := outgoing{body: request(d.nextID(), method, d.params(params)), id: d.lastID()}
	for _, tweak := range tweaks {
		tweak(&q)
	}
	return d.send(ctx, q)
}

func (d *driver) notify(ctx context.Context, method string, params object) {
	d.send(ctx, outgoing{body: notification(method, d.params(params))})
}

func (d *driver) send(ctx context.Context, q outgoing) reply {
	a := d.conn.send(ctx, q)
	d.r.noteReply(d.session(), &a)
	return a
}

// stillAnswers sends a harmless request and reports whether the server responds.
func (d *driver) stillAnswers(ctx context.Context) (reply, bool) {
	a := d.send(ctx, outgoing{body: d.harmlessRequest(d.nextID()), id: d.lastID()})
	return a, a.state == answered
}

func (d *driver) has(capability string) bool {
	return jsonwire.Lookup(d.capabilities, capability) != nil
}

// report reports a finding of a rule of this package about a reply. It panics if the rule does not
// exist.
func (d *driver) report(id string, a *reply, format string, args ...any) {
	rule, ok := Lookup(prefix + id)
	if !ok {
		panic("probe: no rule " + id)
	}
	d.reportRule(rule, a, format, args...)
}

// reportRule reports a finding of any rule.
func (d *driver) reportRule(rule *check.Rule, a *reply, format string, args ...any) {
	if errors.Is(a.err, context.Canceled) || errors.Is(a.err, context.DeadlineExceeded) {
		// The probe itself has ended the connection.
		return
	}
	if slices.Contains(suspectRules, rule.ID) {
		d.job.suspect = true
	}
	f := check.Finding{
		Rule: rule, Event: a.event, Dir: a.dir, Session: d.session(), Exchange: a.exchange, ID: clip.Characters(a.id, maxShown),
		Revision: d.rev, Message: fmt.Sprintf(format, args...),
	}
	if a.requestEvent != a.event && a.requestEvent != 0 {
		f.Related = []uint64{a.requestEvent}
	}
	d.r.recorder.report(f)
}

func (d *driver) session() uint64 {
	if d.stdio != nil {
		return d.stdio.session
	}
	return d.http.Session
}

func (d *driver) describeReply(a *reply) string {
	text := ""
	switch {
	case a.state == timedOut:
		return "no response in time"
	case a.state == disconnected && a.err != nil:
		text = "the connection ended: " + errorText(a.err)
	case a.state == disconnected:
		text = "the connection ended"
	case a.rpcError != nil:
		text = fmt.Sprintf("error %d %s", a.rpcError.Code, show(a.rpcError.Message))
	case a.kind == jsonrpc.KindResponse:
		text = "a result"
	case len(a.body) > 0:
		text = "a body that is not a message: " + show(a.body)
	}
	if a.status != 0 {
		status := fmt.Sprintf("HTTP status %d", a.status)
		if text == "" {
			return status
		}
		return status + ", " + text
	}
	return text
}

// outcomeText describes a reply as the predicate of a sentence about the request.
func (d *driver) outcomeText(a *reply) string {
	switch a.state {
	case timedOut:
		return "got no response in time"
	case disconnected:
		return "got no response: " + d.describeReply(a)
	}
	return "got " + d.describeReply(a)
}

// expectError reports a reply that is not an error with one of the codes. taken is the rule for a
// result, or "" if package check has a rule for it.
func (d *driver) expectError(taken string, a *reply, about string, codes ...jsonrpc.Code) {
	switch {
	case d.connectionEnded(a, about):
	case a.succeeded():
		if taken != "" {
			d.report(taken, a, "%s got a result", about)
		}
	case a.state == answered && a.rpcError != nil && !a.failed(codes...):
		d.report("error-code", a, "%s got error %d; want %s", about, a.rpcError.Code, codesText(codes))
	case a.state == answered && a.rpcError == nil && a.status < 400:
		d.report("error-code", a, "%s %s; want error %s", about, d.outcomeText(a), codesText(codes))
	}
}

func codesText(codes []jsonrpc.Code) string {
	var list []string
	for _, c := range codes {
		list = append(list, strconv.Itoa(int(c)))
	}
	return strings.Join(list, " or ")
}

// connectionEnded reports whether the connection ended or timed out, and reports a finding about
// that.
func (d *driver) connectionEnded(a *reply, about string) bool {
	switch {
	case errors.Is(a.err, context.Canceled), errors.Is(a.err, context.DeadlineExceeded):
	case a.state == disconnected:
		d.noteFailure(about, a)
		d.waiveEnd(a)
		d.report("died", a, "%s: %s", about, d.describeReply(a))
	case a.state == timedOut:
		d.stale = true
		d.noteFailure(about, a)
		d.report("unanswered", a, "%s: no response within %v", about, d.r.opts.Timeout)
	}
	return a.state == disconnected || a.state == timedOut
}

// Names that no server has.
const (
	noSuchTool         = "mcpwire-probe-no-such-tool-7f3a"
	noSuchPrompt       = "mcpwire-probe-no-such-prompt-7f3a"
	noSuchResource     = "mcpwire-probe://no-such-resource/7f3a"
	noSuchMethod       = "mcpwire/probe-no-such-method"
	noSuchNotification = "notifications/mcpwire/probe-no-such-notification"
	noSuchCursor       = "mcpwire-probe-no-such-cursor"
	noSuchVersion      = "1999-12-31" // not a revision
	hostileOrigin      = "http://mcpwire-probe.invalid"
	hostileHost        = "mcpwire-probe.invalid"
)

// An object holds the members of a JSON object. encoding/json sorts them, so that every probe sends
// the same bytes.
type object = map[string]any

// encode returns params as JSON text, or nil if there are none. It panics if they cannot be
// encoded.
func encode(params object) []byte {
	if params == nil {
		return nil
	}
	text, err := json.Marshal(params)
	if err != nil {
		panic("probe: " + err.Error())
	}
	return text
}

// request returns a request. id is JSON text.
func request(id, method string, params object) []byte {
	return jsonrpc.AppendRequest(nil, jsonrpc.ID(id), method, encode(params))
}

func notification(method string, params object) []byte {
	return jsonrpc.AppendNotification(nil, method, encode(params))
}

func (r *run) implementation() object {
	return object{"name": "mcpwire", "version": r.opts.Version}
}

func (r *run) initialize(version string) object {
	return object{"protocolVersion": version, "capabilities": object{}, "clientInfo": r.implementation()}
}

// meta returns the metadata of a modern request.
// Spec: https://modelcontextprotocol.io/specification/2026-07-28/basic#_meta
func (r *run) meta(version string) object {
	return object{
		mcp.MetaProtocolVersion:    version,
		mcp.MetaClientCapabilities: object{},
		mcp.MetaClientInfo:         r.implementation(),
	}
}

// elements returns at most limit elements of an array.
func elements(text []byte, limit int) [][]byte {
	if len(text) == 0 || text[0] != '[' {
		return nil
	}
	var list [][]byte
	for it := jsonwire.ArrayElements(text); len(list) < limit && it.Next(); {
		list = append(list, bytes.TrimSpace(it.Value()))
	}
	return list
}

func texts(list [][]byte) []string {
	var all []string
	for _, raw := range list {
		all = append(all, jsonwire.Text(raw))
	}
	return all
}

// show quotes and truncates a peer's text for display, and replaces what a terminal would act on.
func show[T ~string | ~[]byte](text T) string {
	s := strconv.QuoteToGraphic(clip.Characters(text, maxShown))
	return strings.Map(func(r rune) rune {
		if r != ' ' && !unicode.IsGraphic(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

const maxShown = 100 // characters of a peer's text
