package sse

import (
	"fmt"
	"strings"
	"testing"
)

func benchMessage(size int) []byte {
	const head, tail = `{"jsonrpc":"2.0","id":12345,"result":{"content":[{"type":"text","text":"`, `"}]}}`
	return []byte(head + strings.Repeat("x", max(0, size-len(head)-len(tail))) + tail)
}

func BenchmarkAppendMessage(b *testing.B) {
	for _, size := range []int{200, 4 << 10, 1 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			msg := benchMessage(size)
			var dst []byte
			b.SetBytes(int64(len(msg)))
			b.ReportAllocs()
			for b.Loop() {
				dst = AppendMessage(dst[:0], msg)
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for _, row := range []struct {
		name, stream string
		chunk        int
	}{
		{"200", string(AppendMessage(nil, benchMessage(200))), 1 << 20},
		{"200batch", strings.Repeat(string(AppendMessage(nil, benchMessage(200))), 100), 1 << 20},
		{"200id", "event: message\nid: 1234567890\n" + string(AppendMessage(nil, benchMessage(200))), 1 << 20},
		{"4K", string(AppendMessage(nil, benchMessage(4<<10))), 1 << 20},
		{"1M", string(AppendMessage(nil, benchMessage(1<<20))), 1 << 20},
		{"1Mchunks4K", string(AppendMessage(nil, benchMessage(1<<20))), 4 << 10},
		{"8M", string(AppendMessage(nil, benchMessage(8<<20))), 1 << 20},
		{"8Mlines16", strings.Repeat("data: 0123456789\n", 512<<10) + "\n", 1 << 20},
		{"8Mcomments", "data: " + strings.Repeat("x", 4<<20) + "\n" + strings.Repeat(": 34567\n", 512<<10) + "\n", 1 << 20},
		{"1McrEmpty", strings.Repeat("data\r", 200<<10) + "\r", 1 << 20},
	} {
		b.Run(row.name, func(b *testing.B) {
			events := strings.Count(row.stream, "\n\n") + strings.Count(row.stream, "\r\r")
			r := NewReader(&loop{data: row.stream, chunk: row.chunk}, 16<<20)
			b.SetBytes(int64(len(row.stream) / events))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Read(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
