package mock_test

import (
	"context"
	"fmt"
	"io"
	"strings"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/mock"
	"mcpwire/jsonrpc"
)

// duplex joins the client's input and output.
type duplex struct {
	io.Reader
	io.Writer
}

func (duplex) Close() error { return nil }

func Example() {
	text := captureOf(append(hello,
		line{10, `→{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"sum","arguments":{"a":1,"b":2}}}`},
		line{11, `←{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"3"}]}}`})...)
	recording, err := mock.Read(capture.NewReader(strings.NewReader(text), nil).Events(), nil)
	if err != nil {
		panic(err)
	}
	srv := mock.New(recording, nil)
	defer srv.Close()

	client := strings.NewReader(`{"jsonrpc":"2.0","id":"x","method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"me","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":"y","method":"tools/call","params":{"arguments":{"b":2,"a":1},"name":"sum"}}
{"jsonrpc":"2.0","id":"z","method":"tools/call","params":{"name":"sum","arguments":{"a":2,"b":2}}}
`)
	var out strings.Builder
	if err := srv.Serve(context.Background(), jsonrpc.NewFramer(duplex{client, &out}, nil)); err != nil {
		panic(err)
	}
	_, rest, _ := strings.Cut(out.String(), "\n")
	fmt.Print(rest)
	fmt.Println(srv.Misses())
	// Output:
	// {"jsonrpc":"2.0","id":"y","result":{"content":[{"type":"text","text":"3"}]}}
	// {"jsonrpc":"2.0","id":"z","error":{"code":-32603,"message":"not recorded with these params"}}
	// 1
}
