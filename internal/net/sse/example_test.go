package sse_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"mcpwire/internal/net/sse"
)

func ExampleReader() {
	r := sse.NewReader(strings.NewReader("id: s1-0\ndata:\n\n: keep-alive\n\nid: s1-1\ndata: {\"jsonrpc\":\"2.0\",\ndata: \"id\":1,\"result\":{}}\n\nretry: 3000\n\n"), 0)
	for {
		e, err := r.Read()
		switch {
		case errors.Is(err, sse.ErrTooLarge):
			fmt.Println("lost an event:", err)
			continue
		case err != nil:
			fmt.Println("end:", err == io.EOF, r.LastEventID())
			return
		}
		if e.HasRetry {
			fmt.Println("reconnect after", e.Retry)
		}
		if len(e.Data) > 0 {
			fmt.Printf("%q\n", e.Data)
		}
	}
	// Output:
	// "{\"jsonrpc\":\"2.0\",\n\"id\":1,\"result\":{}}"
	// reconnect after 3s
	// end: true s1-1
}

func ExampleAppend() {
	var out []byte
	out, err := sse.Append(out, sse.Event{ID: []byte("s1-0"), HasID: true, Retry: 3 * time.Second, HasRetry: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	out = sse.AppendKeepAlive(out)
	out = sse.AppendMessage(out, []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`))
	fmt.Printf("%q\n", out)

	_, err = sse.Append(nil, sse.Event{ID: []byte("1\ndata: forged"), HasID: true})
	fmt.Println(err)
	// Output:
	// "id: s1-0\nretry: 3000\ndata: \n\n: keep-alive\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"
	// sse: id with a line end or NUL, or too long
}
