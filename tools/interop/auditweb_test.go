package interop

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
)

// The rules of HTTP.
const (
	clientPost    rule = "client: a POST has one JSON message, and accepts JSON and streams"
	clientHeaders rule = "client: headers match the body and the negotiated revision"
	clientSession rule = "client: sessions, GET and DELETE only in the legacy era, with the session id of the server"
	clientOpen    rule = "client: no request is open at the end"

	serverStatus  rule = "server: the status matches the response"
	serverBody    rule = "server: a response is JSON, or a stream that ends with it"
	serverStream  rule = "server: a stream has only messages of its request"
	serverEvents  rule = "server: event ids only in the legacy era, and unique"
	serverSession rule = "server: sessions only in the legacy era, begun by initialize, with visible ids"
)

// A sessionAudit audits a session of a legacy host, or all requests of a modern host.
type sessionAudit struct {
	*auditor
	session string          // the id, or the URI of messages with HTTP+SSE
	ended   bool            // by DELETE
	sse     bool            // the transport is HTTP+SSE
	events  map[string]bool // ids of events
}

// An exchangeAudit audits an exchange.
type exchangeAudit struct {
	*exchange
	audit     *sessionAudit
	message   *message // of the request; nil if it has none, or several
	requests  []*message
	modern    bool
	responses int
	hasIDs    bool // events have ids
	late      bool // the request arrived after the end of its session
}

// A webAuditor audits the HTTP traffic between a host and a server.
type webAuditor struct {
	schemas   *schemaSet
	audits    []*sessionAudit
	bySession map[string]*sessionAudit // by session id, or by the URI of messages with HTTP+SSE
	exchanges map[*exchange]*exchangeAudit
}

// auditWeb is audit for a server that is reached over HTTP.
func (s *recordedServer) auditWeb(processes int, known *knownDeviations) {
	s.t.Helper()
	w := s.web
	w.stop()
	if w.started != processes {
		s.t.Errorf("audit: started processes = %d, want %d", w.started, processes)
	}
	a := &webAuditor{schemas: openSchemas(s.t)}
	for i, found := range append(a.run(w.httpEvents), w.faults) {
		known.report(s.t, fmt.Sprintf("session %d", i+1), found)
	}
	known.report(s.t, "all traffic", checkHTTPEvents(s.t, w.httpEvents))
}

// run returns the violations of each session.
func (a *webAuditor) run(httpEvents []httpEvent) (all [][]violation) {
	a.bySession, a.exchanges = map[string]*sessionAudit{}, map[*exchange]*exchangeAudit{}
	for _, m := range httpEvents {
		switch x := a.exchanges[m.x]; m.kind {
		case requested:
			a.checkRequest(m.x)
		case responded:
			x.checkLate()
			a.checkResponse(x)
		case payloadSent:
			a.checkPayload(x, m.payload)
		case completed:
			x.checkEnd()
		case hostClosed:
			x.hostClosed()
		case serverClosed:
			x.checkLate()
			x.serverClosed()
		}
	}
	for _, t := range a.audits {
		t.finish()
		all = append(all, t.found)
	}
	return all
}

// auditOf returns the audit of the session that a request belongs to, or begins one.
func (a *webAuditor) auditOf(x *exchange, m *message) *sessionAudit {
	if t := a.bySession[x.header.Get("Mcp-Session-Id")]; t != nil {
		return t
	}
	if t := a.bySession[x.uri]; t != nil {
		return t
	}
	if n := len(a.audits); n > 0 {
		last := a.audits[n-1]
		begins := m != nil && (m.Method == "initialize" && last.initSent || m.Method == "server/discover" && last.clientIDs[string(m.ID)])
		if !begins && !(x.method == http.MethodGet && last.sse) {
			return last
		}
	}
	t := &sessionAudit{auditor: newAuditor(), events: map[string]bool{}}
	t.lossy = true
	a.audits = append(a.audits, t)
	return t
}

// checkRequest checks a request.
func (a *webAuditor) checkRequest(x *exchange) {
	m, err := parse(x.body)
	if err != nil {
		m = nil
	}
	t := a.auditOf(x, m)
	k := &exchangeAudit{exchange: x, audit: t, message: m}
	a.exchanges[x] = k
	if m != nil {
		k.modern = m.params.Meta.Revision != "" || m.isNotification() && !t.initSent
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
			t.violated(clientCancel, "cancellation over HTTP, where a modern client closes the response: %s", m.raw)
		}
	}
	t.line(x.body, clientOutput, t.clientMessage, a.schemas)
}

