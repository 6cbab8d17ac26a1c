package interop

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A rule is one of the demands of the specification that show on the pipe.
type rule string

const (
	clientOutput     rule = "client: one JSON-RPC message to a line"
	clientID         rule = "client: ids are strings or integers, each used once"
	clientHandshake  rule = "client: the handshake is made once, in order, and first"
	clientEra        rule = "client: one era per connection"
	clientMeta       rule = "client: modern requests carry their metadata"
	clientCancel     rule = "client: only its own open requests are cancelled"
	clientAnswer     rule = "client: each request of a server is answered once, and nothing else"
	clientRetry      rule = "client: a retry brings answers, the same params and the state as it was"
	clientToken      rule = "client: progress tokens are unique among open requests"
	clientCapability rule = "client: nothing is asked that the server has not declared"
	clientSchema     rule = "client: messages match the schema"

	serverOutput     rule = "server: one JSON-RPC message to a line"
	serverAnswer     rule = "server: each request is answered once, and nothing else"
	serverCancelled  rule = "server: cancelled requests are not answered"
	serverProgress   rule = "server: progress belongs to an open request, increases and is complete before the result"
	serverResultType rule = "server: resultType and caching hints stand in modern results"
	serverLegacy     rule = "server: legacy results have nothing of later revisions"
	serverRequest    rule = "server: requests are legacy, after the handshake and for declared capabilities"
	serverLogging    rule = "server: log messages are those that were asked for"
	serverListen     rule = "server: changes are told to those who asked, tagged and acknowledged first"
	serverSchema     rule = "server: messages match the schema"
	serverExit       rule = "server: exit status 0 once the input ends"
)

// A violation is one message, or the lack of one, that breaks a rule.
type violation struct {
	rule rule
	text string
}

// A deviation is a known violation of a foreign peer, and its reason. It covers
// violations of the rule whose text contains has.
type deviation struct {
	rule rule
	has  string
	why  string
	// racy is set if it depends on timing whether the peer deviates. Other
	// deviations that are not seen fail the test: they can be struck off.
	racy bool
}

// audit checks that the host started as many processes as it should have, and
// each transcript by itself. It is called when the host is done.
func (s *witnessed) audit(processes int, known ...deviation) {
	s.t.Helper()
	tracked := knownDeviations{known: known, seen: make([]bool, len(known))}
	s.auditWith(processes, &tracked)
	tracked.checkSeen(s.t)
}

// auditWith is audit, but for the deviations that were not seen.
func (s *witnessed) auditWith(processes int, known *knownDeviations) {
	s.t.Helper()
	if s.web != nil {
		s.auditWeb(processes, known)
		return
	}
	all := s.transcripts()
	if len(all) != processes {
		s.t.Errorf("audit: the host started %d servers, want %d", len(all), processes)
	}
	for i, events := range all {
		found := append(auditTranscript(s.t, events, s.crashes), checkTranscript(s.t, events)...)
		if known.report(s.t, fmt.Sprintf("process %d", i+1), found) {
			logTranscript(s.t, events)
		}
	}
}

// knownDeviations are the known deviations of a peer, and which of them were seen.
type knownDeviations struct {
	known []deviation
	seen  []bool
}

// report reports violations that are no known deviation, and whether there are any.
func (e *knownDeviations) report(t *testing.T, of string, found []violation) bool {
	t.Helper()
	failures := map[rule]int{}
	for _, v := range found {
		match := slices.IndexFunc(e.known, func(d deviation) bool { return d.rule == v.rule && strings.Contains(v.text, d.has) })
		if match >= 0 {
			e.seen[match] = true
			continue
		}
		if failures[v.rule]++; failures[v.rule] <= 3 { // the first ones tell enough
			t.Errorf("audit of %s: %s: %.2000s", of, v.rule, v.text)
		}
	}
	return len(failures) > 0
}

// checkSeen reports deviations that are known and did not happen.
func (e *knownDeviations) checkSeen(t *testing.T) {
	t.Helper()
	for i, d := range e.known {
		unseen := (d.rule == clientSchema || d.rule == serverSchema) && openSchemas(t) == nil // nobody looked
		if !e.seen[i] && !d.racy && !unseen {
			t.Errorf("audit: a deviation was not seen, it can be struck off: %s (%q): %s", d.rule, d.has, d.why)
		}
	}
}

