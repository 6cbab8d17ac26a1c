package era

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const required = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}`

// request parses the text of a request.
func request(t *testing.T, method, params string) *rpc.Request {
	t.Helper()
	r := new(rpc.Request)
	text := `{"jsonrpc":"2.0","id":1,"method":"` + method + `"`
	if params != "" {
		text += `,"params":` + params
	}
	if err := jsonrpc.Parse([]byte(text+"}"), &r.Message, 0); err != nil {
		t.Fatal(err)
	}
	return r
}

// outcome is the revision that Open takes a request for, or the code of its error.
func outcome(ex Request, err error) string {
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return fmt.Sprint(int(e.Code))
	}
	if err != nil {
		return err.Error()
	}
	return ex.Revision.String()
}

// The states of a session that TestOpen looks at.
const (
	fresh = iota
	answered
	ready
)

func sessionIn(t *testing.T, state int, cfg Config) *Session {
	t.Helper()
	s := NewSession(cfg)
	if state >= answered {
		if _, err := s.Initialize(request(t, "initialize", `{"protocolVersion":"2025-03-26","capabilities":{"sampling":{}},"clientInfo":{"name":"c"}}`)); err != nil {
			t.Fatal(err)
		}
	}
	if state >= ready && !s.Initialized() {
		t.Fatal("not initialized")
	}
	return s
}

// Spec: S29 S34
func TestOpen(t *testing.T) {
	all := Config{Revisions: mcp.Revisions()}
	lenient := Config{Revisions: mcp.Revisions(), Lenient: true}
	legacyOnly := Config{Revisions: []mcp.Revision{mcp.Revision20250326, mcp.Revision20250618}}
	modernOnly := Config{Revisions: []mcp.Revision{mcp.Revision20260728}}
	modern := `{"_meta":{` + required + `}}`
	for _, tt := range []struct {
		method, params                      string
		fresh, answered, ready              string // with all revisions
		lenient, legacyOnly, modernOnly, is string // in a fresh session; is says what it is about
	}{
		{"tools/list", "", "-32600", "-32600", "2025-03-26", "2025-11-25", "-32600", "-32602", "legacy"},
		{"tools/list", `{"_meta":{}}`, "-32600", "-32600", "2025-03-26", "2025-11-25", "-32600", "-32602", "legacy with metadata"},
		{"tools/list", modern, "2026-07-28", "2026-07-28", "2026-07-28", "2026-07-28", "-32600", "2026-07-28", "modern"},
		{"ping", "", "2025-11-25", "2025-03-26", "2025-03-26", "2025-11-25", "2025-06-18", "-32602", "ping"},
		{"ping", modern, "-32601", "-32601", "-32601", "-32601", "2025-06-18", "-32601", "ping with modern metadata"},
		{"initialize", "", "2025-11-25", "-32600", "-32600", "2025-11-25", "2025-06-18", "-32022", "initialize"},
		{"initialize", modern, "-32601", "-32601", "-32601", "-32601", "2025-06-18", "-32601", "initialize with modern metadata"},
		{"server/discover", "", "-32602", "-32602", "-32602", "-32602", "-32601", "-32602", "discover without metadata"},
		{"server/discover", modern, "2026-07-28", "2026-07-28", "2026-07-28", "2026-07-28", "-32601", "2026-07-28", "discover"},
		{"no/such", "", "-32601", "-32601", "-32601", "-32601", "-32601", "-32602", "unknown method"},
		{"no/such", modern, "-32601", "-32601", "-32601", "-32601", "-32601", "-32601", "unknown method with modern metadata"},
		{"tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-06-18"}}`, "-32022", "-32022", "-32022", "-32022", "-32600", "-32022", "a legacy revision in the metadata"},
		{"tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":1}}`, "-32602", "-32602", "-32602", "-32602", "-32600", "-32602", "no revision in the metadata"},
		{"tools/list", `{"a":1,"a":2}`, "-32602", "-32602", "-32602", "-32602", "-32602", "-32602", "a member twice"},
		{"tools/list", `[]`, "-32602", "-32602", "-32602", "-32602", "-32602", "-32602", "an array"},
		{"tools/list", `{"_meta":"x"}`, "-32602", "-32602", "-32602", "-32602", "-32602", "-32602", "metadata that is none"},
	} {
		t.Run(tt.is, func(t *testing.T) {
			for _, in := range []struct {
				name  string
				cfg   Config
				state int
				want  string
			}{
				{"fresh", all, fresh, tt.fresh},
				{"answered", all, answered, tt.answered},
				{"ready", all, ready, tt.ready},
				{"lenient", lenient, fresh, tt.lenient},
				{"legacy only", legacyOnly, fresh, tt.legacyOnly},
				{"modern only", modernOnly, fresh, tt.modernOnly},
			} {
				s := sessionIn(t, in.state, in.cfg)
				if got := outcome(s.Open(request(t, tt.method, tt.params))); got != in.want {
					t.Errorf("%s: got %s, want %s", in.name, got, in.want)
				}
			}
		})
	}
}

// TestErrorsHaveHints checks that errors say how to fix them.
func TestErrorsHaveHints(t *testing.T) {
	for _, tt := range []struct {
		cfg            Config
		state          int
		method, params string
		want           string
	}{
		{Config{Revisions: mcp.Revisions()}, fresh, "tools/call", "", "tools/call was sent before the handshake was complete: send initialize, then notifications/initialized first, or put io.modelcontextprotocol/protocolVersion"},
		{Config{Revisions: mcp.Revisions()[:4]}, fresh, "tools/call", "", "send initialize, then notifications/initialized first ("},
		{Config{Revisions: mcp.Revisions()}, answered, "tools/call", "", "send notifications/initialized first, or"},
		{Config{Revisions: mcp.Revisions()[4:]}, fresh, "initialize", `{"protocolVersion":"2025-06-18"}`, "this server has no handshake and speaks [2026-07-28]"},
		{Config{Revisions: mcp.Revisions()[4:]}, fresh, "tools/list", "", `params._meta["io.modelcontextprotocol/protocolVersion"] is missing (supported: [2026-07-28])`},
		{Config{Revisions: mcp.Revisions()}, fresh, "tools/list", `{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}`, `params._meta["io.modelcontextprotocol/clientCapabilities"] is missing ({} for none)`},
	} {
		_, err := sessionIn(t, tt.state, tt.cfg).Open(request(t, tt.method, tt.params))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q in it", tt.method, err, tt.want)
		}
	}
}

// Spec: S40 S41
func TestInitialize(t *testing.T) {
	for _, tt := range []struct {
		revisions []mcp.Revision
		asked     string
		want      mcp.Revision
	}{
		{mcp.Revisions(), "2024-11-05", mcp.Revision20241105},
		{mcp.Revisions(), "2025-11-25", mcp.Revision20251125},
		{mcp.Revisions(), "2026-07-28", mcp.Revision20251125},
		{mcp.Revisions(), "2030-01-01", mcp.Revision20251125},
		{mcp.Revisions(), "", mcp.Revision20251125},
		{mcp.Revisions()[:2], "2025-11-25", mcp.Revision20250326},
		{[]mcp.Revision{mcp.Revision20241105, mcp.Revision20250618}, "2025-03-26", mcp.Revision20250618},
	} {
		s := NewSession(Config{Revisions: tt.revisions})
		f, err := s.Initialize(request(t, "initialize", `{"protocolVersion":"`+tt.asked+`"}`))
		if err != nil || f.Revision != tt.want {
			t.Errorf("%s of %v: got %v, %v; want %v", tt.asked, tt.revisions, f, err, tt.want)
		}
		if s.Legacy() != nil {
			t.Errorf("%s of %v: the handshake is complete without notifications/initialized", tt.asked, tt.revisions)
		}
		if !s.Initialized() || s.Legacy() != f || s.Initialized() {
			t.Errorf("%s of %v: notifications/initialized is not taken, or twice", tt.asked, tt.revisions)
		}
	}
	s := NewSession(Config{Revisions: mcp.Revisions()})
	if s.Initialized() {
		t.Error("initialized before initialize")
	}
	for _, params := range []string{"", "{}", `{"protocolVersion":null}`, `{"protocolVersion":["2025-06-18"]}`} {
		if _, err := s.Initialize(request(t, "initialize", params)); outcome(Request{}, err) != "-32602" {
			t.Errorf("%s: got %v, want invalid params", params, err)
		}
	}
}

// TestInitializeOnce starts the handshake on many goroutines: only one performs it.
func TestInitializeOnce(t *testing.T) {
	s := NewSession(Config{Revisions: mcp.Revisions()})
	var wg sync.WaitGroup
	var mu sync.Mutex
	done := map[string]int{}
	for _, revision := range []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"} {
		r := request(t, "initialize", `{"protocolVersion":"`+revision+`"}`)
		wg.Go(func() {
			f, err := s.Initialize(r)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				done[outcome(Request{}, err)]++
				return
			}
			done["ok"]++
			if s.Initialized() {
				done["ready"]++
			}
			if s.Legacy() != f {
				t.Errorf("agreed on %v, but the session has %v", f.Revision, s.Legacy())
			}
		})
	}
	wg.Wait()
	if diff := cmp.Diff(map[string]int{"ok": 1, "ready": 1, "-32600": 3}, done); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPolicy(t *testing.T) {
	for _, tt := range []struct {
		name        string
		revisions   []mcp.Revision
		initialized string
		modernSeen  bool
		want        rpc.Policy
	}{
		{"nothing known", mcp.Revisions(), "", false, rpc.Policy{NoBatches: true}},
		{"modern seen", mcp.Revisions(), "", true, rpc.Policy{NoBatches: true, OmitNullID: true}},
		{"2024-11-05", mcp.Revisions(), "2024-11-05", false, rpc.Policy{NoBatches: true}},
		{"2025-03-26", mcp.Revisions(), "2025-03-26", false, rpc.Policy{}},
		{"2025-03-26 and modern seen", mcp.Revisions(), "2025-03-26", true, rpc.Policy{}},
		{"2025-06-18", mcp.Revisions(), "2025-06-18", false, rpc.Policy{NoBatches: true}},
		{"2025-11-25", mcp.Revisions(), "2025-11-25", false, rpc.Policy{NoBatches: true, OmitNullID: true}},
		{"modern only", mcp.Revisions()[4:], "", false, rpc.Policy{NoBatches: true, OmitNullID: true}},
		{"no batches spoken", mcp.Revisions()[2:], "", false, rpc.Policy{NoBatches: true}},
		{"nothing with null ids spoken", mcp.Revisions()[3:], "", false, rpc.Policy{NoBatches: true, OmitNullID: true}},
	} {
		s := NewSession(Config{Revisions: tt.revisions})
		if tt.initialized != "" {
			if _, err := s.Initialize(request(t, "initialize", `{"protocolVersion":"`+tt.initialized+`"}`)); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(tt.want, s.Policy(tt.modernSeen)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Spec: C31
func TestCancellation(t *testing.T) {
	for _, tt := range []struct {
		text       string
		id, reason string
		ok         bool
	}{
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"a\nb"}}`, "7", "a\nb", true},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a\u0062"}}`, `"a\u0062"`, "", true},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":7}}`, "7", "", true},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7.5}}`, "", "", true},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":null}}`, "", "", true},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled","params":[7]}`, "", "", true},
		{`{"jsonrpc":"2.0","method":"notifications/cancelled"}`, "", "", true},
		{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"requestId":7}}`, "", "", false},
		{`{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":7}}`, "", "", false},
	} {
		var m jsonrpc.Message
		if err := jsonrpc.Parse([]byte(tt.text), &m, 0); err != nil {
			t.Fatal(err)
		}
		id, reason, ok := Cancellation{}.Target(&m)
		if id.String() != tt.id || reason != tt.reason || ok != tt.ok {
			t.Errorf("%s: got %s, %q, %t", tt.text, id, reason, ok)
		}
	}
	name, params := Cancellation{}.Notice(jsonrpc.StringID("x"), "tools/call", "too \"slow\"")
	if got := name + " " + string(params); got != `notifications/cancelled {"requestId":"x","reason":"too \"slow\""}` {
		t.Errorf("got %s", got)
	}
	if name, _ := (Cancellation{}).Notice(jsonrpc.IntID(1), "initialize", ""); name != "" {
		t.Errorf("initialize is cancelled with %s", name)
	}
}

