package streamable_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"mcpwire/internal/test/buffer"
	"mcpwire/server"
	"mcpwire/streamable"
)

// TestForeignResponse shows that a process refuses the response to a request that it has not sent,
// so that a client behind a proxy that sent it elsewhere does not wait for nothing.
//
// Spec: S71
func TestForeignResponse(t *testing.T) {
	keys := newStateKeys(t)
	for _, shared := range []struct {
		name  string
		so    *server.Options
		o     streamable.Options
		warns bool
	}{
		{"alone", nil, streamable.Options{}, false},
		{"keys", &server.Options{StateKeys: keys}, streamable.Options{}, true},
		{"store", nil, streamable.Options{Sessions: streamable.NewMemorySessions()}, true},
	} {
		for _, version := range legacyVersions {
			t.Run(shared.name+"/"+version, func(t *testing.T) {
				log := new(buffer.Buffer)
				shared.o.Logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
				start := func() *endpoint {
					e := newEndpoint(t, shared.so, &shared.o)
					err := server.AddTool(e.srv, "roots", "", func(ctx context.Context, _ struct{}) (string, error) {
						roots, err := server.CallOf(ctx).Roots(ctx, "roots")
						if err != nil {
							return "", err
						}
						return roots[0].Name, nil
					})
					if err != nil {
						t.Fatal(err)
					}
					return e
				}
				first, second := start(), start()
				v := first.visit(version, `{"roots":{}}`, nil)
				f := v.open(request(`"a"`, "tools/call", `{"name":"roots"}`))
				var ask struct {
					ID     json.RawMessage
					Method string
				}
				for ask.Method == "" {
					if _, data := f.next(); data != "" {
						if err := json.Unmarshal([]byte(data), &ask); err != nil {
							t.Fatal(err)
						}
					}
				}
				id := string(ask.ID)
				result := func(id string) string {
					return `{"jsonrpc":"2.0","id":` + id + `,"result":{"roots":[{"uri":"file:///x","name":"mine"}]}}`
				}
				refused := func(s *legacySession, body string) {
					t.Helper()
					if got := s.post(body); got.status != 400 || !strings.Contains(got.body, "no request with the id") {
						t.Errorf("%s: %d %s, want a refusal", body, got.status, got.body)
					}
				}
				foreign := []string{`99`, `0`, `-1`, `"1"`, `"x"`, `"X44GTS47.1.1"`}
				if process, ok := strings.CutSuffix(id, `.1.1"`); ok { // shared
					foreign = append(foreign, process+`.1.2"`, process+`.1.0"`, process+`.1.01"`, process+`.9.1"`, process+`"`)
				}
				for _, id := range foreign {
					refused(v, result(id))
				}
				refused(v, `{"jsonrpc":"2.0","id":99,"error":{"code":-1,"message":"x"}}`)
				refused(first.visit(version, "{}", nil), result(id)) // another session
				if shared.warns {
					refused(&legacySession{second, v.headers}, result(id))
				}
				if version == "2025-03-26" {
					refused(v, "["+result("99")+`,{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}]`)
				}
				for range 2 { // the second is late, which is no reason to refuse it
					if got := v.post(result(id)); got.status != 202 {
						t.Errorf("at the right process: %d %s", got.status, got.body)
					}
				}
				if _, data := f.next(); !strings.Contains(data, "mine") {
					t.Errorf("result %s", data)
				}
				if warned := strings.Count(log.String(), "Options.Nodes"); warned != map[bool]int{true: 1}[shared.warns] {
					t.Errorf("%d warnings, shared %v: %s", warned, shared.warns, log)
				}
			})
		}
	}
}
