package watch_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/view/watch"
)

func ExampleHub() {
	dir, err := os.MkdirTemp("", "captures")
	if err != nil {
		return
	}
	defer os.RemoveAll(dir)
	hub := watch.New(&watch.Options{Dir: dir})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan error)
	go func() { done <- hub.Run(ctx) }()

	// A tap records.
	f, err := capture.Create(filepath.Join(dir, "files"+capture.Suffix), &capture.Options{Name: "files"})
	if err != nil {
		return
	}
	f.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"search"}}`)})
	f.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[]}}`)})
	defer f.Close()

	feed := hub.Subscribe(0)
	defer feed.Close()
	for answered := false; !answered; {
		err = feed.Next(ctx, func(b *watch.Batch) {
			for _, r := range b.Changed {
				if answered = r.Status == trace.OK; answered {
					fmt.Println(r.Method, r.Target, r.Status)
				}
			}
		})
		if err != nil {
			break
		}
	}
	cancel()
	fmt.Println(<-done)
	// Output:
	// tools/call search ok
	// <nil>
}
