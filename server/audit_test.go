package server_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An auditor observes one connection and checks the server's messages against rules of the protocol
// that apply to any traffic. It checks the transcripts of all features, and has no knowledge of
// them.
type auditor struct {
	errorf      func(format string, args ...any)
	legacy      bool // the server supports no modern revision
	initialized bool // initialize has a response
	raw         bool // there is input that the auditor does not see

	open map[string][]*clientRequest // in order, by id
	own  map[string]bool             // true while there is no response
	subs map[string]*clientRequest   // pending subscriptions by id
	said int
}

func newAuditor(errorf func(format string, args ...any)) *auditor {
	return &auditor{errorf: errorf, open: map[string][]*clientRequest{}, own: map[string]bool{}, subs: map[string]*clientRequest{}}
}

// A clientRequest is a request of the client.
type clientRequest struct {
	method   string
	modern   bool
	token    string // progress token
	progress float64
	level    string // log level
	asked    map[string]json.RawMessage
	acked    bool
}

// A wireMessage is a JSON-RPC message.
type wireMessage struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  *string         `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// params are the members that the rules need.
type params struct {
	Meta          map[string]json.RawMessage `json:"_meta"`
	Notifications map[string]json.RawMessage `json:"notifications"`
	RequestID     json.RawMessage            `json:"requestId"`
	Token         json.RawMessage            `json:"progressToken"`
	Progress      float64                    `json:"progress"`
	Level         string                     `json:"level"`
}

func (s *wireMessage) params() params {
	var p params
	json.Unmarshal(s.Params, &p) // rules do not apply to malformed params
	return p
}

const (
	metaPrefix = "io.modelcontextprotocol/"
	subscribed = metaPrefix + "subscriptionId"
)

// observe checks a message, or each message of a batch.
func (a *auditor) observe(sent bool, text string) {
	members := []json.RawMessage{json.RawMessage(text)}
	if strings.HasPrefix(strings.TrimLeft(text, " "), "[") {
		if json.Unmarshal([]byte(text), &members) != nil && !sent {
			a.errorf("not JSON: %s", text)
		}
	}
	for _, member := range members {
		m := new(wireMessage)
		err := json.Unmarshal(member, m) // continues after a member of the wrong type
		switch {
		case sent: // the client may send anything
			a.sent(m)
		case err != nil || m.JSONRPC != "2.0" || strings.ContainsAny(string(member), "\r\n"):
			a.errorf("%v: %s", err, member)
		default:
			a.said++
			a.received(m, string(member))
		}
	}
}

func (a *auditor) sent(m *wireMessage) {
	method := ""
	if m.Method != nil {
		method = *m.Method
	}
	p := m.params()
	switch {
	// later messages for it violate the rules
	case m.ID == nil && method == mcp.NotificationCancelled:
		if list := a.open[string(p.RequestID)]; len(list) > 0 {
			a.open[string(p.RequestID)] = list[1:]
			delete(a.subs, string(p.RequestID))
		}
	case m.ID == nil:
	case a.own[string(m.ID)] && (m.Result != nil || m.Error != nil):
		a.own[string(m.ID)] = false
	default:
		sess := &clientRequest{method: method, token: string(p.Meta["progressToken"]), asked: p.Notifications}
		sess.modern = !a.legacy && p.Meta[metaPrefix+"protocolVersion"] != nil
		json.Unmarshal(p.Meta[metaPrefix+"logLevel"], &sess.level)
		a.open[string(m.ID)] = append(a.open[string(m.ID)], sess)
		if method == mcp.MethodSubscriptionsListen {
			a.subs[string(m.ID)] = sess
		}
	}
}

// received checks a message of the server.
func (a *auditor) received(m *wireMessage, text string) {
	kinds := 0
	for _, there := range []bool{m.Method != nil, m.Result != nil, m.Error != nil} {
		if there {
			kinds++
		}
	}
	if kinds != 1 {
		a.errorf("of method, result and error there must be one: %s", text)
	}
	switch {
	case m.Method == nil:
		a.answered(m, text)
	case m.ID != nil:
		a.requested(m, text)
	default:
		a.notified(m, text)
	}
}

// requested checks a request of the server.
func (a *auditor) requested(m *wireMessage, text string) {
	if !a.initialized {
		a.errorf("a request, though there was no handshake: %s", text)
	}
	if _, twice := a.own[string(m.ID)]; twice || !isIDOrToken(m.ID) {
		a.errorf("the id is of the wrong type, or serves twice: %s", text)
	}
	a.own[string(m.ID)] = true
	a.checkMeta(m.params().Meta, text)
}

var idOrToken = regexp.MustCompile(`^(".*"|-?\d+)$`)

func isIDOrToken(text []byte) bool { return idOrToken.Match(text) }

// answered checks a response.
func (a *auditor) answered(m *wireMessage, text string) {
	list := a.open[string(m.ID)]
	if string(m.ID) == "null" {
		m.ID = nil
	}
	sess := &clientRequest{}
	switch {
	case m.ID == nil && m.Error == nil:
		a.errorf("a result for nobody: %s", text)
	case m.ID != nil && len(list) == 0 && !a.raw:
		a.errorf("an answer to nothing, or to what was cancelled: %s", text)
	case len(list) > 0:
		// If the client uses an id twice, the second request is rejected while the first is
		// pending.
		i := 0
		if m.Error != nil {
			i = len(list) - 1
		}
		sess = list[i]
		a.open[string(m.ID)] = slices.Delete(slices.Clone(list), i, i+1)
	}
	delete(a.subs, string(m.ID))
	if m.Error != nil {
		a.failed(sess, m.Error, text)
		return
	}
	if sess.method == mcp.MethodInitialize {
		a.initialized = true
	}
	a.checkResult(sess, m.Result, text)
}

// cacheable are the methods whose results have caching hints.
var cacheable = []string{"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}

func (a *auditor) checkResult(sess *clientRequest, result json.RawMessage, text string) {
	var members map[string]json.RawMessage
	var known struct {
		Meta       map[string]json.RawMessage `json:"_meta"`
		ResultType *string
		TTLMS      *int64
		CacheScope string
	}
	if json.Unmarshal(result, &members) != nil || json.Unmarshal(result, &known) != nil {
		a.errorf("the result is no object, or not one of MCP: %s", text)
	}
	a.checkMeta(known.Meta, text)
	if !sess.modern {
		return
	}
	if known.ResultType == nil || *known.ResultType == "" {
		a.errorf("no resultType: %s", text)
	} else if *known.ResultType == "complete" && slices.Contains(cacheable, sess.method) {
		if known.TTLMS == nil || *known.TTLMS < 0 || known.CacheScope != "public" && known.CacheScope != "private" {
			a.errorf("no caching hints, or wrong ones: %s", text)
		}
		return
	}
	if members["ttlMs"] != nil && known.CacheScope != "" {
		a.errorf("caching hints where there are none: %s", text)
	}
}

// failed checks an error.
func (a *auditor) failed(sess *clientRequest, text json.RawMessage, all string) {
	var e struct {
		Code    *jsonrpc.Code
		Message *string
		Data    struct {
			Supported            []string
			Requested            *string
			RequiredCapabilities map[string]json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &e); err != nil || e.Code == nil || e.Message == nil {
		a.errorf("no error: %v: %s", err, all)
		return
	}
	switch code := *e.Code; {
	case code == mcp.CodeUnsupportedProtocolVersion:
		if len(e.Data.Supported) == 0 || e.Data.Requested == nil || slices.Contains(e.Data.Supported, *e.Data.Requested) {
			a.errorf("%d, but not for an unsupported version: %s", code, all)
		}
	case code == -32021:
		if len(e.Data.RequiredCapabilities) == 0 {
			a.errorf("%d, but not for a missing capability: %s", code, all)
		}
	case -32099 <= code && code <= -32020 && (sess.modern || !a.initialized):
		a.errorf("a reserved code: %s", all)
	case -32019 <= code && code <= -32000 && (sess.modern || !a.initialized):
		a.errorf("a code that is not to be used: %s", all)
	}
}

var metaKey = regexp.MustCompile(`^([A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z]([A-Za-z0-9-]*[A-Za-z0-9])?)*/)?([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$`)

func (a *auditor) checkMeta(meta map[string]json.RawMessage, text string) {
	for key := range meta {
		if !metaKey.MatchString(key) {
			a.errorf("%q is not a valid key of _meta: %s", key, text)
		}
	}
}

// filters maps each notification to the member of a subscription's filter that requests it.
var filters = map[string]string{
	"notifications/tools/list_changed":     "toolsListChanged",
	"notifications/prompts/list_changed":   "promptsListChanged",
	"notifications/resources/list_changed": "resourcesListChanged",
	"notifications/resources/updated":      "resourceSubscriptions",
	"notifications/tasks":                  "taskIds",
}

// notified checks a notification.
func (a *auditor) notified(m *wireMessage, text string) {
	p := m.params()
	a.checkMeta(p.Meta, text)
	sub, of := a.subs[string(p.Meta[subscribed])], p.Meta[subscribed] != nil
	if of && sub == nil {
		a.errorf("there is no such subscription: %s", text)
		return
	}
	filter, change := filters[*m.Method]
	switch method := *m.Method; {
	case method == mcp.NotificationAcknowledged:
		if !of || sub.acked {
			a.errorf("acknowledges nothing, or again: %s", text)
			return
		}
		sub.acked = true
		for name, value := range p.Notifications {
			if string(value) == "true" && string(sub.asked[name]) != "true" {
				a.errorf("acknowledges what was not requested: %s", text)
			}
		}
	case of && (!change || !sub.acked || sub.asked[filter] == nil || string(sub.asked[filter]) == "false"):
		a.errorf("not acknowledged, or not asked for: %s", text)
	case change && !of && !a.initialized:
		a.errorf("tells a client of changes that did not ask: %s", text)
	case method == mcp.NotificationProgress:
		a.progressed(p, text)
	case method == mcp.NotificationMessage && !a.initialized && !a.logs(p.Level):
		a.errorf("no request asked for this: %s", text)
	case method == mcp.NotificationCancelled && !a.own[string(p.RequestID)] && (a.initialized || a.subs[string(p.RequestID)] == nil):
		a.errorf("cancels something else than an own request or a subscription: %s", text)
	}
}

// progressed checks progress: a pending request must have the token.
func (a *auditor) progressed(p params, text string) {
	for _, list := range a.open {
		for _, sess := range list {
			if sess.token == "" || sess.token != string(p.Token) {
				continue
			}
			if sess.progress != 0 && p.Progress <= sess.progress {
				a.errorf("progress does not grow: %s", text)
			}
			sess.progress = p.Progress
			return
		}
	}
	a.errorf("progress of nothing that is under way: %s", text)
}

// logs reports whether a pending request wants log messages of the level.
func (a *auditor) logs(level string) bool {
	l, _ := mcp.ParseLoggingLevel(level)
	for _, list := range a.open {
		for _, sess := range list {
			if least, ok := mcp.ParseLoggingLevel(sess.level); ok && l >= least {
				return true
			}
		}
	}
	return false
}
