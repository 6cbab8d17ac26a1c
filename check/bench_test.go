package check_test

import (
	"strconv"
	"testing"

	"mcpwire/capture"
	"mcpwire/check"
)

// BenchmarkCheck checks a call of a tool, request and response.
func BenchmarkCheck(b *testing.B) {
	k := check.New(nil)
	head := &capture.Head{ID: "b", Transport: "stdio"}
	n := uint64(0)
	add := func(dir capture.Dir, text string) {
		n++
		if f := k.Add(head, &capture.Event{Kind: capture.KindMessage, N: n, Dir: dir, Framing: capture.FramingLF, Data: []byte(text)}); len(f) > 0 {
			b.Fatal(f[0].Message)
		}
	}
	add(capture.ToServer, `{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`)
	add(capture.ToClient, `{"jsonrpc":"2.0","id":"i","result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}`)
	add(capture.ToServer, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	add(capture.ToServer, `{"jsonrpc":"2.0","id":"l","method":"tools/list"}`)
	add(capture.ToClient, `{"jsonrpc":"2.0","id":"l","result":{"tools":[{"name":"add","inputSchema":{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"required":["a","b"]}}]}}`)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		id := strconv.Itoa(i)
		add(capture.ToServer, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}`)
		add(capture.ToClient, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[{"type":"text","text":"3"}]}}`)
	}
}
