package replay_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"mcpwire/capture"
	"mcpwire/cmd/internal/playback/replay"
	"mcpwire/cmd/internal/playback/resend"
)

// Replay a recorded client against a server whose responses differ.
func ExampleRun() {
	recorded := record(
		c2s(1, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"clock","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`),
		s2c(2, `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"It is 2026-11-20T12:00:00Z"}]}}`),
	)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"It is 2027-01-01T00:00:00Z"}],"isError":true}}`)
	}))
	defer web.Close()

	ctx := context.Background()
	recordings, err := replay.Read(ctx, capture.NewReader(recorded, nil).Events(), nil)
	if err != nil {
		log.Fatal(err)
	}
	w := capture.NewWriter(io.Discard, nil)
	defer w.Close()
	sum, err := replay.Run(ctx, recordings[0], &resend.Origin{Transport: capture.TransportHTTP, URL: web.URL}, w, &replay.Options{
		Report: func(r *replay.Result) {
			fmt.Println(r.Method, r.Target, r.Status)
			for _, d := range r.Differences {
				fmt.Println(" ", d.Op, d.Pointer, d.New)
			}
		},
	})
	fmt.Println(sum.OK(), err)
	// Output:
	// tools/call clock different
	//   add /result/isError true
	// false <nil>
}

// Read the client's side of each session of a capture.
func ExampleRead() {
	recordings, err := replay.Read(context.Background(), capture.NewReader(session(c2s(3, callA), s2c(4, answerA)), nil).Events(), nil)
	for _, r := range recordings {
		fmt.Println(r.Name, r.Transport, r.Revision, r.Requests())
	}
	fmt.Println(err)
	// Output:
	// shop stdio 2025-11-25 2
	// <nil>
}
