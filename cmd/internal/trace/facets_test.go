package trace_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
)

// TestNumber shows that the numbers of rows are unique once there are several captures.
func TestNumber(t *testing.T) {
	m := trace.New(nil)
	add := func(id, name string, n uint64) *trace.Row {
		head := &capture.Head{ID: id, Name: name}
		return m.Add(head, &capture.Event{Kind: capture.KindNote, Capture: id, N: n, T: time.Duration(n), Data: []byte("x")})[0].Row
	}
	first := add("A", "files", 3)
	if got := first.Number(); got != "3" {
		t.Errorf("the only capture: %s", got)
	}
	second, third := add("B", "mail", 3), add("C", "files", 4)
	got := []any{first.Number(), second.Number(), third.Number(), first.Capture.ServerIndex, second.Capture.ServerIndex, third.Capture.ServerIndex}
	if diff := cmp.Diff([]any{"a3", "b3", "c4", 0, 1, 0}, got); diff != "" {
		t.Errorf("numbers and servers (-want +got):\n%s", diff)
	}
	for index, want := range map[int]string{0: "a", 25: "z", 26: "aa", 51: "az", 52: "ba", 701: "zz", 702: "aaa"} {
		if got := trace.CaptureLetter(index); got != want {
			t.Errorf("letter of %d: %s, want %s", index, got, want)
		}
	}
}

// TestFacets counts a row of the timeline once for each value in it.
func TestFacets(t *testing.T) {
	m := build(t, nil, `
1 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":1}}}
2 s2c 0/0 msg {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}
3 s2c 0/0 msg {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}
4 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"content":[]}}
5 c2s 0/0 msg {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"b"}}
6 s2c 0/0 msg {"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no"}}
7 - 0/0 err hello`)
	m.AddFinding("", 1, trace.Finding{Rule: "r", Severity: "warning"})
	want := trace.Facets{
		Servers:  []trace.Facet{{Value: "srv", Count: 3}},
		Kinds:    []trace.Facet{{Value: "request", Count: 2}, {Value: "progress", Count: 1}, {Value: "stderr", Count: 1}},
		Statuses: []trace.Facet{{Value: "ok", Count: 1}, {Value: "error", Count: 1}},
		Findings: []trace.Facet{{Value: "warning", Count: 1}},
	}
	if diff := cmp.Diff(want, m.Facets()); diff != "" {
		t.Errorf("facets (-want +got):\n%s", diff)
	}
}
