package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"mcpwire/client"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/internal/test/issuer"
	"mcpwire/internal/test/wait"
	"mcpwire/server"
	"mcpwire/streamable"
)

// TestGatewayAuth runs a gateway from a configuration with an issuer, views, token exchange and an
// audit. Each caller sees its view, and the upstream gets a token of each caller, never the one
// that the caller sent.
func TestGatewayAuth(t *testing.T) {
	idp := issuer.Start(t)
	idp.JWT = true
	idp.Clients["gateway"] = "gateway-secret"
	idp.AuthMethods("client_secret_basic")
	var mu sync.Mutex
	sent := map[string]bool{} // the tokens that the upstream got
	srv, err := server.New("web", "1", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"search", "delete"} {
		if err := server.AddTool(srv, name, "A tool.", func(context.Context, struct{}) (string, error) { return name, nil }); err != nil {
			t.Fatal(err)
		}
	}
	h, err := streamable.NewHandler(srv, nil)
	if err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		sent[r.Header.Get("Authorization")] = true
		mu.Unlock()
		h.ServeHTTP(w, r)
	}))
	defer upstream.Close()
	defer h.Shutdown(t.Context())

	dir := t.TempDir()
	t.Setenv("MCPWIRE_HOME", dir)
	t.Setenv("GATEWAY_SECRET", "gateway-secret")
	if folder, err := captures.Dir(); err != nil || !strings.HasPrefix(folder, dir) {
		t.Fatalf("captures are in %s, %v", folder, err)
	}
	const resource = "https://gw.example.com/mcp"
	path := filepath.Join(dir, "gateway.yaml")
	text := fmt.Sprintf(`
listen: 127.0.0.1:0
listWait: 1m
auth: {resource: %s, issuers: [{url: "%s"}]}
upstreams:
  web:
    url: %s
    credentials: {exchange: {issuer: "%s", id: gateway, secret: env:GATEWAY_SECRET, audience: web}}
views:
  - {match: {claims: {team: support}}, allow: ["web__search"]}
  - {match: {scopes: [admin]}, allow: ["*"]}
audit: audit.ndjson
`, resource, idp.URL, upstream.URL, idp.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	log := newLineWaiter("url=")
	ended := make(chan int, 1)
	go func() { ended <- Run(ctx, []string{"gateway", path}, nil, new(bytes.Buffer), log) }()
	defer func() {
		stop()
		if status := <-ended; status != exit.OK {
			t.Errorf("exit status %d\n%s", status, log.text())
		}
	}()
	var url string
	select {
	case line := <-log.found:
		url = urlLine.FindStringSubmatch(line)[1]
	case status := <-ended:
		ended <- status
		t.Fatalf("the gateway ended with status %d:\n%s", status, log.text())
	}

	callers := []struct {
		subject string
		more    map[string]any
		want    []string
	}{
		{"ada", map[string]any{"team": "support"}, []string{"web__search"}},
		{"bob", map[string]any{"scope": "admin"}, []string{"web__search", "web__delete"}},
		{"eve", map[string]any{"team": "sales"}, nil},
	}
	secrets := []string{"gateway-secret"}
	for _, caller := range callers {
		token := idp.Token(caller.subject, resource, caller.more)
		secrets = append(secrets, token)
		for _, era := range []string{"legacy", "modern"} {
			o := &streamable.TransportOptions{Header: http.Header{"Authorization": {"Bearer " + token}}}
			c, err := client.Dial(t.Context(), streamable.NewTransport(url, o), &client.Options{Revisions: revisionsOf(era)})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var names []string
			for tool, err := range c.Tools(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, tool.Name)
			}
			if diff := gocmp.Diff(caller.want, names); diff != "" {
				t.Errorf("%s %s: tools (-want +got):\n%s", era, caller.subject, diff)
			}
			_, err = c.CallTool(t.Context(), "web__delete", nil)
			if allowed := len(caller.want) == 2; (err == nil) != allowed {
				t.Errorf("%s %s: call of web__delete: %v, want allowed %v", era, caller.subject, err, allowed)
			}
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, token := range secrets {
		if sent["Bearer "+token] {
			t.Errorf("the upstream got %s", token)
		}
	}
	if len(sent) == 0 || sent[""] {
		t.Errorf("the upstream got the tokens %v, want one of each caller", sent)
	}
	wait.Until(t, "six lines of audit", func() bool {
		audit, err := os.ReadFile(filepath.Join(dir, "audit.ndjson"))
		return err == nil && bytes.Count(audit, []byte("\n")) == 6 && bytes.Count(audit, []byte(`"outcome":"denied"`)) == 4
	})
	for _, token := range secrets {
		if strings.Contains(log.text(), token) {
			t.Error("the log has a secret")
		}
	}
}

// A lineWaiter is a log that finds the first line with a text.
type lineWaiter struct {
	want  string
	found chan string

	mu  sync.Mutex
	all bytes.Buffer
}

func newLineWaiter(want string) *lineWaiter {
	return &lineWaiter{want: want, found: make(chan string, 1)}
}

// Write implements io.Writer.
func (w *lineWaiter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all.Write(p)
	for line := range strings.Lines(w.all.String()) {
		if strings.Contains(line, w.want) && strings.HasSuffix(line, "\n") {
			select {
			case w.found <- line:
			default:
			}
			break
		}
	}
	return len(p), nil
}

func (w *lineWaiter) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all.String()
}
