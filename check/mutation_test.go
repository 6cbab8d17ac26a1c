package check_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/check"
)

// A mutation breaks one thing in one event of recorded sessions.
type mutation struct {
	rule string // rule that must find it
	on   string // patterns of names of sessions, see recordings
	// from finds the first event with it, in the form that line writes. What it matches is replaced
	// by to, unless that is one of these:
	//
	//	DROP            the event is left out
	//	TWICE           the event comes twice
	//	BEFORE regexp   the event comes before the first one with that; or AFTER
	//
	// «regexp» is replaced by the first group of the first event that matches.
	from, to string
	also     string // other rules that find it: ids, or groups with a slash at the end
}

// notByMutation are rules that no single change to a clean session breaks, with the reason.
var notByMutation = map[string]string{
	"lifecycle/initialize-cancelled": "between initialize and its answer a clean client sends nothing that could become a cancellation",
	"jsonrpc/notification-answered":  "an answer without an id is clean only behind input that cannot be read, which is itself a finding",
}

var quotations = regexp.MustCompile(`«([^»]*)»`)

// expand replaces each «regexp».
func expand(t *testing.T, s string, lines []string) string {
	return quotations.ReplaceAllStringFunc(s, func(q string) string {
		re := regexp.MustCompile("(?s)" + strings.Trim(q, "«»"))
		for _, l := range lines {
			if m := re.FindStringSubmatch(l); m != nil {
				return m[1]
			}
		}
		t.Fatalf("no event has %s", q)
		return ""
	})
}

// apply returns the events with the mutation, or nil if it does not apply.
func (m *mutation) apply(t *testing.T, events []capture.Event) []capture.Event {
	lines := make([]string, len(events))
	for i := range events {
		lines[i] = line(&events[i])
	}
	from := regexp.MustCompile("(?s)" + expand(t, m.from, lines))
	at := slices.IndexFunc(lines, from.MatchString)
	if at < 0 {
		return nil
	}
	broken, e := slices.Clone(events), events[at]
	where, target, _ := strings.Cut(m.to, " ")
	switch where {
	case "DROP":
		return slices.Delete(broken, at, at+1)
	case "TWICE":
		return slices.Insert(broken, at, e)
	case "BEFORE", "AFTER":
		to := slices.IndexFunc(lines, regexp.MustCompile("(?s)"+target).MatchString)
		if to < 0 {
			return nil
		}
		e.T = events[to].T
		if where == "AFTER" {
			to++
		}
		if to > at {
			to--
		}
		return slices.Insert(slices.Delete(broken, at, at+1), to, e)
	}
	match := from.FindStringSubmatchIndex(lines[at])
	text := lines[at][:match[0]] + string(from.ExpandString(nil, expand(t, m.to, lines), lines[at], match)) + lines[at][match[1]:]
	broken[at] = parseLine(text, e)
	return broken
}

// names reports whether a rule is in a list of ids and groups.
func names(list, id string) bool {
	return slices.ContainsFunc(strings.Fields(list), func(s string) bool { return s == id || strings.HasSuffix(s, "/") && strings.HasPrefix(id, s) })
}

func (m *mutation) run(t *testing.T, recording *recording) (applies bool) {
	broken := m.apply(t, recording.events)
	if broken == nil {
		return false
	}
	found := false
	for _, f := range recording.check(broken) {
		found = found || f.Rule.ID == m.rule
		if f.Rule.ID != m.rule && !names(m.also, f.Rule.ID) {
			t.Errorf("unexpected finding of %s at event %d: %s", f.Rule.ID, f.Event, f.Message)
		}
	}
	if !found {
		t.Errorf("nothing found")
	}
	return true
}

