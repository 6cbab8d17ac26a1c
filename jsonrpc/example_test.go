package jsonrpc_test

import (
	"fmt"
	"io"
	"strings"

	"mcpwire/jsonrpc"
)

// The peer's first bytes show its framing, which is used for responses too.
func ExampleNewFramer() {
	stream := struct {
		io.Reader
		io.Writer
		io.Closer
	}{
		strings.NewReader("Content-Length: 2\r\n\r\n{}" + "content-length: 9\r\n\r\n{\"a\":\n 1}"),
		stdout{},
		io.NopCloser(nil),
	}
	f := jsonrpc.NewFramer(stream, nil)
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Printf("%q\n", frame)
	}
	f.WriteFrame([]byte(`{"jsonrpc":"2.0","method":"done"}`))
	// Output:
	// "{}"
	// "{\"a\":\n 1}"
	// EOF
	// "Content-Length: 33\r\n\r\n{\"jsonrpc\":\"2.0\",\"method\":\"done\"}"
}

// stdout prints the line breaks of frames visibly.
type stdout struct{}

func (stdout) Write(p []byte) (int, error) {
	fmt.Printf("%q\n", p)
	return len(p), nil
}
