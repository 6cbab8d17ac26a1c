package translate_test

import (
	"strings"
	"testing"
	"time"

	"mcpwire/internal/proxy/translate"
)

func BenchmarkResult(b *testing.B) {
	now := time.Unix(0, 0)
	for _, size := range []int{1 << 10, 8 << 20} {
		for _, modern := range []bool{false, true} {
			b.Run(map[bool]string{false: "legacy client", true: "modern client"}[modern]+map[bool]string{true: " 8 MiB", false: " 1 KiB"}[size > 1<<20], func(b *testing.B) {
				p := new(player)
				kind := ""
				if modern {
					kind = "@modern"
				}
				p.play([]string{kind, `@handshake 2025-11-25 {} {"tools":{}}`})
				call := []byte(lengthen.Replace(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","_meta":{$V:{}}}}`))
				if !modern {
					call = []byte(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`)
				}
				tail := `,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", size) + `"}],"resultType":"complete"}}`
				b.SetBytes(int64(len(tail)))
				b.ReportAllocs()
				for b.Loop() {
					outs := p.t.FromDownstream(now, call, 1)
					var id []byte
					for _, o := range outs {
						if o.To == translate.Upstream {
							_, rest, _ := strings.Cut(string(o.Message), `"id":`)
							digits, _, _ := strings.Cut(rest, ",")
							id = []byte(digits)
						}
					}
					msg := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
					outs = p.t.FromUpstream(now, append(msg, tail...), 0)
					if len(outs) != 1 || !outs[0].Final {
						b.Fatal(outs)
					}
				}
			})
		}
	}
}
