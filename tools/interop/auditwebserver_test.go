package interop

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"slices"
)

// checkResponse checks the status and the headers of a response.
func (a *webAuditor) checkResponse(k *exchangeAudit) {
	t := k.audit
	a.recordSession(k)
	kind, _, _ := mime.ParseMediaType(k.response.Get("Content-Type"))
	ok := k.status/100 == 2
	switch {
	case k.method == http.MethodGet:
		if ok && kind != "text/event-stream" {
			t.violated(serverBody, "#%d: response to GET has content type %q", k.number, kind)
		}
		if t.sse = t.sse || ok && !t.initSent || k.uri == ssePath && ok; !ok && k.status != http.StatusMethodNotAllowed && k.status != http.StatusNotFound {
			t.violated(serverStatus, "#%d: response to GET has status %d", k.number, k.status)
		}
	case k.method == http.MethodDelete:
		if t.ended = t.ended || ok; ok {
			t.abandon()
		}
	case k.isRequest() && !t.sse:
		if ok && (k.status != http.StatusOK || kind != "application/json" && kind != "text/event-stream") {
			t.violated(serverBody, "#%d: response has status %d and content type %q", k.number, k.status, kind)
		}
		if k.modern && kind == "text/event-stream" && k.response.Get("X-Accel-Buffering") != "no" {
			t.violated(serverBody, "#%d: X-Accel-Buffering is missing, so proxies may buffer the stream", k.number)
		}
	case !k.isRequest():
		if ok && k.status != http.StatusAccepted {
			t.violated(serverStatus, "#%d: response to no request has status %d, want 202", k.number, k.status)
		}
	}
	if !ok && kind == "text/event-stream" {
		t.violated(serverBody, "#%d: stream with status %d", k.number, k.status)
	}
}

// recordSession records the session id of a response.
func (a *webAuditor) recordSession(k *exchangeAudit) {
	t, given := k.audit, k.response.Values("Mcp-Session-Id")
	if len(given) == 0 {
		return
	}
	begins := k.message != nil && k.message.Method == "initialize"
	if k.modern || len(given) > 1 || !begins && given[0] != t.session || given[0] == "" || begins && a.bySession[given[0]] != nil {
		t.violated(serverSession, "#%d: unexpected session id %q", k.number, given)
	}
	for _, r := range given[0] {
		if r <= ' ' || r > '~' {
			t.violated(serverSession, "#%d: session id %q has an invisible character", k.number, given)
		}
	}
	if begins {
		t.session = given[0]
		a.bySession[t.session] = t
	}
}

// checkPayload checks an event or a body of a response.
func (a *webAuditor) checkPayload(k *exchangeAudit, s payload) {
	t := k.audit
	if k.streams() {
		k.checkEvent(s)
	}
	if k.streams() && t.sse && s.name == "endpoint" {
		if u, err := url.Parse(string(s.data)); err == nil {
			t.session = u.RequestURI()
			a.bySession[t.session] = t
		}
		return
	}
	if len(s.data) == 0 || s.name != "" && s.name != "message" {
		return
	}
	m, err := parse(s.data)
	switch {
	case k.status/100 != 2 && (err != nil || m.Error == nil):
		k.dropRequests()
		return
	case k.status/100 != 2 && !k.isRequest(), k.method == http.MethodDelete:
		return
	case !k.isRequest() && !k.streams() && !t.sse:
		t.violated(serverBody, "#%d: response to no request has a body: %.200q", k.number, s.data)
		return
	case !k.isRequest() && !k.streams(), t.sse && !k.streams():
		return
	}
	if err == nil {
		if m = k.withRequestID(m); k.method == http.MethodPost {
			k.checkMessage(m)
		} else if !t.sse && (m.Result != nil || m.Error != nil) && k.header["Last-Event-Id"] == nil {
			t.violated(serverStream, "#%d: response on the stream of a GET: %s", k.number, m.raw)
		}
		t.line(m.raw, serverOutput, t.serverMessage, a.schemas)
		return
	}
	k.responses++ // the entries of a batch
	t.line(s.data, serverOutput, t.serverMessage, a.schemas)
}

// withRequestID adds the id of the request to an error with a failure status, where the id is
// optional.
func (k *exchangeAudit) withRequestID(m *message) *message {
	if k.status/100 == 2 || len(k.requests) != 1 || m.ID != nil && string(m.ID) != "null" {
		return m
	}
	text, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": k.requests[0].ID, "error": m.Error})
	if err != nil {
		return m
	}
	if m, err = parse(text); err != nil {
		return &message{}
	}
	return m
}

