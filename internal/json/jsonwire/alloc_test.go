package jsonwire

import (
	"strings"
	"testing"
)

// TestAllocations checks the exact number of allocations on the hot path. It includes AppendQuote
// of a string because the compiler decides whether the string is copied.
func TestAllocations(t *testing.T) {
	call, pretty, list := []byte(callText), []byte(indented(callText)), toolList()
	deep := nested(DefaultMaxDepth, "[", "]")
	long := strings.Repeat("some text, ", 1000)
	odd := "line\n\"two\"\té 汉字 😀 \x01 " + long + "\n\xff"
	raw := AppendQuote(nil, odd)
	raw = raw[1 : len(raw)-1]
	dst := make([]byte, 0, 64<<10)
	var s Scanner
	var e envelope
	var sink string
	tests := []struct {
		name string
		want float64
		f    func()
	}{
		{"Valid call", 0, func() { must(Valid(call, 0)) }},
		{"Valid pretty", 0, func() { must(Valid(pretty, 0)) }},
		{"Valid list", 0, func() { must(Valid(list, 0)) }},
		{"Valid deep", 0, func() { must(Valid(deep, 0)) }},
		{"split", 0, func() { must(e.split(&s, call)) }},
		{"drive", 0, func() { s.Reset(list, 0); must(drive(&s)); must(s.End()) }},
		{"SkipValue", 0, func() { SkipValue(list, 0) }},
		{"walk", 0, func() {
			m := ObjectMembers(call)
			for m.Next() {
				m.KeyIs("params")
				el := ArrayElements(m.Value())
				el.Next()
			}
		}},
		{"KeyIs escaped", 0, func() {
			m := ObjectMembers([]byte(`{"p\u0061rams":0}`))
			if !m.Next() || !m.KeyIs("params") {
				panic("lost")
			}
		}},
		{"AppendQuote string", 0, func() { dst = AppendQuote(dst[:0], long) }},
		{"AppendQuote odd string", 0, func() { dst = AppendQuote(dst[:0], odd) }},
		{"AppendQuote bytes", 0, func() { dst = AppendQuote(dst[:0], list) }},
		{"AppendUnquote", 0, func() { dst = AppendUnquote(dst[:0], raw) }},
		{"UnquoteString plain", 1, func() { sink = UnquoteString(call) }},
		{"UnquoteString short", 1, func() { sink = UnquoteString(raw[:40]) }},
		{"UnquoteString long", 1, func() { sink = UnquoteString(raw) }},
		{"RawEqual", 0, func() { RawEqual(raw, odd) }},
		{"AppendCompact", 0, func() { dst = AppendCompact(dst[:0], pretty) }},
		{"HasSpace", 0, func() { HasSpace(list) }},
		{"ParseInt", 0, func() { ParseInt(call[25:30]) }},
	}
	for _, tt := range tests {
		if got := testing.AllocsPerRun(20, tt.f); got != tt.want {
			t.Errorf("%s: %v allocations, want %v", tt.name, got, tt.want)
		}
	}
	_ = sink
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
