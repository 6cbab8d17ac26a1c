package web

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
)

// hostileTexts are texts that try to run as code. A page that runs one of them calls pwned, opens a
// dialog, or sends a request to evil.test.
var hostileTexts = map[string]string{
	"image":    `<img src="http://evil.test/i.png" onerror="pwned('image')">`,
	"script":   `</script></textarea></title><script>pwned('script')</script><script src=//evil.test/x.js></script>`,
	"svg":      `<svg onload="pwned('svg')"><use href="http://evil.test/x.svg#a"/></svg>`,
	"frame":    `<iframe srcdoc="<script>parent.pwned('frame')</script>"></iframe><meta http-equiv=refresh content="0;url=http://evil.test/">`,
	"link":     `javascript:pwned('link')`,
	"style":    `<style>@import "http://evil.test/x.css";*{display:none!important}</style>`,
	"template": "${pwned('t')} {{constructor.constructor('pwned()')()}} `",
	"ansi":     "\x1b[2J\x1b[31mred\x1b]0;title\x07\x1b]8;;http://evil.test/\x1b\\link\x1b]8;;\x1b\\\x9b5m",
	"bidi":     "safe\u202egnp.exe\u2066 \u2067isolated\u2069 \u200fmark\u061c",
	"zero":     "pass\u200bword\u2060 \u200d\ufeff inv\u00adisible \U000e0041\U000e0042 \ufe0f\u0301\u0301\u0301\u0301",
	"control":  "bell\x07 null\x00 back\x08\x08\x08 delete\x7f line\u2028separator\u2029 next\u0085 \ufffe\uffff",
	"proto":    "__proto__",
}

// writeHostile makes captures with each of the texts in each place that the page may show. It
// returns the number of exchanges in the stdio capture.
func writeHostile(t *testing.T, dir string) int {
	t.Helper()
	count := 0
	record(t, dir, "hostile", "stdio", func(r *recording) {
		for name, text := range hostileTexts {
			r.handshake(text)
			id := quote(name + text)
			r.client(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":` + quote(text) + `,"arguments":{` + quote(text) + `:` + quote(text) + `}}}`)
			r.server(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","logger":` + quote(text) + `,"data":` + quote(text) + `}}`)
			r.server(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32603,"message":` + quote(text) + `,"data":{` + quote(text) + `:` + quote(text) + `}}}`)
			r.client(`{"jsonrpc":"2.0","id":` + quote(name) + `,"method":` + quote(text) + `,"params":{"uri":` + quote(text) + `}}`)
			r.server(`{"jsonrpc":"2.0","id":` + quote(name) + `,"result":{"content":[{"type":"text","text":` + quote(text) + `},{"type":"resource_link","uri":` + quote(text) + `,"name":` + quote(text) +
				`},{"type":"image","mimeType":"image/svg+xml","data":"PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciIG9ubG9hZD0icHduZWQoKSI+PC9zdmc+"}],"isError":true}}`)
			r.add(&event{Kind: "err", Len: len(text), Raw: text})
			r.add(&event{Kind: "invalid", Dir: toClient, Framing: "lf", Len: len(text), Raw: text, Why: "not-json"})
			count += 2
		}
		r.add(&event{Kind: "invalid", Dir: toClient, Framing: "lf", Len: 18, Base64: []byte("\xff\xfe no UTF-8 \xc0\xaf"), Why: "utf8"})
		r.client(`{"jsonrpc":"2.0","id":"lone","method":"tools/call","params":{"name":"lone \ud800 surrogate","arguments":{"\udfff":"\u0000\u202e"}}}`)
		count++
		twice := `{"jsonrpc":"2.0","id":1,"id":2,"method":"__proto__","__proto__":{"polluted":true}}`
		r.add(&event{Kind: "msg", Dir: toServer, Framing: "lf", Len: len(twice), Raw: twice, Why: "duplicate"})
	})
	record(t, dir, "hostilehttp", "http", func(r *recording) {
		x := 0
		for _, text := range hostileTexts {
			x++
			id := strconv.Itoa(x)
			pair := func(name, value string) []string { return []string{name, value} }
			r.add(&event{Kind: "req", Dir: toServer, Exchange: x, Request: map[string]any{"method": "POST", "url": "/mcp?" + text, "proto": "HTTP/1.1", "headers": [][]string{pair("Mcp-Name", text), pair("User-Agent", text), pair(text, text)}}})
			r.message(toServer, x, `{"jsonrpc":"2.0","id":`+id+`,"method":"tools/call","params":{"name":"http","arguments":{}}}`)
			r.add(&event{Kind: "res", Dir: toClient, Exchange: x, Response: map[string]any{"status": 200, "proto": text, "headers": [][]string{pair("Content-Type", "text/event-stream"), pair("Location", text)}}})
			r.add(&event{Kind: "sse", Dir: toClient, Exchange: x, SSE: map[string]any{"event": text, "id": text, "comment": text}, Len: len(text), Raw: text})
			r.message(toClient, x, `{"jsonrpc":"2.0","id":`+id+`,"result":{"content":[{"type":"text","text":`+quote(text)+`}]}}`)
			r.add(&event{Kind: "end", Exchange: x, Len: len(text), Raw: text})
		}
	})
	return count
}

// sendLarge sends a very deep and a very long message through a tap to a server.
func sendLarge(t *testing.T, m *machine) {
	t.Helper()
	m.mu.Lock()
	tp := m.taps["old"]
	m.mu.Unlock()
	sendLines(t, m, "old", []string{`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}`, `{"jsonrpc":"2.0","method":"notifications/initialized"}`})
	const call = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"word_count","arguments":{"text":%s}}}`
	deep := strings.Repeat(`[`, 5000) + strings.Repeat(`{"a":`, 5000) + `1` + strings.Repeat(`}`, 5000) + strings.Repeat(`]`, 5000)
	long := `"` + strings.Repeat("0123456789 <b>long</b> \u202e ", 50<<20/27) + `"`
	for i, line := range []string{fmt.Sprintf(call, 1, deep), fmt.Sprintf(call, 2, long), fmt.Sprintf(call, 3, `"after"`)} {
		if _, err := io.WriteString(tp.stdin, line+"\n"); err != nil {
			t.Fatal(err)
		}
		if i == 0 { // its response may have no id
			continue
		}
		if err := tp.answered(fmt.Sprint(i + 1)); err != nil {
			t.Fatal(err)
		}
	}
}
