package jsonrpc_test

import (
	"fmt"
	"io"
	"os"
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

func ExampleParse() {
	for _, frame := range []string{
		`{"jsonrpc":"2.0","id":"a1","method":"add","params":{"x":2}}`,
		`{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no such method"}}`,
	} {
		var m jsonrpc.Message
		if err := jsonrpc.Parse([]byte(frame), &m, 0); err != nil {
			fmt.Println(err)
			return
		}
		switch m.Kind {
		case jsonrpc.KindRequest:
			x, _ := m.Param("x")
			fmt.Printf("request %s: %s, x is %s\n", m.ID, m.Method, x)
		case jsonrpc.KindError:
			fmt.Printf("response %s: %v\n", m.ID, m.Err())
		}
	}
	// Output:
	// request "a1": add, x is 2
	// response 7: no such method (-32601)
}

func ExampleAppendRequest() {
	frame := jsonrpc.AppendRequest(nil, jsonrpc.IntID(1), "add", []byte(`{"x":2}`))
	fmt.Printf("%s\n", frame)
	fmt.Printf("%s\n", jsonrpc.AppendResult(frame[:0], jsonrpc.IntID(1), []byte(`3`)))
	// Output:
	// {"jsonrpc":"2.0","id":1,"method":"add","params":{"x":2}}
	// {"jsonrpc":"2.0","id":1,"result":3}
}

// A handler decides which of its errors a client can read.
func ExampleErrorOf() {
	read := func(name string) error {
		if name == "" {
			return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "name is missing")
		}
		_, err := os.ReadFile("/no/such/folder/" + name)
		return err
	}
	for _, name := range []string{"", "notes"} {
		e := jsonrpc.ErrorOf(read(name))
		fmt.Printf("%s %d %q\n", e.Data, int(e.Code), e.Message)
	}
	// Output:
	//  -32602 "name is missing"
	// {"exception":"fs.PathError"} -32603 "internal error"
}
