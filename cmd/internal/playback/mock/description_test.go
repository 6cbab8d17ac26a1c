package mock_test

import (
	"strings"
	"testing"

	"mcpwire/cmd/internal/playback/mock"
)

// TestDescription checks what a mock says about itself if the capture does not have it.
func TestDescription(t *testing.T) {
	request := func(at, id int, method, params string) line {
		return line{at, `→{"jsonrpc":"2.0","id":` + string(rune('0'+id)) + `,"method":"` + method + `"` + params + `}`}
	}
	answer := func(at, id int, answer string) line {
		return line{at, `←{"jsonrpc":"2.0","id":` + string(rune('0'+id)) + `,` + answer + `}`}
	}
	modern := func(more string) string { return `,"params":{` + more + meta + `}` }
	const ok, failed = `"result":{}`, `"error":{"code":-32601,"message":"no"}`
	const head = `{"jsonrpc":"2.0","id":9,"result":`
	for _, tt := range []struct {
		name  string
		lines []line
		ask   string
		want  string // "" for an error
	}{
		{"modern: tools", []line{request(0, 1, "tools/call", modern(`"name":"x",`)), answer(1, 1, ok)}, "discover",
			head + `{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"demo","version":"0"}},"cacheScope":"private","capabilities":{"tools":{}},"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":0}}`},
		{"modern: a failed method, tasks and subscriptions", []line{
			request(0, 1, "prompts/list", modern("")), answer(1, 1, failed),
			request(2, 2, "resources/read", modern(`"uri":"a:b",`)), answer(3, 2, ok),
			request(4, 3, "tasks/get", modern(`"taskId":"t",`)), answer(5, 3, ok),
			request(6, 4, "subscriptions/listen", modern("")),
		}, "discover",
			head + `{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"demo","version":"0"}},"cacheScope":"private","capabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}},"resources":{"listChanged":true}},"resultType":"complete","supportedVersions":["2026-07-28"],"ttlMs":0}}`},
		{"modern: recorded", []line{
			request(0, 1, "server/discover", modern("")), answer(1, 1, `"result":{"supportedVersions":["2026-07-28"],"capabilities":{"prompts":{}}}`),
			request(2, 2, "tools/list", modern("")), answer(3, 2, ok),
		}, "discover", head + `{"supportedVersions":["2026-07-28"],"capabilities":{"prompts":{}}}}`},
		{"modern: initialize", []line{request(0, 1, "tools/list", modern("")), answer(1, 1, ok)}, "initialize", ""},
		{"legacy: without a handshake", []line{
			request(0, 1, "tools/list", ""), answer(1, 1, ok), request(2, 2, "resources/subscribe", `,"params":{"uri":"a:b"}`), answer(3, 2, ok),
		}, "initialize", head + `{"capabilities":{"resources":{"subscribe":true},"tools":{}},"protocolVersion":"2025-11-25","serverInfo":{"name":"demo","version":"0"}}}`},
		{"legacy: recorded", hello, "initialize", head + `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`},
		{"legacy: server/discover", hello, "discover", ""},
	} {
		c := dial(t, recordingOf(t, tt.lines...), &mock.Options{})
		if tt.ask == "discover" {
			c.send(`{"jsonrpc":"2.0","id":9,"method":"server/discover","params":{` + meta + `}}`)
		} else {
			c.send(`{"jsonrpc":"2.0","id":9,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
		}
		got := c.next()
		if got != tt.want && (tt.want != "" || !strings.Contains(got, `"error"`)) {
			t.Errorf("%s:\ngot  %s\nwant %s", tt.name, got, tt.want)
		}
		c.hangUp()
	}
}