// message is what the audit reads of a JSON-RPC message. The identifiers keep
// their JSON text.
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

// params are those members of all methods' params that some rule is about.
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

// result are those members of all methods' results that some rule is about.
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

// filter is what a subscription is for.
type filter struct {
	Tools     bool     `json:"toolsListChanged"`
	Prompts   bool     `json:"promptsListChanged"`
	Resources bool     `json:"resourcesListChanged"`
	URIs      []string `json:"resourceSubscriptions"`
	Tasks     []string `json:"taskIds"`
}

// parse reads a line. What a rule needs and is not as it should be stays empty;
// the schema is there to say so.
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

// pending is a request that is not answered yet.
type pending struct {
	*message
	modern    bool
	cancelled bool
	abandoned bool // the client went away without a word
	progress  float64
	acked     *filter // of subscriptions/listen
}

// auditor follows one connection.
type auditor struct {
	found []violation

	lossy        bool   // requests travel each by itself, and may be given up on the way
	revision     string // that the handshake agreed on
	greeted      bool   // initialize was sent
	initialized  bool   // its notification was
	discovered   bool   // a modern request was answered with a result
	clientCaps   map[string]json.RawMessage
	serverCaps   map[string]json.RawMessage
	logLevel     string
	subscribed   map[string]bool // legacy, by URI
	used         map[string]bool // the client's ids
	asked        map[string]bool // the server's ids
	open         map[string]*pending
	openToClient map[string]*pending
	listens      map[string]*pending          // answered or not, until they are cancelled
	rounds       map[string]map[string]result // input_required results by what was called, and by id
	taskTokens   map[string]float64           // progress that outlives the answer, since a task does
	cancelled    map[string]bool              // the server's requests that it gave up
}

func newAuditor() *auditor {
	return &auditor{
		subscribed: map[string]bool{}, used: map[string]bool{}, asked: map[string]bool{},
		open: map[string]*pending{}, openToClient: map[string]*pending{}, listens: map[string]*pending{},
		rounds: map[string]map[string]result{}, taskTokens: map[string]float64{}, cancelled: map[string]bool{},
	}
}

func (a *auditor) violated(r rule, format string, args ...any) {
	a.found = append(a.found, violation{r, fmt.Sprintf(format, args...)})
}

// auditTranscript checks what both sides wrote against the rules. If mayCrash is set, the process
// may have ended with the exit status of the tool crash.
func auditTranscript(t *testing.T, events []event, mayCrash bool) []violation {
	t.Helper()
	a := newAuditor()
	schemas := openSchemas(t)
	var last event
	asked, broken := false, false // to end, one way or the other; or the transcript ends early
	ended := false                // the input
	for _, e := range events {
		switch e.Kind {
		case toServer:
			a.line(e.Line, clientOutput, a.clientWrote, schemas)
		case toHost:
			a.line(e.Line, serverOutput, a.serverWrote, schemas)
		case inputEnds:
			ended, asked = true, true
		case signalled:
			asked = true
		case incomplete:
			a.violated(serverExit, "the transcript breaks off: %s", e.Text)
		}
		last = e
	}
	switch {
	case last.Kind == exited && last.Code == crashStatus && mayCrash:
		broken = true
	case last.Kind == exited && last.Code == -1 && ended:
		// A signal that comes when the server has done its work, and has given
		// the signals back, may end it before it ends itself. The witness may
		// see a signal and the end of the input in the other order than the
		// server, if they come at once.
	case last.Kind != exited || last.Code != 0 || !asked:
		a.violated(serverExit, "the server did not exit with status 0 after its input ended; last event: %+v", last)
	}
	if !broken {
		a.finish()
	}
	return a.found
}

// finish checks that nothing was left unanswered.
func (a *auditor) finish() {
	for id, p := range a.open {
		if !p.cancelled && !p.abandoned && p.Method != "subscriptions/listen" {
			a.violated(serverAnswer, "%s with id %s was never answered", p.Method, id)
		}
	}
	for id, p := range a.openToClient {
		if !p.cancelled && !a.cancelled[id] {
			a.violated(clientAnswer, "%s with id %s was never answered", p.Method, id)
		}
	}
}

// line takes one line, or the members of a batch, which one revision had.
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

// logTranscript shows a session whose audit failed.
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
