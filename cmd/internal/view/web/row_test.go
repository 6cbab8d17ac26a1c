package web

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
)

// TestWaits shows that a row says when the server waited for its client, and for how long.
func TestWaits(t *testing.T) {
	m := trace.New(nil)
	head := &capture.Head{ID: "A", Name: "shop"}
	for i, e := range []struct {
		ms   int
		dir  capture.Dir
		text string
	}{
		{10, capture.ToServer, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"book"}}`},
		{30, capture.ToClient, `{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{"message":"when?","requestedSchema":{}}}`},
		{1030, capture.ToServer, `{"jsonrpc":"2.0","id":7,"result":{"action":"decline"}}`},
		{1050, capture.ToClient, `{"jsonrpc":"2.0","id":8,"method":"roots/list"}`},
		{1060, capture.ToServer, `{"jsonrpc":"2.0","id":8,"result":{"roots":[]}}`},
		{1100, capture.ToClient, `{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`},
	} {
		m.Add(head, &capture.Event{Kind: capture.KindMessage, N: uint64(i + 1), T: time.Duration(e.ms) * time.Millisecond, Dir: e.dir, Data: []byte(e.text)})
	}
	var got struct {
		L  float64
		WS [][]float64
	}
	text, err := marshal(newPageRow(m.Rows()[0]))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][]float64{{20, 1020}, {1040, 1050}}, got.WS); diff != "" || got.L != 1090 {
		t.Errorf("waits (-want +got):\n%s\nin %+v", diff, got)
	}
}
