package interop

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// The rules that only HTTP has.
const (
	clientPost    rule = "client: a POST brings one message as JSON, and takes JSON and streams"
	clientHeaders rule = "client: headers repeat what the body says, and what was agreed on"
	clientSession rule = "client: sessions, GET and DELETE are of the legacy era, and go by what the server gave"
	clientLeaves  rule = "client: in the end, no request is left open"

	serverStatus  rule = "server: the status fits the answer"
	serverBody    rule = "server: an answer is JSON, or a stream that ends with it"
	serverStream  rule = "server: what a stream brings belongs there"
	serverEvents  rule = "server: ids of events are legacy, and unique"
	serverSession rule = "server: sessions are legacy, begin with initialize, and have visible ids"
)

// A talk is a session of a legacy host, or all that a modern host does.
type talk struct {
	*auditor
	session string
	ended   bool // by DELETE
	old     bool // by HTTP+SSE
	events  map[string]bool
}

// An asking has what the audit knows about an exchange.
type asking struct {
	*exchange
	talk     *talk
	message  *message // of the request; nil if it has none, or several
	requests []*message
	modern   bool
	answers  int
	hasIDs   bool
	late     bool // it arrived after the end of its session
}

// A webAuditor follows all that a host and a server say by HTTP.
type webAuditor struct {
	schemas *schemaSet
	talks   []*talk
	by      map[string]*talk // by session, or by where messages of HTTP+SSE are posted
	of      map[*exchange]*asking
}

// auditWeb is audit for a server that is reached over HTTP.
func (s *witnessed) auditWeb(processes int, known *knownDeviations) {
	s.t.Helper()
	w := s.web
	w.stop()
	if w.started != processes {
		s.t.Errorf("audit: the server was started %d times, want %d", w.started, processes)
	}
	a := &webAuditor{schemas: openSchemas(s.t)}
	for i, found := range append(a.run(w.moments), w.faults) {
		known.report(s.t, fmt.Sprintf("session %d", i+1), found)
	}
	known.report(s.t, "the whole", checkMoments(s.t, w.moments))
}

// run returns the violations of each talk.
func (a *webAuditor) run(moments []moment) (all [][]violation) {
	a.by, a.of = map[string]*talk{}, map[*exchange]*asking{}
	for _, m := range moments {
		switch x := a.of[m.x]; m.kind {
		case requested:
			a.requested(m.x)
		case responded:
			x.checkLate()
			a.responded(x)
		case spoke:
			a.spoke(x, m.said)
		case over:
			a.over(x)
		case left:
			a.left(x)
		case broke:
			x.checkLate()
			a.lost(x)
		}
	}
	for _, t := range a.talks {
		t.finish()
		all = append(all, t.found)
	}
	return all
}

// talkOf finds, or begins, the talk that a request belongs to.
func (a *webAuditor) talkOf(x *exchange, m *message) *talk {
	if t := a.by[x.header.Get("Mcp-Session-Id")]; t != nil {
		return t
	}
	if t := a.by[x.uri]; t != nil {
		return t
	}
	if n := len(a.talks); n > 0 {
		last := a.talks[n-1]
		again := m != nil && (m.Method == "initialize" && last.greeted || m.Method == "server/discover" && last.used[string(m.ID)])
		if !again && !(x.method == http.MethodGet && last.old) {
			return last
		}
	}
	t := &talk{auditor: newAuditor(), events: map[string]bool{}}
	t.lossy = true
	a.talks = append(a.talks, t)
	return t
}

func (a *webAuditor) requested(x *exchange) {
	m, err := parse(x.body)
	if err != nil {
		m = nil
	}
	t := a.talkOf(x, m)
	k := &asking{exchange: x, talk: t, message: m}
	a.of[x] = k
	if m != nil {
		k.modern = m.params.Meta.Revision != "" || m.isNotification() && !t.greeted
		if m.isRequest() {
			k.requests = []*message{m}
		}
	}
	k.checkSession()
	if x.method != http.MethodPost {
		return
	}
	k.checkPost()
	if m != nil {
		k.checkHeaders()
		if k.modern && m.Method == "notifications/cancelled" {
			t.violated(clientCancel, "over HTTP, a modern client closes the response instead: %s", m.raw)
		}
	}
	t.line(x.body, clientOutput, t.clientWrote, a.schemas)
}

