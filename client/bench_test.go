package client

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"os"
	"testing"

	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A constant is a server of minimal cost: it sends the same response to each call, on its reading
// goroutine.
type constant struct{ result string }

func (constant) Prepare(*rpc.Request) *rpc.CostEstimate { return rpc.Immediate }

func (h constant) Handle(r *rpc.Request, dst []byte) ([]byte, error) {
	switch string(r.Method) {
	case mcp.MethodDiscover:
		return append(dst, discovered(modernDate)...), nil
	case mcp.MethodInitialize:
		return append(dst, initialized(legacyDate)...), nil
	}
	return append(dst, h.result...), nil
}

// benchPipes are the pipes that the benchmarks use.
var benchPipes = []struct {
	name string
	open func() (a, b io.ReadWriteCloser)
}{
	{"memory", func() (a, b io.ReadWriteCloser) { return net.Pipe() }},
	{"pipe", func() (a, b io.ReadWriteCloser) {
		r1, w1, err := os.Pipe()
		must(err)
		r2, w2, err := os.Pipe()
		must(err)
		return &twoWay{r1, w2}, &twoWay{r2, w1}
	}},
}

const benchResult = `{"content":[{"type":"text","text":"hello, world"}],"resultType":"complete"}`

// BenchmarkCall measures a call to a server that does no work. The case connection measures package
// rpc alone.
func BenchmarkCall(b *testing.B) {
	params := []byte(`{"name":"echo","arguments":{"text":"hello, world"}}`)
	for _, pipe := range benchPipes {
		open := func(b *testing.B) jsonrpc.Framer {
			clientEnd, serverEnd := pipe.open()
			conn := rpc.NewConn(jsonrpc.NewFramer(serverEnd, nil), &rpc.Options{Handler: constant{benchResult}})
			go conn.Run(context.Background())
			b.Cleanup(func() { conn.Close() })
			return jsonrpc.NewFramer(clientEnd, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine})
		}
		b.Run(pipe.name+"/connection", func(b *testing.B) {
			conn := rpc.NewConn(open(b), nil)
			go conn.Run(context.Background())
			defer conn.Close()
			b.ReportAllocs()
			for b.Loop() {
				if _, err := conn.Call(b.Context(), "tools/call", params); err != nil {
					b.Fatal(err)
				}
			}
		})
		for _, r := range []mcp.Revision{mcp.LatestLegacyRevision, mcp.LatestRevision} {
			b.Run(pipe.name+"/"+r.String(), func(b *testing.B) {
				c, err := Dial(b.Context(), FramerTransport(open(b)), &Options{Revisions: []mcp.Revision{r}})
				if err != nil {
					b.Fatal(err)
				}
				defer c.Close()
				b.ReportAllocs()
				for b.Loop() {
					if _, err := c.roundTrip(b.Context(), &request{method: "tools/call", params: params}); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		b.Run(pipe.name+"/tool", func(b *testing.B) {
			c, err := Dial(b.Context(), FramerTransport(open(b)), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			args := map[string]string{"text": "hello, world"}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := CallTool[string](b.Context(), c, "echo", args); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(pipe.name+"/parallel", func(b *testing.B) {
			c, err := Dial(b.Context(), FramerTransport(open(b)), nil)
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			b.ReportAllocs()
			b.SetParallelism(32)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					var result json.RawMessage
					if err := c.Call(b.Context(), "tools/call", json.RawMessage(params), &result); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
