package gatewayd

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"mcpwire/cmd/internal/proxy/gateway"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
)

// TestAdminTexts checks that a server cannot write to the terminal of an operator who reads
// /upstreamz.
func TestAdminTexts(t *testing.T) {
	const hostile = "x\x1b]0;owned\a \u009b31m \u202e \x7f"
	w := httptest.NewRecorder()
	writeAdminJSON(w, []gateway.UpstreamStatus{{Name: "up", Server: hostile, LastError: hostile}})
	for _, r := range w.Body.String() {
		if r < ' ' && r != '\n' || r >= 0x7f {
			t.Errorf("%U is not escaped in %q", r, w.Body)
			break
		}
	}
	var got []gateway.UpstreamStatus
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got[0].Server != hostile || got[0].LastError != hostile {
		t.Errorf("got %+v, %v", got, err)
	}
	if !strings.HasSuffix(w.Body.String(), "]\n") {
		t.Error("there is no line break at the end")
	}
	w = httptest.NewRecorder()
	writeAdminJSON(w, "sh -c 'a >&2 </x'")
	if got, want := w.Body.String(), "\"sh -c 'a >&2 </x'\"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestConfigz checks that a configuration is shown without the secrets that its check has not seen,
// and otherwise as it is.
func TestConfigz(t *testing.T) {
	const secret = "Zq8Lx0Tn4Vb7Kd2Rw5Yc"
	text := `listen: 127.0.0.1:1
instructions: "Give password: ` + secret + `!"
keys: ["env:KEY"]
upstreams:
  a: {command: [srv, ` + secret + `], args: [--plain, ` + secret + `, --level, debug], env: {FOO: ` + secret + `, BAR: blue, REF: "env:REF"}}
  b: {url: "https://x.example/mcp", headers: {X-Foo: ` + secret + `, X-Tenant: blue, X-Ref: "file:/run/secret"}, credentials: {token: "env:TOKEN"}}
`
	c, err := gatewayconfig.Parse("gateway.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	writeAdminJSON(w, withoutSecrets(c))
	got := w.Body.String()
	if strings.Contains(got, secret) {
		t.Errorf("the secret is in %s", got)
	}
	for _, want := range []string{`"srv"`, `"--level"`, `"debug"`, `"BAR": "blue"`, `"env:REF"`, `"X-Tenant": "blue"`, `"file:/run/secret"`, `"env:TOKEN"`, `"env:KEY"`, `"https://x.example/mcp"`} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is missing in %s", want, got)
		}
	}
	if got := c.Upstream("a").Args[1]; got != secret {
		t.Errorf("the configuration itself was changed: %s", got)
	}
}

func TestLocalOnly(t *testing.T) {
	h := LocalOnly(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, tt := range []struct {
		host, origin string
		want         int
	}{{"localhost:80", "", 200}, {"evil.example.com", "", 403}, {"localhost:80", "http://evil.example.com", 403}} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Host = tt.host
		r.Header.Set("Origin", tt.origin)
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != tt.want {
			t.Errorf("Host %q, Origin %q: status %d, want %d", tt.host, tt.origin, w.Code, tt.want)
		}
	}
}
