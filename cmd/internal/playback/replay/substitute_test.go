package replay_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/replay"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/jsonrpc"
)

// substitution is a test of the values that are put into messages: a recording without its
// handshake, the server's responses by the number of the message, and the messages that it gets.
type substitution struct {
	name    string
	lines   []line
	answers []string // results, or errors if they begin with "!"
	opts    replay.Options
	sent    []string
	want    []string
	check   func(error) bool
}

const placeholder = "~redacted:secret:0123456789ab:16~"

func modern(id int, method, params string) string {
	if params != "" {
		params = "," + params
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s%s}}`, id, method, modernParams, params)
}

func result(id int, text string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, id, text)
}

func TestSubstitutes(t *testing.T) {
	for _, tt := range substitutions() {
		t.Run(tt.name, func(t *testing.T) {
			rec := read(t, record(tt.lines...))
			synctest.Test(t, func(t *testing.T) {
				n := 0
				f := newFakeServer(func(f *fakeServer, m *jsonrpc.Message) {
					if m.Kind != jsonrpc.KindRequest || n == len(tt.answers) {
						return
					}
					if text, bad := strings.CutPrefix(tt.answers[n], "!"); bad {
						f.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":%s}`, m.ID, text))
					} else {
						f.result(m, text)
					}
					n++
				})
				f.hello = true
				var got logLines
				tt.opts.Report = got.add
				_, err := replay.Play(t.Context(), rec, capture.TransportStdio, f, &tt.opts)
				if tt.check == nil && err != nil || tt.check != nil && !tt.check(err) {
					t.Errorf("error %v", err)
				}
				if diff := cmp.Diff(tt.sent, f.sent); diff != "" {
					t.Errorf("sent (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.want, []string(got)); diff != "" {
					t.Errorf("results (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func substitutions() []substitution {
	return append(chosenByServer(), hiddenAndForeign()...)
}

func chosenByServer() []substitution {
	ask := func(key, state string) string {
		return `{"resultType":"input_required","inputRequests":{"` + key + `":{"method":"elicitation/create","params":{"message":"who?"}}},"requestState":"` + state + `"}`
	}
	list := `{"tools":[],"resultType":"complete"`
	return []substitution{
		{
			name: "a cursor",
			lines: []line{
				c2s(1, modern(1, "tools/list", "")), s2c(2, result(1, list+`,"nextCursor":"old"}`)), c2s(3, modern(2, "tools/list", `"cursor":"old"`)), s2c(4, result(2, list+`}`)),
			},
			answers: []string{list + `,"nextCursor":"new"}`, list + `}`},
			sent:    []string{modern(1, "tools/list", ""), modern(2, "tools/list", `"cursor":"new"`)},
			want:    []string{"1 tools/list: same", "3 tools/list: same"},
		},
		{
			name: "a page that does not exist",
			lines: []line{
				c2s(1, modern(1, "tools/list", "")), s2c(2, result(1, list+`,"nextCursor":"old"}`)), c2s(3, modern(2, "tools/list", `"cursor":"old"`)), s2c(4, result(2, list+`}`)),
			},
			answers: []string{list + `}`},
			sent:    []string{modern(1, "tools/list", "")},
			want:    []string{"1 tools/list: different remove /result/nextCursor", "3 tools/list: skipped"},
		},
		{
			name: "a round of input",
			lines: []line{
				c2s(1, modern(1, "tools/call", `"name":"t"`)), s2c(2, result(1, ask("k", "s1"))),
				c2s(3, modern(2, "tools/call", `"name":"t","inputResponses":{"k":{"action":"accept"}},"requestState":"s1"`)), s2c(4, result(2, `{"content":[]}`)),
			},
			answers: []string{ask("other", "s2"), `{"content":[]}`},
			sent:    []string{modern(1, "tools/call", `"name":"t"`), modern(2, "tools/call", `"name":"t","inputResponses":{"other":{"action":"accept"}},"requestState":"s2"`)},
			want:    []string{"1 tools/call t: different remove /result/inputRequests/k add /result/inputRequests/other", "3 tools/call t: same"},
		},
		{
			name: "no state, and an additional input request",
			lines: []line{
				c2s(1, modern(1, "tools/call", `"name":"t"`)), s2c(2, result(1, ask("k", "s1"))),
				c2s(3, modern(2, "tools/call", `"name":"t","inputResponses":{"k":{"action":"accept"}},"requestState":"s1"`)), s2c(4, result(2, `{"content":[]}`)),
			},
			answers: []string{
				`{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"who?"}},"l":{"method":"elicitation/create"},"m":{"method":"roots/list"}}}`,
				`{"content":[]}`,
			},
			sent: []string{
				modern(1, "tools/call", `"name":"t"`),
				modern(2, "tools/call", `"name":"t","inputResponses":{"k":{"action":"accept"},"l":{"action":"decline"},"m":{"roots":[]}}`),
			},
			want: []string{"1 tools/call t: different add /result/inputRequests/l add /result/inputRequests/m remove /result/requestState", "3 tools/call t: same"},
		},
		{
			name: "no input required",
			lines: []line{
				c2s(1, modern(1, "tools/call", `"name":"t"`)), s2c(2, result(1, `{"resultType":"input_required","requestState":"s1"}`)),
				c2s(3, modern(2, "tools/call", `"name":"t","requestState":"s1"`)), s2c(4, result(2, `{"content":[]}`)),
			},
			answers: []string{`{"resultType":"complete"}`},
			sent:    []string{modern(1, "tools/call", `"name":"t"`)},
			want:    []string{"1 tools/call t: different replace /result/resultType remove /result/requestState", "3 tools/call t: skipped"},
		},
		{
			name: "a slower task",
			lines: []line{
				c2s(1, modern(1, "tools/call", `"name":"t"`)), s2c(2, result(1, `{"resultType":"task","taskId":"old","status":"working","createdAt":"2026-11-20T12:00:00Z","ttlMs":null}`)),
				c2s(3, modern(2, "tasks/get", `"taskId":"old"`)), s2c(4, result(2, `{"taskId":"old","status":"working"}`)),
				c2s(5, modern(3, "tasks/get", `"taskId":"old"`)), s2c(6, result(3, `{"taskId":"old","status":"completed","result":{"content":[]}}`)),
			},
			answers: []string{
				`{"resultType":"task","taskId":"new","status":"working","createdAt":"2027-01-01T00:00:00Z","ttlMs":5}`,
				`{"taskId":"new","status":"working"}`, `{"taskId":"new","status":"working","pollIntervalMs":50}`, `{"taskId":"new","status":"completed","result":{"content":[]}}`,
			},
			sent: []string{
				modern(1, "tools/call", `"name":"t"`), modern(2, "tasks/get", `"taskId":"new"`), modern(3, "tasks/get", `"taskId":"new"`),
				strings.Replace(modern(3, "tasks/get", `"taskId":"new"`), `:3,`, `:"mcpwire-poll-1",`, 1),
			},
			want: []string{"1 tools/call t: same", "3 tasks/get old: same", "5 tasks/get old: same"},
		},
		{
			name: "a batch",
			lines: []line{
				c2s(0, strings.ReplaceAll(initializeLine, "2025-11-25", "2025-03-26")), s2c(1, strings.ReplaceAll(welcomeLine, "2025-11-25", "2025-03-26")), c2s(2, greetedLine),
				c2s(3, "["+callA+","+callB+"]"), s2c(4, "["+answerB+","+answerA+"]"),
			},
			answers: []string{`{"protocolVersion":"2025-03-26","capabilities":{},"serverInfo":{"name":"s","version":"2"}}`},
			opts:    replay.Options{Select: func(_ string, n uint64) bool { return n != 4 }},
			sent:    []string{strings.ReplaceAll(initializeLine, "2025-11-25", "2025-03-26"), greetedLine},
			want:    []string{"1 initialize: same replace /result/serverInfo/version (note)"},
		},
	}
}

func hiddenAndForeign() []substitution {
	secret := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + modernParams + `,"name":"t","arguments":{"key":"` + placeholder + `"}}}`
	era := func(modern bool) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*replay.EraError](err)
			return ok && e.Modern == modern
		}
	}
	return []substitution{
		{
			name:  "requests with redacted values are not sent",
			lines: []line{c2s(1, secret), s2c(2, answerA)},
			want:  []string{`1 tools/call t: hidden ["/params/arguments/key"]`},
		},
		{
			name:    "redacted values are filled in, and match anything in a response",
			lines:   []line{c2s(1, secret), s2c(2, result(1, `{"content":[{"type":"text","text":"key is `+placeholder+`!"}],"key":"`+placeholder+`"}`))},
			answers: []string{`{"content":[{"type":"text","text":"key is 12!"}],"key":"12"}`},
			opts:    replay.Options{Set: map[string][]byte{"/params/arguments/key": []byte(`"sesame"`)}},
			sent:    []string{strings.Replace(secret, placeholder, "sesame", 1)},
			want:    []string{`1 tools/call t: same`},
		},
		{
			name:  "a handshake with a redacted value",
			lines: []line{c2s(1, strings.Replace(initializeLine, `"name":"c"`, `"name":"`+placeholder+`"`, 1)), s2c(2, welcomeLine)},
			check: func(err error) bool { _, ok := errors.AsType[*resend.RedactedError](err); return ok },
		},
		{
			name:    "a legacy server",
			lines:   []line{c2s(1, modern(1, "server/discover", "")), s2c(2, result(1, `{}`)), c2s(3, modern(2, "tools/list", "")), s2c(4, result(2, `{}`))},
			answers: []string{`!{"code":-32601,"message":"no such method"}`},
			sent:    []string{modern(1, "server/discover", "")},
			want:    []string{"1 server/discover: different answer /error"},
			check:   era(true),
		},
		{
			name:    "a modern server",
			lines:   []line{c2s(0, initializeLine), s2c(1, welcomeLine), c2s(2, greetedLine), c2s(3, callA), s2c(4, answerA)},
			answers: []string{`!{"code":-32601,"message":"no such method"}`},
			sent:    []string{initializeLine},
			want:    []string{"1 initialize: different answer /error"},
			check:   era(false),
		},
		{
			name:    "a server that rejects the handshake for another reason",
			lines:   []line{c2s(0, initializeLine), s2c(1, welcomeLine), c2s(2, greetedLine)},
			answers: []string{`!{"code":-32603,"message":"database is down"}`},
			sent:    []string{initializeLine},
			want:    []string{"1 initialize: different answer /error"},
			check:   func(err error) bool { _, ok := errors.AsType[*resend.HandshakeError](err); return ok },
		},
		{
			name:    "a recorded error",
			lines:   []line{c2s(1, modern(1, "server/discover", "")), s2c(2, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no"}}`), c2s(3, modern(2, "x", "")), s2c(4, result(2, `{}`))},
			answers: []string{`!{"code":-32601,"message":"no"}`, `{}`},
			sent:    []string{modern(1, "server/discover", ""), modern(2, "x", "")},
			want:    []string{"1 server/discover: same", "3 x: same"},
		},
	}
}

// TestSyntheticHandshake shows that a handshake is added to a recording that begins within a
// session.
func TestSyntheticHandshake(t *testing.T) {
	rec := read(t, record(c2s(10, callA), s2c(11, answerA)))
	if !rec.Synthetic {
		t.Error("the recording is not marked as one without a handshake")
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(func(f *fakeServer, m *jsonrpc.Message) {
			if m.Kind == jsonrpc.KindRequest {
				f.result(m, content0(m))
			}
		})
		f.hello = true
		var got logLines
		if _, err := replay.Play(t.Context(), rec, capture.TransportStdio, f, &replay.Options{Report: got.add}); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(logLines{"1 tools/call a: same"}, got); diff != "" {
			t.Error(diff)
		}
		if len(f.sent) != 3 || !strings.Contains(f.sent[0], `"initialize"`) || f.sent[1] != greetedLine || f.sent[2] != callA {
			t.Errorf("sent %q", f.sent)
		}
	})
}

func content0(m *jsonrpc.Message) string {
	if string(m.Method) == "initialize" {
		return `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`
	}
	return content(m)
}
