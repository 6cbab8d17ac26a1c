package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/proc/environ"
)

func TestFingerprint(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "gateway.yaml")
	for name, text := range map[string]string{"key": "one", "ca.pem": "one"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	of := func(entry string) string {
		t.Helper()
		c, err := Parse(path, []byte("upstreams:\n  a: {"+entry+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		f, err := c.Fingerprint(c.Upstreams[0])
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	const base = "command: [server, x]"
	for _, tt := range []struct {
		entry string
		same  bool
	}{
		{base, true},
		{"command: [server,   x] # spaces", true},
		{base + ", tools: {deny: [a]}, prompts: {allow: [b]}, resources: {deny: [c]}, rename: {a: b}, pin: hide", true},
		{base + ", limits: {rate: 1, burst: 2, concurrent: 3}", true},
		{base + ", limits: {processes: 3}", false},
		{base + ", isolation: shared", false},
		{base + ", env: {A: b}", false},
		{base + ", inherit: [NO_SUCH_VARIABLE]", false},
		{base + ", timeouts: {call: 1s}", false},
		{"command: [server, y]", false},
	} {
		entry := strings.TrimSuffix(tt.entry, " # spaces")
		if got := of(entry) == of(base); got != tt.same {
			t.Errorf("{%s} and {%s}: same fingerprint: got %v, want %v", entry, base, got, tt.same)
		}
	}
	// These files are read once for a connection.
	for _, entry := range []string{base + `, env: {KEY: "file:key"}`, `url: "https://x.example/mcp", tls: {ca: ca.pem}`} {
		before := of(entry)
		for _, name := range []string{"key", "ca.pem"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(entry), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if of(entry) == before {
			t.Errorf("{%s}: got the same fingerprint after a change of the file", entry)
		}
	}
	// The file of a token is read again for new requests, so it does not affect the fingerprint.
	entry := `url: "https://x.example/mcp", credentials: {token: "file:key"}`
	before := of(entry)
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	if of(entry) != before {
		t.Errorf("{%s}: got another fingerprint after a change of the token", entry)
	}
	c, err := Parse(path, []byte("upstreams:\n  a: {command: a, env: {KEY: \"file:nowhere\"}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Fingerprint(c.Upstreams[0]); err == nil || !strings.HasPrefix(err.Error(), path+":2:30: upstreams.a.env.KEY: ") {
		t.Errorf("missing file: got %v", err)
	}
}

// TestInherited checks which variables of the gateway the process of an upstream gets. No entry can
// make a secret of the gateway one of them.
func TestInherited(t *testing.T) {
	const references = `
auth:
  resource: https://mcp.example.com/mcp
  issuers: [{url: "https://login.example.com", introspection: {endpoint: "https://login.example.com/i", clientId: a, clientSecret: "env:T_INTROSPECTION"}}]
login: {identity: {issuer: "https://login.example.com", id: a, secret: "env:T_IDENTITY"}}
keys: ["env:T_KEY", "env:T_OLD_KEY"]
upstreams:
  b: {command: b, env: {B: "env:T_B", WHERE: "env:HOME"}, disabled: true}
  c: {url: "env:T_URL", headers: {X: "env:T_HEADER"}, credentials: {client: {issuer: "https://login.example.com", id: a, secret: "env:XDG_T_CLIENT"}}}
  d: {url: "https://d.example", credentials: {exchange: {issuer: "https://login.example.com", id: a, secret: "env:T_EXCHANGE"}}}
  e: {url: "https://e.example", credentials: {login: {issuer: "https://login.example.com", id: a, secret: "env:T_LOGIN"}}}
  f: {url: "https://f.example", credentials: {token: "env:T_TOKEN"}}
`
	const collector = "OTEL_EXPORTER_OTLP_HEADERS OTEL_EXPORTER_OTLP_TRACES_HEADERS"
	secrets := strings.Fields("T_INTROSPECTION T_IDENTITY T_KEY T_OLD_KEY T_B T_URL T_HEADER XDG_T_CLIENT T_EXCHANGE T_LOGIN T_TOKEN " + collector)
	for _, name := range append(secrets, "T_OTHER", "OTEL_SERVICE_NAME", "LC_T", "HOME", "PATH") {
		t.Setenv(name, "x")
	}
	for _, tt := range []struct {
		entry string
		want  string // of the names above
	}{
		{"", "HOME LC_T PATH"},
		{"inherit: [T_OTHER]", "HOME LC_T PATH T_OTHER"},
		{"inherit: [T_*, XDG_*]", "HOME LC_T PATH T_OTHER"},
		{`inherit: ["*"]`, "HOME LC_T OTEL_SERVICE_NAME PATH T_OTHER"},
		{`inherit: ["T_*"], env: {T_B: "env:T_B"}`, "HOME LC_T PATH T_OTHER"},
	} {
		c, err := Parse("gateway.yaml", []byte(references+"  a: {command: a, "+tt.entry+"}\n"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, name := range c.Inherited(c.Upstream("a")) {
			if environ.Match(name, append(secrets, strings.Fields("T_OTHER OTEL_SERVICE_NAME LC_T HOME PATH")...)) {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(strings.Fields(tt.want), got); diff != "" {
			t.Errorf("%s: variables (-want +got):\n%s", tt.entry, diff)
		}
	}
}

// TestFingerprintOfInherited checks that a process is replaced if a variable that it has becomes a
// secret.
func TestFingerprintOfInherited(t *testing.T) {
	t.Setenv("T_SHARED", "x")
	of := func(more string) string {
		t.Helper()
		c, err := Parse("gateway.yaml", []byte("upstreams:\n  a: {command: a, inherit: [\"T_*\"]}\n"+more))
		if err != nil {
			t.Fatal(err)
		}
		f, err := c.Fingerprint(c.Upstream("a"))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	if of("") == of(`  b: {url: "https://b.example", credentials: {token: "env:T_SHARED"}}`+"\n") {
		t.Error("got the same fingerprint with and without a reference to an inherited variable")
	}
}
