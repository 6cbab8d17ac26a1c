package cli

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"mcpwire/cmd/internal/exit"
	"mcpwire/internal/json/jsonwire"
)

// TestRefusedSessions checks that call names the cause if a server knows none of its sessions.
func TestRefusedSessions(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch {
		case bytes.Contains(body, []byte(`"initialize"`)):
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Mcp-Session-Id", "s")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`, jsonwire.Lookup(body, "id"))
		case r.Header.Get("Mcp-Session-Id") == "":
			w.WriteHeader(http.StatusBadRequest)
		case bytes.Contains(body, []byte(`"notifications/initialized"`)):
			w.WriteHeader(http.StatusAccepted)
		default:
			http.NotFound(w, r)
		}
	}))
	defer srv.Close()
	var out, errs bytes.Buffer
	status := Run(t.Context(), []string{"call", srv.URL, "echo"}, os.Stdin, &out, &errs)
	if got := errs.String(); status != exit.Unreachable || !strings.Contains(got, "error: HTTP status 404 Not Found") || !strings.Contains(got, "hint: the server does not know the session that it has just opened") {
		t.Errorf("status %d, %s: want the status and its cause", status, got)
	}
}
