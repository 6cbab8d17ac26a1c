package detail_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/view/detail"
)

// contentText formats a content for comparison: a line for each block, and its lines below.
func contentText(c *detail.Content) string {
	if c == nil {
		return ""
	}
	var b strings.Builder
	if c.Failed {
		b.WriteString("failed\n")
	}
	for _, k := range c.Blocks {
		fmt.Fprintf(&b, "%s", k.Kind)
		for _, s := range []struct{ name, value string }{{"", k.Title}, {"role ", k.Role}, {"name ", k.Name}, {"uri ", k.URI}, {"media ", k.MediaType}, {"about ", k.Description}} {
			if s.value != "" {
				b.WriteString(" | " + s.name + s.value)
			}
		}
		if k.Blob > 0 {
			fmt.Fprintf(&b, " | blob %d", k.Blob)
		}
		if k.OmittedBytes > 0 {
			fmt.Fprintf(&b, " | %d bytes omitted", k.OmittedBytes)
		}
		b.WriteByte('\n')
		switch {
		case k.Markdown != nil:
			b.WriteString(nodesText(k.Markdown, "  "))
		case k.Table != nil:
			if k.Table.Columns != nil {
				b.WriteString("  " + strings.Join(k.Table.Columns, " | ") + "\n")
			}
			for _, r := range k.Table.Rows {
				cells := make([]string, len(r))
				for i, cell := range r {
					cells[i] = strings.ReplaceAll(text(cell, true), "\n", "⏎")
				}
				b.WriteString("  " + strings.Join(cells, " | ") + "\n")
			}
		case k.Lines != nil:
			b.WriteString("  " + strings.ReplaceAll(text(k.Lines, true), "\n", "\n  ") + "\n")
		}
	}
	return b.String()
}

func nodesText(list []detail.Node, indent string) string {
	var b strings.Builder
	for _, n := range list {
		b.WriteString(indent + n.Type)
		if n.Target != "" {
			b.WriteString(" to " + n.Target)
		}
		if n.Spans != nil {
			b.WriteString(" " + spans(n.Spans, true))
		}
		if n.Lines != nil {
			b.WriteString(" " + text(n.Lines, true))
		}
		b.WriteString("\n" + nodesText(n.Children, indent+"  "))
	}
	return b.String()
}

func TestContent(t *testing.T) {
	image := base64.StdEncoding.EncodeToString(append([]byte("\x89PNG\r\n\x1a\n"), make([]byte, 100)...))
	for _, tt := range []struct{ name, method, params, response, asked, returned string }{
		{"tool", "tools/call", `{"name":"t","arguments":{"q":"a\nb","n":1e2,"deep":{"x":[1]}},"_meta":{}}`, `"result":{"content":[{"type":"text","text":"plain\ttext"}]}`,
			"table | arguments\n  q | a⏎b\n  n | 0[1e2]\n  deep | p[{ \"]n[x]p[\": [ ]0[1]p[ ] }]\n",
			"text\n  plain    text\n"},
		{"tool without arguments", "tools/call", `{"name":"t"}`, `"result":{"content":[],"isError":true}`,
			"note | No arguments.\n", "failed\nnote | No content.\n"},
		{"markdown", "tools/call", `{"name":"t","arguments":{}}`, `"result":{"content":[{"type":"text","text":"# Head\n\nA **bold** [link](javascript:alert(1)) <img src=x onerror=y>\n\n<script>x</script>\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"}]}`,
			"note | No arguments.\n",
			`text
  h1
    text Head
  p
    text A 
    strong
      text bold
    text  
    link to javascript:alert(1)
      text link
    text  
    text <img src=x onerror=y>
  pre <script>x</script>
  table
    tr
      th
        text a
      th
        text b
    tr
      td
        text 1
      td
        text 2
`},
		{"more markdown", "tools/call", `{"name":"t","arguments":{}}`, `"result":{"content":[{"type":"text","text":"1. a\n2. b\n   - c\n\n* x\n\n* y\n\n> q\\*s\\* &amp; &copy;\nr  \nz ![i](u \"t\") <https://a.b> ` + "`c`" + ` ~~d~~ [e][1]\n\n---\n\n    code\n\n` + "```go\\nx < y\\n```" + `\n\n[1]: f\n"}]}`,
			"note | No arguments.\n", `text
  ol
    li
      text a
    li
      text b
      ul
        li
          text c
  ul
    li
      p
        text x
    li
      p
        text y
  quote
    p
      text q*s* & © r
      br
      text z 
      image to u
        text i
      text  
      link to https://a.b
        text https://a.b
      text  
      code
        text c
      text  
      del
        text d
      text  
      link to f
        text e
  hr
  pre code
  pre x < y
`},
		{"JSON text", "tools/call", `{"name":"t","arguments":{}}`, `"result":{"content":[{"type":"text","text":" {\"a\":1} "}],"structuredContent":{"a":1.0}}`,
			"note | No arguments.\n", "note | The text has the same JSON as the structured content.\ntable | structured content\n  a | 0[1.0]\n"},
		{"records", "tools/call", `{"name":"t","arguments":{}}`, `"result":{"content":[{"type":"text","text":"[1]"}],"structuredContent":[{"a":1},{"b":"x","a":null}]}`,
			"note | No arguments.\n", "json\n  p[[]\n    0[1]\n  p[]]\ntable | structured content\n  a | b\n  0[1] | \n  l[null] | x\n"},
		{"records in an object", "tools/call", `{"name":"t","arguments":{}}`, `"result":{"content":[],"structuredContent":{"people":[{"name":"Ada"}],"total":1}}`,
			"note | No arguments.\n", "note | No content.\ntable | structured content\n  total | 0[1]\ntable | structured content: people\n  name\n  Ada\n"},
		{"media", "tools/call", `{"name":"t","arguments":{}}`,
			`"result":{"content":[{"type":"image","mimeType":"image/png","data":"` + image + `"},{"type":"resource_link","uri":"file:///a\u202eb","name":"n","mimeType":"text/x"},{"type":"resource","resource":{"uri":"u:1","mimeType":"text/markdown","text":"*e*"}}]}`,
			"note | No arguments.\n",
			"media | image | media image/png | blob 1\nlink | name n | uri file:///a\\u202eb | media text/x\ntext | resource | uri u:1 | media text/markdown\n  p\n    em\n      text e\n"},
		{"prompt", "prompts/get", `{"name":"p","arguments":{"a":"b"}}`, `"result":{"description":"d","messages":[{"role":"user","content":{"type":"text","text":"hi"}}]}`,
			"table | arguments\n  a | b\n", "text | role user\n  hi\ntable\n  description | d\n"},
		{"resource", "resources/read", `{"uri":"u:1"}`, `"result":{"contents":[{"uri":"u:1","text":"x"}],"ttlMs":0,"cacheScope":"private"}`,
			"table\n  uri | u:1\n", "text | resource | uri u:1\n  x\n"},
		{"tools", "tools/list", `{}`, `"result":{"tools":[{"name":"t","description":"does","inputSchema":{"type":"object","properties":{"a":{},"b":{}},"required":["b"]}}],"nextCursor":"2"}`,
			"", "table | tools\n  Name | Arguments | Description\n  t | a?, b | does\ntable\n  nextCursor | 2\n"},
		{"input", "tools/call", `{"name":"t","arguments":{}}`, `"result":{"resultType":"input_required","inputRequests":{"k":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string","title":"Your name"}},"required":["name"]}}}},"requestState":"s"}`,
			"note | No arguments.\n",
			"note | The server needs input: elicitation/create | name k\ntext | message\n  Who?\ntable | fields\n  Name | Type | Description\n  name | string | Your name\ntable\n  requestState | s\n"},
		{"error", "tools/call", `{"name":"t","arguments":{}}`, `"error":{"code":-32602,"message":"no\nsuch","data":{"a":1}}`,
			"note | No arguments.\n", "failed\nerror | error -32602: invalid params\n  no\n  such\ntable | data\n  a | 0[1]\n"},
		{"empty", "ping", `{}`, `"result":{}`, "", "note | An empty result.\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := snapshotRecord("stdio").c2s(`{"jsonrpc":"2.0","id":1,"method":"` + tt.method + `","params":` + tt.params + `}`).s2c(`{"jsonrpc":"2.0","id":1,` + tt.response + `}`)
			d := r.detail(t, 1, nil)
			if diff := cmp.Diff(tt.asked, contentText(d.Asked)); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.returned, contentText(d.Returned)); diff != "" {
				t.Errorf("returned (-want +got):\n%s", diff)
			}
		})
	}
}

