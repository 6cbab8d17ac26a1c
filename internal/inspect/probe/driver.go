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
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// A visit is a connection in one revision.
type driver struct {
	r          *run
	job        *job // nil for an observation
	conn       conn
	stdio      *stdioConn // nil over HTTP
	http       *httpConn  // nil over stdio
	rev        mcp.Revision
	negotiated bool // the server has agreed to the revision
	silent     bool // nothing came to the handshake
	// answered tells that something came to the handshake.
	answered       bool
	took           time.Duration // until the answer to the handshake; 0 without one
	alive          bool          // server/discover has no answer, but initialize beside it has
	sentInitialize bool          // initialize was sent beside server/discover, which the server knows
	capabilities   []byte
	firstEntries   map[string][]byte // the first entry of each list
	idCount        int

	// Of a revision that is not spoken: why, and what reports that as a finding.
	failure       error
	reportRefusal func()
}

// open opens a connection for a job, with a handshake if that is asked for.
func (r *run) open(ctx context.Context, j *job, rev mcp.Revision, handshake bool) (*driver, error) {
	v := &driver{r: r, job: j, rev: rev, firstEntries: map[string][]byte{}}
	if r.stdio() {
		p, err := openPipe(ctx, r, j)
		if err != nil {
			return nil, err
		}
		v.conn, v.stdio = p, p
	} else {
		v.http = newWeb(r, j, rev.Modern())
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

// initializeDelay is how long a server may take for server/discover before initialize is sent as well:
// one of the legacy era may not answer the first at all. It is also how long to wait for answers
// that need not come.
const initializeDelay = 5 * time.Second

// handshake finds out whether the server speaks the revision. The error is for servers that take nothing from us.
func (d *driver) handshake(ctx context.Context) error {
	var a reply
	if d.rev.Modern() {
		a = d.discover(ctx)
		supported := texts(elements(member(a.result, "supportedVersions"), maxPages))
		d.negotiated = a.succeeded() && slices.Contains(supported, d.rev.String())
		if d.negotiated {
			d.r.noteVersions(supported)
		}
	} else {
		a = d.send(ctx, outgoing{body: request(d.nextID(), mcp.MethodInitialize, d.r.initialize(d.rev.String())), id: d.lastID(), wait: d.r.connectTimeout(d.job)})
		d.negotiated = a.succeeded() && textOf(member(a.result, "protocolVersion")) == d.rev.String()
	}
	if a.state == timedOut {
		d.r.recorder.waive(a.requestEvent) // that no handshake succeeds says it
	}
	d.silent = a.state == timedOut && !d.alive
	d.answered = a.state == answered || d.alive
	if a.state == answered {
		d.took = a.took
		d.r.noteStart(a.took)
	}
	switch {
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden, a.status == http.StatusProxyAuthRequired:
		return &StatusError{a.status, a.header}
	case d.http != nil && a.state == disconnected && a.status == 0:
		return a.err
	case !d.negotiated:
		d.failure = d.refusalError(&a)
		d.reportRefusal = func() { d.report("no-handshake", &a, "%s", firstLine(d.failure)) }
		return nil
	}
	d.capabilities = member(a.result, "capabilities")
	if d.rev.Modern() {
		return nil
	}
	if d.http != nil {
		d.http.sessionHeader.Set("MCP-Protocol-Version", d.rev.String())
		if d.rev == rev20241105 || d.rev == rev20250326 {
			d.http.sessionHeader.Del("MCP-Protocol-Version")
		}
		if id := a.header.Get("Mcp-Session-Id"); id != "" {
			d.http.sessionHeader.Set("Mcp-Session-Id", id)
		}
	}
	d.notify(ctx, mcp.NotificationInitialized, nil)
	return nil
}

// firstLine is an error without the lines of standard error that may follow it.
func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "; last stderr lines:")
	return show(text)
}

// discover asks server/discover. A process that does not answer it soon is asked initialize as well:
// the answer to that tells a slow server from one that does not know the other.
func (d *driver) discover(ctx context.Context) reply {
	if d.stdio == nil {
		return d.call(ctx, mcp.MethodDiscover, object{}, func(q *outgoing) { q.wait = d.r.opts.Connect })
	}
	wait := d.r.connectTimeout(d.job)
	soon := min(initializeDelay, wait)
	if d.r.opts.Baseline != nil || d.r.supported() != nil {
		soon = wait
	}
	a := d.call(ctx, mcp.MethodDiscover, object{}, func(q *outgoing) { q.wait = soon })
	rest := wait - soon
	if a.state != timedOut || rest <= 0 {
		return a
	}
	first, second := d.lastID(), d.nextID()
	other := func(m *jsonrpc.Message) bool {
		return (m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError) && sameID(m.ID, []byte(second))
	}
	b := d.send(ctx, outgoing{body: request(second, mcp.MethodInitialize, d.r.initialize(mcp.LatestLegacyRevision.String())), id: first, stopAt: other, wait: rest})
	d.r.recorder.waive(b.requestEvent) // a server of the modern era does not know it
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
	return a // nothing came to it
}

