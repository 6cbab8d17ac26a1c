package era

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/mcp"
)

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
		{required + `,"traceparent":"` + parent + `","traceparent":"` + parent + `"`, facts{Caps: "{}", Trace: "0af7651916cd43dd8448eb211c80319c", Problem: "member traceparent of _meta stands twice"}},
		{required + `,"\u0070rogressToken":5`, facts{Caps: "{}", Token: "5"}},
		{required + `,"progressToken":5,"\u0070rogressToken":6`, facts{Caps: "{}", Token: "6", Problem: "member progressToken of _meta stands twice"}},
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

// TestMetaMemo: what was parsed for one request serves the next with the same text, and no other.
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
