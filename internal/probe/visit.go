package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/check"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// A visit is a connection in one revision.
type visit struct {
	r      *run
	job    *job // nil for an observation
	link   link
	pipe   *pipe // nil over HTTP
	web    *web  // nil over stdio
	rev    mcp.Revision
	spoken bool // the server has agreed to the revision
	mute   bool // nothing came to the handshake
	// answered tells that something came to the handshake.
	answered bool
	took     time.Duration // until the answer to the handshake; 0 without one
	alive    bool          // server/discover has no answer, but initialize beside it has
	late     bool          // initialize was sent beside server/discover, which the server knows
	caps     []byte
	lists    map[string][]byte // the first entry of each list
	next     int

	// Of a revision that is not spoken: why, and what reports that as a finding.
	failure error
	refusal func()
}

// open opens a connection for a job, with a handshake if that is asked for.
func (r *run) open(ctx context.Context, j *job, rev mcp.Revision, handshake bool) (*visit, error) {
	v := &visit{r: r, job: j, rev: rev, lists: map[string][]byte{}}
	if r.stdio() {
		p, err := openPipe(ctx, r, j)
		if err != nil {
			return nil, err
		}
		v.link, v.pipe = p, p
	} else {
		v.web = newWeb(r, j, rev.Modern())
		v.link = v.web
	}
	if !handshake {
		return v, nil
	}
	if err := v.handshake(ctx); err != nil {
		v.link.close()
		return nil, err
	}
	if v.spoken && v.late {
		v.link.close()
		return r.open(ctx, j, rev, true)
	}
	return v, nil
}

// probeWait is how long a server may take for server/discover before initialize is sent as well:
// one of the legacy era may not answer the first at all. It is also how long to wait for answers
// that need not come.
const probeWait = 5 * time.Second

// handshake finds out whether the server speaks the revision. The error is for servers that take nothing from us.
func (v *visit) handshake(ctx context.Context) error {
	var a answer
	if v.rev.Modern() {
		a = v.discover(ctx)
		supported := texts(elements(member(a.result, "supportedVersions"), maxPages))
		v.spoken = a.succeeded() && slices.Contains(supported, v.rev.String())
		if v.spoken {
			v.r.supports(supported)
		}
	} else {
		a = v.ask(ctx, question{body: request(v.id(), mcp.MethodInitialize, v.r.initialize(v.rev.String())), id: v.last(), wait: v.r.connectWait(v.job)})
		v.spoken = a.succeeded() && textOf(member(a.result, "protocolVersion")) == v.rev.String()
	}
	if a.fate == silent {
		v.r.journal.excuse(a.asked) // that no handshake succeeds says it
	}
	v.mute = a.fate == silent && !v.alive
	v.answered = a.fate == answered || v.alive
	if a.fate == answered {
		v.took = a.took
		v.r.tookStart(a.took)
	}
	switch {
	case a.status == http.StatusUnauthorized, a.status == http.StatusForbidden, a.status == http.StatusProxyAuthRequired:
		return &StatusError{a.status, a.header}
	case v.web != nil && a.fate == gone && a.status == 0:
		return a.err
	case !v.spoken:
		v.failure = v.unspoken(&a)
		v.refusal = func() { v.find("no-handshake", &a, "%s", firstLineOf(v.failure)) }
		return nil
	}
	v.caps = member(a.result, "capabilities")
	if v.rev.Modern() {
		return nil
	}
	if v.web != nil {
		v.web.sticky.Set("MCP-Protocol-Version", v.rev.String())
		if v.rev == r1 || v.rev == r2 {
			v.web.sticky.Del("MCP-Protocol-Version")
		}
		if id := a.header.Get("Mcp-Session-Id"); id != "" {
			v.web.sticky.Set("Mcp-Session-Id", id)
		}
	}
	v.tell(ctx, mcp.NotificationInitialized, nil)
	return nil
}

// firstLineOf is an error without the lines of standard error that may follow it.
func firstLineOf(err error) string {
	text, _, _ := strings.Cut(err.Error(), "; last stderr lines:")
	return show(text)
}

// discover asks server/discover. A process that does not answer it soon is asked initialize as well:
// the answer to that tells a slow server from one that does not know the other.
func (v *visit) discover(ctx context.Context) answer {
	if v.pipe == nil {
		return v.call(ctx, mcp.MethodDiscover, object{}, func(q *question) { q.wait = v.r.opts.Connect })
	}
	wait := v.r.connectWait(v.job)
	soon := min(probeWait, wait)
	if v.r.opts.Seen != nil || v.r.supported() != nil {
		soon = wait
	}
	a := v.call(ctx, mcp.MethodDiscover, object{}, func(q *question) { q.wait = soon })
	rest := wait - soon
	if a.fate != silent || rest <= 0 {
		return a
	}
	first, second := v.last(), v.id()
	other := func(m *jsonrpc.Message) bool {
		return (m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError) && sameID(m.ID, []byte(second))
	}
	b := v.ask(ctx, question{body: request(second, mcp.MethodInitialize, v.r.initialize(mcp.LatestLegacyRevision.String())), id: first, until: other, wait: rest})
	v.r.journal.excuse(b.asked) // a server of the modern era does not know it
	if v.alive = b.fate == stopped; v.alive {
		v.r.journal.excuse(b.at)
		v.r.tookStart(soon + b.took)
		if late := v.ask(ctx, question{id: first, listen: true, wait: afterthought}); late.fate == answered {
			b = late
		}
	}
	switch {
	case b.fate == answered:
		v.late = true
		b.asked, b.took = a.asked, soon+b.took
		return b
	case b.fate == gone:
		b.asked, b.at = a.asked, a.at
		return b
	}
	return a // nothing came to it
}