// TestContentLimits checks that contents of hostile messages are small and take little time.
func TestContentLimits(t *testing.T) {
	quoted := func(s string) string {
		return `{"type":"text","text":"` + strings.ReplaceAll(s, "\n", `\n`) + `"}`
	}
	for _, tt := range []struct{ name, content string }{
		{"many blocks", strings.TrimSuffix(strings.Repeat(quoted("x")+",", 5000), ",")},
		{"long text", quoted(strings.Repeat("word ", 100000))},
		{"nested quotes", quoted("# a\n" + strings.Repeat(strings.Repeat(">", 300)+"\n", 100))},
		{"nested lists", quoted("# a\n" + strings.Repeat("- ", 15000))},
		{"brackets", quoted("# a\n" + strings.Repeat("[a](", 8000))},
		{"links", quoted("# a\n" + strings.Repeat("[", 16000) + strings.Repeat("](x)", 4000))},
		{"spaced brackets", quoted("# a\n" + strings.Repeat("[ ", 16000))},
		{"emphasis", quoted("# a\n" + strings.Repeat("*a _b ", 5000))},
		{"ticks", quoted("# a\n" + strings.Repeat("` `` ", 5000))},
		{"html", quoted("# a\n" + strings.Repeat("<a ", 10000))},
		{"references", quoted("# a\n" + strings.Repeat("[a]: b\n", 4000))},
		{"wide table", quoted("|" + strings.Repeat("a|", 5000) + "\n|" + strings.Repeat("-|", 5000) + "\n")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := snapshotRecord("stdio").c2s(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}`).s2c(`{"jsonrpc":"2.0","id":1,"result":{"content":[` + tt.content + `]}}`)
			begin := time.Now()
			d := r.detail(t, 1, nil)
			// Quadratic work would take minutes.
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("it took %s", took)
			}
			if n := len(d.Returned.Blocks); n > 64 || n == 64 && d.Returned.OmittedBlocks == 0 {
				t.Errorf("%d blocks, %d omitted", n, d.Returned.OmittedBlocks)
			}
			size := 0
			for _, b := range d.Returned.Blocks {
				size += len(contentText(&detail.Content{Blocks: []detail.Block{b}}))
			}
			if size > 1<<20 {
				t.Errorf("the content has %d bytes of text", size)
			}
		})
	}
}
