package tui_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mcpwire/cmd/internal/view/tui"
	"mcpwire/cmd/internal/view/watch"
)

func ExampleRun() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	hub := watch.New(nil) // see watch.Options for the captures to watch
	done := make(chan error)
	go func() { done <- hub.Run(ctx) }()
	// the user quits at once
	err := tui.Run(ctx, hub, &tui.Options{Input: strings.NewReader("q"), Output: io.Discard})
	fmt.Println(err, ctx.Err())
	cancel()
	<-done
	// Output: <nil> <nil>
}

// TestRun shows a capture until the context ends.
func TestRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.mcpcap.ndjson")
	text := `{"k":"head","v":1,"id":"A","at":"2026-11-20T12:13:03.852Z","tool":"test","transport":"stdio","name":"shop","redact":"default"}
{"n":1,"t":0.01,"dir":"c2s","k":"msg","frame":"lf","len":40,"msg":{"jsonrpc":"2.0","id":2,"method":"ping"}}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	hub := watch.New(&watch.Options{Files: []string{path}})
	done := make(chan error)
	go func() { done <- hub.Run(ctx) }()
	out := &untilText{text: "ping", found: cancel}
	keys, typed := io.Pipe() // no key is pressed
	defer typed.Close()
	o := &tui.Options{Input: keys, Output: out, Environ: []string{"TERM=xterm-256color"}, Folder: t.TempDir()}
	if err := tui.Run(ctx, hub, o); err != nil {
		t.Error(err)
	}
	if !strings.Contains(out.all.String(), "ping") {
		t.Errorf("the screen got %q", out.all.String())
	}
	if !strings.Contains(out.all.String(), "\x1b[?1049l") {
		t.Error("the screen was not restored")
	}
	cancel()
	<-done
}

// An untilText records its input, and calls found when the input contains text.
type untilText struct {
	all   strings.Builder
	text  string
	found func()
}

func (u *untilText) Write(p []byte) (int, error) {
	u.all.Write(p)
	if strings.Contains(u.all.String(), u.text) {
		u.found()
	}
	return len(p), nil
}