// TestMutations applies one mutation to clean sessions, and expects a finding of its rule and no
// others but its consequences. Every rule has a mutation.
func TestMutations(t *testing.T) {
	all := map[string]*recording{}
	for name, recording := range recordings(t) {
		all[name] = recording
	}
	mutated := map[string]bool{}
	for _, m := range slices.Concat(mutationsOfMessages, mutationsOfSessions, mutationsOfHTTP) {
		mutated[m.rule] = true
		for pattern := range strings.FieldsSeq(m.on) {
			applied := false
			for name, recording := range all {
				if ok, err := path.Match(pattern, name); err != nil || !ok {
					continue
				}
				t.Run(m.rule+" "+name, func(t *testing.T) { applied = m.run(t, recording) || applied })
			}
			if !applied {
				t.Errorf("%s: no session %s has %s", m.rule, pattern, m.from)
			}
		}
	}
	for _, r := range check.Rules() {
		if reason := notByMutation[r.ID]; (reason != "") == mutated[r.ID] {
			t.Errorf("%s: want either a mutation or a reason in notByMutation: mutation %v, reason %q", r.ID, mutated[r.ID], reason)
		}
		delete(mutated, r.ID)
	}
	for id := range mutated {
		t.Errorf("there is no rule %s", id)
	}
	for id := range notByMutation {
		if _, ok := check.Lookup(id); !ok {
			t.Errorf("notByMutation: there is no rule %s", id)
		}
	}
}

// TestLines shows that the lines in which mutations are made convert back to the same events.
func TestLines(t *testing.T) {
	for name, recording := range recordings(t) {
		for _, e := range recording.events {
			if back := parseLine(line(&e), e); line(&back) != line(&e) || back.Kind != e.Kind || back.Exchange != e.Exchange {
				t.Errorf("%s: event %d comes back as\n%s\nand was\n%s", name, e.N, line(&back), line(&e))
			}
		}
	}
}

