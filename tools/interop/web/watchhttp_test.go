package web

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"mcpwire/internal/test/wait"
)

var listening = regexp.MustCompile(`url="?(http://[^\s"]+)`)

// tapHTTP starts the demo server over HTTP and a tap in front of it. It returns the URL of the tap.
func (m *machine) tapHTTP(t *testing.T, name string) string {
	t.Helper()
	upstream := m.listen(t, "serve", "--http", "127.0.0.1:0")
	return m.listen(t, "tap", "--name", name, "--listen", "127.0.0.1:0", upstream)
}

// listen starts mcpwire and returns the URL that it writes to standard error.
func (m *machine) listen(t *testing.T, args ...string) string {
	t.Helper()
	p, err := m.run(args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.stop(syscall.SIGTERM) })
	var found []string
	wait.Until(t, strings.Join(args, " ")+": listen", func() bool {
		found = listening.FindStringSubmatch(p.log.String())
		return found != nil
	})
	return found[1]
}

// post sends a message as a client of an era does, and reads the whole response.
func post(t *testing.T, address, revision, session, message string) (sessionID, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if revision != "" {
		req.Header.Set("Mcp-Protocol-Version", revision)
	}
	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}
	if strings.Contains(message, `"tools/call"`) && session == "" {
		req.Header.Set("Mcp-Method", "tools/call")
		req.Header.Set("Mcp-Name", "slow")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode >= 400 {
		t.Fatalf("POST: status = %s\n%s", resp.Status, text)
	}
	return resp.Header.Get("Mcp-Session-Id"), string(text)
}

// callHTTP makes a call with progress in each era. The response is an event stream.
func callHTTP(t *testing.T, address string) {
	t.Helper()
	const slow = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"slow","arguments":{"steps":3,"delay_ms":15},"_meta":{"progressToken":"p%d"%s}}}`
	session, _ := post(t, address, "", "", `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"old-host","version":"1"}}}`)
	post(t, address, "2025-11-25", session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	post(t, address, "2025-11-25", session, fmt.Sprintf(slow, 1, 1, ""))
	_, body := post(t, address, "2026-07-28", "", fmt.Sprintf(slow, 2, 2, modernMeta))
	if !strings.Contains(body, "notifications/progress") {
		t.Fatalf("stream has no progress:\n%s", body)
	}
}

// modernMeta has the members that each modern request adds after other members of _meta.
const modernMeta = `,"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"new-host","version":"2"}`
