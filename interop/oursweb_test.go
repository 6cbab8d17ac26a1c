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

// everythingWebVerb as the first argument makes the test binary our server with
// everything, over HTTP. Further arguments are revisions to speak, if not all,
// and streams, to answer by streams only.
const everythingWebVerb = "everything-http"

// streamsWord is that argument.
const streamsWord = "streams"

func everythingWebMain(args []string) int {
	opts := &streamable.Options{Retry: 10 * time.Millisecond}
	revisions := slices.DeleteFunc(slices.Clone(args), func(arg string) bool { return arg == streamsWord })
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
	mux.Handle(oldPath, old)
	mux.Handle("/messages", old)
	return serveWeb(mux, h.Shutdown)
}

// ourWeb is our own server, over HTTP.
func ourWeb(path string, revisions []string, words ...string) *peer {
	return &peer{
		name:      "mcpwire",
		info:      "everything",
		revisions: revisions,
		launch: func(t *testing.T, revisions ...string) *witnessed {
			t.Helper()
			return newWebProgram(t, path, everythingWebVerb, append(revisions, words...)...)
		},
	}
}

// TestOursHTTP runs our client against our server, with each way to answer.
func TestOursHTTP(t *testing.T) {
	runTours(t, ourWeb(webPath, allRevisions))
	t.Run("streams", func(t *testing.T) { runTours(t, ourWeb(webPath, allRevisions, streamsWord)) })
	t.Run("HTTP+SSE", func(t *testing.T) { runTours(t, ourWeb(oldPath, legacyRevisions)) })
}