// mutationsOfMessages break the envelope of a message, its shape, or what is in it.
var mutationsOfMessages = []mutation{
	{"jsonrpc/not-a-message", "stdio-* http-*", `^(< msg .*){[^\n]*tools/list_changed.*`, `$1{"level":"info"}`, ""},
	{"jsonrpc/version", "stdio-* http-* sse-r1", `"jsonrpc":"2.0",("id":\d+,"method":"prompts/list")`, `$1`, ""},
	{"jsonrpc/id-null", "raw-r1 raw-r4", `"id":3,"method"`, `"id":null,"method"`, "jsonrpc/unknown-id"},
	{"jsonrpc/id-type", "stdio-*", `"id":(\d+),"method":"prompts/list"`, `"id":$1.5,"method":"prompts/list"`, "jsonrpc/unknown-id lifecycle/unanswered"},
	{"jsonrpc/method-type", "stdio-*", `"method":"prompts/list"`, `"method":7`, ""},
	{"jsonrpc/params-type", "stdio-r1 stdio-r4", `"params":{}`, `"params":[]`, ""},
	{"jsonrpc/result-and-error", "stdio-* http-* sse-r1", `"result":{"prompts"`, `"error":null,"result":{"prompts"`, ""},
	{"jsonrpc/result-type", "stdio-r1 stdio-r4", `"result":{}`, `"result":"pong"`, "lifecycle/ping"},
	{"jsonrpc/duplicate-member", "stdio-* http-*", `"method":"prompts/list"`, `"method":"prompts/list","method":"prompts/list"`, ""},
	{"jsonrpc/utf8", "stdio-*", `tools/list_changed`, "tools/\xff", ""},
	{"jsonrpc/batch", "stdio-r3 stdio-r4 http-r4", `({"jsonrpc":"2.0","id":\d+,"method":"ping",[^\n]*)$`, `[$1]`, ""},
	{"jsonrpc/batch-empty", "raw-r2", `\n\n\[{.*method.*$`, "\n\n[]", "jsonrpc/unknown-id"},
	{"jsonrpc/batch-initialize", "raw-r2", `({"jsonrpc":"2.0","id":"i","method".*)$`, `[$1]`, ""},
	{"jsonrpc/batch-mixed", "raw-r2", `{"jsonrpc":"2.0","method":"vendor/news"}`, `{"jsonrpc":"2.0","id":77,"result":{}}`, "jsonrpc/unknown-id"},
	{"jsonrpc/id-reused", "stdio-r1 stdio-r4 http-r4 sse-r1", `^> msg .*"prompts/list"`, "TWICE", "lifecycle/unanswered"},
	{"jsonrpc/id-outstanding", "stdio-r5", `^> msg .*"prompts/list"`, "TWICE", "lifecycle/unanswered"},
	{"jsonrpc/id-missing", "raw-r1 raw-r4", `"id":2,"result"`, `"result"`, "lifecycle/unanswered jsonrpc/notification-answered"},
	{"jsonrpc/error-id-null", "raw-r4 raw-r5", `"id":\d+,"error"`, `"id":null,"error"`, "lifecycle/unanswered jsonrpc/id-missing"},
	{"jsonrpc/unknown-id", "stdio-* http-r4 sse-r1", `"id":(\d+),"result":{"prompts"`, `"id":"$1","result":{"prompts"`, "lifecycle/unanswered http/"},
	{"jsonrpc/answered-twice", "stdio-* http-r4 sse-r1", `^< msg .*"result":{"prompts"`, "TWICE", ""},

	{"shape/missing-member", "stdio-* http-*", `"inputSchema":`, `"schema":`, ""},
	{"shape/missing-member", "stdio-r5 http-r5", `"ttlMs":0,("cacheScope":"private",)?("resultType":"complete",[^\n]*)$`, `$1$2`, ""},
	{"shape/missing-member", "stdio-r5 http-r5", `,"resultType":"complete"`, ``, ""},
	{"shape/wrong-type", "stdio-* http-*", `"prompts":\[{"name":"review"`, `"prompts":[{"name":7`, ""},
	{"shape/bad-value", "stdio-* http-*", `"level":"warning"`, `"level":"warn"`, ""},
	{"shape/bad-format", "stdio-* http-*", `"blob":"AQID"`, `"blob":"AQI"`, ""},
	{"shape/duplicate-member", "stdio-* http-*", `"prompts":\[{`, `"prompts":[{"name":"review",`, ""},
	{"shape/wrong-kind", "stdio-r1 stdio-r4", `"method":"notifications/roots/list_changed"`, `"id":900,"method":"notifications/roots/list_changed"`, "lifecycle/unanswered"},
	{"shape/wrong-direction", "stdio-r4", `^(< msg .*)"method":"roots/list"`, `$1"method":"tools/list"`, "shape/missing-member"},
	{"shape/not-in-revision", "stdio-r1 stdio-r2", `"notifications/roots/list_changed"`, `"notifications/tasks/status"`, ""},

	{"errors/undefined-code", "raw-r5", `"code":-32601`, `"code":-32050`, ""},
	{"errors/legacy-range", "raw-r5", `"code":-32601`, `"code":-32001`, ""},
	{"errors/reserved-code", "raw-r1 raw-r4", `"code":-32601`, `"code":-32500`, ""},
	{"errors/header-mismatch-stdio", "raw-r5", `"code":-32601`, `"code":-32020`, ""},
	{"errors/resource-not-found", "stdio-r5 http-r5", `"code":-32602(,"message":"[^"]*not found)`, `"code":-32002$1`, ""},
	{"errors/capability-declared", "raw-r5", `("id":3,"method".*clientCapabilities":){}`, `$1{"roots":{}}`, ""},
	{"errors/version-requested", "raw-r5 web-r5", `"requested":"1999`, `"requested":"1998`, ""},

	{"meta/key", "stdio-r3 stdio-r4", `"name":"review","arguments"`, `"name":"review","_meta":{"-":1},"arguments"`, ""},
	{"meta/trace-context", "stdio-r5 http-r5", `("prompts/list","params":{"_meta":{)`, `$1"traceparent":"x",`, ""},
	{"meta/extension-id", "stdio-r5 http-r5", `("prompts/list".*)io.modelcontextprotocol/tasks`, `${1}tasks`, ""},
	{"meta/server-changes", "stdio-r5", `("prompts":\[.*serverInfo":{"name":")`, `${1}x`, ""},

	{"tools/name", "stdio-r4 http-r5", `"name":"deploy","inputSchema"`, `"name":"de ploy","inputSchema"`, "tools/unknown tools/unknown-as-result"},
	{"tools/duplicate", "stdio-* http-*", `"name":"slow","inputSchema"`, `"name":"add","inputSchema"`, "tools/unknown tools/arguments tools/arguments-accepted"},
	{"resources/duplicate", "stdio-* http-*", `"uri":"file:///b","name"`, `"uri":"file:///a","name"`, ""},
	{"prompts/duplicate", "stdio-* http-*", `"prompts":\[{"name":"review",`, `"prompts":[{"name":"review"},{"name":"review",`, ""},
	{"tools/schema-invalid", "stdio-* http-*", `{"type":"string","x-mcp-header"`, `{"type":"str","x-mcp-header"`, "tools/header-annotation"},
	{"tools/external-ref", "stdio-r5 http-r5", `{"type":"string","x-mcp-header"`, `{"$$ref":"https://example.com/x.json","type":"string","x-mcp-header"`, "tools/header-annotation"},
	{"tools/header-annotation", "stdio-r5 http-r5", `"x-mcp-header":"Region"`, `"x-mcp-header":"The region"`, ""},
	{"tools/arguments", "stdio-* http-*", `"A":1`, `"A":"1"`, "tools/arguments-accepted"},
	{"tools/arguments-accepted", "stdio-* http-*", `"A":1,`, ``, "tools/arguments"},
	{"tools/arguments-refused", "stdio-r4 stdio-r5 http-r4", `"n":1`, `"n":"1"`, "tools/arguments"},
	{"tools/output-schema", "stdio-r3 stdio-r4 stdio-r5 http-r4", `"structuredContent":{"sum":3}`, `"structuredContent":{"sum":"3"}`, ""},
	{"tools/structured-missing", "stdio-r3 stdio-r4 stdio-r5 http-r4", `"structuredContent":{"sum":3},`, ``, ""},
	{"tools/structured-only", "stdio-r3 stdio-r4 stdio-r5 http-r4", `"content":\[[^\]]*sum[^\]]*\]`, `"content":[]`, ""},
	{"tools/unknown", "stdio-*", `"name":"picture","arguments"`, `"name":"pict","arguments"`, "tools/unknown-as-result"},
	{"tools/unknown-as-result", "stdio-*", `"name":"fail","inputSchema"`, `"name":"fall","inputSchema"`, "tools/unknown"},

	{"content/mime-type", "stdio-* http-*", `"mimeType":"image/png"`, `"mimeType":"png"`, ""},
	{"content/text-and-blob", "stdio-* http-*", `"blob":"AQID"`, `"blob":"AQID","text":"x"`, ""},
	{"resources/empty", "stdio-r5 http-r5", `"contents":\[[^\]]*\]`, `"contents":[]`, ""},
	{"prompts/argument-missing", "stdio-*", `"arguments":{"language":"go"}`, `"arguments":{}`, ""},
	{"completion/total", "stdio-*", `"values":\["go"\]`, `"values":["go","gopher"]`, ""},
	{"completion/too-many", "stdio-*", `"values":\["go"\],"total":1`, `"values":["go"` + strings.Repeat(`,"go"`, 100) + `]`, "shape/bad-value"},

	{"roots/uri", "stdio-* http-r4 sse-r1", `"uri":"file:///home"`, `"uri":"https://home"`, ""},
	{"elicitation/schema", "stdio-r3 stdio-r4 stdio-r5", `"age":{"type":"integer"}`, `"age":{"type":"object"}`, "shape/bad-value"},
	{"elicitation/content", "stdio-r3 stdio-r4", `"content":{"name":"Ann"}`, `"content":{"name":"A"}`, ""},
	{"elicitation/secret", "stdio-r3 stdio-r4 stdio-r5", `"age":{"type":"integer"}`, `"pin":{"type":"integer"}`, ""},
	{"elicitation/url", "stdio-r4 stdio-r5", `"url":"https://example.com/connect"`, `"url":"https://"`, ""},
	{"elicitation/complete-unknown", "stdio-r4", `"notifications/tools/list_changed"`, `"notifications/elicitation/complete","params":{"elicitationId":"none"}`, ""},
	{"sampling/tool-results", "stdio-r4 stdio-r5", `"toolUseId":"u1"`, `"toolUseId":"u2"`, ""},
	{"sampling/context", "stdio-r4", `"maxTokens":5`, `"maxTokens":5,"includeContext":"thisServer"`, ""},
}

