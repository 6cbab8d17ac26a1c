package interop

import (
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mcpwire/capture"
	"mcpwire/check"
	"mcpwire/client"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// The secrets that the tests send. Each contains the same word, for which the captures are
// searched.
const (
	plantedBearer = "planted-bearer-Zx81kQ0"
	plantedCookie = "planted-cookie-77aQwe"
	plantedKey    = "planted-apikey-0123456789"
	plantedEnv    = "planted-env-abcdefgh"
	plantedArg    = "planted-argument-9876"
	plantedPEM    = "-----BEGIN PRIVATE KEY-----\nplantedMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n-----END PRIVATE KEY-----"
)

// writeSecrets sends secrets to the tool echo, which returns them.
func writeSecrets(t *testing.T, c *client.Client) {
	t.Helper()
	if _, err := c.CallTool(t.Context(), "echo", map[string]any{"text": "the key is here: " + plantedPEM + " and Authorization: Bearer " + plantedBearer}); err != nil {
		t.Error(err)
	}
	if _, err := c.CallTool(t.Context(), "echo", map[string]any{"text": "hello", "api_key": plantedKey, "nested": map[string]any{"password": plantedKey}}); err != nil {
		t.Log(err) // the server may reject unknown arguments; they were on the wire
	}
}

// checkSecrets checks that a capture has no secrets, has redacted values, and still follows the
// rules.
func checkSecrets(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if i := bytes.Index(text, []byte("planted")); i >= 0 {
		t.Errorf("capture has a secret: …%s…", text[max(0, i-120):min(len(text), i+60)])
	}
	if !bytes.Contains(text, []byte("~redacted:")) {
		t.Error("capture has no redacted value")
	}
	r, err := capture.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	calls := 0
	for e, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(e.Data, []byte(`"tools/call"`)) {
			calls++
		}
	}
	if calls != 2 {
		t.Errorf("calls in the capture = %d, want 2", calls)
	}
	again, err := capture.Open(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	for f, err := range check.Run(again, &check.Options{Disabled: []string{"tools/arguments"}}) {
		if err != nil {
			t.Fatal(err)
		}
		if f.Rule.Severity > check.Info {
			t.Errorf("%s at event %d %s: %s", f.Rule.ID, f.Event, f.Pointer, f.Message)
		}
	}
}

// TestTapSecrets sends secrets in the places where users have them, in both eras, and checks that
// the capture of a tap has none.
func TestTapSecrets(t *testing.T) {
	for _, revision := range []string{latestLegacy, modern} {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "secrets"+capture.Suffix)
			server := []string{"sh", "-c", `echo "connecting with token=` + plantedArg + `" >&2; exec "$0" serve`, serverCommand[0], "--token", plantedArg}
			tap := stdio.Command(serverCommand[0], append([]string{"tap", "-o", file, "--"}, server...)...)
			tap.Env = []string{"SERVICE_API_KEY=" + plantedEnv}
			c, err := client.Dial(t.Context(), tap, &client.Options{Revisions: revisionsOf(revision)})
			if err != nil {
				t.Fatal(err)
			}
			writeSecrets(t, c)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			checkSecrets(t, file)
		})
	}
}

// TestTapSecretsHTTP is TestTapSecrets over HTTP, which adds headers and sessions.
func TestTapSecretsHTTP(t *testing.T) {
	t.Setenv("INTEROP_PLANTED", plantedBearer)
	for _, revision := range []string{latestLegacy, modern} {
		t.Run(revision, func(t *testing.T) {
			upstream := newWebProgram(t, webPath, termVerb, serverCommand[0], "serve", "--http", "127.0.0.1:0", "--token-env", "INTEROP_PLANTED")
			file := filepath.Join(t.TempDir(), "secrets"+capture.Suffix)
			downstream := newWebProgram(t, webPath, termVerb, serverCommand[0], "tap", "-o", file, "--listen", "127.0.0.1:0", upstream.web.url())
			header := http.Header{"Authorization": {"Bearer " + plantedBearer}, "Cookie": {"sid=" + plantedCookie}, "X-Api-Key": {plantedKey}}
			ctx, cancel := context.WithTimeout(t.Context(), tourTimeout)
			defer cancel()
			c, err := client.Dial(ctx, streamable.NewTransport(downstream.web.url()+"?api_key="+plantedKey, &streamable.TransportOptions{Header: header}), &client.Options{Revisions: revisionsOf(revision)})
			if err != nil {
				t.Fatal(err)
			}
			writeSecrets(t, c)
			session := sessionOf(downstream.web)
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			downstream.web.stop()
			upstream.web.stop()
			checkSecrets(t, file)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if session == "" && revision != modern {
				t.Error("session id is empty")
			}
			if session != "" && strings.Contains(string(text), session) {
				t.Error("capture has the session id")
			}
		})
	}
}

// sessionOf returns the session id that the host sent.
func sessionOf(w *webServer) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.httpEvents {
		if id := m.x.header.Get("Mcp-Session-Id"); id != "" {
			return id
		}
	}
	return ""
}

// TestTapVersion checks that the tap passes all arguments of the server's command.
func TestTapVersion(t *testing.T) {
	out, err := exec.Command(serverCommand[0], "tap", "--no-record", "--", serverCommand[0], "--version").Output()
	if err != nil || !strings.Contains(string(out), "mcpwire ") {
		t.Errorf("mcpwire --version through a tap = %q, %v", out, err)
	}
}
