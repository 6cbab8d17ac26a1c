package mcptest_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
	"mcpwire/mcptest"
)

// A serverFunc is a Server.
type serverFunc func(ctx context.Context, f jsonrpc.Framer) error

func (s serverFunc) Serve(ctx context.Context, f jsonrpc.Framer) error { return s(ctx, f) }

// echo sends everything back, "twice" twice and "mute" not at all.
var echo = serverFunc(func(_ context.Context, f jsonrpc.Framer) error {
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return nil
		}
		n := map[string]int{`"twice"`: 2, `"mute"`: 0}
		times, ok := n[string(frame)]
		if !ok {
			times = 1
		}
		for range times {
			if err := f.WriteFrame(frame); err != nil {
				return err
			}
		}
	}
})

// withPeer returns a test that runs script with a peer of echo.
func withPeer(script func(p *mcptest.Peer)) func(t testing.TB) {
	return func(t testing.TB) { script(mcptest.NewPeer(t, mcptest.Serve(t, echo))) }
}

func TestPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		withPeer(func(p *mcptest.Peer) {
			p.Send(`{"id": 1, "a": [true]}`)
			p.Expect(`{"a":[true],"id":"$id"}`)
			if got := p.Value("id"); got != "1" {
				t.Errorf("$id = %s", got)
			}
			p.Set("x", `{"y": "z"}`)
			p.Send(`["$id","$x","$modern"]`)
			p.ExpectRaw(`[1,{"y":"z"},{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}]`)
			p.SendRaw("$x \x00")
			p.ExpectRaw("$x \x00")
			for _, text := range []string{"1", "2", "3"} {
				p.Send(text)
			}
			p.ExpectUnordered("3", `"$one"`, "2")
			if got := p.Value("one"); got != "1" {
				t.Errorf("$one = %s", got)
			}
			p.Send(`"twice"`)
			if got := p.Receive() + p.Receive(); got != `"twice""twice"` {
				t.Errorf("received %s", got)
			}
			p.Send(`"mute"`)
			p.ExpectSilence(time.Hour)
			p.Send("4")
			p.CloseWrite()
			p.Expect("4")
			p.ExpectClose()
			p.ExpectClose() // it stays closed
		})(t)
	})
}

