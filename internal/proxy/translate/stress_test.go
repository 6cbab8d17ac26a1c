package translate_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/client"
	"mcpwire/internal/proxy/translate"
	"mcpwire/mcp"
)

// TestConcurrentCalls runs many concurrent calls with input requests, progress and cancellations,
// over pipes where only ids correlate messages.
func TestConcurrentCalls(t *testing.T) {
	for _, modern := range []bool{false, true} {
		downstream, upstream := mcp.LatestLegacyRevision, mcp.LatestRevision
		var tr translate.Translator = translate.NewLegacyToModern(nil)
		if modern {
			downstream, upstream = upstream, downstream
			tr = translate.NewModernToLegacy(nil)
		}
		t.Run(downstream.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				opts := fullClientOptions(downstream)
				opts.Input.Sample = func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
					<-time.After(20 * time.Millisecond) // in the bubble's time
					return &mcp.CreateMessageResult{Model: "m", Role: "assistant", Content: []mcp.ContentBlock{mcp.TextContent{Text: "x"}}}, nil
				}
				found := newRules()
				c, p := bridged(t, tr, fullServer(upstream), opts, found.observe)
				// A response may cross a cancellation.
				defer found.report(t, "cancel/answered")
				var wg sync.WaitGroup
				want := map[string]string{"form": `accept{"name":"x"}`, "page": "accept", "think": "mfile:///r", "steps": "done"}
				for i := range 200 {
					tool := []string{"form", "page", "think", "steps", "hang"}[i%5]
					wait := time.Duration(rand.IntN(100)) * time.Millisecond
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
						if tool == "hang" || i%3 == 0 {
							ctx, cancel = context.WithTimeout(t.Context(), wait)
						}
						defer cancel()
						got, err := client.CallTool[string](ctx, c, tool, nil)
						if ctx.Err() == nil && (err != nil || got != want[tool]) {
							t.Errorf("%s: got %q, %v", tool, got, err)
						}
					})
				}
				wg.Wait()
				<-time.After(time.Hour)
				synctest.Wait()
				if requests, awaiting := tr.InFlight(); requests+awaiting != 0 {
					t.Errorf("got %d requests and %d calls that await input, want none", requests, awaiting)
				}
				p.mu.Lock()
				defer p.mu.Unlock()
				if leaks := translate.Leaks(tr); leaks != "" {
					t.Error(leaks)
				}
			})
		})
	}
}
