package replay_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/client"
	"mcpwire/cmd/internal/playback/replay"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// slowTool is the greeting of a server that also has the tools of addWaiting.
const slowTool = "patient"

// addWaiting adds a tool that waits until it is canceled, and one that waits for that.
func addWaiting(srv *server.Server, check func(error)) {
	gone := make(chan struct{}, 100)
	check(server.AddTool(srv, "wait", "Waits.", func(ctx context.Context, _ struct{}) (string, error) {
		if err := server.CallOf(ctx).Progress(1, 2, ""); err != nil {
			return "", err
		}
		<-ctx.Done()
		gone <- struct{}{}
		return "", ctx.Err()
	}))
	check(server.AddTool(srv, "given_up", "Waits for the end of a call.", func(ctx context.Context, _ struct{}) (string, error) {
		select {
		case <-gone:
			return "it was given up", nil
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}))
}

const callWaiting = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait","_meta":{"progressToken":"p","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`

// TestCanceledRequest replays, over each transport, a client that cancels a request during another
// one. The server gets the cancellation in the transport's own form, before the client's next
// message.
func TestCanceledRequest(t *testing.T) {
	web := func(rev mcp.Revision) []byte {
		return recordClient(t, rev, slowTool, func(c *client.Client) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			_, err := c.CallTool(ctx, "wait", nil, client.WithProgress(func(*mcp.ProgressNotificationParams) { cancel() }))
			if !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			if _, err := c.CallTool(t.Context(), "given_up", nil); err != nil {
				t.Fatal(err)
			}
		}).Bytes()
	}
	pipe := record(
		c2s(0, callWaiting), s2c(1, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p","progress":1,"total":2}}`),
		c2s(2, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`),
		c2s(3, strings.NewReplacer(`"id":1`, `"id":2`, `"wait"`, `"given_up"`, `"progressToken":"p",`, "").Replace(callWaiting)),
		s2c(4, `{"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","content":[{"type":"text","text":"it was given up"}]}}`),
	).Bytes()
	for from, file := range map[string][]byte{"modern HTTP": web(mcp.Revision20260728), "modern stdio": pipe, "legacy HTTP": web(mcp.Revision20250618)} {
		for to, o := range targets(t, slowTool, from == "legacy HTTP") {
			t.Run(from+" to "+to, func(t *testing.T) {
				file := file
				for range 2 { // the capture of a replay can be replayed too
					var got logLines
					sum, again := play(t, read(t, bytes.NewBuffer(file)), o, slowTool, &got)
					want := logLines{"tools/call wait: open", "tools/call given_up: same"}
					for i := range got {
						_, got[i], _ = strings.Cut(got[i], " ")
					}
					if diff := cmp.Diff(want, got[len(got)-2:]); diff != "" || !sum.OK() {
						t.Errorf("summary %+v (-want +got):\n%s", *sum, diff)
					}
					file = again
				}
			})
		}
	}
}

// recordWeb returns a capture of modern clients over HTTP.
func recordWeb(events ...*capture.Event) *bytes.Buffer {
	var file bytes.Buffer
	enc := capture.NewEncoder(&file, &capture.Redaction{Off: true})
	head := &capture.Event{Kind: capture.KindHead, Head: &capture.Head{Version: 1, ID: "A", At: began, Tool: "test", Transport: "http", Name: "shop"}}
	for i, e := range append([]*capture.Event{head}, events...) {
		e.N, e.T = uint64(i), time.Duration(i)*time.Millisecond
		if e.Session == 0 && i > 0 {
			e.Session = 1
		}
		if err := enc.Encode(e); err != nil {
			panic(err)
		}
	}
	if err := enc.Flush(); err != nil {
		panic(err)
	}
	return &file
}

func webAsks(exchange uint64) *capture.Event {
	return &capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: exchange, Request: &capture.Request{Method: "POST", URL: "/mcp", Proto: "HTTP/1.1"}}
}

func webCalls(exchange uint64, id int, tool string) *capture.Event {
	text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,%s}}`, id, tool, modernParams)
	return &capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Exchange: exchange, Data: []byte(text)}
}

func webAnswers(exchange uint64, id int, tool string) *capture.Event {
	text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":%q}]}}`, id, tool)
	return &capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Exchange: exchange, Data: []byte(text)}
}

func webEnds(exchange uint64, why string) *capture.Event {
	return &capture.Event{Kind: capture.KindEnd, Exchange: exchange, Data: []byte(why)}
}

