package capture

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
)

// benchTexts returns n texts of about 1 KiB of each kind that tools exchange.
func benchTexts(kind string, n int) []string {
	words := strings.Fields("the server answers a call with the text of the document, and the number of the page (see chapter 7) where it was found; " +
		"path src/main.go line 120 status ok: not known to user anna k. at example.org since 2019-04-01 or why prices of bread rise by 4.5 % each year")
	rnd := rand.New(rand.NewPCG(1, 2))
	texts := make([]string, n)
	for i := range texts {
		var b strings.Builder
		if kind == "json" {
			b.WriteByte('[')
		}
		for b.Len() < 1024 {
			switch kind {
			case "prose":
				b.WriteString(words[rnd.IntN(len(words))] + " ")
			case "json":
				fmt.Fprintf(&b, `{"id":%d,"title":"%s %s %d","done":%v},`, rnd.IntN(1e9), words[rnd.IntN(len(words))], words[rnd.IntN(len(words))], rnd.IntN(1e6), rnd.IntN(2) == 0)
			}
		}
		if kind == "json" {
			b.WriteString("null]")
		}
		texts[i] = b.String()
	}
	return texts
}

// callEvents returns the events that a gateway records for a call over HTTP, with the texts of its
// argument and its result.
func callEvents(n uint64, argument, result string) []*Event {
	argument, result = strconv.Quote(argument), strconv.Quote(result)
	down, up := func(e *Event) *Event { e.Side, e.Session, e.Exchange = Downstream, 1, n; return e }, func(e *Event) *Event { e.Side, e.Session, e.Exchange = Upstream, 2, n; return e }
	request := func(id uint64, tool string) []byte {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"compare","version":"1.0.0"},"io.modelcontextprotocol/clientCapabilities":{}},"name":"%s","arguments":{"text":%s}}}`, id, tool, argument)
	}
	response := func(id uint64) []byte {
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":%s}],"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1.0.0"}}}}`, id, result)
	}
	head := func(tool string, size int, agent string) []Header {
		return []Header{{"Host", "127.0.0.1:40741"}, {"Accept", "application/json, text/event-stream"}, {"Content-Length", strconv.Itoa(size)}, {"Content-Type", "application/json"},
			{"Mcp-Method", "tools/call"}, {"Mcp-Name", tool}, {"Mcp-Protocol-Version", "2026-07-28"}, {"User-Agent", agent}}
	}
	list := []*Event{
		down(&Event{Kind: KindRequest, Dir: ToServer, Request: &Request{Method: "POST", URL: "/mcp", Proto: "HTTP/1.1", Remote: "127.0.0.1:44912", Headers: head("bench__echo", len(argument), "compare")}}),
		down(&Event{Kind: KindMessage, Dir: ToServer, Data: request(1e9+n, "bench__echo")}),
		up(&Event{Kind: KindRequest, Dir: ToServer, Request: &Request{Method: "POST", URL: "/mcp", Proto: "HTTP/1.1", Headers: head("echo", len(argument), "mcpwire")}}),
		up(&Event{Kind: KindMessage, Dir: ToServer, Data: request(n, "echo")}),
		{Kind: KindTranslate, Session: 1, Translation: &Translation{Of: 12*n + 2, To: []uint64{12*n + 4}, Rule: "id"}},
		up(&Event{Kind: KindResponse, Dir: ToClient, Response: &Response{Status: 200, Proto: "HTTP/1.1", Headers: []Header{{"Content-Length", "1205"}, {"Content-Type", "application/json"}, {"Date", "Fri, 27 Nov 2026 12:02:20 GMT"}}}}),
		up(&Event{Kind: KindMessage, Dir: ToClient, Data: response(n)}),
		up(&Event{Kind: KindEnd}),
		down(&Event{Kind: KindResponse, Dir: ToClient, Response: &Response{Status: 200, Proto: "HTTP/1.1", Headers: []Header{{"Content-Type", "application/json"}}}}),
		down(&Event{Kind: KindMessage, Dir: ToClient, Data: response(1e9 + n)}),
		{Kind: KindTranslate, Session: 2, Translation: &Translation{Of: 12*n + 7, To: []uint64{12*n + 10}, Rule: "id"}},
		down(&Event{Kind: KindEnd}),
	}
	for i, e := range list {
		e.N = 12*n + uint64(i) + 1
	}
	return list
}

// BenchmarkCall measures the writing goroutine's cost of a call through a gateway: twelve events,
// with texts that differ from call to call.
func BenchmarkCall(b *testing.B) {
	for _, kind := range []string{"prose", "json"} {
		var calls [][]*Event
		texts := benchTexts(kind, 2000)
		for i := range len(texts) / 2 {
			calls = append(calls, callEvents(uint64(i), texts[2*i], texts[2*i+1]))
		}
		b.Run(kind, func(b *testing.B) {
			enc := NewEncoder(io.Discard, nil)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				for _, e := range calls[i%len(calls)] {
					enc.Encode(e)
				}
			}
		})
	}
}
