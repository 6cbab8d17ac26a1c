package interop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A rule is a requirement of the specification that recorded traffic can be checked against.
type rule string

const (
	clientOutput     rule = "client: one JSON-RPC message per line"
	clientID         rule = "client: ids are unique strings or integers"
	clientHandshake  rule = "client: one handshake, in order, before other requests"
	clientEra        rule = "client: one era per connection"
	clientMeta       rule = "client: modern requests have metadata"
	clientCancel     rule = "client: cancellations name its own requests"
	clientResponse   rule = "client: one response to each request of the server"
	clientRetry      rule = "client: a retry has input responses, the same params and the unchanged state"
	clientToken      rule = "client: progress tokens are unique among pending requests"
	clientCapability rule = "client: requests need a declared capability of the server"
	clientSchema     rule = "client: messages match the schema"

	serverOutput     rule = "server: one JSON-RPC message per line"
	serverResponse   rule = "server: one response to each request"
	serverCancelled  rule = "server: no response to canceled requests"
	serverProgress   rule = "server: progress belongs to a pending request, increases and precedes the result"
	serverResultType rule = "server: modern results have resultType and caching hints"
	serverLegacy     rule = "server: legacy results have no members of later revisions"
	serverRequest    rule = "server: requests only in the legacy era, after the handshake, for declared capabilities"
	serverLogging    rule = "server: log messages only at the requested level"
	serverListen     rule = "server: changes only for acknowledged subscriptions, with the subscription id"
	serverSchema     rule = "server: messages match the schema"
	serverExit       rule = "server: exit status 0 after the end of input"
)

// A violation is a message, or a missing message, that violates a rule.
type violation struct {
	rule rule
	text string
}

// A deviation is a known violation by a foreign peer. It matches violations of the rule whose text
// contains has.
type deviation struct {
	rule rule
	has  string
	why  string
	// racy is set if the deviation depends on timing. Other deviations that do not occur fail the
	// test, because they are no longer needed.
	racy bool
}

// audit checks the number of processes that the host started, and each transcript. It is called
// when the host has ended.
func (s *recordedServer) audit(processes int, known ...deviation) {
	s.t.Helper()
	tracked := knownDeviations{known: known, seen: make([]bool, len(known))}
	s.auditWith(processes, &tracked)
	tracked.checkSeen(s.t)
}

// auditWith is audit without the check for deviations that did not occur.
func (s *recordedServer) auditWith(processes int, known *knownDeviations) {
	s.t.Helper()
	if s.web != nil {
		s.auditWeb(processes, known)
		return
	}
	all := s.transcripts()
	if len(all) != processes {
		s.t.Errorf("audit: started processes = %d, want %d", len(all), processes)
	}
	for i, events := range all {
		found := append(auditTranscript(s.t, events, s.crashes), checkTranscript(s.t, events)...)
		if known.report(s.t, fmt.Sprintf("process %d", i+1), found) {
			logTranscript(s.t, events)
		}
	}
}

// knownDeviations are the known deviations of a peer, and which of them occurred.
type knownDeviations struct {
	known []deviation
	seen  []bool
}

// report reports the violations that are not known deviations, and returns whether there are any.
func (e *knownDeviations) report(t *testing.T, of string, found []violation) bool {
	t.Helper()
	failures := map[rule]int{}
	for _, v := range found {
		match := slices.IndexFunc(e.known, func(d deviation) bool { return d.rule == v.rule && strings.Contains(v.text, d.has) })
		if match >= 0 {
			e.seen[match] = true
			continue
		}
		if failures[v.rule]++; failures[v.rule] <= 3 { // the first ones are enough
			t.Errorf("audit of %s: %s: %.2000s", of, v.rule, v.text)
		}
	}
	return len(failures) > 0
}