// Spec: S23
func TestParseMeta(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	type facts struct {
		Token, Trace, Client, Caps, Problem string
		Level                               mcp.LoggingLevel
	}
	for _, tt := range []struct {
		members string
		want    facts
	}{
		{required, facts{Caps: "{}"}},
		{required + `,"progressToken":"a\u0062"`, facts{Caps: "{}", Token: `"a\u0062"`}},
		{required + `,"progressToken":-12345678901234567890`, facts{Caps: "{}", Token: "-12345678901234567890"}},
		{required + `,"progressToken":1.0`, facts{Caps: "{}", Problem: `params._meta["progressToken"] must be a string or an integer`}},
		{required + `,"progressToken":null`, facts{Caps: "{}"}},
		{required + `,"io.modelcontextprotocol/logLevel":"warning"`, facts{Caps: "{}", Level: mcp.LevelWarning}},
		{required + `,"io.modelcontextprotocol/logLevel":"warn"`, facts{Caps: "{}", Problem: `params._meta["io.modelcontextprotocol/logLevel"] must be one of debug, info, notice, warning, error, critical, alert, emergency`}},
		{required + `,"io.modelcontextprotocol/clientInfo":{"name":"n","version":"v","extra":1}`, facts{Caps: "{}", Client: "n v"}},
		{required + `,"io.modelcontextprotocol/clientInfo":[]`, facts{Caps: "{}", Client: ""}},
		{required + `,"traceparent":"` + parent + `"`, facts{Caps: "{}", Trace: "0af7651916cd43dd8448eb211c80319c"}},
		{required + `,"traceparent":"nonsense"`, facts{Caps: "{}"}},
		{required + `,"traceparent":"` + parent + `","traceparent":"` + parent + `"`, facts{Caps: "{}", Trace: "0af7651916cd43dd8448eb211c80319c", Problem: "member traceparent of _meta appears twice"}},
		{required + `,"\u0070rogressToken":5`, facts{Caps: "{}", Token: "5"}},
		{required + `,"progressToken":5,"\u0070rogressToken":6`, facts{Caps: "{}", Token: "6", Problem: "member progressToken of _meta appears twice"}},
		{required + `,"ProgressToken":5,"x":1,"x":2`, facts{Caps: "{}"}},
		{`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities": { "sampling" : {} } `, facts{Caps: `{ "sampling" : {} }`}},
		{`"io.modelcontextprotocol/clientCapabilities":{}`, facts{Caps: "{}", Problem: `params._meta["io.modelcontextprotocol/protocolVersion"] is missing (supported: [2026-07-28])`}},
	} {
		m := parseMeta([]byte("{" + tt.members + "}"))
		got := facts{string(m.ProgressToken), m.Trace.ID(), "", string(m.client.Capabilities), m.checkModern(mcp.Revisions()[4:]), m.LogLevel}
		got.Client = strings.TrimSpace(m.client.Info.Name + " " + m.client.Info.Version)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.members, diff)
		}
	}
}

