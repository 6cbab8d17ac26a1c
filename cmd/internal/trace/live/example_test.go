package live_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/internal/base/hooks"
)

func Example() {
	base, err := os.MkdirTemp("", "live")
	if err != nil {
		return
	}
	defer os.RemoveAll(base)
	dir := filepath.Join(base, "live")

	// A tap.
	server := live.NewServer(nil)
	w := capture.NewWriter(io.Discard, &capture.Options{Hooks: &hooks.Writer[capture.Event]{Tee: server}})
	if err := server.Start(dir, live.Greeting{Capture: w.ID(), Name: "files"}); err != nil {
		return
	}

	// A viewer.
	paths, _ := live.List(dir)
	conn, err := live.Dial(context.Background(), paths[0])
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Println("watching", conn.Greeting().Name)

	w.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("hello")})
	w.Close()
	server.Close()
	for e := range capture.NewReader(conn, nil).Events() {
		fmt.Printf("%s %q\n", e.Kind, e.Data)
	}
	// Output:
	// watching files
	// head ""
	// note "hello"
	// tail ""
}