// TestDisconnected replays requests whose HTTP clients have disconnected, over an in-memory pipe,
// and checks the times of the messages.
func TestDisconnected(t *testing.T) {
	const gaveUp = "client closed"
	const logMessage = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}`
	for _, tt := range []struct {
		name     string
		file     *bytes.Buffer
		want     []string // times and messages
		notified logLines
	}{
		{
			name: "a message waits for the responses that preceded it",
			file: recordWeb(webAsks(1), webCalls(1, 1, "slow"), webAsks(2), webCalls(2, 2, "wait"), webAnswers(1, 1, "slow"), webEnds(1, ""), webEnds(2, gaveUp),
				webAsks(3), webCalls(3, 3, "c"), webAnswers(3, 3, "c"), webEnds(3, "")),
			want:     []string{"0s tools/call 1", "0s tools/call 2", "300ms notifications/cancelled 2", "2s tools/call 3"},
			notified: logLines{"2 tools/call slow: same", "4 tools/call wait: open", "9 tools/call c: same"},
		},
		{
			name:     "another client uses the same id",
			file:     recordWeb(webAsks(1), webCalls(1, 1, "wait"), webEnds(1, gaveUp), webAsks(2), webCalls(2, 1, "c"), webAnswers(2, 1, "c"), webEnds(2, "")),
			want:     []string{"0s tools/call 1", "0s notifications/cancelled 1", "300ms tools/call 1"},
			notified: logLines{"2 tools/call wait: open", "5 tools/call c: same"},
		},
		{
			name: "a cancellation waits for the notification that preceded it",
			file: recordWeb(webAsks(1), webCalls(1, 1, "loud"), &capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Exchange: 1, Data: []byte(logMessage)}, webEnds(1, gaveUp),
				webAsks(2), webCalls(2, 2, "c"), webAnswers(2, 2, "c"), webEnds(2, "")),
			want:     []string{"0s tools/call 1", "5s notifications/cancelled 1", "5.3s tools/call 2"},
			notified: logLines{"2 tools/call loud: open", "6 tools/call c: same"},
		},
		{
			name:     "the server ends the exchange",
			file:     recordWeb(webAsks(1), webCalls(1, 1, "wait"), webEnds(1, "server closed"), webAsks(2), webCalls(2, 2, "c"), webAnswers(2, 2, "c"), webEnds(2, "")),
			want:     []string{"0s tools/call 1", "0s tools/call 2"},
			notified: logLines{"2 tools/call wait: open", "5 tools/call c: same"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rec := read(t, tt.file)
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(func(f *fakeServer, m *jsonrpc.Message) {
					switch name, _ := m.Param("name"); string(name) {
					case `"slow"`:
						f.later(2*time.Second, m, content(m))
					case `"loud"`:
						time.AfterFunc(5*time.Second, func() { f.say(logMessage) })
					case `"c"`:
						f.result(m, content(m))
					}
				})
				var got logLines
				start := time.Now()
				if _, err := replay.Play(t.Context(), rec, capture.TransportStdio, f, &replay.Options{Report: got.add}); err != nil {
					t.Error(err)
				}
				var sent []string
				for i, text := range f.sent {
					var m jsonrpc.Message
					if err := jsonrpc.Parse([]byte(text), &m, 0); err != nil {
						t.Fatal(err)
					}
					id := m.ID
					if m.Kind == jsonrpc.KindNotification {
						about, _ := m.Param("requestId")
						id = jsonrpc.ID(about)
					}
					sent = append(sent, fmt.Sprintf("%v %s %s", f.at[i].Sub(start), m.Method, id))
				}
				if diff := cmp.Diff(tt.want, sent); diff != "" {
					t.Errorf("sent (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(tt.notified, got); diff != "" {
					t.Errorf("notified (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestDisconnectOfAnotherSession shows that an exchange of one session that ends in another one
// adds no step.
func TestDisconnectOfAnotherSession(t *testing.T) {
	other, end := webCalls(0, 9, "c"), webEnds(2, "client closed")
	other.Session, end.Session = 2, 2
	file := recordWeb(webAsks(1), webCalls(1, 1, "a"), webAsks(2), webCalls(2, 2, "wait"), &capture.Event{Kind: capture.KindStart, Session: 2}, other, end)
	list, err := replay.Read(t.Context(), capture.NewReader(file, nil).Events(), nil)
	if err != nil || len(list) != 2 {
		t.Fatalf("%d recordings, %v", len(list), err)
	}
	for _, rec := range list {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(func(f *fakeServer, m *jsonrpc.Message) {})
			if _, err := replay.Play(t.Context(), rec, capture.TransportStdio, f, nil); err != nil || len(f.sent) != rec.Requests() {
				t.Errorf("%d messages for %d requests, %v", len(f.sent), rec.Requests(), err)
			}
		})
	}
}

// TestCanceledAtOnce checks that the replay does not wait for messages after a cancellation.
func TestCanceledAtOnce(t *testing.T) {
	const cancelled = `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`
	rec := read(t, session(c2s(3, callA), c2s(4, cancelled), s2c(5, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"stopping"}}`)))
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(func(f *fakeServer, m *jsonrpc.Message) {
			if m.Kind == jsonrpc.KindRequest {
				f.later(200*time.Millisecond, m, content(m))
			}
		})
		start := time.Now()
		if _, err := replay.Play(t.Context(), rec, capture.TransportStdio, f, nil); err != nil {
			t.Error(err)
		}
		if last := len(f.sent) - 1; f.sent[last] != cancelled || !f.at[last].Equal(start) {
			t.Errorf("last, %v: %s", f.at[last].Sub(start), f.sent[last])
		}
	})
}