// refusalError says why a revision is not spoken.
func (d *driver) refusalError(a *reply) error {
	method := mcp.MethodInitialize
	if d.rev.Modern() {
		method = mcp.MethodDiscover
	}
	switch {
	case a.succeeded():
		return fmt.Errorf("%s of %v is answered with another version", method, d.rev)
	case a.state == timedOut:
		return fmt.Errorf("%s of %v: no answer within %v: the server is slow, or waits for something", method, d.rev, d.r.opts.Connect)
	}
	if exit, ok := errors.AsType[*stdio.ExitError](a.err); ok {
		return fmt.Errorf("%s of %v: %w", method, d.rev, exit)
	}
	return fmt.Errorf("%s of %v: %s", method, d.rev, d.describeReply(a))
}

// nextID returns the next id, last the one before.
func (d *driver) nextID() string {
	d.idCount++
	return d.lastID()
}

func (d *driver) lastID() string { return strconv.Itoa(d.idCount) }

// params returns params with the metadata that the revision wants.
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

// call sends a request as it should be. tweaks change the question before that.
func (d *driver) call(ctx context.Context, method string, params object, tweaks ...func(*outgoing)) reply {
	q := outgoing{body: request(d.nextID(), method, d.params(params)), id: d.lastID()}
	for _, tweak := range tweaks {
		tweak(&q)
	}
	return d.send(ctx, q)
}

// notify sends a notification.
func (d *driver) notify(ctx context.Context, method string, params object) reply {
	return d.send(ctx, outgoing{body: notification(method, d.params(params))})
}

// send sends anything.
func (d *driver) send(ctx context.Context, q outgoing) reply {
	a := d.conn.send(ctx, q)
	d.r.noteReply(d.session(), &a)
	return a
}

// stillAnswers asks something harmless, and reports whether the server still answers.
func (d *driver) stillAnswers(ctx context.Context) (reply, bool) {
	method := mcp.MethodPing
	if d.rev.Modern() {
		method = mcp.MethodDiscover
	}
	a := d.call(ctx, method, nil)
	return a, a.state == answered
}

// has reports whether the server has declared a capability.
func (d *driver) has(capability string) bool { return member(d.capabilities, capability) != nil }

// report reports a finding of one of the package's rules, at an answer.
func (d *driver) report(id string, a *reply, format string, args ...any) {
	rule, ok := Lookup(prefix + id)
	if !ok {
		panic("probe: no rule " + id) // a programming error
	}
	d.reportRule(rule, a, format, args...)
}