// checkSession checks the session id that a client sends.
func (k *asking) checkSession() {
	t, given := k.talk, k.header.Values("Mcp-Session-Id")
	first := k.modern || k.message != nil && k.message.Method == "initialize"
	switch {
	case first && len(given) > 0:
		t.violated(clientSession, "#%d brings a session where there is none: %s", k.number, k.body)
	case !first && t.session != "" && !t.old && (len(given) != 1 || given[0] != t.session):
		t.violated(clientSession, "#%d %s is of the session %q, not %q", k.number, k.method, given, t.session)
	case t.session == "" && len(given) > 0:
		t.violated(clientSession, "#%d brings a session that nobody gave: %q", k.number, given)
	case t.ended && !first:
		k.late = true
	}
	if k.method == http.MethodPost {
		return
	}
	// The stream of HTTP+SSE comes before anything else.
	if !t.greeted && !(k.method == http.MethodGet && accepts(k.header, "text/event-stream")) || t.discovered {
		t.violated(clientSession, "#%d: a modern client sends no %s", k.number, k.method)
	}
	if k.method == http.MethodGet && !accepts(k.header, "text/event-stream") {
		t.violated(clientPost, "#%d: GET takes %q, and not streams", k.number, k.header["Accept"])
	}
}

// checkLate reports a request that arrived after the end of its session. A request that the client
// aborted is not reported: it was sent before the end, on another connection.
func (k *asking) checkLate() {
	if k.late {
		k.talk.violated(clientSession, "#%d %s comes after the end of the session", k.number, k.method)
	}
}

// accepts reports whether an Accept header names a type.
func accepts(h http.Header, kind string) bool {
	for _, part := range strings.Split(strings.Join(h["Accept"], ","), ",") {
		if got, _, err := mime.ParseMediaType(part); err == nil && got == kind {
			return true
		}
	}
	return false
}

func (k *asking) checkPost() {
	t := k.talk
	if kind, _, _ := mime.ParseMediaType(k.header.Get("Content-Type")); kind != "application/json" {
		t.violated(clientPost, "#%d: the body is %q", k.number, k.header["Content-Type"])
	}
	if !t.old && (!accepts(k.header, "application/json") || !accepts(k.header, "text/event-stream")) {
		t.violated(clientPost, "#%d: it takes %q", k.number, k.header["Accept"])
	}
	if k.header["Last-Event-Id"] != nil {
		t.violated(clientPost, "#%d: streams are resumed by GET", k.number)
	}
}

// namedBy are the params that Mcp-Name repeats, by method.
var namedBy = map[string]string{
	"tools/call": "name", "prompts/get": "name", "resources/read": "uri", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
}

func (k *asking) checkHeaders() {
	m, t := k.message, k.talk
	version := k.header.Values("Mcp-Protocol-Version")
	if !k.modern {
		if k.header["Mcp-Method"] == nil && (m.Method == "initialize" || t.old) {
			return
		}
		needed := t.revision >= "2025-06-18" && !t.old
		if needed && len(version) != 1 || len(version) > 0 && version[0] != t.revision {
			t.violated(clientHeaders, "#%d: the version is %q, and %s was agreed on", k.number, version, t.revision)
		}
		return
	}
	want := m.params.Meta.Revision
	if len(version) != 1 || want != "" && version[0] != want {
		t.violated(clientHeaders, "#%d: the version is %q: %s", k.number, version, m.raw)
	}
	if !m.isRequest() {
		return
	}
	if method := k.header.Values("Mcp-Method"); len(method) != 1 || method[0] != m.Method {
		t.violated(clientHeaders, "#%d: the method is %q: %s", k.number, method, m.raw)
	}
	name, names := k.header.Values("Mcp-Name"), namedBy[m.Method] != ""
	if want := m.param(namedBy[m.Method]); names && (len(name) != 1 || plainName(name[0]) != want) || !names && len(name) > 0 {
		t.violated(clientHeaders, "#%d: the name is %q: %s", k.number, name, m.raw)
	}
}

// param is one of the params, if it is text.
func (m *message) param(name string) string {
	var members map[string]any
	json.Unmarshal(m.Params, &members)
	text, _ := members[name].(string)
	return text
}

// plainName returns the decoded value of a header.
func plainName(value string) string {
	inner, marked := strings.CutPrefix(value, "=?base64?")
	if inner, ends := strings.CutSuffix(inner, "?="); marked && ends {
		text, err := base64.StdEncoding.Strict().DecodeString(inner)
		if err == nil {
			return string(text)
		}
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
		return "not decoded: " + value
	}
	return value
}

func (k *asking) isRequest() bool { return len(k.requests) > 0 || k.isBatch() }

// isBatch reports whether the body is an array. The audit does not check how a batch is answered.
func (k *asking) isBatch() bool { return len(k.body) > 0 && k.body[0] == '[' }

// refusals are the statuses that modern errors come with.
var refusals = map[int]int{-32601: http.StatusNotFound, -32020: http.StatusBadRequest, -32021: http.StatusBadRequest, -32022: http.StatusBadRequest}

// doubtful has the errors that say that a request was invalid, so that it may have been answered
// before it was parsed.
var doubtful = []int{-32600, -32602, -32700}
