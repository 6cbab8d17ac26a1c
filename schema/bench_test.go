package schema_test

import (
	"strconv"
	"strings"
	"testing"

	"mcpwire/schema"
)

type echoArgs struct {
	Text string `json:"text" jsonschema:"text to send back"`
}

type searchArgs struct {
	Query  string   `json:"query" schema:"minLength=1,maxLength=200"`
	Limit  int      `json:"limit,omitempty" schema:"minimum=1,maximum=100,default=10"`
	Sort   string   `json:"sort,omitempty" schema:"enum=relevance|date|name"`
	Tags   []string `json:"tags,omitempty" schema:"maxItems=10"`
	Strict bool     `json:"strict,omitempty"`
}

const (
	echoText   = `{"text":"The quick brown fox jumps over the lazy dog, twice a day."}`
	searchText = `{"query":"compiled decoders","limit":25,"sort":"date","tags":["go","json","mcp"],"strict":true}`
)

func benchmarkDecode[T any](b *testing.B, text string) {
	t, err := schema.Of[T](nil)
	if err != nil {
		b.Fatal(err)
	}
	in := []byte(text)
	var v T
	b.ReportAllocs()
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if err := t.Decode(in, &v); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeEcho(b *testing.B)   { benchmarkDecode[echoArgs](b, echoText) }
func BenchmarkDecodeSearch(b *testing.B) { benchmarkDecode[searchArgs](b, searchText) }

func benchmarkAppend[T any](b *testing.B, v T) {
	t, err := schema.Of[T](nil)
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 0, 1<<16)
	b.ReportAllocs()
	for b.Loop() {
		out, err := t.Append(buf, &v)
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(len(out)))
	}
}

func BenchmarkAppendInt(b *testing.B)    { benchmarkAppend(b, 42) }
func BenchmarkAppendString(b *testing.B) { benchmarkAppend(b, "The quick brown fox jumps over it") }
func BenchmarkAppendSearch(b *testing.B) {
	benchmarkAppend(b, searchArgs{"compiled decoders", 25, "date", []string{"go", "json", "mcp"}, true})
}

func BenchmarkValidate(b *testing.B) {
	for _, c := range []struct{ name, text string }{{"echo", echoText}, {"search", searchText}} {
		b.Run(c.name, func(b *testing.B) {
			t, err := schema.Of[searchArgs](nil)
			if c.name == "echo" {
				e, err2 := schema.Of[echoArgs](nil)
				if err = err2; err == nil {
					benchmarkValidate(b, e.JSON(), c.text)
					return
				}
			}
			if err != nil {
				b.Fatal(err)
			}
			benchmarkValidate(b, t.JSON(), c.text)
		})
	}
}

func benchmarkValidate(b *testing.B, schemaText []byte, text string) {
	v, err := schema.Compile(schemaText, nil)
	if err != nil {
		b.Fatal(err)
	}
	in := []byte(text)
	b.ReportAllocs()
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if err := v.Validate(in); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOf(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := schema.Of[searchArgs](nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	text := of[searchArgs](b, nil).JSON()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := schema.Compile(text, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeLong(b *testing.B) {
	for _, n := range []int{4 << 10, 256 << 10} {
		plain := strings.Repeat("The quick brown fox jumps over the lazy dog. ", n/45+1)[:n]
		b.Run(strconv.Itoa(n), func(b *testing.B) { benchmarkDecode[echoArgs](b, `{"text":"`+plain+`"}`) })
	}
}

func BenchmarkDecodeList(b *testing.B) {
	text := `[` + strings.Repeat(`{"x":12345,"y":-7},`, 999) + `{"x":1,"y":2}]`
	benchmarkDecode[[]point](b, text)
}

func BenchmarkDecodeAny(b *testing.B) { benchmarkDecode[map[string]any](b, searchText) }
