package interop

import (
	"encoding/json"
	"mime"
	"net/http"
	"net/url"
	"slices"
)

// responded checks the beginning of a response.
func (a *webAuditor) responded(k *asking) {
	t := k.talk
	a.giveSession(k)
	kind, _, _ := mime.ParseMediaType(k.response.Get("Content-Type"))
	ok := k.status/100 == 2
	switch {
	case k.method == http.MethodGet:
		if ok && kind != "text/event-stream" {
			t.violated(serverBody, "#%d: GET is answered with %q", k.number, kind)
		}
		if t.old = t.old || ok && !t.greeted || k.uri == oldPath && ok; !ok && k.status != http.StatusMethodNotAllowed && k.status != http.StatusNotFound {
			t.violated(serverStatus, "#%d: GET is answered with %d", k.number, k.status)
		}
	case k.method == http.MethodDelete:
		if t.ended = t.ended || ok; ok {
			t.abandon()
		}
	case k.isRequest() && !t.old:
		if ok && (k.status != http.StatusOK || kind != "application/json" && kind != "text/event-stream") {
			t.violated(serverBody, "#%d: a request is answered with %d and %q", k.number, k.status, kind)
		}
		if k.modern && kind == "text/event-stream" && k.response.Get("X-Accel-Buffering") != "no" {
			t.violated(serverBody, "#%d: proxies are not told to pass the stream on", k.number)
		}
	case !k.isRequest():
		if ok && k.status != http.StatusAccepted {
			t.violated(serverStatus, "#%d: what needs no answer is answered with %d", k.number, k.status)
		}
	}
	if !ok && kind == "text/event-stream" {
		t.violated(serverBody, "#%d: a stream with status %d", k.number, k.status)
	}
}

// giveSession records the session id of a response.
func (a *webAuditor) giveSession(k *asking) {
	t, given := k.talk, k.response.Values("Mcp-Session-Id")
	if len(given) == 0 {
		return
	}
	begins := k.message != nil && k.message.Method == "initialize"
	if k.modern || len(given) > 1 || !begins && given[0] != t.session || given[0] == "" || begins && a.by[given[0]] != nil {
		t.violated(serverSession, "#%d: a session begins where there can be none: %q", k.number, given)
	}
	for _, r := range given[0] {
		if r <= ' ' || r > '~' {
			t.violated(serverSession, "#%d: the id %q cannot be seen", k.number, given)
		}
	}
	if begins {
		t.session = given[0]
		a.by[t.session] = t
	}
}

// spoke checks the messages of a response.
func (a *webAuditor) spoke(k *asking, s said) {
	t := k.talk
	if k.streams() {
		k.checkEvent(s)
	}
	if k.streams() && t.old && s.name == "endpoint" {
		if u, err := url.Parse(string(s.data)); err == nil {
			t.session = u.RequestURI()
			a.by[t.session] = t
		}
		return
	}
	if len(s.data) == 0 || s.name != "" && s.name != "message" {
		return
	}
	m, err := parse(s.data)
	switch {
	case k.status/100 != 2 && (err != nil || m.Error == nil):
		k.refused()
		return
	case k.status/100 != 2 && !k.isRequest(), k.method == http.MethodDelete:
		return
	case !k.isRequest() && !k.streams() && !t.old:
		t.violated(serverBody, "#%d: what needs no answer has one: %.200q", k.number, s.data)
		return
	case !k.isRequest() && !k.streams(), t.old && !k.streams():
		return
	}
	if err == nil {
		if m = k.named(m); k.method == http.MethodPost {
			k.belongs(m)
		} else if !t.old && (m.Result != nil || m.Error != nil) && k.header["Last-Event-Id"] == nil {
			t.violated(serverStream, "#%d: an answer comes on a stream that is for none: %s", k.number, m.raw)
		}
		t.line(m.raw, serverOutput, t.serverWrote, a.schemas)
		return
	}
	k.answers++ // the entries of a batch
	t.line(s.data, serverOutput, t.serverWrote, a.schemas)
}