func TestPeerFailures(t *testing.T) {
	const sent = "\nthe session so far:\n  > "
	tests := []struct {
		name string
		test func(t testing.TB)
		want []string
	}{
		{"another message", withPeer(func(p *mcptest.Peer) {
			p.Send(`{"a":1,"b":[{"c":"x"}]}`)
			p.Expect(`{"b": [{"c": "y"}], "a": "$any", "d": null}`)
		}), []string{`Expect: got another message
    b[0].c: got "x", want "y"
    d: missing, want null
want: {"b":[{"c":"y"}],"a":"$any","d":null}
got:  {"a":1,"b":[{"c":"x"}]}` + sent + `{"a":1,"b":[{"c":"x"}]}
  < {"a":1,"b":[{"c":"x"}]}`}},
		{"no message", withPeer(func(p *mcptest.Peer) {
			p.Send(`"mute"`)
			p.Expect(`{"id":1}`)
		}), []string{"Expect: no message within 10s\nwant: {\"id\":1}" + sent + `"mute"`}},
		{"the other side closes", func(t testing.TB) {
			mcptest.NewPeer(t, mcptest.Serve(t, serverFunc(func(context.Context, jsonrpc.Framer) error { return nil }))).Expect("1")
		}, []string{"Expect: the other side has closed the connection\nwant: 1\nthe session so far:\n  ! the other side has closed the connection"}},
		{"not JSON", withPeer(func(p *mcptest.Peer) {
			p.SendRaw("{]")
			p.Expect("{}")
		}), []string{"Expect: the message is not JSON: invalid JSON at byte 1: unexpected ']', want a member name in quotes\ngot:  {]" + sent + "{]\n  < {]"}},
		{"a pattern that is not JSON", withPeer(func(p *mcptest.Peer) { p.Expect("{") }),
			[]string{"Expect: the pattern is not JSON: invalid JSON at byte 1: unexpected end of text, want a member name in quotes\npattern: {"}},
		{"a message that is not JSON", withPeer(func(p *mcptest.Peer) { p.Send("{$x}") }),
			[]string{"Send: invalid JSON at byte 1: unexpected '$', want a member name in quotes\nmessage: {$x}\n(SendRaw sends what is not JSON)"}},
		{"unknown variable", withPeer(func(p *mcptest.Peer) { p.Send(`"$x"`) }),
			[]string{"Send: $x has no value; those that have one: $modern\nmessage: \"$x\"\n(SendRaw sends what is not JSON)"}},
		{"other bytes", withPeer(func(p *mcptest.Peer) {
			p.Send("1.0")
			p.ExpectRaw("1.00")
		}), []string{"ExpectRaw: the message differs from byte 3 on\nwant: 1.00\ngot:  1.0" + sent + "1.0\n  < 1.0"}},
		{"unordered", withPeer(func(p *mcptest.Peer) {
			p.Send("[1]")
			p.Send("[2,3]")
			p.ExpectUnordered(`{"a":1}`, `["$x","$x"]`, "[1]")
		}), []string{`ExpectUnordered: got a message that matches none of the remaining patterns; difference to the closest:
    the message: got [2,3], want {"a":1}
got:  [2,3]
want: {"a":1}
want: ["$x","$x"]` + sent + "[1]\n  > [2,3]\n  < [1]\n  < [2,3]"}},
		{"too few", withPeer(func(p *mcptest.Peer) {
			p.Send("1")
			p.ExpectUnordered("1", "2")
		}), []string{"ExpectUnordered: no message within 10s\nwant: 2" + sent + "1\n  < 1"}},
		{"unexpected message", withPeer(func(p *mcptest.Peer) {
			p.Send("1")
			p.ExpectSilence(time.Second)
		}), []string{"ExpectSilence: got a message\ngot:  1" + sent + "1\n  < 1"}},
		{"silence of a closed connection", withPeer(func(p *mcptest.Peer) {
			p.CloseWrite()
			p.ExpectSilence(time.Second)
		}), []string{"ExpectSilence: the other side has closed the connection\nthe session so far:\n  ! end of output\n  ! the other side has closed the connection"}},
		{"not closed", withPeer(func(p *mcptest.Peer) { p.ExpectClose() }), []string{"ExpectClose: the other side has not closed the connection within 10s"}},
		{"a message instead of the end", withPeer(func(p *mcptest.Peer) {
			p.Send("1")
			p.ExpectClose()
		}), []string{"ExpectClose: got a message\ngot:  1" + sent + "1\n  < 1"}},
		{"the other side does not read", func(t testing.TB) {
			local, _ := mcptest.Pipe()
			p := mcptest.NewPeer(t, local)
			p.SendRaw(strings.Repeat("x", 64<<10))
			p.Timeout = time.Minute
			p.SendRaw("y")
		}, []string{"SendRaw: the other side does not read: it has not read the message within 1m0s" + sent + strings.Repeat("x", 1000) + "… (65536 bytes)\n  > y"}},
		{"an invalid name", withPeer(func(p *mcptest.Peer) { p.Set("a b", "1") }), []string{`Set: "a b" cannot be the name of a variable`}},
		{"a value that is not JSON", withPeer(func(p *mcptest.Peer) { p.Set("a", "b") }),
			[]string{"Set: the value of $a is not JSON: invalid JSON at byte 0: unexpected 'b', want a value\nvalue: b"}},
		{"no value", withPeer(func(p *mcptest.Peer) { p.Value("x") }), []string{"Value: $x has no value; those that have one: $modern"}},
		{"unexpected messages", withPeer(func(p *mcptest.Peer) {
			p.Send(`"twice"`)
			p.Expect(`"twice"`)
			p.Send("2")
		}), []string{"2 unexpected messages; the last: 2" + sent + "\"twice\"\n  < \"twice\"\n  > 2\n  < \"twice\"\n  < 2\n  ! the other side has closed the connection"}},
		{"pending messages are shown", withPeer(func(p *mcptest.Peer) {
			p.Send(`"twice"`)
			p.Expect("1")
		}), []string{"Expect: got another message\n    the message: got \"twice\", want 1\nwant: 1\ngot:  \"twice\"" + sent + "\"twice\"\n  < \"twice\"\n  < \"twice\""}},
		{"no unexpected messages after Close", withPeer(func(p *mcptest.Peer) {
			p.Send("1")
			p.Close()
		}), nil},
		{"Expect after Close", withPeer(func(p *mcptest.Peer) {
			p.Close()
			p.Expect("1")
		}), []string{"Expect: the peer itself has closed the connection\nwant: 1"}},
		{"a server that fails", func(t testing.TB) {
			mcptest.Serve(t, serverFunc(func(_ context.Context, f jsonrpc.Framer) error {
				f.ReadFrame()
				return errors.New("internal failure")
			}))
		}, []string{"the server failed: internal failure"}},
		{"a server that does not end", func(t testing.TB) {
			mcptest.Serve(t, serverFunc(func(ctx context.Context, _ jsonrpc.Framer) error {
				<-ctx.Done()
				return nil
			}))
		}, []string{"the server has not returned within 30s of the end of its connection"}},
		{"a server that does not close", func(t testing.TB) {
			local, remote := mcptest.Pipe()
			t.Cleanup(func() { remote.Close() })
			mcptest.NewPeer(t, local)
		}, []string{"the other side has not closed the connection within 10s of the end of its input"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if diff := cmp.Diff(tt.want, failures(t, tt.test)); diff != "" {
					t.Errorf("failures (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestPeerLongSession checks that the transcript of a long session is cut at its beginning.
func TestPeerLongSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := failures(t, withPeer(func(p *mcptest.Peer) {
			for range 40 {
				p.Send("0")
				p.Expect("0")
			}
			p.Expect("1")
		}))
		want := []string{"Expect: no message within 10s\nwant: 1\nthe session so far:\n  (30 lines before)" + strings.Repeat("\n  > 0\n  < 0", 25)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("failures (-want +got):\n%s", diff)
		}
	})
}

// TestPeerOverStream checks a peer over a byte stream.
func TestPeerOverStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		local, remote := net.Pipe()
		served := make(chan error, 1)
		go func() { served <- echo(t.Context(), jsonrpc.NewFramer(remote, nil)) }()
		p := mcptest.NewPeer(t, jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingHeader, MaxFrame: 20}))
		p.Send("{\n}")
		p.Expect("{}")
		got := failures(t, func(t testing.TB) { mcptest.NewPeer(t, jsonrpc.NewFramer(local, nil)).CloseWrite() })
		if want := []string{"CloseWrite: a *jsonrpc.streamFramer cannot end its output alone; Close ends both directions"}; cmp.Diff(want, got) != "" {
			t.Errorf("failures %q", got)
		}
		p.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// A brokenFramer is a framer with an invalid frame.
type brokenFramer struct{ frames []any }

func (b *brokenFramer) ReadFrame() ([]byte, error) {
	if len(b.frames) == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	f := b.frames[0]
	b.frames = b.frames[1:]
	if err, ok := f.(error); ok {
		return nil, err
	}
	return []byte(f.(string)), nil
}

func (b *brokenFramer) WriteFrame([]byte) error { return errors.New("write failed") }
func (b *brokenFramer) Close() error            { return nil }

func TestPeerOverBrokenTransport(t *testing.T) {
	transport := func() *brokenFramer { return &brokenFramer{[]any{&jsonrpc.FrameError{Reason: "too large"}, "1"}} }
	tests := []struct {
		name   string
		script func(p *mcptest.Peer)
		want   string
	}{
		{"frame", func(p *mcptest.Peer) { p.Expect("1") }, "Expect: too large\nwant: 1\nthe session so far:\n  ! too large"},
		{"write", func(p *mcptest.Peer) { p.Send("1") }, "Send: write failed\nthe session so far:\n  > 1"},
		{"end", func(p *mcptest.Peer) {
			p.ExpectClose()
		}, "ExpectClose: too large\nthe session so far:\n  ! too large"},
	}
	for _, tt := range tests {
		got := failures(t, func(t testing.TB) { tt.script(mcptest.NewPeer(t, transport())) })
		if len(got) != 1 || !strings.HasPrefix(got[0], tt.want) {
			t.Errorf("%s: failures %q, want %q", tt.name, got, tt.want)
		}
	}
}
