package mcptest_test

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/mcptest"
)

// ask is a client: it sends a message and waits for one.
func ask(t testing.TB, e *mcptest.End, message string) string {
	t.Helper()
	if err := e.WriteFrame([]byte(message)); err != nil {
		return fmt.Sprint(err)
	}
	frame, err := e.ReadFrame()
	if err != nil {
		return fmt.Sprint(err)
	}
	return string(frame)
}

func TestScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := mcptest.Script(t, func(p *mcptest.Peer) {
			p.Expect(mcptest.Request(0, "$id", "ping", ""))
			p.Send(mcptest.Result("$id", "{}"))
			p.ExpectClose()
		})
		defer e.Close()
		if got, want := ask(t, e, `{"jsonrpc":"2.0","id":7,"method":"ping"}`), `{"jsonrpc":"2.0","id":7,"result":{}}`; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestScriptFailures(t *testing.T) {
	one := func(p *mcptest.Peer) {
		p.Expect("1")
		p.Send("-1")
	}
	tests := []struct {
		name   string
		script func(p *mcptest.Peer)
		client func(t testing.TB, e *mcptest.End)
		want   []string
	}{
		{"none", one, func(t testing.TB, e *mcptest.End) {
			if got := ask(t, e, "1"); got != "-1" {
				t.Errorf("the client got %s", got)
			}
		}, nil},
		// The client is told, and the rest of its test goes on.
		{"another message", one, func(t testing.TB, e *mcptest.End) {
			if got := ask(t, e, "2"); got != "EOF" {
				t.Errorf("the client got %s", got)
			}
		}, []string{"Expect: another message came\n    the message: got 2, want 1\nwant: 1\ngot:  2\nthe session so far:\n  < 2"}},
		{"not played to its end", one, func(testing.TB, *mcptest.End) {},
			[]string{"Expect: the other side has hung up\nwant: 1\nthe session so far:\n  ! the other side has hung up"}},
		{"more than expected", one, func(t testing.TB, e *mcptest.End) {
			ask(t, e, "1")
			e.WriteFrame([]byte("2"))
		}, []string{"messages came that were not expected, 1 of them; the last: 2\nthe session so far:\n  < 1\n  > -1\n  < 2\n  ! the other side has hung up"}},
		{"it hangs up itself", func(p *mcptest.Peer) {
			p.Expect("1")
			p.Close()
		}, func(t testing.TB, e *mcptest.End) {
			if got := ask(t, e, "1"); got != "EOF" {
				t.Errorf("the client got %s", got)
			}
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := failures(t, func(t testing.TB) { tt.client(t, mcptest.Script(t, tt.script)) })
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("failures (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestScriptThatDoesNotReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		got := failures(t, func(t testing.TB) { mcptest.Script(t, func(*mcptest.Peer) { <-gate }) })
		if want := []string{"the script has not returned within 30s of the end of the test"}; cmp.Diff(want, got) != "" {
			t.Errorf("failures %q", got)
		}
		close(gate)
	})
}