// reportRule reports a finding of any rule.
func (d *driver) reportRule(rule *check.Rule, a *reply, format string, args ...any) {
	if errors.Is(a.err, context.Canceled) || errors.Is(a.err, context.DeadlineExceeded) {
		return // it is we who have ended the connection
	}
	if d.job != nil && slices.Contains(suspectRules, rule.ID) {
		d.job.suspect = true
	}
	f := check.Finding{
		Rule: rule, Event: a.event, Dir: a.dir, Session: d.session(), Exchange: a.exchange, ID: clip(string(a.id), maxShown),
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
	return d.http.session
}

// describeReply says in words what came back.
func (d *driver) describeReply(a *reply) string {
	text := ""
	switch {
	case a.state == timedOut:
		return "no answer in time"
	case a.state == disconnected && a.err != nil:
		text = "the connection ended: " + show(a.err.Error())
	case a.state == disconnected:
		text = "the connection ended"
	case a.rpcError != nil:
		text = fmt.Sprintf("error %d %s", a.rpcError.Code, show(a.rpcError.Message))
	case a.kind == jsonrpc.KindResponse:
		text = "a result"
	case len(a.body) > 0:
		text = "a body that is no message: " + show(a.body)
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

// outcomeText says what came back, as what a sentence says of the request.
func (d *driver) outcomeText(a *reply) string {
	switch a.state {
	case timedOut:
		return "has no answer in time"
	case disconnected:
		return "has no answer: " + d.describeReply(a)
	}
	return "is answered with " + d.describeReply(a)
}

// expectError holds the answer to what must fail against what is due: an error with one of the codes. taken is the rule for a result, "" if package check
// has one of its own.
func (d *driver) expectError(taken string, a *reply, about string, codes ...jsonrpc.Code) {
	switch {
	case d.connectionEnded(a, about):
	case a.succeeded():
		if taken != "" {
			d.report(taken, a, "%s is answered with a result", about)
		}
	case a.state == answered && a.rpcError != nil && !a.failed(codes...):
		d.report("error-code", a, "%s is answered with error %d, not %s", about, a.rpcError.Code, codesText(codes))
	case a.state == answered && a.rpcError == nil && a.status < 400:
		d.report("error-code", a, "%s %s, not with error %s", about, d.outcomeText(a), codesText(codes))
	}
}

func codesText(codes []jsonrpc.Code) string {
	text := ""
	for i, c := range codes {
		if i > 0 {
			text += " or "
		}
		text += strconv.Itoa(int(c))
	}
	return text
}

// connectionEnded reports whether there is nothing to judge but that the server has ended, or does not answer, which is a finding.
func (d *driver) connectionEnded(a *reply, about string) bool {
	switch {
	case errors.Is(a.err, context.Canceled), errors.Is(a.err, context.DeadlineExceeded):
	case a.state == disconnected:
		d.report("died", a, "%s: %s", about, d.describeReply(a))
	case a.state == timedOut:
		d.report("unanswered", a, "%s: no answer within %v", about, d.r.opts.Timeout)
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
	noSuchVersion      = "1999-12-31" // what no revision is called
	hostileOrigin      = "http://mcpwire-probe.invalid"
	hostileHost        = "mcpwire-probe.invalid"
)

// An object is the members of a JSON object. encoding/json sorts them, so that probes are the same each time.
type object = map[string]any

// encode returns JSON text. It is only called with what can be encoded.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("probe: " + err.Error()) // a programming error
	}
	return text
}

// request returns a request with an id that is JSON text.
func request(id, method string, params object) []byte {
	var text []byte
	if params != nil {
		text = encode(params)
	}
	return jsonrpc.AppendRequest(nil, jsonrpc.ID(id), method, text)
}

func notification(method string, params object) []byte {
	var text []byte
	if params != nil {
		text = encode(params)
	}
	return jsonrpc.AppendNotification(nil, method, text)
}

// implementation is how the probe calls itself.
func (r *run) implementation() object {
	return object{"name": r.opts.Client, "version": r.opts.Version}
}

// initialize are the parameters of a legacy handshake.
func (r *run) initialize(version string) object {
	return object{"protocolVersion": version, "capabilities": object{}, "clientInfo": r.implementation()}
}

// meta is the metadata of a modern request
// (https://modelcontextprotocol.io/specification/2026-07-28/basic#_meta).
func (r *run) meta(version string) object {
	return object{
		mcp.MetaProtocolVersion:    version,
		mcp.MetaClientCapabilities: object{},
		mcp.MetaClientInfo:         r.implementation(),
	}
}

// member returns the JSON text of a member of an object, or nil. The text must be valid JSON.
func member(text []byte, path ...string) []byte {
	for _, name := range path {
		if len(text) == 0 || text[0] != '{' {
			return nil
		}
		var found []byte
		for it := jsonwire.ObjectMembers(text); it.Next(); {
			if it.KeyIs(name) {
				found = it.Value()
				break
			}
		}
		if found == nil {
			return nil
		}
		text = bytes.TrimSpace(found)
	}
	return text
}

// elements are the elements of an array, at most limit.
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

// textOf is what a JSON string says; "" for anything else.
func textOf(raw []byte) string {
	var s string
	if len(raw) == 0 || raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

func texts(list [][]byte) []string {
	var all []string
	for _, raw := range list {
		all = append(all, textOf(raw))
	}
	return all
}

// metaText is a text in the metadata of a message.
func metaText(m *jsonrpc.Message, key string) string {
	return textOf(member(m.Params, "_meta", key))
}

// show quotes text of a peer for people: clipped, nothing in it that a terminal acts on.
func show[T ~string | ~[]byte](text T) string {
	s := strconv.QuoteToGraphic(clip(string(text[:min(len(text), 400)]), maxShown))
	return strings.Map(func(r rune) rune {
		if r != ' ' && !unicode.IsGraphic(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

const maxShown = 100 // characters of a peer's text in a finding

// clip cuts a text that is longer than n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// sameID reports whether two ids in JSON text are the same value: strings by what they say, and numbers by how they are written, since 9007199254740993
// and 9007199254740992 are the same to those who think in floating point.
func sameID(a, b []byte) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	if a[0] == '"' && b[0] == '"' {
		return jsonwire.UnquoteString(a) == jsonwire.UnquoteString(b)
	}
	return bytes.Equal(a, b)
}
