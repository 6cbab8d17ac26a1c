package capture_test

import (
	"bytes"
	"fmt"
	"log"
	"regexp"

	"mcpwire/capture"
)

// Record a session, and print which response belongs to which request.
func Example() {
	var file bytes.Buffer // capture.Create makes a file
	w := capture.NewWriter(&file, &capture.Options{Tool: "example 1.0", Transport: "stdio", Name: "demo"})
	// In a tap, Record is called before the bytes are forwarded.
	w.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Framing: capture.FramingLF, Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)})
	w.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Framing: capture.FramingLF, Data: []byte(`{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`)})
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}

	r := capture.NewReader(&file, nil) // capture.Open reads a file
	for x, err := range capture.Pairs(r.Events()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %s: event %d, answered by event %d\n", x.Call.ID, x.Call.Method, x.Request.N, x.Response.N)
	}
	// Output:
	// 1 tools/list: event 1, answered by event 2
}

// Redact the secrets of a message.
func ExampleRedactor_Message() {
	r := capture.NewRedactor(nil)
	out, hidden := r.Message(nil, []byte(`{"method":"tools/call","params":{"arguments":{"query":"x","api_key":"abcdef"}}}`))
	fmt.Println(regexp.MustCompile(`[0-9a-f]{12}`).ReplaceAllString(string(out), "HASH")) // the hash differs each time
	fmt.Println(hidden)
	// Output:
	// {"method":"tools/call","params":{"arguments":{"query":"x","api_key":"~redacted:key:HASH:8~"}}}
	// [/params/arguments/api_key]
}
