package resend_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/resend"
)

// recordedCall returns a capture of a tap with one call.
func recordedCall(server string) *bytes.Buffer {
	var file bytes.Buffer
	rec := capture.NewWriter(&file, &capture.Options{Transport: "http", Name: "greeter", URL: server})
	rec.Record(&capture.Event{Kind: capture.KindRequest, Dir: capture.ToServer, Session: 1, Exchange: 1, Request: &capture.Request{Method: "POST", URL: "/mcp"}})
	rec.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Session: 1, Exchange: 1, Data: []byte(
		`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Bob"},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`)})
	if err := rec.Close(); err != nil {
		log.Fatal(err)
	}
	return &file
}

// Send a recorded call again, with another argument.
func ExampleRun() {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println(r.Header.Get("Mcp-Method"), r.Header.Get("Mcp-Name"), r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":[]}}`)
	}))
	defer web.Close()
	dir, err := os.MkdirTemp("", "resend")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	ctx := context.Background()
	o, message, err := resend.Find(ctx, capture.NewReader(recordedCall(web.URL+"/mcp"), nil).Events(), 1, 2)
	if err != nil {
		log.Fatal(err)
	}
	edited := bytes.Replace(message, []byte("Bob"), []byte("Eve"), 1)
	res, err := resend.Run(ctx, o, edited, &resend.Options{Dir: dir, Headers: http.Header{"Authorization": {"Bearer t"}}})
	fmt.Printf("%s %d %v\n", res.Response, res.Status, err)
	// Output:
	// tools/call greet Bearer t
	// {"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":[]}} 200 <nil>
}
