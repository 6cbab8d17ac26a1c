package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/internal/test/pipes"
	"mcpwire/jsonrpc"
)

// FuzzConn sends any bytes to a connection. It must respond in complete frames, reach the end of
// the input and leak nothing.
func FuzzConn(f *testing.F) {
	var lines, blocks strings.Builder
	for _, frame := range []string{
		request(1, "echo", `{"a":1}`), request(`"x"`, "fail"), request(1, "no such"), request(2, "panic"), notification("echo"), notification("panic"),
		result(1, "{}"), failure("null", 1, "x", ""), cancelOf(1), "{", "1", "[]", "[1," + request(3, "echo", "[]") + "," + notification("x") + "]",
	} {
		f.Add([]byte(frame), false)
		lines.WriteString(frame + "\n")
		blocks.WriteString(block(frame))
	}
	f.Add([]byte(lines.String()), true)
	f.Add([]byte(blocks.String()), false)
	f.Fuzz(func(t *testing.T, stream []byte, omitNull bool) {
		local, remote := pipes.Memory(0)
		remote.Write(stream)
		remote.Out.End(io.EOF)
		c := NewConn(jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{MaxFrame: 200}), &Options{
			Handler: &mux{runModes[0], methods{
				"echo":  func(_ context.Context, r *Request) (string, error) { return string(r.Params), nil },
				"fail":  func(context.Context, *Request) (string, error) { return "", errors.New("x") },
				"panic": func(context.Context, *Request) (string, error) { panic("x") },
			}},
			Policy: Policy{OmitNullID: omitNull},
		})
		if err := c.Run(context.Background()); err != nil {
			t.Fatalf("Run: %v", err)
		}
		if n := c.inFlight.running.Load() + c.inFlight.count.Load(); n != 0 {
			t.Fatalf("%d left in the table", n)
		}
		answers := jsonrpc.NewFramer(remote, nil)
		for {
			frame, err := answers.ReadFrame()
			if err == io.EOF {
				return
			}
			if err != nil {
				t.Fatalf("responses are not framed: %v", err)
			}
			var m jsonrpc.Message
			if rpcbatch.Is(frame) {
				_, err = rpcbatch.Parse(frame, 0)
			} else if err = jsonrpc.Parse(frame, &m, 0); m.Kind != jsonrpc.KindResponse && m.Kind != jsonrpc.KindError {
				err = fmt.Errorf("answer of kind %v", m.Kind)
			}
			if err != nil {
				t.Fatalf("%s: %v", frame, err)
			}
		}
	})
}
