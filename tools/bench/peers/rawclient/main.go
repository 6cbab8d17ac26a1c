// Command rawclient is the limit that clients are compared with. It splices its
// requests and finds what it needs in the responses, as package raw does: over
// HTTP with net/http's client, and on stdio with the least that many goroutines
// can share a pipe by.
package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"mcpwire/tools/bench/loop"
)

const (
	info = `{"name":"rawclient","version":"1.0.0"}`
	meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":` + info +
		`,"io.modelcontextprotocol/clientCapabilities":{}},`
	initialize  = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":` + info + `}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run() error {
	f, err := loop.ParseFlags()
	if err != nil {
		return err
	}
	if f.URL != "" {
		c, err := dial(f)
		if err != nil {
			return err
		}
		return loop.Run(f.Revision(), c.echo)
	}
	c, err := start(f)
	if err != nil {
		return err
	}
	defer c.close()
	return loop.Run(f.Revision(), c.echo)
}

// appendCall appends a call of echo, whose text must need no escapes.
func appendCall(dst []byte, modern bool, id int64, text string) []byte {
	dst = append(dst, `{"jsonrpc":"2.0","id":`...)
	dst = strconv.AppendInt(dst, id, 10)
	dst = append(dst, `,"method":"tools/call","params":{`...)
	if modern {
		dst = append(dst, meta...)
	}
	dst = append(dst, `"name":"echo","arguments":{"text":"`...)
	dst = append(dst, text...)
	return append(dst, `"}}}`...)
}

// textOf returns the text of a response.
func textOf(response []byte) ([]byte, error) {
	_, rest, found := bytes.Cut(response, []byte(`"text":"`))
	text, _, ended := bytes.Cut(rest, []byte(`"`))
	if !found || !ended {
		return nil, fmt.Errorf("no text in %.200q", response)
	}
	return text, nil
}