// checkSeen reports known deviations that did not occur.
func (e *knownDeviations) checkSeen(t *testing.T) {
	t.Helper()
	for i, d := range e.known {
		unchecked := (d.rule == clientSchema || d.rule == serverSchema) && openSchemas(t) == nil
		if !e.seen[i] && !d.racy && !unchecked {
			t.Errorf("audit: a known deviation did not occur, remove it: %s (%q): %s", d.rule, d.has, d.why)
		}
	}
}

// A message has the parts of a JSON-RPC message that the audit needs. Ids keep their JSON text.
type message struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    *int    `json:"code"`
		Message *string `json:"message"`
	} `json:"error"`

	raw    []byte
	params params
	result result
}

// params has the members of the params of all methods that a rule needs.
type params struct {
	Meta struct {
		Revision     string                     `json:"io.modelcontextprotocol/protocolVersion"`
		Capabilities map[string]json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities"`
		LogLevel     string                     `json:"io.modelcontextprotocol/logLevel"`
		Subscription json.RawMessage            `json:"io.modelcontextprotocol/subscriptionId"`
		Token        json.RawMessage            `json:"progressToken"`
	} `json:"_meta"`
	Capabilities map[string]json.RawMessage `json:"capabilities"`
	Arguments    json.RawMessage            `json:"arguments"`
	Token        json.RawMessage            `json:"progressToken"`
	Progress     float64                    `json:"progress"`
	RequestID    json.RawMessage            `json:"requestId"`
	Level        string                     `json:"level"`
	URI          string                     `json:"uri"`
	Filter       filter                     `json:"notifications"`
	Responses    map[string]json.RawMessage `json:"inputResponses"`
	State        *string                    `json:"requestState"`
}

// result has the members of the results of all methods that a rule needs.
type result struct {
	ResultType   string                     `json:"resultType"`
	Revision     string                     `json:"protocolVersion"`
	Supported    []string                   `json:"supportedVersions"`
	Capabilities map[string]json.RawMessage `json:"capabilities"`
	TTL          *float64                   `json:"ttlMs"`
	CacheScope   string                     `json:"cacheScope"`
	Requests     map[string]struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	} `json:"inputRequests"`
	State *string         `json:"requestState"`
	Task  json.RawMessage `json:"task"`
}

// A filter is the filter of a subscription.
type filter struct {
	Tools     bool     `json:"toolsListChanged"`
	Prompts   bool     `json:"promptsListChanged"`
	Resources bool     `json:"resourcesListChanged"`
	URIs      []string `json:"resourceSubscriptions"`
	Tasks     []string `json:"taskIds"`
}

// parse parses a line. A member with a wrong type stays empty; the schema check reports it.
func parse(line []byte) (*message, error) {
	m := &message{raw: line}
	if err := json.Unmarshal(line, m); err != nil {
		return nil, err
	}
	if m.JSONRPC != "2.0" {
		return nil, fmt.Errorf("jsonrpc is %q", m.JSONRPC)
	}
	json.Unmarshal(m.Params, &m.params)
	json.Unmarshal(m.Result, &m.result)
	return m, nil
}

func (m *message) isRequest() bool      { return m.Method != "" && m.ID != nil }
func (m *message) isNotification() bool { return m.Method != "" && m.ID == nil }

// A pending is a request without a response.
type pending struct {
	*message
	modern    bool
	cancelled bool
	abandoned bool // the client closed the connection
	progress  float64
	acked     *filter // of subscriptions/listen
}

// An auditor checks the messages of one connection.
type auditor struct {
	found []violation

	lossy         bool   // over HTTP: a request may be aborted before it arrives
	revision      string // of the handshake
	initSent      bool   // initialize was sent
	initialized   bool   // notifications/initialized was sent
	modernResults bool   // a modern request got a result
	clientCaps    map[string]json.RawMessage
	serverCaps    map[string]json.RawMessage
	logLevel      string
	subscribed    map[string]bool // legacy, by URI
	clientIDs     map[string]bool
	serverIDs     map[string]bool
	open          map[string]*pending
	openToClient  map[string]*pending
	listens       map[string]*pending          // subscriptions that are not canceled
	rounds        map[string]map[string]result // input_required results by subject and id
	taskTokens    map[string]float64           // progress of tasks, which continues after the response
	cancelled     map[string]bool              // canceled requests of the server, by id
}

