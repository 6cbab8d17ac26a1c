//go:build unix

package tap

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/proxy/intercept"
	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/internal/test/wait"
	"mcpwire/jsonrpc"
)

func init() {
	// Answers requests with what they are, as a server would.
	helpers["answer"] = func([]string) int {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			var m jsonrpc.Message
			if jsonrpc.Parse(lines.Bytes(), &m, 0) == nil && m.Kind == jsonrpc.KindRequest {
				fmt.Printf("{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"params\":%s}}\n", m.ID, m.Params)
			}
		}
		return 0
	}
}

// TestInterceptBytes checks that a tap with breakpoints forwards hostile bytes exactly if none of
// them is held, also frames that are too long to be held.
func TestInterceptBytes(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 3))
			want := slices.Concat(hostile(r), []byte("\n"), bytes.Repeat([]byte("x"), maxHeldFrame+r.IntN(200_000)), []byte("\r\n"), hostile(r))
			rec := newRecord()
			o := helperOptions(t, "echo", "out", "7")
			o.Record, o.Hooks, o.Breakpoints = rec.w, &rec.hooks, intercept.New(parseFilter(t, "tool:none"), 0)
			h := startHost(t, o)
			var got []byte
			wait.Within(t, "passing the bytes", func() {
				go func() {
					for p := want; len(p) > 0; {
						n := 1 + r.IntN(min(len(p), 1+r.IntN(100_000)))
						if _, err := h.stdin.Write(p[:n]); err != nil {
							t.Error(err)
							return
						}
						p = p[n:]
					}
					h.stdin.Close()
				}()
				got, _ = io.ReadAll(h.stdout)
			})
			if status := h.ends(); status != 7 {
				t.Errorf("status %d, want 7", status)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%d bytes came back, want %d", len(got), len(want))
			}
			all := rec.events(t)
			for _, side := range []capture.Side{capture.Downstream, capture.Upstream} {
				var events []*capture.Event
				for _, e := range all {
					if e.Side == side {
						events = append(events, e)
					}
				}
				for _, dir := range []capture.Dir{capture.ToServer, capture.ToClient} {
					if !bytes.Equal(stream(events, dir), want) {
						t.Errorf("%s %s: the capture has other bytes", side, dir)
					}
				}
			}
		})
	}
}