// named adds the id of the request to an error that comes with a failure status, where the id is
// optional.
func (k *asking) named(m *message) *message {
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

func (k *asking) checkEvent(s said) {
	t := k.talk
	if k.answers > 0 && !k.isBatch() {
		t.violated(serverBody, "#%d: after the answer comes %.200q", k.number, s.data)
	}
	if k.modern && (s.hasID || s.retry) {
		t.violated(serverEvents, "#%d: a modern event has %q", k.number, s.id)
	}
	if s.hasID {
		k.hasIDs = true
		if t.events[s.id] && k.header["Last-Event-Id"] == nil {
			t.violated(serverEvents, "#%d: the id %q again", k.number, s.id)
		}
		t.events[s.id] = true
	}
}

// belongs checks that a message may come in answer to the request.
func (k *asking) belongs(m *message) {
	t := k.talk
	if m.Result != nil || m.Error != nil {
		k.answers++
		if !slices.ContainsFunc(k.requests, func(r *message) bool { return string(r.ID) == string(m.ID) }) && !k.isBatch() {
			t.violated(serverStream, "#%d: an answer to another request: %s", k.number, m.raw)
		}
		k.checkStatus(m)
		return
	}
	if !k.streams() {
		t.violated(serverBody, "#%d: it is no answer: %s", k.number, m.raw)
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
			t.violated(serverStream, "#%d: the request asked for no log: %s", k.number, m.raw)
		}
	default:
		if string(m.params.Meta.Subscription) != string(k.requests[0].ID) {
			t.violated(serverStream, "#%d: it is not of the subscription: %s", k.number, m.raw)
		}
	}
}

// checkStatus holds the status against the answer.
func (k *asking) checkStatus(m *message) {
	if m.Error == nil || m.Error.Code == nil {
		if k.status != http.StatusOK {
			k.talk.violated(serverStatus, "#%d: a result with %d: %s", k.number, k.status, m.raw)
		}
		return
	}
	if !k.modern {
		return
	}
	code := *m.Error.Code
	want := http.StatusOK
	if status, ok := refusals[code]; ok {
		want = status
	}
	// A legacy server chooses its own error for unknown requests.
	unknown := !k.talk.discovered && k.status/100 == 4
	if k.status != want && !unknown && !(k.status == http.StatusBadRequest && slices.Contains(doubtful, code)) {
		k.talk.violated(serverStatus, "#%d: an error with %d: %s", k.number, k.status, m.raw)
	}
}

// over checks the end of a response.
func (a *webAuditor) over(k *asking) {
	t := k.talk
	switch {
	case t.old || !k.isRequest():
	case k.status/100 != 2:
		k.refused()
	case k.answers == 0 && k.cancelled():
		k.refused()
	case k.answers == 0 && !(k.hasIDs && t.revision >= latestLegacy):
		t.violated(serverBody, "#%d: the response ends without an answer to %s", k.number, k.body)
		k.refused()
	}
}

// cancelled reports whether the client has cancelled the request. Then it need
// not be answered, nor can it be in the legacy era.
func (k *asking) cancelled() bool {
	for _, m := range k.requests {
		if p := k.talk.open[string(m.ID)]; p == nil || !p.cancelled {
			return false
		}
	}
	return len(k.requests) > 0
}

// refused records that a request gets no JSON-RPC response.
func (k *asking) refused() {
	for _, m := range k.requests {
		delete(k.talk.open, string(m.ID))
		delete(k.talk.listens, string(m.ID))
		if m.Method == "initialize" && k.status/100 != 2 { // it may come again, by HTTP+SSE
			k.talk.greeted = false
			delete(k.talk.used, string(m.ID))
		}
	}
}

// left records that the client closed the stream. In the modern era
// that is how requests are cancelled; in the legacy one the answer may be lost.
func (a *webAuditor) left(k *asking) {
	t := k.talk
	if t.old && k.method == http.MethodGet {
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

// abandon records that the client no longer wants a response.
func (t *talk) abandon() {
	for _, p := range t.open {
		p.abandoned = true
	}
}

// lost takes note that the server ended in the middle.
func (a *webAuditor) lost(k *asking) {
	k.refused()
	if k.talk.session != "" || k.talk.old {
		clear(k.talk.open) // with it, all that it knew
		clear(k.talk.openToClient)
	}
}
