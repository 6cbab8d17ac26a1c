package era

import (
	"testing"

	"mcpwire/mcp"
)

// Spec: S14 S116
func TestComplete(t *testing.T) {
	id := NewIdentity(mcp.Implementation{Name: "n", Version: "v"})
	legacy, modern := Of(mcp.Revision20251125), Of(mcp.LatestRevision)
	hints := &CacheHints{TTLMillis: 5, Public: true}
	const info = `"io.modelcontextprotocol/serverInfo":{"name":"n","version":"v"}`
	for _, tt := range []struct {
		name, result   string
		hints          *CacheHints
		legacy, modern string
	}{
		{"empty", `{}`, nil, `{}`, `{"resultType":"complete","_meta":{` + info + `}}`},
		{"members", `{ "a" : 1 , "\u0062":[ ] }`, nil, `{"a":1,"b":[]}`, `{"a":1,"b":[],"resultType":"complete","_meta":{` + info + `}}`},
		{"complete already", `{"resultType":"complete","a":1}`, nil, `{"a":1}`, `{"a":1,"resultType":"complete","_meta":{` + info + `}}`},
		{"identity already", `{"_meta":{` + info + `,"b":2}}`, nil, `{"_meta":{` + info + `,"b":2}}`, `{"resultType":"complete","_meta":{` + info + `,"b":2}}`},
		{"another meta", `{"_meta":{"b":2},"a":1}`, nil, `{"a":1,"_meta":{"b":2}}`, `{"a":1,"resultType":"complete","_meta":{"b":2,` + info + `}}`},
		{"another type", `{"resultType":"input_required","requestState":"s"}`, hints, `{"requestState":"s"}`,
			`{"requestState":"s","resultType":"input_required","_meta":{` + info + `}}`},
		{"another type and meta", `{"resultType":"task","_meta":{"b":2}}`, hints, `{"_meta":{"b":2}}`, `{"resultType":"task","_meta":{"b":2,` + info + `}}`},
		{"hints", `{"tools":[]}`, hints, `{"tools":[]}`, `{"tools":[],"ttlMs":5,"cacheScope":"public","resultType":"complete","_meta":{` + info + `}}`},
		{"hints already", `{"ttlMs":7,"cacheScope":"private"}`, hints, `{"ttlMs":7,"cacheScope":"private"}`,
			`{"ttlMs":7,"cacheScope":"private","resultType":"complete","_meta":{` + info + `}}`},
		{"one hint", `{"ttlMs":7}`, hints, `{"ttlMs":7}`, `{"ttlMs":7,"cacheScope":"public","resultType":"complete","_meta":{` + info + `}}`},
	} {
		if got := string(id.Complete([]byte("x"), legacy, tt.hints, []byte(tt.result))); got != "x"+tt.legacy {
			t.Errorf("%s, legacy: got %s, want x%s", tt.name, got, tt.legacy)
		}
		if got := string(id.Complete([]byte("x"), modern, tt.hints, []byte(tt.result))); got != "x"+tt.modern {
			t.Errorf("%s, modern: got %s, want x%s", tt.name, got, tt.modern)
		}
	}
}

func TestOpenNotification(t *testing.T) {
	all := Config{Revisions: mcp.Revisions()}
	legacyOnly := Config{Revisions: []mcp.Revision{mcp.Revision20250326, mcp.Revision20250618}}
	modernOnly := Config{Revisions: []mcp.Revision{mcp.Revision20260728}}
	modern := `{"_meta":{` + required + `}}`
	for _, tt := range []struct {
		params                   string
		cfg                      Config
		fresh, answered, isReady string
	}{
		{"", all, "none", "2025-03-26", "2025-03-26"},
		{`{"_meta":{}}`, all, "none", "2025-03-26", "2025-03-26"},
		{modern, all, "2026-07-28", "2026-07-28", "2026-07-28"},
		{modern, legacyOnly, "none", "2025-03-26", "2025-03-26"},
		{"", modernOnly, "none", "", ""},
		{modern, modernOnly, "2026-07-28", "", ""},
		{`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2030-01-01"}}`, all, "-32022", "-32022", "-32022"},
		{`[]`, all, "-32602", "-32602", "-32602"},
		{`{"a":1,"a":2}`, all, "-32602", "-32602", "-32602"},
		{`{"_meta":7}`, all, "-32602", "-32602", "-32602"},
	} {
		for state, want := range []string{tt.fresh, tt.answered, tt.isReady} {
			if state > fresh && len(tt.cfg.Revisions) == 1 {
				continue
			}
			r := request(t, "notifications/x", tt.params)
			session := sessionIn(t, state, tt.cfg)
			if got := verdict(session.OpenNotification(r, session.State())); got != want {
				t.Errorf("%s in state %d: got %s, want %s", tt.params, state, got, want)
			}
		}
	}
}

func TestExtension(t *testing.T) {
	c := &Client{Capabilities: []byte(`{"extensions":{"com.example/a":{"x":1},"com.example/b":{},"com.example/c":null,"com.example/d":true,"` + ExtensionTasks + `":{}}}`)}
	for _, tt := range []struct{ id, legacy, modern string }{
		{"com.example/a", `{"x":1}`, `{"x":1}`},
		{"com.example/b", `{}`, `{}`},
		{"com.example/c", "", ""},
		{"com.example/d", "", ""},
		{"com.example/e", "", ""},
		{ExtensionTasks, "", "{}"},
	} {
		if got := string(c.Extension(Of(mcp.Revision20251125), tt.id)); got != tt.legacy {
			t.Errorf("%s, legacy: got %s, want %s", tt.id, got, tt.legacy)
		}
		if got := string(c.Extension(Of(mcp.LatestRevision), tt.id)); got != tt.modern {
			t.Errorf("%s, modern: got %s, want %s", tt.id, got, tt.modern)
		}
	}
}
