package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
