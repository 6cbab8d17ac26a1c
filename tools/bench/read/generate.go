//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"mcpwire/capture"
)

// generate writes a capture of a session of calls, some of them with progress or an error. It is
// the same for each run.
func generate(path string, exchanges int, web bool) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	g := &generator{enc: capture.NewEncoder(f, &capture.Redaction{Off: true}), web: web, random: rand.New(rand.NewPCG(1, 2))}
	g.session(exchanges)
	for _, err := range []error{g.err, g.enc.Flush(), f.Close()} {
		if err != nil {
			return err
		}
	}
	return nil
}

type generator struct {
	enc    *capture.Encoder
	web    bool
	random *rand.Rand
	n      uint64
	t      time.Duration
	err    error
}

func (g *generator) event(e capture.Event) {
	g.t += time.Duration(g.random.IntN(200)) * time.Microsecond
	if e.Kind != capture.KindHead && e.Kind != capture.KindTail {
		g.n++
		e.N = g.n
	}
	if e.T = g.t; e.Kind == capture.KindMessage && !g.web {
		e.Framing = capture.FramingLF
	}
	if err := g.enc.Encode(&e); err != nil && g.err == nil {
		g.err = err
	}
}

func (g *generator) message(dir capture.Dir, exchange uint64, text string) {
	g.event(capture.Event{Kind: capture.KindMessage, Dir: dir, Exchange: exchange, Data: []byte(text)})
}

// inFlight is the number of calls that are pending at a time.
const inFlight = 4

func (g *generator) session(exchanges int) {
	transport := capture.TransportStdio
	if g.web {
		transport = capture.TransportHTTP
	}
	g.event(capture.Event{Kind: capture.KindHead, Head: &capture.Head{
		Version: capture.Version, ID: "bench", At: time.Date(2026, 11, 23, 0, 0, 0, 0, time.UTC), Tool: "bench", Transport: transport, Name: "bench",
	}})
	g.open()
	for i := 0; i < exchanges; i += inFlight {
		for id := i; id < min(i+inFlight, exchanges); id++ {
			g.request(id)
		}
		for id := i; id < min(i+inFlight, exchanges); id++ {
			g.response(id)
		}
	}
	g.event(capture.Event{Kind: capture.KindTail, Tail: &capture.Tail{Events: g.n}})
}

const tools = `"tools":[{"name":"search","description":"Searches the index.","inputSchema":{"type":"object","properties":{"query":{"type":"string"},"limit":{"type":"integer"}}}},` +
	`{"name":"read","description":"Reads a document.","inputSchema":{"type":"object","properties":{"path":{"type":"string"}}}}]`

func (g *generator) open() {
	if g.web {
		g.post(1, "tools/list", `{"jsonrpc":"2.0","id":"list","method":"tools/list","params":{`+meta+`}}`)
		g.reply(1, `{"jsonrpc":"2.0","id":"list","result":{"resultType":"complete","ttlMs":0,"cacheScope":"public",`+tools+`}}`)
		return
	}
	g.event(capture.Event{Kind: capture.KindStart, Start: &capture.Start{Command: []string{"server"}, PID: 7}})
	g.message(capture.ToServer, 0, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`)
	g.message(capture.ToClient, 0, `{"jsonrpc":"2.0","id":"init","result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}}`)
	g.message(capture.ToServer, 0, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	g.message(capture.ToServer, 0, `{"jsonrpc":"2.0","id":"list","method":"tools/list"}`)
	g.message(capture.ToClient, 0, `{"jsonrpc":"2.0","id":"list","result":{`+tools+`}}`)
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// hasProgress and fails choose the requests that report progress, and those that fail.
func hasProgress(id int) bool { return id%8 == 3 }
func fails(id int) bool       { return id%50 == 7 }

func (g *generator) request(id int) {
	params := fmt.Sprintf(`"name":"search","arguments":{"query":"the quick brown fox number %d","limit":%d}`, id, id%100)
	if id%5 == 0 {
		params = fmt.Sprintf(`"name":"read","arguments":{"path":"/documents/%d/chapter-%d.md"}`, id, id%7)
	}
	switch {
	case g.web:
		params += "," + meta
	case hasProgress(id):
		params += fmt.Sprintf(`,"_meta":{"progressToken":%d}`, id)
	}
	text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{%s}}`, id, params)
	if g.web {
		g.post(exchangeOf(id), "tools/call", text)
		return
	}
	g.message(capture.ToServer, 0, text)
	if hasProgress(id) {
		g.message(capture.ToClient, 0, fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%d,"progress":1,"total":2,"message":"half of it"}}`, id))
	}
}

func (g *generator) response(id int) {
	text := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"error":{"code":-32602,"message":"there is no document %d"}}`, id, id)
	if !fails(id) {
		content := fmt.Sprintf("found %d: it jumps over the lazy dog, and \\\"quotes\\\" come with it", id)
		if id%10 == 0 {
			for i := range 10 {
				content += fmt.Sprintf("\\n%d. a line of a longer text, as documents have them, with %d words or so", i, id)
			}
		}
		kind := ""
		if g.web {
			kind = `"resultType":"complete",`
		}
		text = fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{%s"content":[{"type":"text","text":"%s"}]}}`, id, kind, content)
	}
	if g.web {
		g.reply(exchangeOf(id), text)
		return
	}
	g.message(capture.ToClient, 0, text)
}

func exchangeOf(id int) uint64 { return uint64(id) + 2 }

// post writes the events of a request over HTTP.
func (g *generator) post(exchange uint64, method, text string) {
	headers := []capture.Header{{Name: "Content-Type", Value: "application/json"}, {Name: "Accept", Value: "application/json, text/event-stream"},
		{Name: "Mcp-Protocol-Version", Value: "2026-07-28"}, {Name: "Mcp-Method", Value: method}}
	if method == "tools/call" {
		name := "search"
		if (exchange-2)%5 == 0 {
			name = "read"
		}
		headers = append(headers, capture.Header{Name: "Mcp-Name", Value: name})
	}
	g.event(capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: exchange, Request: &capture.Request{Method: "POST", URL: "/mcp", Proto: "HTTP/1.1", Headers: headers}})
	g.message(capture.ToServer, exchange, text)
}

// reply writes the events of a response over HTTP.
func (g *generator) reply(exchange uint64, text string) {
	g.event(capture.Event{Kind: capture.KindResponse, Dir: capture.ToClient, Exchange: exchange, Response: &capture.Response{Status: 200, Proto: "HTTP/1.1", Headers: []capture.Header{{Name: "Content-Type", Value: "application/json"}}}})
	g.message(capture.ToClient, exchange, text)
	g.event(capture.Event{Kind: capture.KindEnd, Exchange: exchange})
}