// TestMetaMemo shows that metadata that was parsed for one request is used for the next with the
// same text, and for no other.
func TestMetaMemo(t *testing.T) {
	s := NewSession(Config{Revisions: mcp.Revisions()})
	text := func(token string) []byte { return []byte(`{` + required + `,"progressToken":"` + token + `"}`) }
	a := text("a")
	first := s.meta(a)
	if s.meta(text("a")) != first {
		t.Error("the same text was parsed again")
	}
	copy(a, text("b")) // the frame is used again
	if got := s.meta(a); got == first || string(got.ProgressToken) != `"b"` {
		t.Errorf("another text: got %s", got.ProgressToken)
	}
	if string(first.ProgressToken) != `"a"` {
		t.Errorf("the first has changed to %s", first.ProgressToken)
	}
	big := s.meta(text(strings.Repeat("x", maxMemo)))
	if len(big.ProgressToken) < maxMemo || s.memo.Load() == big {
		t.Error("a huge text is kept")
	}
	if n := testing.AllocsPerRun(100, func() { s.meta(a) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestMetaMemoConcurrently has requests with different metadata come at once: each gets its own.
func TestMetaMemoConcurrently(t *testing.T) {
	s := NewSession(Config{Revisions: mcp.Revisions()})
	var wg sync.WaitGroup
	for g := range 4 {
		r := request(t, "tools/list", fmt.Sprintf(`{"_meta":{%s,"progressToken":%d,"io.modelcontextprotocol/clientInfo":{"name":"%d"}}}`, required, g, g))
		wg.Go(func() {
			for range 1000 {
				ex, err := s.Open(r)
				if err != nil || string(ex.Meta.ProgressToken) != fmt.Sprint(g) || ex.Client.Info.Name != fmt.Sprint(g) {
					t.Errorf("got %s, %s, %v", ex.Meta.ProgressToken, ex.Client.Info.Name, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestClientHas(t *testing.T) {
	const caps = `{"sampling":{},"elicitation":{"form":{},"u\u0072l":{"x":[1]}},"roots":{"listChanged":true},"none":null,"twice":1,"twice":{"a":1}}`
	for _, tt := range []struct {
		path string
		want bool
	}{
		{"", true},
		{"sampling", true},
		{"sampling.tools", false},
		{"elicitation.form", true},
		{"elicitation.url", true},
		{"elicitation.url.x", true},
		{"elicitation.url.x.y", false},
		{"roots.listChanged", true},
		{"roots.listChanged.deeper", false},
		{"none", false},
		{"none.x", false},
		{"Sampling", false},
		{"twice.a", true},
		{"tasks", false},
	} {
		var path []string
		if tt.path != "" {
			path = strings.Split(tt.path, ".")
		}
		c := Client{Capabilities: []byte(caps)}
		if got := c.Has(path...); got != tt.want {
			t.Errorf("Has(%s): got %t", tt.path, got)
		}
		if new(Client).Has(path...) {
			t.Errorf("Has(%s) of a client without capabilities", tt.path)
		}
	}
}