// unspoken says why a revision is not spoken.
func (v *visit) unspoken(a *answer) error {
	method := mcp.MethodInitialize
	if v.rev.Modern() {
		method = mcp.MethodDiscover
	}
	switch {
	case a.succeeded():
		return fmt.Errorf("%s of %v is answered with another version", method, v.rev)
	case a.fate == silent:
		return fmt.Errorf("%s of %v: no answer within %v: the server is slow, or waits for something", method, v.rev, v.r.opts.Connect)
	}
	if exit, ok := errors.AsType[*stdio.ExitError](a.err); ok {
		return fmt.Errorf("%s of %v: %w", method, v.rev, exit)
	}
	return fmt.Errorf("%s of %v: %s", method, v.rev, v.what(a))
}

// id returns the next id, last the one before.
func (v *visit) id() string {
	v.next++
	return v.last()
}

func (v *visit) last() string { return strconv.Itoa(v.next) }

// params returns params with the metadata that the revision wants.
func (v *visit) params(p object) object {
	if v.rev.Modern() {
		if p == nil {
			p = object{}
		}
		if _, has := p["_meta"]; !has {
			p["_meta"] = v.r.meta(v.rev.String())
		}
	}
	return p
}

// call sends a request as it should be. tweaks change the question before that.
func (v *visit) call(ctx context.Context, method string, params object, tweaks ...func(*question)) answer {
	q := question{body: request(v.id(), method, v.params(params)), id: v.last()}
	for _, tweak := range tweaks {
		tweak(&q)
	}
	return v.ask(ctx, q)
}

// tell sends a notification.
func (v *visit) tell(ctx context.Context, method string, params object) answer {
	return v.ask(ctx, question{body: notification(method, v.params(params))})
}

// ask sends anything.
func (v *visit) ask(ctx context.Context, q question) answer {
	a := v.link.ask(ctx, q)
	v.r.know(v.session(), &a)
	return a
}

// survives asks something harmless, and reports whether the server still answers.
func (v *visit) survives(ctx context.Context) (answer, bool) {
	method := mcp.MethodPing
	if v.rev.Modern() {
		method = mcp.MethodDiscover
	}
	a := v.call(ctx, method, nil)
	return a, a.fate == answered
}

// has reports whether the server has declared a capability.
func (v *visit) has(capability string) bool { return member(v.caps, capability) != nil }

// find reports a finding of one of the package's rules, at an answer.
func (v *visit) find(id string, a *answer, format string, args ...any) {
	rule, ok := Lookup(prefix + id)
	if !ok {
		panic("probe: no rule " + id) // a programming error
	}
	v.findRule(rule, a, format, args...)
}

// findRule reports a finding of any rule.
func (v *visit) findRule(rule *check.Rule, a *answer, format string, args ...any) {
	if errors.Is(a.err, context.Canceled) || errors.Is(a.err, context.DeadlineExceeded) {
		return // it is we who have ended the connection
	}
	if v.job != nil && slices.Contains(doubted, rule.ID) {
		v.job.doubtful = true
	}
	f := check.Finding{
		Rule: rule, Event: a.at, Dir: a.dir, Session: v.session(), Exchange: a.x, ID: clip(string(a.id), maxShown),
		Revision: v.rev, Message: fmt.Sprintf(format, args...),
	}
	if a.asked != a.at && a.asked != 0 {
		f.Related = []uint64{a.asked}
	}
	v.r.journal.report(f)
}

func (v *visit) session() uint64 {
	if v.pipe != nil {
		return v.pipe.session
	}
	return v.web.session
}

// what says in words what came back.
func (v *visit) what(a *answer) string {
	text := ""
	switch {
	case a.fate == silent:
		return "no answer in time"
	case a.fate == gone && a.err != nil:
		text = "the connection ended: " + show(a.err.Error())
	case a.fate == gone:
		text = "the connection ended"
	case a.rpc != nil:
		text = fmt.Sprintf("error %d %s", a.rpc.Code, show(a.rpc.Message))
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

// outcome says what came back, as what a sentence says of the request.
func (v *visit) outcome(a *answer) string {
	switch a.fate {
	case silent:
		return "has no answer in time"
	case gone:
		return "has no answer: " + v.what(a)
	}
	return "is answered with " + v.what(a)
}

// refused holds the answer to what must fail against what is due: an error with one of the codes. taken is the rule for a result, "" if package check
// has one of its own.
func (v *visit) refused(taken string, a *answer, about string, codes ...jsonrpc.Code) {
	switch {
	case v.ended(a, about):
	case a.succeeded():
		if taken != "" {
			v.find(taken, a, "%s is answered with a result", about)
		}
	case a.fate == answered && a.rpc != nil && !a.failed(codes...):
		v.find("error-code", a, "%s is answered with error %d, not %s", about, a.rpc.Code, codesText(codes))
	case a.fate == answered && a.rpc == nil && a.status < 400:
		v.find("error-code", a, "%s %s, not with error %s", about, v.outcome(a), codesText(codes))
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

// ended reports whether there is nothing to judge but that the server has ended, or does not answer, which is a finding.
func (v *visit) ended(a *answer, about string) bool {
	switch {
	case errors.Is(a.err, context.Canceled), errors.Is(a.err, context.DeadlineExceeded):
	case a.fate == gone:
		v.find("died", a, "%s: %s", about, v.what(a))
	case a.fate == silent:
		v.find("unanswered", a, "%s: no answer within %v", about, v.r.opts.Timeout)
	}
	return a.fate == gone || a.fate == silent
}
