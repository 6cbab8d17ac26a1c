package interop

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"mcpwire/streamable"
)

// everythingWebVerb as the first argument makes the test binary the everything server over HTTP.
// Further arguments are the supported revisions, without which it supports all, and streamsArg.
const everythingWebVerb = "everything-http"

// streamsArg makes the everything server respond only with streams.
const streamsArg = "streams"

func everythingWebMain(args []string) int {
	opts := &streamable.Options{Retry: 10 * time.Millisecond}
	revisions := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == streamsArg })
	opts.StreamAlways = len(revisions) < len(args)
	e, err := newEverything(revisions)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	h := streamable.MustHandler(e, opts)
	mux := http.NewServeMux()
	mux.Handle(webPath, h)
	old := h.SSE("/messages")
	mux.Handle(ssePath, old)
	mux.Handle("/messages", old)
	return serveWeb(mux, h.Shutdown)
}

// ourWeb returns our server over HTTP. args are further arguments, such as streamsArg.
func ourWeb(path string, revisions []string, args ...string) *peer {
	return &peer{
		name:      "mcpwire",
		info:      "everything",
		revisions: revisions,
		launch: func(t *testing.T, revisions ...string) *recordedServer {
			t.Helper()
			return newWebProgram(t, path, everythingWebVerb, append(revisions, args...)...)
		},
	}
}

// TestOursHTTP runs our client against our server, with each kind of response.
func TestOursHTTP(t *testing.T) {
	runTours(t, ourWeb(webPath, allRevisions))
	t.Run("streams", func(t *testing.T) { runTours(t, ourWeb(webPath, allRevisions, streamsArg)) })
	t.Run("HTTP+SSE", func(t *testing.T) { runTours(t, ourWeb(ssePath, legacyRevisions)) })
}