// mutationsOfSessions break relations between the messages of a session.
var mutationsOfSessions = []mutation{
	{"lifecycle/no-handshake", "stdio-r1 stdio-r4", `^> msg .*"tools/list"`, `BEFORE "method":"initialize"`, ""},
	{"lifecycle/request-before-answer", "stdio-r1 stdio-r4", `^> msg .*"tools/list"`, `BEFORE ^< msg`, ""},
	{"lifecycle/request-before-initialized", "stdio-r1 stdio-r4", `^> msg .*"tools/list"`, `BEFORE notifications/initialized`, ""},
	{"lifecycle/initialized-missing", "stdio-r1 stdio-r4", `notifications/initialized`, "DROP", "lifecycle/request-before-initialized lifecycle/server-request-early"},
	{"lifecycle/initialized-early", "stdio-r1 stdio-r4", `notifications/initialized`, `BEFORE ^< msg`, ""},
	{"lifecycle/server-request-early", "stdio-r1 stdio-r4", `^< msg .*"roots/list"`, `BEFORE notifications/initialized`, ""},
	{"lifecycle/initialize-twice", "stdio-r1 stdio-r4 raw-r2", `"method":"initialize"`, "TWICE", "jsonrpc/id-reused lifecycle/unanswered"},
	{"lifecycle/version-unknown", "stdio-r1 stdio-r4", `^(< msg .*"protocolVersion":")[^"]*`, `${1}1.0`, ""},
	{"lifecycle/version-modern", "raw-r4", `^(< msg .*"protocolVersion":")[^"]*`, `${1}2026-07-28`, "lifecycle/version-differs shape/ modern/"},
	{"lifecycle/version-differs", "stdio-r1 stdio-r4", `^(> msg .*"protocolVersion":")[^"]*`, `${1}1.0`, ""},
	{"lifecycle/version-refused", "web-r3 web-r4", `^(< msg .*"id":"again".*"protocolVersion":")[^"]*`, `${1}2024-11-05`, "http/"},
	{"lifecycle/ping", "raw-r1 raw-r4", `"id":2,"result":{}`, `"id":2,"result":{"x":1}`, ""},
	{"lifecycle/unanswered", "http-r4 sse-r1", `^< msg .*"text":"done"`, "DROP", "http/"},

	{"capability/server-undeclared", "stdio-r4 http-r4", `"completions":{},`, ``, "capability/feature-undeclared"},
	{"capability/client-undeclared", "stdio-r4 http-r4", `"elicitation":{"form":{},"url":{}},`, ``, ""},
	{"capability/feature-undeclared", "stdio-r1 stdio-r2", `"prompts":{"listChanged":true},`, ``, ""},
	{"capability/list-missing", "stdio-r5", `"result":{"prompts".*`, `"error":{"code":-32601,"message":"x"}}`, ""},
	{"capability/refused", "stdio-r4", `"result":{"roots".*`, `"error":{"code":-32601,"message":"x"}}`, ""},
	{"capability/refused", "stdio-r1 stdio-r4", `"result":{"prompts".*`, `"error":{"code":-32601,"message":"x"}}`, ""},
	{"capability/logging", "stdio-r1 stdio-r2", `"logging":{},`, ``, "capability/feature-undeclared"},
	{"capability/notification-undeclared", "stdio-r3 stdio-r4", `"tools":{"listChanged":true}`, `"tools":{}`, ""},

	{"modern/server-request", "stdio-r5", `"method":"notifications/progress"`, `"id":900,"method":"notifications/progress"`, "shape/wrong-kind lifecycle/unanswered"},
	{"modern/client-response", "stdio-r5", `{[^\n]*"notifications/cancelled","params":{"requestId":«"id":(\d+)[^\n]*subscriptions/listen».*`, `{"jsonrpc":"2.0","id":99,"result":{}}`, "jsonrpc/unknown-id"},
	{"modern/discover-missing", "raw-r5", `"id":6,"result".*`, `"id":6,"error":{"code":-32601,"message":"x"}}`, ""},
	{"modern/metadata-accepted", "stdio-r5 http-r5", `("prompts/list".*)"io.modelcontextprotocol/clientCapabilities"`, `$1"x"`, "shape/missing-member"},
	{"modern/version-accepted", "raw-r5", `("prompts/list".*)2026-07-28`, `${1}1999-01-01`, ""},
	{"modern/result-type", "raw-r5", `("prompts":\[.*)"resultType":"complete"`, `$1"resultType":"partial"`, "shape/bad-value"},

	{"mrtr/unexpected", "stdio-r5 http-r5", `"result":{"prompts".*`, `"result":{"resultType":"input_required","requestState":"x"}}`, ""},
	{"mrtr/question-kind", "stdio-r5 http-r5", `"method":"elicitation/create"`, `"method":"user/ask"`, ""},
	{"mrtr/undeclared", "stdio-r5 http-r5", `"elicitation":{"form":{},"url":{}},([^\n]*"name":"ask","arguments":{}}})`, `$1`, ""},
	{"mrtr/state-changed", "stdio-r5 http-r5", `("inputResponses".*"requestState":")`, `${1}x`, ""},
	{"mrtr/answer-missing", "stdio-r5 http-r5", `"inputResponses":{"who"`, `"inputResponses":{"whom"`, ""},
	{"mrtr/same-id", "stdio-r5 http-r5", `^(> msg .*"id":)\d+(.*"inputResponses":{"who")`, `${1}«^> msg .*"id":(\d+).*"name":"ask"»$2`, "jsonrpc/unknown-id lifecycle/unanswered"},
	{"mrtr/no-round", "stdio-r5", `"arguments":{},("inputResponses":{"who")`, `"arguments":{"x":1},$1`, "tools/arguments tools/arguments-accepted"},

	{"cache/scope-varies", "stdio-r5 http-r5", `("name":"wait".*"cacheScope":)"private"`, `$1"public"`, ""},
	{"cache/question-kept", "stdio-r5 http-r5", `"resultType":"input_required"`, `"resultType":"input_required","ttlMs":0`, ""},
	{"pagination/unknown-cursor", "stdio-r1 stdio-r4 http-r4", `"cursor":"`, `"cursor":"x`, ""},
	{"pagination/loop", "stdio-r4 stdio-r5", `("name":"wait".*"nextCursor":")[^"]*`, `${1}«"name":"add".*"nextCursor":"([^"]*)»`, "pagination/unknown-cursor"},

	{"progress/unknown-token", "stdio-* http-r4", `"progressToken":(\d+),"progress"`, `"progressToken":"$1","progress"`, ""},
	{"progress/backwards", "stdio-* http-*", `"progress":2.5`, `"progress":0.25`, ""},
	{"progress/backwards", "stdio-* http-*", `"progress":2.5`, `"progress":1.5`, ""},
	{"progress/after-completion", "stdio-*", `"progress":2.5`, `AFTER "text":"done"`, ""},
	{"progress/token-reused", "stdio-r1 stdio-r4 stdio-r5", `^> msg .*"name":"slow","arguments"`, "TWICE", "jsonrpc/id-reused jsonrpc/id-outstanding lifecycle/unanswered"},
	{"cancel/unknown-request", "stdio-r1 stdio-r4", `("notifications/cancelled","params":{"requestId":)\d+`, `${1}"26"`, "lifecycle/unanswered"},
	{"cancel/answered", "stdio-r1 stdio-r4", `^(< msg .*"id":)\d+(.*"text":"text")`, `${1}«"id":(\d+)[^\n]*"name":"wait","arguments"»$2`, "lifecycle/unanswered shape/missing-member"},
	{"cancel/progress-after", "stdio-r1 stdio-r4", `"progress":1,"total":3`, `AFTER "text":"a note"`, ""},
	{"cancel/by-server", "stdio-r5", `"notifications/progress","params":.*`, `"notifications/cancelled","params":{"requestId":«"id":(\d+)[^\n]*"name":"slow","arguments"»}}`, "cancel/answered"},
	{"logging/below-level", "stdio-r1 stdio-r4 http-r4", `"level":"info"`, `"level":"error"`, ""},
	{"logging/below-level", "stdio-r5 http-r5", `logLevel":"info"`, `logLevel":"error"`, ""},
	{"logging/not-asked", "stdio-r5 http-r5", `,"io.modelcontextprotocol/logLevel":"info"`, ``, ""},
	{"resources/not-subscribed", "stdio-r1 stdio-r4 http-r4", `"notifications/resources/updated"`, `BEFORE "method":"resources/subscribe"`, ""},

	{"listen/ack-first", "stdio-r5 http-r5", `"notifications/tools/list_changed"`, `BEFORE subscriptions/acknowledged`, ""},
	{"listen/not-requested", "stdio-r5 http-r5", `"notifications/tools/list_changed"`, `"notifications/prompts/list_changed"`, ""},
	{"listen/no-id", "stdio-r5 http-r5", `("notifications/tools/list_changed").*`, `$1}`, ""},
	{"listen/id-type", "stdio-r5 http-r5", `("notifications/tools/list_changed".*subscriptionId":)(\d+)`, `$1"$2"`, ""},
	{"listen/not-for-subscriptions", "stdio-r5 http-r5", `"notifications/tools/list_changed","params":{`, `"notifications/message","params":{"level":"info","data":1,`, "logging/not-asked"},
	{"listen/elsewhere", "http-r5", `"notifications/progress","params":.*`, `"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":35}}}`, ""},

	{"tasks/undeclared", "stdio-r5 http-r5", `"extensions":{"io.modelcontextprotocol/tasks":{}},([^\n]*"name":"job","arguments")`, `$1`, ""},
	{"tasks/unexpected", "stdio-r5 http-r5", `"result":{"messages".*`, `«("result":{"resultType":"task".*|"result":{[^\n]*"resultType":"task".*)»`, "tasks/"},
	{"tasks/final", "stdio-r5 http-r5", `("resultType":"task".*)"working"|"working"(.*"resultType":"task")`, `$1"failed"$2`, ""},
	{"tasks/final", "stdio-r4", `("result":{"task":.*"status":)"working"`, `$1"failed"`, "tasks/begin"},
	{"tasks/begin", "stdio-r4 http-r4", `("result":{"task":.*"status":)"working"`, `$1"completed"`, ""},
	{"tasks/support", "stdio-r4 http-r4", `"taskSupport":"optional"`, `"taskSupport":"forbidden"`, ""},

	{"stdio/stray-output", "stdio-*", `{[^\n]*notifications/tools/list_changed.*`, `listening`, ""},
	{"stdio/stray-input", "stdio-r4", `{[^\n]*notifications/roots/list_changed.*`, `help`, ""},
	{"stdio/newline-in-message", "stdio-*", `framing: lf`, `framing: lf newline`, ""},
	{"stdio/content-length", "stdio-* raw-*", `framing: lf`, `framing: header`, ""},
	{"stdio/unterminated", "stdio-*", `^(< msg .*framing: )lf(.*"prompts":\[)`, `${1}eof$2`, ""},
	{"stdio/blank-line", "stdio-*", `{[^\n]*notifications/tools/list_changed.*`, ``, ""},
	{"stdio/exit-pending", "raw-*", `^- exit`, `BEFORE ^< msg .*"prompts":\[`, "stdio/after-exit"},
	{"stdio/exit-status", "stdio-* raw-*", `^(- exit x0\n)0`, `${1}1`, ""},
	{"stdio/after-exit", "raw-r4 raw-r5", `^- exit`, `BEFORE ^> msg .*"prompts/list"`, ""},
}