// TestIntercept checks what happens to held messages, what the host and the server see, and that
// the capture has both versions.
func TestIntercept(t *testing.T) {
	call := func(id int, name string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q}}`, id, name)
	}
	result := func(id int, name string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"params":{"name":%q}}}`, id, name)
	}
	for _, tt := range []struct {
		name, filter string
		send         []string
		decide       []live.Decision
		want         []string // lines that the host gets
		record       []string // messages and links of the capture
	}{
		{"pass", "tool:a", []string{call(1, "a"), call(2, "b")}, []live.Decision{{Action: live.Pass}}, []string{result(1, "a"), result(2, "b")}, []string{
			"downstream c2s " + call(1, "a"), "upstream c2s " + call(1, "a"), "2→4 passed", "downstream c2s " + call(2, "b"), "upstream c2s " + call(2, "b"), "6→7 forwarded",
		}},
		{"edit", "tool:a", []string{call(1, "a")}, []live.Decision{{Action: live.Edit, Data: call(1, "c")}}, []string{result(1, "c")}, []string{
			"downstream c2s " + call(1, "a"), "upstream c2s " + call(1, "c"), "edited",
		}},
		{"drop", "tool:a", []string{call(1, "a"), call(2, "b")}, []live.Decision{{Action: live.Drop}}, []string{result(2, "b")}, []string{
			"downstream c2s " + call(1, "a"), "downstream c2s " + call(2, "b"),
		}},
		{"answer", "tool:a", []string{call(1, "a"), call(2, "b")}, []live.Decision{{Action: live.Answer, Data: `{"jsonrpc":"2.0","id":1,"result":{}}`}}, []string{`{"jsonrpc":"2.0","id":1,"result":{}}`, result(2, "b")}, []string{
			"downstream c2s " + call(1, "a"), `downstream s2c {"jsonrpc":"2.0","id":1,"result":{}}`, "answered",
		}},
		{"the response too", "tool:a", []string{call(1, "a")}, []live.Decision{{Action: live.Pass, HoldResponse: true}, {Action: live.Edit, Data: `{"jsonrpc":"2.0","id":1,"result":{"x":1}}`}}, []string{`{"jsonrpc":"2.0","id":1,"result":{"x":1}}`}, []string{
			"upstream s2c " + result(1, "a"), `downstream s2c {"jsonrpc":"2.0","id":1,"result":{"x":1}}`,
		}},
		{"a response only", "status:ok tool:a", []string{call(1, "a")}, []live.Decision{{Action: live.Drop}}, nil, []string{
			"upstream c2s " + call(1, "a"), "upstream s2c " + result(1, "a"),
		}},
		{"by payload", `has:name "b"`, []string{call(1, "a"), call(2, "b")}, []live.Decision{{Action: live.Drop}}, []string{result(1, "a")}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := newRecord()
			o := helperOptions(t, "answer")
			o.Record, o.Hooks, o.Breakpoints = rec.w, &rec.hooks, intercept.New(parseFilter(t, tt.filter), 0)
			states := make(chan *live.Intercepted, 100)
			o.Breakpoints.Publish(func(s *live.Intercepted) { states <- s })
			h := startHost(t, o)
			var got []string
			wait.Within(t, "the session", func() {
				if _, err := io.WriteString(h.stdin, strings.Join(tt.send, "\n")+"\n"); err != nil {
					t.Error(err)
				}
				for last := uint64(0); len(tt.decide) > 0; {
					s := <-states
					if len(s.Messages) == 0 || s.Messages[0].ID == last {
						continue
					}
					last = s.Messages[0].ID
					d := tt.decide[0]
					tt.decide = tt.decide[1:]
					d.ID = last
					if err := o.Breakpoints.Decide(&d); err != nil {
						t.Error(err)
					}
				}
				lines := bufio.NewScanner(h.stdout)
				for range tt.want {
					if lines.Scan() {
						got = append(got, lines.Text())
					}
				}
				h.stdin.Close()
				for lines.Scan() {
					got = append(got, lines.Text())
				}
			})
			h.ends()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("the host gets (-want +got):\n%s", diff)
			}
			var all []string
			for _, e := range rec.events(t) {
				switch e.Kind {
				case capture.KindMessage:
					all = append(all, fmt.Sprintf("%s %s %s", e.Side, e.Dir, e.Data))
				case capture.KindTranslate:
					all = append(all, fmt.Sprintf("%d→%d %s", e.Translation.Of, e.Translation.To[0], e.Translation.Rule))
				case capture.KindNote:
					all = append(all, string(e.Data))
				}
			}
			text := strings.Join(all, "\n")
			for _, want := range tt.record {
				if !strings.Contains(text, want) {
					t.Errorf("the capture lacks %s:\n%s", want, text)
				}
			}
			if !strings.Contains(text, "held ") {
				t.Errorf("no note says what was held:\n%s", text)
			}
		})
	}
}

func parseFilter(t *testing.T, text string) *filter.Filter {
	t.Helper()
	f, err := filter.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestInterceptEnd checks that a tap ends although a message is held for the server, when the host
// has closed its input or the server has ended.
func TestInterceptEnd(t *testing.T) {
	o := helperOptions(t, "mute")
	o.Breakpoints = intercept.New(parseFilter(t, "method:ping"), 0)
	o.Command, o.Env = []string{"sh", "-c", "exit 3"}, nil
	h := startHost(t, o)
	if _, err := io.WriteString(h.stdin, `{"jsonrpc":"2.0","id":1,"method":"ping"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	if status := h.ends(); status != 3 {
		t.Errorf("status %d, want 3", status)
	}
	h.stdin.Close()
}
