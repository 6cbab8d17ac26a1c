package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mcpwire/auth"
	"mcpwire/client"
	"mcpwire/cmd/internal/exit"
	"mcpwire/internal/test/issuer"
	"mcpwire/internal/test/wait"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// TestGatewayLogin logs in to an upstream of a gateway on standard input and output. The login is
// stored, listed, used after a restart also over HTTP, and revoked.
func TestGatewayLogin(t *testing.T) {
	idp := issuer.Start(t)
	idp.Refresh = true
	srv, err := server.New("web", "1", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.AddTool(srv, "whoami", "Who.", func(ctx context.Context, _ struct{}) (string, error) { return auth.PrincipalOf(ctx).Subject, nil }); err != nil {
		t.Fatal(err)
	}
	upstream := httptest.NewUnstartedServer(nil)
	address := "http://" + upstream.Listener.Addr().String() + "/mcp"
	guard, err := auth.NewGuard(&auth.GuardOptions{Resource: address, Verifier: idp, AuthorizationServers: []string{idp.URL}})
	if err != nil {
		t.Fatal(err)
	}
	h, err := streamable.NewHandler(srv, &streamable.Options{Guard: guard})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	for _, path := range guard.MetadataPaths() {
		mux.Handle(path, guard.Metadata())
	}
	upstream.Config.Handler = mux
	upstream.Start()
	defer upstream.Close()
	defer h.Shutdown(t.Context())

	dir := t.TempDir()
	t.Setenv("MCPWIRE_HOME", dir)
	path := filepath.Join(dir, "gateway.yaml")
	text := fmt.Sprintf("listen: 127.0.0.1:0\nlistWait: 1m\nkeys: [file:key]\naudit: audit.ndjson\nupstreams: {web: {url: %q, credentials: {login: {}}}}\n", address)
	for name, text := range map[string]string{"gateway.yaml": text, "key": strings.Repeat("AbCd", 11) + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(want int, args ...string) string {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if got := Run(t.Context(), args, nil, &stdout, &stderr); got != want {
			t.Errorf("%q: exit status %d, want %d: %s", args, got, want, stderr.String())
		}
		return stdout.String()
	}
	run(exit.OK, "gateway", "check", path)

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	pages := 0
	o := &client.Options{Revisions: revisionsOf("modern")}
	o.Input.ElicitModes = []mcp.ElicitMode{mcp.ElicitModeURL}
	o.Input.Elicit = func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		pages++
		resp, err := browser.Get(p.URL + "/start")
		if err != nil {
			return nil, err
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("the last page has status %d", resp.StatusCode)
		}
		return &mcp.ElicitResult{Action: mcp.ElicitActionAccept}, nil
	}
	whoami := func(c *client.Client) {
		t.Helper()
		if got, err := client.CallTool[string](t.Context(), c, "web__whoami", nil); err != nil || got != "user" {
			t.Errorf("the user is %q upstream, %v", got, err)
		}
	}
	c, err := client.Dial(t.Context(), stdio.Command("mcpwire", "gateway", "--stdio", path), o)
	if err != nil {
		t.Fatal(err)
	}
	whoami(c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}

	list := run(exit.OK, "gateway", "logins", path)
	if want := "local\tweb\t" + address + "\t"; !strings.HasPrefix(list, want) || strings.Count(list, "\n") != 1 {
		t.Errorf("the logins are %q, want one line that begins with %q", list, want)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*", "*.logins", "*.json"))
	if err != nil || len(files) != 2 {
		t.Errorf("the files are %q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(file)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, %v", file, info.Mode(), err)
		}
		for token := range idp.Tokens {
			if strings.Contains(string(text), token) {
				t.Errorf("%s has a token that is not sealed", file)
			}
		}
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
	c, err = client.Dial(t.Context(), streamable.NewTransport(urlLine.FindStringSubmatch(<-log.found)[1], nil), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	whoami(c)
	if pages != 1 {
		t.Errorf("%d logins, want one", pages)
	}
	if got := run(exit.OK, "gateway", "logins", "revoke", path, "local", "web"); got != list {
		t.Errorf("revoked %q, want %q", got, list)
	}
	run(exit.Usage, "gateway", "logins", "revoke", path, "local")
	if got := run(exit.OK, "gateway", "logins", path); got != "" {
		t.Errorf("the logins are %q after all were revoked", got)
	}
	wait.Until(t, "the gateway to notice", func() bool {
		whoami(c)
		return pages == 2
	})
	wait.Until(t, "the lines of the audit", func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "audit.ndjson"))
		return err == nil && strings.Count(string(text), `"method":"login","upstream":"web","outcome":"ok"`) == 2 && strings.Contains(string(text), `"method":"logout","upstream":"web","outcome":"ok"`)
	})
}
