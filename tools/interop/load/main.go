// Command load is a client on the official Go SDK that makes calls until its
// standard input ends, for the harness of clusters: load REVISION URL. It writes a line for each
// call, as JSON: the kind of the call, its milliseconds, and its error.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: load REVISION URL")
		os.Exit(2)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, os.Stdin) // only its end counts
	}()
	l := &load{revision: os.Args[1], url: os.Args[2]}
	for ctx.Err() == nil {
		l.visit(ctx)
	}
}

const (
	callTimeout    = 45 * time.Second
	callsPerClient = 20
	pause          = 50 * time.Millisecond
)

type load struct {
	revision, url string
	calls         int

	mu sync.Mutex
	// steps has the messages of the progress of the current call.
	steps []string
}

// measure runs fn and writes a line. It returns false if fn failed.
func measure(ctx context.Context, what string, fn func(ctx context.Context) error) bool {
	// A call that has begun is finished when the load ends.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	began := time.Now()
	line := struct {
		What  string  `json:"what"`
		MS    float64 `json:"ms"`
		Error string  `json:"error"`
	}{What: what}
	if err := fn(ctx); err != nil {
		line.Error = err.Error()
	}
	line.MS = float64(time.Since(began).Microseconds()) / 1000
	if err := json.NewEncoder(os.Stdout).Encode(&line); err != nil {
		os.Exit(1) // standard output is closed
	}
	return line.Error == ""
}

// visit connects, makes calls and disconnects.
func (l *load) visit(ctx context.Context) {
	client := mcp.NewClient(&mcp.Implementation{Name: "load", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "peer"}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.steps = append(l.steps, r.Params.Message)
		},
	})
	var session *mcp.ClientSession
	// The context of the connection must outlive the call that opens it.
	if !measure(ctx, "connect", func(context.Context) (err error) {
		session, err = client.Connect(context.WithoutCancel(ctx), &mcp.StreamableClientTransport{Endpoint: l.url}, &mcp.ClientSessionOptions{ProtocolVersion: l.revision})
		return err
	}) {
		sleep(ctx, 10*pause)
		return
	}
	for i := 0; i < callsPerClient && ctx.Err() == nil; i++ {
		l.calls++
		id := fmt.Sprintf("go-%s-%d-%d", l.revision, os.Getpid(), l.calls)
		switch i % 4 {
		case 0, 1:
			measure(ctx, "echo", func(ctx context.Context) error {
				result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": id}})
				return expect(result, err, func(text string) bool { return text == id })
			})
		case 2:
			measure(ctx, "progress", func(ctx context.Context) error { return l.progress(ctx, session, id) })
		case 3:
			measure(ctx, "input", func(ctx context.Context) error {
				result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "greet", Arguments: map[string]any{"text": id}})
				return expect(result, err, func(text string) bool { return strings.HasPrefix(text, id+", peer, ") })
			})
		}
		sleep(ctx, pause)
	}
	measure(ctx, "close", func(context.Context) error { return session.Close() })
}

// progress makes a call that reports progress. The SDK may deliver that after the result.
func (l *load) progress(ctx context.Context, session *mcp.ClientSession, id string) error {
	l.mu.Lock()
	l.steps = nil
	l.mu.Unlock()
	params := &mcp.CallToolParams{Name: "work", Arguments: map[string]any{"id": id, "ms": 60, "steps": 3}}
	params.SetProgressToken(id)
	result, err := session.CallTool(ctx, params)
	if err := expect(result, err, func(text string) bool { return strings.Contains(text, `"id":"`+id+`"`) }); err != nil {
		return err
	}
	want := []string{id + " 1", id + " 2", id + " 3"}
	for range 20 {
		l.mu.Lock()
		complete := slices.Equal(l.steps, want)
		l.mu.Unlock()
		if complete {
			return nil
		}
		sleep(ctx, pause)
	}
	return fmt.Errorf("foreign: the progress is %q, want %q", l.steps, want)
}

// expect checks the first text of a result.
func expect(result *mcp.CallToolResult, err error, ok func(text string) bool) error {
	switch {
	case err != nil:
		return err
	case len(result.Content) == 0:
		return errors.New("foreign: the result has no content")
	}
	text, is := result.Content[0].(*mcp.TextContent)
	if !is || !ok(text.Text) {
		return fmt.Errorf("foreign: the result is %+v", result.Content[0])
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