// mutationsOfHTTP break what HTTP adds to the messages.
var mutationsOfHTTP = []mutation{
	{"http/accept", "http-*", `(Accept: application/json), text/event-stream`, `$1`, ""},
	{"http/get-accept", "http-r2 http-r4", `^(> req x\d+\nGET .*Accept: )text/event-stream`, `${1}application/json`, ""},
	{"http/version-header-missing", "http-r3 http-r4 http-r5", `Mcp-Protocol-Version: [^\n]*\n`, ``, "http/header-not-checked"},
	{"http/version-header-mismatch", "http-r5", `(Mcp-Protocol-Version: )[^\n]*`, `${1}2025-11-25`, "http/header-not-checked"},
	{"http/version-header-other", "http-r3 http-r4", `(Mcp-Protocol-Version: )[^\n]*`, `${1}2025-03-26`, ""},
	{"http/version-accepted", "web-r3 web-r4", `^(> req x6\nPOST .*Mcp-Protocol-Version: )[^\n]*`, `${1}tomorrow`, "http/version-header-other"},
	{"http/token-in-query", "http-* web-*", `^(> req [^\n]*\nPOST [^\n]*)`, `$1?access_token=x`, ""},
	{"http/content-type", "http-* web-*", `^(> req [^\n]*\nPOST .*Content-Type: )[^\n]*`, `${1}text/plain`, ""},

	{"http/method-header", "http-r5", `Mcp-Method: prompts/list`, `Mcp-Method: Prompts/list`, "http/header-not-checked"},
	{"http/name-header", "http-r5", `Mcp-Name: review`, `Mcp-Name: x`, "http/header-not-checked"},
	{"http/param-header", "http-r5", `Mcp-Param-Region: eu`, `Mcp-Param-Region: us`, "http/header-not-checked"},
	{"http/param-header-missing", "http-r5", `Mcp-Param-Region: eu\n`, ``, "http/header-not-checked"},
	{"http/header-not-checked", "http-r5", `Mcp-Method: prompts/list\n`, ``, "http/method-header"},

	{"http/accepted-status", "http-r2 http-r4", `^(< res x\d+\n)202`, `${1}200`, ""},
	{"http/accepted-body", "web-r2 web-r4", `"id":2,"method":"ping"`, `"method":"vendor/x"`, "http/accepted-status jsonrpc/unknown-id"},
	{"http/reply-type", "http-*", `^(< res x\d+\n200.*Content-Type: )application/json`, `${1}text/html`, ""},
	{"http/get-reply", "http-r2 http-r4", `^(< res «^> req (x\d+)\nGET».*Content-Type: )text/event-stream`, `${1}text/html`, ""},
	{"http/status", "web-r5", `^(< res x\d+\n)404`, `${1}200`, ""},
	{"http/challenge-missing", "web-*", `Www-Authenticate: [^\n]*\n`, ``, ""},

	{"http/session-missing", "web-r2 web-r3 web-r4", `^(> req x6\nPOST .*)Mcp-Session-Id: [^\n]*\n`, `$1`, ""},
	{"http/session-kept", "web-r2 web-r3 web-r4", `^(< res x6\n)200`, `${1}404`, ""},
	{"http/session-after-delete", "web-r2 web-r3 web-r4", `^(< res x9\n)404`, `${1}200`, ""},
	{"http/session-id-characters", "web-r2 web-r3 web-r4", `^(< res .*Mcp-Session-Id: )`, `${1}é`, "http/session-missing"},
	{"http/event-id-twice", "http-r4", `^(< msg x\d+\nevent: \nid: )[^\n]+`, `${1}«^< sse x\d+\nevent: \nid: (\S+)»`, ""},
	{"http/response-on-get", "http-r3 http-r4", `^< msg x\d+(.*"contents":\[)`, `< msg «^> req (x\d+)\nGET»$1`, "http/"},
	{"http/retry", "web-r4", `retry: 1\n`, "retry: 60000\n", ""},
	{"http/stream-unfinished", "http-r5", `^< msg .*"text":"done"`, "DROP", "lifecycle/unanswered"},
	{"http/event-name", "http-*", `^< msg (x\d+\nevent: )\n`, "< sse ${1}update\n", ""},
}
