package intercept

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/live"
)

// TestMatch checks which messages of a conversation match a filter.
func TestMatch(t *testing.T) {
	const (
		toServer, toClient = capture.ToServer, capture.ToClient

		call   = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a"}}`
		result = `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`
		batch  = `[{"jsonrpc":"2.0","method":"notifications/initialized"},` + call + `]`
	)
	type message struct {
		dir  capture.Dir
		data string
	}
	for _, tt := range []struct {
		name, filter string
		holdResponse bool // after the first message
		messages     []message
		want         []bool
	}{
		{"none", "", false, []message{{toServer, call}, {toClient, result}}, []bool{false, false}},
		{"a request", "tool:a", false, []message{{toServer, call}, {toClient, result}}, []bool{true, false}},
		{"its response too", "tool:a", true, []message{{toServer, call}, {toClient, result}}, []bool{true, true}},
		{"a response", "tool:a status:ok", false, []message{{toServer, call}, {toClient, result}}, []bool{false, true}},
		{"a batch", "tool:a", false, []message{{toServer, batch}, {toClient, result}}, []bool{true, false}},
		{"the responses to a batch", "tool:a status:ok", false, []message{{toServer, batch}, {toClient, "[" + result + "]"}}, []bool{false, true}},
		{"the response to a batch, if asked", "tool:a", true, []message{{toServer, batch}, {toClient, result}}, []bool{true, true}},
		{"by payload", `has:params.name`, false, []message{{toServer, `{"jsonrpc":"2.0","method":"n"}`}, {toServer, call}}, []bool{false, true}},
		{"not JSON-RPC", "kind:invalid", false, []message{{toServer, "{"}, {toServer, ""}}, []bool{true, false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := New(nil, 0)
			if tt.filter != "" {
				b = New(mustFilter(t, tt.filter), 0)
			}
			matcher := b.NewMatcher("s")
			var got []bool
			for i, m := range tt.messages {
				match := matcher.Match(&capture.Event{Kind: capture.KindMessage, Dir: m.dir, Session: 1, Data: []byte(m.data)}, uint64(i+1))
				if got = append(got, match.Hold); i == 0 && tt.holdResponse {
					match.HoldResponse()
				}
				if match.Hold && m.dir == toServer && tt.filter == "tool:a" && match.Target != "a" {
					t.Errorf("the held message is shown as %s %s", match.Method, match.Target)
				}
				if match.Hold != (match.Data == m.data && m.data != "") {
					t.Errorf("message %d is held: %v, and has the data %q", i, match.Hold, match.Data)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("held (-want +got):\n%s", diff)
			}
			if n := len(matcher.requests); n > 1 {
				t.Errorf("%d requests are remembered", n)
			}
		})
	}
}

// TestMatchForgets checks that the memory of a matcher is limited.
func TestMatchForgets(t *testing.T) {
	m := New(mustFilter(t, "tool:x"), 0).NewMatcher("s")
	for i := range 3 * maxMatchRows {
		id := []byte{'0' + byte(i%10), '0' + byte(i/10%10), '0' + byte(i/100%10), '0' + byte(i/1000)}
		m.Match(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Session: 1, Data: []byte(`{"jsonrpc":"2.0","id":"` + string(id) + `","method":"tools/call","params":{"name":"x"}}`)}, 1)
	}
	if n := len(m.requests); n > maxMatchRows {
		t.Errorf("%d requests are remembered, more than %d", n, maxMatchRows)
	}
}

// TestDescribe checks what viewers see of messages with long texts.
func TestDescribe(t *testing.T) {
	m := New(mustFilter(t, "method:m"), 0).NewMatcher("s")
	data := `{"jsonrpc":"2.0","id":"` + strings.Repeat("i", 2000) + `","method":"` + strings.Repeat("m", 2000) + `"}`
	got := m.Match(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Session: 1, Data: []byte(data)}, 7)
	if !got.Hold || len(got.Method) > 2*maxText || got.RequestID != "" || got.Event != 7 {
		t.Errorf("%+v", got.HeldMessage)
	}
	got = m.Match(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Session: 1, Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"x":"` + strings.Repeat("x", live.MaxHeldData) + `"}}`)}, 8)
	if !got.Hold || got.Data != "" || got.What() != "m" {
		t.Errorf("hold %v, %d bytes of data, %s", got.Hold, len(got.Data), got.What())
	}
}
