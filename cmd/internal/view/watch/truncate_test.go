package watch

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
)

// TestTruncateLarge compares the model's data of a large message with that of the truncated one.
func TestTruncateLarge(t *testing.T) {
	long := strings.Repeat("x", 2<<20)
	call := func(arguments string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"arguments":` + arguments + `,"name":"search","_meta":{"progressToken":"p"}}}`
	}
	tests := map[string]struct {
		text string
		max  int // remaining bytes
	}{
		"string":            {call(`{"q":"` + long + `"}`), 8 << 10},
		"escapes":           {call(`{"q":"` + strings.Repeat(`\ud83d\ude00`, 200_000) + `"}`), 8 << 10},
		"backslashes":       {call(`{"q":"x` + strings.Repeat(`\\`, 1<<20) + `"}`), 8 << 10},
		"backslashes and u": {call(`{"q":"` + strings.Repeat(`\\u0041`, 1<<18) + `"}`), 8 << 10},
		"wide":              {call(`{"q":"x` + strings.Repeat("\U0001f600", 1<<19) + `"}`), 8 << 10},
		"members":           {call(`{` + strings.Repeat(`"a":{"b":1},`, 300_000) + `"z":1}`), 2 << 20},
		"numbers":           {call(`{"n":1` + strings.Repeat("0", 2<<20) + `}`), 8 << 10},
		"deep":              {call(strings.Repeat(`[`, 400) + `"` + long + `"` + strings.Repeat(`]`, 400)), 8 << 10},
		"result":            {`{"result":{"content":[{"type":"text","text":"` + long + `"}],"isError":true},"jsonrpc":"2.0","id":1}`, 8 << 10},
		"list":              {`{"jsonrpc":"2.0","id":1,"result":{"tools":[` + strings.Repeat(`{"name":"a","inputSchema":{}},`, 99_999) + `{}],"nextCursor":"c"}}`, 1 << 20},
		"batch":             {`[` + call(`{"q":"`+long+`"}`) + `,{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"d"}}]`, 16 << 10},
		"no JSON":           {`{"a":"` + long, 8 << 10},
		"not a message":     {`{"a":"` + long + `"}`, 8 << 10},
		"small":             {call(`{"q":"x"}`), 8 << 10},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := &capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Capture: "a", N: 2, T: time.Second, Data: []byte(tt.text)}
			if strings.Contains(tt.text, `"result"`) {
				e.Dir = capture.ToClient
			}
			small := truncateLarge(e)
			if len(small.Data) > tt.max {
				t.Errorf("%d bytes are left of %d", len(small.Data), len(tt.text))
			}
			if !small.Cut && !json.Valid(small.Data) {
				t.Errorf("not valid: %.200s", small.Data)
			}
			if string(e.Data) != tt.text {
				t.Error("the event was changed")
			}
			if diff := cmp.Diff(modelOf(e), modelOf(small)); diff != "" {
				t.Errorf("the model says (-large +small):\n%s", diff)
			}
		})
	}
}

// modelOf describes the model after a request and an event.
func modelOf(e *capture.Event) (list []string) {
	m := trace.New(nil)
	head := &capture.Head{ID: "a"}
	m.Add(head, &capture.Event{
		Kind: capture.KindMessage, Dir: capture.ToServer, Capture: "a", N: 1, Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`),
	})
	m.Add(head, e)
	for _, root := range m.Rows() {
		for r := range root.All() {
			text, _ := json.Marshal([]any{r.Kind, r.Method, r.Target, r.ID, r.Status, r.RequestBytes, r.ResponseBytes, r.Excerpt, r.ResultInfo, r.Role, r.Events})
			list = append(list, string(text))
		}
	}
	return list
}