// checkSession checks the session id that a client sends.
func (k *exchangeAudit) checkSession() {
	t, given := k.audit, k.header.Values("Mcp-Session-Id")
	first := k.modern || k.message != nil && k.message.Method == "initialize"
	switch {
	case first && len(given) > 0:
		t.violated(clientSession, "#%d: session id in a request outside a session: %s", k.number, k.body)
	case !first && t.session != "" && !t.sse && (len(given) != 1 || given[0] != t.session):
		t.violated(clientSession, "#%d: %s with the session id %q, want %q", k.number, k.method, given, t.session)
	case t.session == "" && len(given) > 0:
		t.violated(clientSession, "#%d: session id that the server did not send: %q", k.number, given)
	case t.ended && !first:
		k.late = true
	}
	if k.method == http.MethodPost {
		return
	}
	// With HTTP+SSE, the first request is the GET of the stream.
	if !t.initSent && !(k.method == http.MethodGet && accepts(k.header, "text/event-stream")) || t.modernResults {
		t.violated(clientSession, "#%d: %s of a modern client", k.number, k.method)
	}
	if k.method == http.MethodGet && !accepts(k.header, "text/event-stream") {
		t.violated(clientPost, "#%d: GET accepts %q, want text/event-stream", k.number, k.header["Accept"])
	}
}

// checkLate reports a request that arrived after the end of its session. A request that the client
// aborted is not reported: it was sent before the end, on another connection.
func (k *exchangeAudit) checkLate() {
	if k.late {
		k.audit.violated(clientSession, "#%d: %s after the end of the session", k.number, k.method)
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

func (k *exchangeAudit) checkPost() {
	t := k.audit
	if kind, _, _ := mime.ParseMediaType(k.header.Get("Content-Type")); kind != "application/json" {
		t.violated(clientPost, "#%d: content type = %q, want application/json", k.number, k.header["Content-Type"])
	}
	if !t.sse && (!accepts(k.header, "application/json") || !accepts(k.header, "text/event-stream")) {
		t.violated(clientPost, "#%d: POST accepts %q, want application/json and text/event-stream", k.number, k.header["Accept"])
	}
	if k.header["Last-Event-Id"] != nil {
		t.violated(clientPost, "#%d: Last-Event-Id in a POST, want it in a GET", k.number)
	}
}

// namedBy has the member of the params that Mcp-Name repeats, by method.
var namedBy = map[string]string{
	"tools/call": "name", "prompts/get": "name", "resources/read": "uri", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId",
}

func (k *exchangeAudit) checkHeaders() {
	m, t := k.message, k.audit
	version := k.header.Values("Mcp-Protocol-Version")
	if !k.modern {
		if k.header["Mcp-Method"] == nil && (m.Method == "initialize" || t.sse) {
			return
		}
		needed := t.revision >= "2025-06-18" && !t.sse
		if needed && len(version) != 1 || len(version) > 0 && version[0] != t.revision {
			t.violated(clientHeaders, "#%d: Mcp-Protocol-Version = %q, want %s", k.number, version, t.revision)
		}
		return
	}
	want := m.params.Meta.Revision
	if len(version) != 1 || want != "" && version[0] != want {
		t.violated(clientHeaders, "#%d: Mcp-Protocol-Version = %q: %s", k.number, version, m.raw)
	}
	if !m.isRequest() {
		return
	}
	if method := k.header.Values("Mcp-Method"); len(method) != 1 || method[0] != m.Method {
		t.violated(clientHeaders, "#%d: Mcp-Method = %q: %s", k.number, method, m.raw)
	}
	name, names := k.header.Values("Mcp-Name"), namedBy[m.Method] != ""
	if want := m.param(namedBy[m.Method]); names && (len(name) != 1 || decodeName(name[0]) != want) || !names && len(name) > 0 {
		t.violated(clientHeaders, "#%d: Mcp-Name = %q: %s", k.number, name, m.raw)
	}
}

// param returns a member of the params, or "" if it is not a string.
func (m *message) param(name string) string {
	var members map[string]any
	json.Unmarshal(m.Params, &members)
	text, _ := members[name].(string)
	return text
}

// decodeName returns the decoded value of Mcp-Name.
func decodeName(value string) string {
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

func (k *exchangeAudit) isRequest() bool { return len(k.requests) > 0 || k.isBatch() }

// isBatch reports whether the body is an array. The audit does not check the responses to batches.
func (k *exchangeAudit) isBatch() bool { return len(k.body) > 0 && k.body[0] == '[' }

// errorStatus has the statuses of modern errors, by code.
var errorStatus = map[int]int{-32601: http.StatusNotFound, -32020: http.StatusBadRequest, -32021: http.StatusBadRequest, -32022: http.StatusBadRequest}

// invalidCodes are the codes of invalid requests. Such an error may have status 400, because the
// server may send it before it parses the request.
var invalidCodes = []int{-32600, -32602, -32700}
