package jsonwire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// Texts that are usual on the wire, and the worst case of each kind of string.
const (
	pingText = `{"jsonrpc":"2.0","id":12345,"method":"ping"}`
	callText = `{"jsonrpc":"2.0","id":12345,"method":"tools/call","params":{"name":"echo","arguments":{"text":"The quick brown fox jumps over the lazy dog, and then again.."}}}`
)

const big = 256 << 10

// codeText is typical output of a tool: code, tables and markup, with a quote, a backslash, a
// control character or a non-ASCII character every few bytes.
const codeText = `func main() {\n\tfmt.Println(\"café \\\\ naïve\")\n}\n\n| a | b |\n|---|---|\n` +
	`<p class=\"x\">漢字 & 😀</p>\r\npath: C:\\temp\\x\n`

// repeat returns s repeated up to about n bytes, without a partial s.
func repeat(s string, n int) string { return strings.Repeat(s, n/len(s)) }

// benchStrings are string contents without the quotes, with the necessary escapes.
var benchStrings = []struct{ name, raw string }{
	{"ascii64", repeat("plain ASCII text", 64)},
	{"ascii4K", repeat("plain ASCII text ", 4<<10)},
	{"ascii256K", repeat("plain ASCII text ", big)},
	{"cjk256K", repeat("汉字文本，传输速度测试。", big)},
	{"cjkMixed256K", repeat("汉字 text 混合，测试 42 次。", big)},
	{"cyrillic256K", repeat("быстрая проверка строки ", big)},
	{"latin256K", repeat("déjà vu, naïve café ", big)},
	{"emoji256K", repeat("😀🎉", big)},
	{"code4K", repeat(codeText, 4<<10)},
	{"log16K", repeat(`2026-11-26T22:23:10Z level=info msg=\"request done\" path=/a/b/c status=200 took=12ms\n`, 16<<10)},
	{"escape256K", repeat(`line of code {\"a\"}\n\tx := \\y `, big)},
	{"sparse256K", repeat(repeat("a plain line of some log output ", 160)+`\n`, big)},
	{"unicode256K", repeat(`\u6c49\u5b57\ud83d\ude00 ab`, big)},
}

// toolList returns a text of the size and shape of a tools/list result with 100 tools.
func toolList() []byte {
	var b bytes.Buffer
	b.WriteString(`{"jsonrpc":"2.0","id":7,"result":{"tools":[`)
	for i := range 100 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"name":"tool_%d","title":"Tool %d","description":"Searches the index for documents that match and returns the best ones.","inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"what to look for","minLength":1},"limit":{"type":"integer","minimum":1,"maximum":100},"tags":{"type":"array","items":{"type":"string"}},"exact":{"type":"boolean","default":false},"weight":{"type":"number","default":0.75}},"required":["query","limit"],"additionalProperties":false},"annotations":{"readOnlyHint":true}}`, i, i)
	}
	b.WriteString(`]}}`)
	return b.Bytes()
}

