package tap

import (
	"bytes"
	"io"
	"testing"

	"mcpwire/capture"
)

// BenchmarkSplit is the cost of telling frames apart, and of recording them, on top of forwarding.
func BenchmarkSplit(b *testing.B) {
	line := func(n int) []byte {
		return append(append([]byte(`{"jsonrpc":"2.0","id":1,"result":{"text":"`), bytes.Repeat([]byte("x"), n-44)...), "\"}}\n"...)
	}
	header := append([]byte("Content-Length: 200\r\n\r\n"), line(200)...)
	for _, bb := range []struct {
		name  string
		frame []byte
	}{
		{"line200", line(200)}, {"header200", header[:len(header)-1]}, {"line64K", line(64 << 10)}, {"line1M", line(1 << 20)}, {"line32M", line(32 << 20)},
	} {
		run := func(b *testing.B, sink func(*capture.Event)) {
			s := newSplitter(capture.ToServer, capture.DefaultMaxPayload, sink)
			b.SetBytes(int64(len(bb.frame)))
			b.ReportAllocs()
			for b.Loop() {
				for p := bb.frame; len(p) > 0; {
					n := min(len(p), chunkSize)
					s.write(p[:n])
					p = p[n:]
				}
			}
		}
		b.Run(bb.name+"/split", func(b *testing.B) { run(b, func(*capture.Event) {}) })
		b.Run(bb.name+"/record", func(b *testing.B) {
			w := capture.NewWriter(io.Discard, nil)
			defer w.Close()
			run(b, func(e *capture.Event) { w.Record(e) })
		})
	}
}
