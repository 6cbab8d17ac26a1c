package cli

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mcpwire/internal/test/issuer"
)

// newLoginServer returns an MCP server that requires a login. The page of its authorization server
// must not be opened without consent.
func newLoginServer(t *testing.T) *httptest.Server {
	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	idp := issuer.New(s.URL)
	idp.Document()["authorization_endpoint"] = s.URL + "/transfer?amount=1000"
	idp.Metadata["/.well-known/oauth-protected-resource/mcp"] = map[string]any{"resource": s.URL + "/mcp", "authorization_servers": []string{s.URL}}
	mux.Handle("/", idp)
	mux.HandleFunc("/mcp", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="`+s.URL+`/.well-known/oauth-protected-resource/mcp"`)
		w.WriteHeader(http.StatusUnauthorized)
	})
	return s
}

// TestLoginAsks logs in on a terminal: the browser opens after Enter, and not before or after any
// other key.
func TestLoginAsks(t *testing.T) {
	if _, err := exec.LookPath("script"); err != nil {
		t.Skip("script(1) is not installed")
	}
	for _, tt := range []struct {
		name, typed, want string
	}{
		{"Enter", "\n", "opened http"},
		{"no", "no\n", "The browser could not be opened"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, dir := newLoginServer(t), t.TempDir()
			// The browser prints the URL that it opens on the terminal.
			if err := os.WriteFile(filepath.Join(dir, "xdg-open"), []byte("#!/bin/sh\necho \"opened $1\" > /dev/tty\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			// The shell gets Ctrl-C too, and must survive to print the exit status.
			cmd := exec.Command("script", "-qec", "trap : INT; mcpwire list "+s.URL+"/mcp; echo ended $?", "/dev/null")
			cmd.Env = append(os.Environ(), "SHELL=/bin/sh", "MCPWIRE_HOME="+dir, "TERM=xterm", "CI=", "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer cmd.Process.Kill() // if the test ends early; else it has no effect
			terminal := bufio.NewReader(out)
			shown := until(t, terminal, "yourself: ")
			for _, want := range []string{"server                " + s.URL + "\r\n", "authorization server  " + s.URL + "\r\n", s.URL + "/transfer?amount=1000&client_id=client-1"} {
				if !strings.Contains(shown, want) {
					t.Errorf("%q is not shown:\n%s", want, shown)
				}
			}
			if strings.Contains(shown, "opened http") {
				t.Errorf("the browser opened without consent:\n%s", shown)
			}
			if _, err := io.WriteString(in, tt.typed); err != nil {
				t.Fatal(err)
			}
			if said := until(t, terminal, tt.want); tt.want != "opened http" && strings.Contains(said, "opened http") {
				t.Errorf("the browser opened:\n%s", said)
			}
			if _, err := io.WriteString(in, "\x03"); err != nil { // Ctrl-C cancels the login
				t.Fatal(err)
			}
			if rest := until(t, terminal, "ended "); strings.Contains(rest, "opened http") {
				t.Errorf("the browser opened once more:\n%s", rest)
			}
		})
	}
}

// until reads up to a text and returns what was read.
func until(t *testing.T, r *bufio.Reader, text string) string {
	t.Helper()
	var b strings.Builder
	for !strings.HasSuffix(b.String(), text) {
		c, err := r.ReadByte()
		if err != nil {
			t.Fatalf("no %q: %v\n%s", text, err, b.String())
		}
		b.WriteByte(c)
	}
	return b.String()
}