func BenchmarkValid(b *testing.B) {
	rows := []struct{ name, text string }{
		{"ping", pingText},
		{"call", callText},
		{"list100", string(toolList())},
		{"list100pretty", indented(string(toolList()))},
		{"numbers", "[" + repeat("12345,-0.5,6.02e23,7,", big) + "0]"},
	}
	for _, s := range benchStrings {
		rows = append(rows, struct{ name, text string }{s.name, `{"text":"` + s.raw + `"}`})
	}
	for _, r := range rows {
		b.Run(r.name, func(b *testing.B) {
			data := []byte(r.text)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if err := Valid(data, 0); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// envelope has the members of a message that a JSON-RPC implementation reads.
type envelope struct{ version, id, method, params, name, args []byte }

// split reads a message as a JSON-RPC implementation does, two levels deep.
func (e *envelope) split(s *Scanner, data []byte) error {
	s.Reset(data, 0)
	more, err := s.EnterObject()
	for more && err == nil {
		var key []byte
		if key, _, err = s.Key(); err != nil {
			break
		}
		switch string(key) {
		case "params":
			s.Peek()
			start := s.Pos()
			err = e.splitParams(s, data)
			e.params = data[start:s.Pos()]
		case "method":
			e.method, _, err = s.String()
		case "jsonrpc":
			e.version, _, err = s.String()
		case "id":
			s.Peek()
			start := s.Pos()
			err = s.Skip()
			e.id = data[start:s.Pos()]
		default:
			err = s.Skip()
		}
		if err == nil {
			more, err = s.NextMember()
		}
	}
	if err != nil {
		return err
	}
	return s.End()
}

func (e *envelope) splitParams(s *Scanner, data []byte) error {
	more, err := s.EnterObject()
	for more && err == nil {
		var key []byte
		if key, _, err = s.Key(); err != nil {
			break
		}
		s.Peek()
		start := s.Pos()
		if err = s.Skip(); err != nil {
			break
		}
		switch string(key) {
		case "name":
			e.name = data[start:s.Pos()]
		case "arguments":
			e.args = data[start:s.Pos()]
		}
		more, err = s.NextMember()
	}
	return err
}

func BenchmarkEnvelope(b *testing.B) {
	for _, r := range []struct{ name, text string }{{"ping", pingText}, {"call", callText}} {
		b.Run(r.name, func(b *testing.B) {
			data := []byte(r.text)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			var s Scanner
			for b.Loop() {
				var e envelope
				if err := e.split(&s, data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkWalk(b *testing.B) {
	b.Run("skip/list100", func(b *testing.B) {
		data := toolList()
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			if SkipValue(data, 0) != len(data) {
				b.Fatal("wrong end")
			}
		}
	})
	for _, r := range benchStrings {
		b.Run("skip/"+r.name, func(b *testing.B) {
			data := []byte(`"` + r.raw + `"`)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				if SkipValue(data, 0) != len(data) {
					b.Fatal("wrong end")
				}
			}
		})
	}
	b.Run("members", func(b *testing.B) {
		data := []byte(`{"query":"weather in Paris","limit":10,"tags":["a","b"],"exact":true,"weight":0.75}`)
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			m := ObjectMembers(data)
			n := 0
			for m.Next() {
				if m.KeyIs("weight") {
					n++
				}
			}
			if n != 1 {
				b.Fatal("member lost")
			}
		}
	})
}

func BenchmarkQuote(b *testing.B) {
	for _, r := range benchStrings {
		s := UnquoteString([]byte(r.raw))
		b.Run("string/"+r.name, func(b *testing.B) { benchQuote(b, s) })
	}
	b.Run("bytes/ascii256K", func(b *testing.B) { benchQuote(b, []byte(benchStrings[2].raw)) })
	b.Run("new/ascii8M", func(b *testing.B) {
		s := repeat("plain ASCII text ", 8<<20)
		head := make([]byte, 100, 4<<10)
		b.SetBytes(int64(len(s)))
		b.ReportAllocs()
		for b.Loop() {
			AppendQuote(head, s)
		}
	})
}

func benchQuote[T ~string | ~[]byte](b *testing.B, s T) {
	dst := make([]byte, 0, 6*len(s)+2)
	b.SetBytes(int64(len(s)))
	b.ReportAllocs()
	for b.Loop() {
		dst = AppendQuote(dst[:0], s)
	}
}

func BenchmarkUnquote(b *testing.B) {
	for _, r := range benchStrings {
		raw := []byte(r.raw)
		b.Run("append/"+r.name, func(b *testing.B) {
			dst := make([]byte, 0, len(raw))
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendUnquote(dst[:0], raw)
			}
		})
		b.Run("string/"+r.name, func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				_ = UnquoteString(raw)
			}
		})
	}
}

func BenchmarkCompact(b *testing.B) {
	compact := toolList()
	pretty := []byte(indented(string(compact)))
	dst := make([]byte, 0, len(pretty))
	b.Run("pretty", func(b *testing.B) {
		b.SetBytes(int64(len(pretty)))
		b.ReportAllocs()
		for b.Loop() {
			dst = AppendCompact(dst[:0], pretty)
		}
	})
	b.Run("compact", func(b *testing.B) {
		b.SetBytes(int64(len(compact)))
		b.ReportAllocs()
		for b.Loop() {
			dst = AppendCompact(dst[:0], compact)
		}
	})
	b.Run("hasspace", func(b *testing.B) {
		b.SetBytes(int64(len(compact)))
		b.ReportAllocs()
		for b.Loop() {
			if HasSpace(compact) {
				b.Fatal("no space there")
			}
		}
	})
}

// BenchmarkMemcpy is the lower bound for the other benchmarks.
func BenchmarkMemcpy(b *testing.B) {
	src := []byte(benchStrings[2].raw)
	dst := make([]byte, 0, len(src))
	b.SetBytes(int64(len(src)))
	b.ReportAllocs()
	for b.Loop() {
		dst = append(dst[:0], src...)
	}
}
