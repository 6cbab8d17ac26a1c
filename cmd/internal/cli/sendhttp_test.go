package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"mcpwire/cmd/internal/exit"
)

// TestSendUnanswered sends a request to servers that do not respond, in every possible way.
func TestSendUnanswered(t *testing.T) {
	openStream := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		status  int
		code    string
		flags   []string
	}{
		{"accepted", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }, exit.Unreachable, "no_answer", nil},
		{"stream that ends", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, ": nothing\n\n")
		}, exit.Unreachable, "no_answer", nil},
		{"body that does not end", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"jsonrpc":`)
			http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, exit.Unreachable, "timeout", nil},
		{"status alone", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusMethodNotAllowed) }, exit.OK, "", nil},
		{"stream without an event", openStream, exit.Unreachable, "timeout", []string{"--wait", "50ms"}},
		{"HTTP+SSE without an endpoint", openStream, exit.Unreachable, "timeout", []string{"--transport", "sse", "--connect-timeout", "100ms"}},
		{"HTTP+SSE that ends", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/event-stream") }, exit.Unreachable, "unreachable", []string{"--transport", "sse"}},
		{"HTTP+SSE with another status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }, exit.Unreachable, "http_status", []string{"--transport", "sse"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("MCPWIRE_HOME", t.TempDir())
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				tt.handler(w, r)
			}))
			defer srv.Close()
			stdin, err := os.Open(os.DevNull)
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			var stdout, stderr bytes.Buffer
			args := []string{"send", srv.URL, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "--no-init", "--no-oauth", "--timeout", "100ms", "--errors=json"}
			if got := Run(t.Context(), append(args, tt.flags...), stdin, &stdout, &stderr); got != tt.status {
				t.Errorf("status %d, want %d", got, tt.status)
			}
			lines := bytes.Split(bytes.TrimSpace(stderr.Bytes()), []byte("\n"))
			var line exit.ErrorLine
			_ = json.Unmarshal(lines[len(lines)-1], &line) // empty for any other line
			if line.Error.Code != tt.code {
				t.Errorf("code %q, want %q:\n%s", line.Error.Code, tt.code, stderr.String())
			}
		})
	}
}
