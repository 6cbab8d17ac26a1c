package replay_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/replay"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/jsonrpc"
)

const (
	callA        = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`
	callB        = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"b"}}`
	callC        = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"c"}}`
	answerA      = `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"a"}]}}`
	answerB      = `{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"b"}]}}`
	answerC      = `{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"c"}]}}`
	askLine      = `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"who?"}}`
	elicitedName = `{"jsonrpc":"2.0","id":"q","result":{"action":"accept","content":{"name":"Ada"}}}`
)

// echo responds with the request's arguments.
func echo(f *fakeServer, m *jsonrpc.Message) {
	if m.Kind == jsonrpc.KindRequest {
		f.result(m, content(m))
	}
}

func content(m *jsonrpc.Message) string {
	name, _ := m.Param("name")
	return fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, name)
}

// A playing is a test case: a recording, a server, and the expected reports.
type playing struct {
	name  string
	lines []line // messages after the handshake
	serve func() func(f *fakeServer, m *jsonrpc.Message)
	opts  replay.Options
	want  []string // expected results
	sent  []string // messages after the handshake; nil if they are not compared
	err   error
	took  time.Duration // minimum
}

func TestPlay(t *testing.T) {
	for _, tt := range playings() {
		t.Run(tt.name, func(t *testing.T) {
			rec := read(t, session(tt.lines...))
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(tt.serve())
				var got logLines
				tt.opts.Report = got.add
				start := time.Now()
				sum, err := replay.Play(t.Context(), rec, capture.TransportStdio, f, &tt.opts)
				if !errors.Is(err, tt.err) {
					t.Errorf("error %v, want %v", err, tt.err)
				}
				want := append([]string{"1 initialize: same"}, tt.want...)
				if diff := cmp.Diff(want, []string(got)); diff != "" {
					t.Errorf("results (-want +got):\n%s", diff)
				}
				if tt.sent != nil {
					if diff := cmp.Diff(tt.sent, f.sent[2:]); diff != "" {
						t.Errorf("sent (-want +got):\n%s", diff)
					}
				}
				if d := time.Since(start); d < tt.took {
					t.Errorf("the replay took %v, want at least %v", d, tt.took)
				}
				if ok := !strings.Contains(strings.Join(got, "\n"), "different") && tt.err == nil; sum.OK() && !ok {
					t.Errorf("the summary reports no difference: %+v", sum)
				}
			})
		})
	}
}

func playings() []playing {
	return append(append(orders(), asks()...), failures()...)
}

func orders() []playing {
	return []playing{
		{
			name:  "no difference",
			lines: []line{c2s(10, callA), s2c(11, answerA), c2s(12, callB), s2c(13, answerB)},
			serve: func() func(*fakeServer, *jsonrpc.Message) { return echo },
			want:  []string{"4 tools/call a: same", "6 tools/call b: same"},
			sent:  []string{callA, callB},
		},
		{
			name:  "concurrent and sequential requests",
			lines: []line{c2s(10, callA), c2s(11, callB), s2c(12, answerB), c2s(13, callC), s2c(14, answerC), s2c(15, answerA)},
			serve: func() func(*fakeServer, *jsonrpc.Message) {
				start := time.Now()
				return func(f *fakeServer, m *jsonrpc.Message) {
					if string(m.ID) == "3" {
						if d := time.Since(start); d != time.Second {
							panic(fmt.Sprintf("it came after %v, while b is answered after a second", d))
						}
						f.result(m, content(m))
						return
					}
					f.later(map[string]time.Duration{"1": time.Minute / 4, "2": time.Second}[string(m.ID)], m, content(m))
				}
			},
			want: []string{"4 tools/call a: same", "5 tools/call b: same", "7 tools/call c: same"},
			sent: []string{callA, callB, callC},
			took: 15 * time.Second,
		},
		{
			name:  "pauses are kept",
			lines: []line{c2s(1002, callA), s2c(1500, answerA), c2s(61500, callB), s2c(61501, answerB)},
			serve: func() func(*fakeServer, *jsonrpc.Message) { return echo },
			opts:  replay.Options{Timing: replay.Keep},
			want:  []string{"4 tools/call a: same", "6 tools/call b: same"},
			took:  61 * time.Second,
		},
		{
			name:  "a different result, and an error",
			lines: []line{c2s(10, callA), s2c(11, answerA), c2s(12, callB), s2c(13, answerB)},
			serve: func() func(*fakeServer, *jsonrpc.Message) {
				return func(f *fakeServer, m *jsonrpc.Message) {
					if string(m.ID) == "1" {
						f.result(m, `{"content":[{"type":"text","text":"x"}]}`)
						return
					}
					f.say(`{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no"}}`)
				}
			},
			want: []string{"4 tools/call a: different replace /result/content/0/text", "6 tools/call b: different answer /error"},
		},
		{
			name:  "only the selected requests",
			lines: []line{c2s(10, callA), s2c(11, answerA), c2s(12, callB), s2c(13, answerB)},
			serve: func() func(*fakeServer, *jsonrpc.Message) { return echo },
			opts:  replay.Options{Select: func(_ string, n uint64) bool { return n == 6 }},
			want:  []string{"6 tools/call b: same"},
			sent:  []string{callB},
		},
		{
			name: "progress counts once, and its number is not compared",
			lines: []line{
				c2s(10, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":5},"name":"a"}}`),
				s2c(11, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}`), s2c(12, answerA),
				c2s(13, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"_meta":{"progressToken":6},"name":"b"}}`),
				s2c(14, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":6,"progress":1}}`), s2c(15, answerB),
			},
			serve: func() func(*fakeServer, *jsonrpc.Message) {
				return func(f *fakeServer, m *jsonrpc.Message) {
					if string(m.ID) == "1" {
						for range 3 {
							f.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}`)
						}
					}
					echo(f, m)
				}
			},
			want: []string{"4 tools/call a: same", "7 tools/call b: different notifications "},
		},
		{
			name: "a missing notification",
			lines: []line{
				s2c(5, `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`), c2s(10, callA), s2c(11, answerA),
			},
			serve: func() func(*fakeServer, *jsonrpc.Message) { return echo },
			want:  []string{"5 tools/call a: same", "0 notifications: same notifications  (note)"},
		},
	}
}

func asks() []playing {
	return []playing{
		{
			name:  "an input request",
			lines: []line{c2s(10, callA), s2c(11, askLine), c2s(12, elicitedName), s2c(13, answerA)},
			serve: func() func(*fakeServer, *jsonrpc.Message) {
				var first *jsonrpc.Message
				return func(f *fakeServer, m *jsonrpc.Message) {
					if m.Kind == jsonrpc.KindRequest {
						first = m.Clone()
						f.say(strings.Replace(askLine, `"q"`, `77`, 1))
						return
					}
					f.result(first, `{"content":[{"type":"text","text":"a"}]}`)
				}
			},
			want: []string{"4 tools/call a: same", "5 asked elicitation/create: same"},
			sent: []string{callA, strings.Replace(elicitedName, `"q"`, `77`, 1)},
		},
		{
			name:  "an earlier input request",
			lines: []line{c2s(10, callA), s2c(11, answerA), c2s(12, callB), s2c(13, askLine), c2s(14, elicitedName), s2c(15, answerB)},
			serve: func() func(*fakeServer, *jsonrpc.Message) {
				var first *jsonrpc.Message
				return func(f *fakeServer, m *jsonrpc.Message) {
					switch {
					case string(m.ID) == "1":
						first = m.Clone()
						f.say(askLine)
					case m.Kind == jsonrpc.KindRequest:
						echo(f, m)
					default:
						echo(f, first)
					}
				}
			},
			want: []string{"4 tools/call a: same", "6 tools/call b: same", "7 asked elicitation/create: same"},
			took: 500 * time.Millisecond,
		},
		{
			name:  "no input request",
			lines: []line{c2s(10, callA), s2c(11, askLine), c2s(12, elicitedName), s2c(13, answerA)},
			serve: func() func(*fakeServer, *jsonrpc.Message) { return echo },
			want:  []string{"4 tools/call a: same", "5 asked elicitation/create: different"},
			sent:  []string{callA},
		},
		{
			name:  "a new input request, and a ping",
			lines: []line{c2s(10, callA), s2c(11, answerA)},
			serve: func() func(*fakeServer, *jsonrpc.Message) {
				var first *jsonrpc.Message
				return func(f *fakeServer, m *jsonrpc.Message) {
					switch {
					case m.Kind == jsonrpc.KindRequest:
						first = m.Clone()
						f.say(`{"jsonrpc":"2.0","id":"p","method":"ping"}`)
						f.say(askLine)
					case string(m.ID) == `"q"`:
						echo(f, first)
					}
				}
			},
			want: []string{"0 asked elicitation/create: different", "4 tools/call a: same"},
			sent: []string{callA, `{"jsonrpc":"2.0","id":"p","result":{}}`, `{"jsonrpc":"2.0","id":"q","result":{"action":"decline"}}`},
		},
		{
			name: "two concurrent requests, responses in reverse order",
			lines: []line{
				c2s(10, callA),
				s2c(11, askLine), s2c(11, `{"jsonrpc":"2.0","id":"r","method":"elicitation/create","params":{"message":"where?"}}`),
				c2s(12, elicitedName), c2s(12, `{"jsonrpc":"2.0","id":"r","result":{"action":"cancel"}}`), s2c(13, answerA),
			},
			serve: func() func(*fakeServer, *jsonrpc.Message) {
				var first *jsonrpc.Message
				n := 0
				return func(f *fakeServer, m *jsonrpc.Message) {
					if m.Kind == jsonrpc.KindRequest {
						first = m.Clone()
						f.say(`{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{"message":"where?"}}`)
						f.say(`{"jsonrpc":"2.0","id":2,"method":"elicitation/create","params":{"message":"who?"}}`)
						return
					}
					if n++; n == 2 {
						echo(f, first)
					}
				}
			},
			want: []string{"4 tools/call a: same", "5 asked elicitation/create: same", "6 asked elicitation/create: same"},
			sent: []string{
				callA, `{"jsonrpc":"2.0","id":2,"result":{"action":"accept","content":{"name":"Ada"}}}`, `{"jsonrpc":"2.0","id":1,"result":{"action":"cancel"}}`,
			},
		},
	}
}

func failures() []playing {
	many := func() (list []line) {
		for i := range 10 {
			list = append(list, c2s(10+2*i, strings.Replace(callA, `:1,`, fmt.Sprintf(`:%d,`, 10+i), 1)), s2c(11+2*i, strings.Replace(answerA, `:1,`, fmt.Sprintf(`:%d,`, 10+i), 1)))
		}
		return list
	}()
	return []playing{
		{
			name:  "one timeout",
			lines: []line{c2s(10, callA), s2c(11, answerA), c2s(12, callB), s2c(13, answerB)},
			serve: func() func(*fakeServer, *jsonrpc.Message) {
				return func(f *fakeServer, m *jsonrpc.Message) {
					if string(m.ID) == "2" {
						echo(f, m)
					}
				}
			},
			want: []string{"4 tools/call a: timeout", "6 tools/call b: same"},
			took: replay.DefaultTimeout,
		},
		{
			name:  "every request times out",
			lines: many,
			serve: func() func(*fakeServer, *jsonrpc.Message) { return func(*fakeServer, *jsonrpc.Message) {} },
			want:  []string{"4 tools/call a: timeout", "6 tools/call a: timeout", "8 tools/call a: timeout"},
			err:   resend.ErrTimeout,
		},
		{
			name:  "slow, with progress",
			lines: []line{c2s(10, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":5},"name":"a"}}`), s2c(11, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}`), s2c(12, answerA)},
			serve: func() func(*fakeServer, *jsonrpc.Message) {
				return func(f *fakeServer, m *jsonrpc.Message) {
					for i := range 4 {
						time.AfterFunc(time.Duration(i+1)*20*time.Second, func() {
							f.say(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":5,"progress":1}}`)
						})
					}
					f.later(100*time.Second, m, content(m))
				}
			},
			want: []string{"4 tools/call a: same"},
			took: 100 * time.Second,
		},
		{
			name:  "invalid messages and stray responses",
			lines: []line{c2s(10, callA), s2c(11, answerA)},
			serve: func() func(*fakeServer, *jsonrpc.Message) {
				return func(f *fakeServer, m *jsonrpc.Message) {
					f.say("console.log")
					f.say(`{"jsonrpc":"2.0","id":99,"result":{}}`)
					f.say(`[]`)
					echo(f, m)
				}
			},
			want: []string{"4 tools/call a: same"},
		},
		{
			name: "a request without a recorded response",
			lines: []line{
				c2s(10, callA), c2s(12, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`), c2s(13, callB), s2c(14, answerB),
			},
			serve: func() func(*fakeServer, *jsonrpc.Message) {
				return func(f *fakeServer, m *jsonrpc.Message) {
					if string(m.ID) == "2" {
						echo(f, m)
					}
				}
			},
			want: []string{"4 tools/call a: open", "6 tools/call b: same"},
			sent: []string{callA, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, callB},
		},
	}
}

// TestServerEnds shows that the replay does not wait for a server that has ended.
func TestServerEnds(t *testing.T) {
	rec := read(t, session(c2s(10, callA), s2c(11, answerA), c2s(12, callB), s2c(13, answerB), c2s(14, callC), s2c(15, answerC)))
	synctest.Test(t, func(t *testing.T) {
		var got logLines
		f := newFakeServer(func(f *fakeServer, m *jsonrpc.Message) {
			if string(m.ID) == "2" {
				f.die()
				return
			}
			echo(f, m)
		})
		sum, err := replay.Play(t.Context(), rec, capture.TransportStdio, f, &replay.Options{Report: got.add})
		if ended, ok := errors.AsType[*wireclient.EndedError](err); !ok {
			t.Errorf("error %v, want an EndedError", ended)
		}
		if diff := cmp.Diff(logLines{"1 initialize: same", "4 tools/call a: same", "6 tools/call b: lost"}, got); diff != "" {
			t.Error(diff)
		}
		if want := (replay.Summary{Requests: 4, Same: 2, Lost: 1, Unsent: 1}); *sum != want {
			t.Errorf("summary %+v, want %+v", *sum, want)
		}
	})
}
