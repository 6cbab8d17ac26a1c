package show

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"mcpwire/capture"
)

// The captures that the scripts of show, grep, stats and captures read stand in the scripts.
// TestScriptCaptures makes them of the sketches below, by the encoder that recordings are written
// with, redaction included; with -u it puts them there.

const sketchLegacy = `
0 - 0/0 start node server.js --token hunter2hunter2
1 - 0/0 err starting` + " \x1b[31mred\x1b[0m" + `
5 c2s 0/0 msg {"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"host","version":"1.0"}}}
7 s2c 0/0 invalid hello from console.log
9 s2c 0/0 msg {"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"shop","version":"2.1"}}}
10 c2s 0/0 msg {"jsonrpc":"2.0","method":"notifications/initialized"}
12 c2s 0/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/list"}
15 s2c 0/0 msg {"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"search","inputSchema":{"type":"object"}},{"name":"order","inputSchema":{"type":"object"}}]}}
20 c2s 0/0 msg {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"search","arguments":{"q":"tea","apiKey":"s3cr3t-value"}}}
63 s2c 0/0 msg {"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"green"},{"type":"text","text":"black"},{"type":"text","text":"mint"}]}}
100 c2s 0/0 msg {"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"order","arguments":{"item":"mint"},"_meta":{"progressToken":"p1"}}}
150 s2c 0/0 msg {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"p1","progress":1,"total":3,"message":"checking"}}
160 s2c 0/0 msg {"jsonrpc":"2.0","method":"notifications/message","params":{"level":"warning","data":"low stock"}}
200 s2c 0/0 msg {"jsonrpc":"2.0","id":0,"method":"elicitation/create","params":{"message":"Really?","requestedSchema":{"type":"object","properties":{}}}}
3200 c2s 0/0 msg {"jsonrpc":"2.0","id":0,"result":{"action":"accept","content":{}}}
3300 s2c 0/0 msg {"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"sold out"}],"isError":true}}
4000 c2s 0/0 msg {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"search","arguments":{"q":"coffee"}}}
4500 c2s 0/0 msg {"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":4,"reason":"the user went away"}}
5000 c2s 0/0 msg {"jsonrpc":"2.0","id":5,"method":"resources/read","params":{"uri":"file:///x"}}
5001 s2c 0/0 msg {"jsonrpc":"2.0","id":5,"error":{"code":-32601,"message":"Method not found"}}
6000 c2s 0/0 msg {"jsonrpc":"2.0","id":6,"method":"ping"}
6100 - 0/0 exit 7
6100 - 0/0 tail
`

const sketchMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"io.modelcontextprotocol/clientInfo":{"name":"host","version":"1.0"}}`

const sketchModern = `
0 c2s 1/1 req POST /mcp Mcp-Method=server/discover Authorization=Bearer-abcdefghijklmnop
0 c2s 1/1 msg {"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + sketchMeta + `}}
4 s2c 1/1 res 401 WWW-Authenticate=Bearer Content-Type=application/json
4 s2c 1/1 body {"error":"invalid_token"}
4 s2c 1/1 end
10 c2s 1/2 req POST /mcp Mcp-Method=server/discover Authorization=Bearer-qrstuvwxyzabcdef
10 c2s 1/2 msg {"jsonrpc":"2.0","id":2,"method":"server/discover","params":{` + sketchMeta + `}}
14 s2c 1/2 res 200 Content-Type=application/json
14 s2c 1/2 msg {"jsonrpc":"2.0","id":2,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"public"}}
14 s2c 1/2 end
20 c2s 1/3 req POST /mcp Mcp-Method=subscriptions/listen
20 c2s 1/3 msg {"jsonrpc":"2.0","id":3,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + sketchMeta + `}}
21 s2c 1/3 res 200 Content-Type=text/event-stream
21 s2c 1/3 msg {"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/subscriptionId":3}}}
30 c2s 1/4 req POST /mcp Mcp-Method=tools/call Mcp-Name=book
30 c2s 1/4 msg {"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"book","arguments":{"day":"Monday"},` + sketchMeta + `}}
40 s2c 1/4 res 200 Content-Type=application/json
40 s2c 1/4 msg {"jsonrpc":"2.0","id":4,"result":{"resultType":"input_required","inputRequests":{"ok":{"method":"elicitation/create","params":{"message":"Really?","requestedSchema":{"type":"object","properties":{}}}}},"requestState":"abc"}}
40 s2c 1/4 end
5000 s2c 1/3 sse keepalive
5040 c2s 1/5 req POST /mcp Mcp-Method=tools/call Mcp-Name=book
5040 c2s 1/5 msg {"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"book","arguments":{"day":"Monday"},"inputResponses":{"ok":{"action":"accept","content":{}}},"requestState":"abc",` + sketchMeta + `}}
5060 s2c 1/5 res 200 Content-Type=application/json
5060 s2c 1/5 msg {"jsonrpc":"2.0","id":5,"result":{"resultType":"complete","content":[{"type":"text","text":"booked"}]}}
5060 s2c 1/5 end
6000 c2s 1/6 req POST /mcp Mcp-Method=tools/call Mcp-Name=render
6000 c2s 1/6 msg {"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"render","arguments":{},` + sketchMeta + `}}
6010 s2c 1/6 res 200 Content-Type=application/json
6010 s2c 1/6 msg {"jsonrpc":"2.0","id":6,"result":{"resultType":"task","taskId":"task-1","status":"working","createdAt":"2026-11-22T00:00:00Z","lastUpdatedAt":"2026-11-22T00:00:00Z","ttlMs":null}}
6010 s2c 1/6 end
7000 c2s 1/7 req POST /mcp Mcp-Method=tasks/get Mcp-Name=task-1
7000 c2s 1/7 msg {"jsonrpc":"2.0","id":7,"method":"tasks/get","params":{"taskId":"task-1",` + sketchMeta + `}}
7005 s2c 1/7 res 200 Content-Type=application/json
7005 s2c 1/7 msg {"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","taskId":"task-1","status":"completed","createdAt":"2026-11-22T00:00:00Z","lastUpdatedAt":"2026-11-22T00:00:00Z","ttlMs":null,"result":{"content":[{"type":"text","text":"done"}]}}}
7005 s2c 1/7 end
8000 s2c 1/3 end closed by the client
8000 - 1/0 tail
`

var sketchHostile = `
0 c2s 0/0 msg {"jsonrpc":"2.0","id":"` + "\u202e" + `1","method":"tools/call","params":{"name":"a` + "\u202egnp.exe\u200b" + `b\u001b]0;owned\u0007","arguments":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}}
1 s2c 0/0 msg {"jsonrpc":"2.0","id":"` + "\u202e" + `1","result":{"content":[{"type":"text","text":"\u001b[2J` + "\u2066" + `"}],"isError":true}}
2 - 0/0 err ` + "\x1b[2J\x07\u009b31m" + `
3 s2c 0/0 invalid ` + "\x1b]8;;http://evil\x07click" + `
`

// scriptCaptures are the captures by their names in the scripts.
func scriptCaptures(t *testing.T) map[string][]byte {
	at := time.Date(2026, 11, 22, 1, 45, 30, 0, time.UTC)
	return map[string][]byte{
		"legacy.mcpcap.ndjson":  sketched(t, &capture.Head{ID: "LEGACY", At: at, Tool: "mcpwire test", Transport: "stdio", Name: "shop"}, sketchLegacy),
		"modern.mcpcap.ndjson":  sketched(t, &capture.Head{ID: "MODERN", At: at.Add(time.Second), Tool: "mcpwire test", Transport: "http", Name: "travel"}, sketchModern),
		"hostile.mcpcap.ndjson": sketched(t, &capture.Head{ID: "HOSTILE", At: at, Tool: "t", Transport: "stdio", Name: "evil\x1b[2J"}, sketchHostile),
	}
}

// sketched makes a capture of lines like "12 c2s 1/4 msg {…}": milliseconds, direction or "-",
// session and exchange, kind, and the members of the kind.
func sketched(t *testing.T, head *capture.Head, lines string) []byte {
	t.Helper()
	var out bytes.Buffer
	c := capture.NewEncoder(&out, &capture.Redaction{Key: []byte("0123456789abcdef")})
	head.Version, head.Redact = capture.Version, "default"
	encode := func(e *capture.Event) {
		if err := c.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	encode(&capture.Event{Kind: capture.KindHead, Head: head})
	n := uint64(0)
	for line := range strings.SplitSeq(strings.Trim(lines, "\n"), "\n") {
		f := strings.SplitN(line+" ", " ", 5)
		ms, err := strconv.Atoi(f[0])
		if err != nil {
			t.Fatal(err)
		}
		n++
		e := &capture.Event{Kind: capture.Kind(f[3]), N: n, T: time.Duration(ms) * time.Millisecond, Dir: capture.Dir(strings.Trim(f[1], "-"))}
		if _, err := fmt.Sscanf(f[2], "%d/%d", &e.Session, &e.Exchange); err != nil {
			t.Fatal(err)
		}
		e.Kind = sketch(e, strings.TrimSuffix(f[4], " "))
		encode(e)
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// sketch sets the members that the kind of an event has.
func sketch(e *capture.Event, rest string) capture.Kind {
	words := strings.Fields(rest)
	headers := func(list []string) (hs []capture.Header) {
		for _, w := range list {
			name, value, _ := strings.Cut(w, "=")
			hs = append(hs, capture.Header{Name: name, Value: strings.Replace(value, "Bearer-", "Bearer ", 1)})
		}
		return hs
	}
	switch e.Kind {
	case capture.KindStart:
		e.Start = &capture.Start{Command: words, PID: 4711}
	case capture.KindExit:
		code, _ := strconv.Atoi(rest)
		e.Exit = &capture.Exit{Code: code}
	case capture.KindRequest:
		e.Request = &capture.Request{Method: words[0], URL: words[1], Proto: "HTTP/1.1", Headers: headers(words[2:])}
	case capture.KindResponse:
		status, _ := strconv.Atoi(words[0])
		e.Response = &capture.Response{Status: status, Proto: "HTTP/1.1", Headers: headers(words[1:])}
	case capture.KindSSE:
		e.SSE = &capture.SSE{Comment: rest, HasComment: true}
	case capture.KindTail:
		e.Tail = &capture.Tail{Events: e.N - 1}
	case capture.KindMessage, capture.KindInvalid:
		e.Data = []byte(rest)
		if e.Exchange == 0 {
			e.Framing = capture.FramingLF
		}
	default:
		e.Data = []byte(rest)
	}
	return e.Kind
}

var updateCaptures = flag.Bool("update", false, "write the captures into the scripts")

// TestScriptCaptures checks that the captures in the scripts are the sketched ones.
func TestScriptCaptures(t *testing.T) {
	made := scriptCaptures(t)
	for _, secret := range []string{"hunter2", "s3cr3t", "abcdefghijklmnop"} {
		for name, text := range made {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s has %q in it", name, secret)
			}
		}
	}
	var scripts []string
	for _, pattern := range []string{"show*.txtar", "grep*.txtar", "stats*.txtar", "captures*.txtar"} {
		found, err := filepath.Glob(filepath.Join("..", "testdata", "script", pattern))
		if err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, found...)
	}
	if len(scripts) < 4 {
		t.Fatalf("there are only %v", scripts)
	}
	for _, script := range scripts {
		a, err := txtar.ParseFile(script)
		if err != nil {
			t.Fatal(err)
		}
		changed := false
		for i := range a.Files {
			want, ours := made[a.Files[i].Name]
			if !ours || bytes.Equal(want, a.Files[i].Data) {
				continue
			}
			if !*updateCaptures {
				t.Errorf("%s: %s differs from the sketch; update it with go test -run TestScriptCaptures -update", script, a.Files[i].Name)
			}
			a.Files[i].Data = slices.Clone(want)
			changed = true
		}
		if changed && *updateCaptures {
			if err := os.WriteFile(script, txtar.Format(a), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
}
