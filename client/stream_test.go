package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
)

// TestStream: a request without an end has its id before anything comes for it, and no timeout. It ends in the ways that the specification knows.
// Spec: C39 C40
func TestStream(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(*script, message)
		want string
		err  func(error) bool
	}{
		{"result", func(s *script, m message) { s.answer(m, `{"resultType":"complete"}`) }, `{"resultType":"complete"}`, nil},
		{"cancelled by the server", func(s *script, m message) {
			s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}`)
			s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}`)
			s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, m.ID)
			s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, m.ID)
			elapse(time.Millisecond) // else either may be seen first
			s.answer(m, `{}`)
		}, "", nil},
		{"error", func(s *script, m message) { s.refuse(m, -32602, "") }, "", IsPeer},
		{"wrong result", func(s *script, m message) { s.answer(m, `{"resultType":"odd"}`) }, "", is[*ProtocolError]},
		{"connection lost", func(s *script, m message) { s.conn.Close() }, "", isConnectionLost},
		{"cancelled", func(s *script, m message) {
			s.send(`{"jsonrpc":"2.0","method":"enough"}`)
			if got := memberOf(s.t, string(s.expect("notifications/cancelled").Params), "requestId"); got != string(m.ID) {
				s.fail("cancelled %s", got)
			}
		}, "", func(err error) bool { return errors.Is(err, context.Canceled) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dial(t, &Options{CallTimeout: time.Second, MaxCallTimeout: time.Second, Reconnect: ReconnectPolicy{Disabled: true}}, func(s *script) {
					s.discovers()
					m := s.expect("subscriptions/listen")
					if memberOf(s.t, string(m.Params), "_meta", "io.modelcontextprotocol/protocolVersion") != `"2026-07-28"` || memberOf(s.t, string(m.Params), "a") != "1" {
						s.fail("got %s", m.line)
					}
					s.send(`{"jsonrpc":"2.0","method":"ack","params":{"id":%s}}`, m.ID)
					elapse(time.Hour)
					tt.end(s, m)
					elapse(time.Minute)
					s.conn.Close()
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var id, acked string
				defer c.onNotify("ack", func(params []byte) {
					if acked = memberOf(t, string(params), "id"); acked != id {
						t.Errorf("acknowledged %s before the id %s was known", acked, id)
					}
				})()
				defer c.onNotify("enough", func([]byte) { cancel() })()
				got, err := c.stream(ctx, "subscriptions/listen", []byte(`{"a":1}`), func(i jsonrpc.ID) { id = i.String() })
				if string(got) != tt.want || (err == nil) != (tt.err == nil) || err != nil && !tt.err(err) || acked == "" {
					t.Errorf("got %s, %v; acknowledged %s", got, err, acked)
				}
				elapse(time.Second) // for what the script has still to send
			})
		})
	}
}