func newAuditor() *auditor {
	return &auditor{
		subscribed: map[string]bool{}, clientIDs: map[string]bool{}, serverIDs: map[string]bool{},
		open: map[string]*pending{}, openToClient: map[string]*pending{}, listens: map[string]*pending{},
		rounds: map[string]map[string]result{}, taskTokens: map[string]float64{}, cancelled: map[string]bool{},
	}
}

func (a *auditor) violated(r rule, format string, args ...any) {
	a.found = append(a.found, violation{r, fmt.Sprintf(format, args...)})
}

// auditTranscript checks the lines of both sides against the rules. If mayCrash is set, the process
// may have exited with the status of the tool crash.
func auditTranscript(t *testing.T, events []event, mayCrash bool) []violation {
	t.Helper()
	a := newAuditor()
	schemas := openSchemas(t)
	var last event
	endRequested := false // by the end of input or a signal
	inputEnded := false
	for _, e := range events {
		switch e.Kind {
		case toServer:
			a.line(e.Line, clientOutput, a.clientMessage, schemas)
		case toHost:
			a.line(e.Line, serverOutput, a.serverMessage, schemas)
		case inputEnds:
			inputEnded, endRequested = true, true
		case signaled:
			endRequested = true
		case incomplete:
			a.violated(serverExit, "the transcript is incomplete: %s", e.Text)
		}
		last = e
	}
	crashed := last.Kind == exited && last.Code == crashStatus && mayCrash
	switch {
	case crashed:
	case last.Kind == exited && last.Code == -1 && inputEnded:
		// A signal ends a server that has finished and no longer handles signals. If a signal and
		// the end of input come together, the proxy and the server may see them in different
		// orders.
	case last.Kind != exited || last.Code != 0 || !endRequested:
		a.violated(serverExit, "the server did not exit with status 0 after its input ended; last event: %+v", last)
	}
	if !crashed {
		a.finish()
	}
	return a.found
}

// finish checks that no request is without a response.
func (a *auditor) finish() {
	for id, p := range a.open {
		if !p.cancelled && !p.abandoned && p.Method != "subscriptions/listen" {
			a.violated(serverResponse, "%s with id %s got no response", p.Method, id)
		}
	}
	for id, p := range a.openToClient {
		if !p.cancelled && !a.cancelled[id] {
			a.violated(clientResponse, "%s with id %s got no response", p.Method, id)
		}
	}
}

// line calls take for the message of a line, or for each member of a batch. Only revision
// 2025-03-26 has batches.
func (a *auditor) line(line []byte, r rule, take func(*message), schemas *schemaSet) {
	if a.revision == "2025-03-26" && len(line) > 0 && line[0] == '[' {
		var batch []json.RawMessage
		if err := json.Unmarshal(line, &batch); err != nil {
			a.violated(r, "%v: %.500q", err, line)
		}
		for _, member := range batch {
			a.line(member, r, take, schemas)
		}
		return
	}
	m, err := parse(line)
	if err != nil {
		a.violated(r, "%v: %.500q", err, line)
		return
	}
	if r == clientOutput {
		schemas.check(a, m, clientSchema)
		take(m)
		return
	}
	schemas.check(a, m, serverSchema)
	take(m)
}

// logTranscript logs the transcript of a failed audit.
func logTranscript(t *testing.T, events []event) {
	t.Helper()
	for _, e := range events {
		switch e.Kind {
		case toServer, toHost:
			t.Logf("%s: %.1000s", e.Kind, e.Line)
		default:
			t.Logf("%s %s %d", e.Kind, e.Text, e.Code)
		}
	}
}