func (k *exchangeAudit) checkEvent(s payload) {
	t := k.audit
	if k.responses > 0 && !k.isBatch() {
		t.violated(serverBody, "#%d: event after the response: %.200q", k.number, s.data)
	}
	if k.modern && (s.hasID || s.retry) {
		t.violated(serverEvents, "#%d: modern event with id %q or retry", k.number, s.id)
	}
	if s.hasID {
		k.hasIDs = true
		if t.events[s.id] && k.header["Last-Event-Id"] == nil {
			t.violated(serverEvents, "#%d: repeated event id %q", k.number, s.id)
		}
		t.events[s.id] = true
	}
}

// checkMessage checks that the response to the request may contain a message.
func (k *exchangeAudit) checkMessage(m *message) {
	t := k.audit
	if m.Result != nil || m.Error != nil {
		k.responses++
		if !slices.ContainsFunc(k.requests, func(r *message) bool { return string(r.ID) == string(m.ID) }) && !k.isBatch() {
			t.violated(serverStream, "#%d: response to another request: %s", k.number, m.raw)
		}
		k.checkStatus(m)
		return
	}
	if !k.streams() {
		t.violated(serverBody, "#%d: body is not a response: %s", k.number, m.raw)
	}
	if !k.modern {
		return
	}
	want := k.requests[0].params.Meta
	switch m.Method {
	case "notifications/progress":
		if string(m.params.Token) != string(want.Token) {
			t.violated(serverStream, "#%d: progress of another request: %s", k.number, m.raw)
		}
	case "notifications/message":
		if want.LogLevel == "" {
			t.violated(serverStream, "#%d: log message without a requested level: %s", k.number, m.raw)
		}
	default:
		if string(m.params.Meta.Subscription) != string(k.requests[0].ID) {
			t.violated(serverStream, "#%d: notification without the id of the subscription: %s", k.number, m.raw)
		}
	}
}

// checkStatus checks that the status matches the response.
func (k *exchangeAudit) checkStatus(m *message) {
	if m.Error == nil || m.Error.Code == nil {
		if k.status != http.StatusOK {
			k.audit.violated(serverStatus, "#%d: result with status %d: %s", k.number, k.status, m.raw)
		}
		return
	}
	if !k.modern {
		return
	}
	code := *m.Error.Code
	want := http.StatusOK
	if status, ok := errorStatus[code]; ok {
		want = status
	}
	// A legacy server may send any error for unknown requests.
	unknown := !k.audit.modernResults && k.status/100 == 4
	if k.status != want && !unknown && !(k.status == http.StatusBadRequest && slices.Contains(invalidCodes, code)) {
		k.audit.violated(serverStatus, "#%d: error with status %d: %s", k.number, k.status, m.raw)
	}
}

// checkEnd checks the end of a response.
func (k *exchangeAudit) checkEnd() {
	t := k.audit
	switch {
	case t.sse || !k.isRequest():
	case k.status/100 != 2:
		k.dropRequests()
	case k.responses == 0 && k.cancelled():
		k.dropRequests()
	case k.responses == 0 && !(k.hasIDs && t.revision >= latestLegacy):
		t.violated(serverBody, "#%d: no response to %s", k.number, k.body)
		k.dropRequests()
	}
}

// cancelled reports whether the client has canceled the requests. Then they need no response, and
// get none in the legacy era.
func (k *exchangeAudit) cancelled() bool {
	for _, m := range k.requests {
		if p := k.audit.open[string(m.ID)]; p == nil || !p.cancelled {
			return false
		}
	}
	return len(k.requests) > 0
}

// dropRequests records that the requests get no JSON-RPC response.
func (k *exchangeAudit) dropRequests() {
	for _, m := range k.requests {
		delete(k.audit.open, string(m.ID))
		delete(k.audit.listens, string(m.ID))
		// The client may repeat initialize over HTTP+SSE.
		if m.Method == "initialize" && k.status/100 != 2 {
			k.audit.initSent = false
			delete(k.audit.clientIDs, string(m.ID))
		}
	}
}

// hostClosed records that the host closed the connection. That cancels requests in the modern era;
// in the legacy era their responses may be lost.
func (k *exchangeAudit) hostClosed() {
	t := k.audit
	if t.sse && k.method == http.MethodGet {
		t.abandon()
	}
	for _, m := range k.requests {
		if p := t.open[string(m.ID)]; p != nil {
			p.cancelled = p.cancelled || k.modern
			p.abandoned = true
		}
		if k.modern {
			delete(t.listens, string(m.ID))
		}
	}
}

// abandon records that pending requests need no response.
func (t *sessionAudit) abandon() {
	for _, p := range t.open {
		p.abandoned = true
	}
}

// serverClosed records that the server closed the connection. Its process has ended, and so have
// its sessions.
func (k *exchangeAudit) serverClosed() {
	k.dropRequests()
	if k.audit.session != "" || k.audit.sse {
		clear(k.audit.open)
		clear(k.audit.openToClient)
	}
}
