package tap

import (
	"bytes"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"mcpwire/capture"
)

// hostile returns a stream of what may confuse, as the tests of package splitter have it.
func hostile(r *rand.Rand) []byte {
	pieces := []string{
		"{}", `{"jsonrpc":"2.0","id":1}`, "\n", "\r\n", "\r", "Content-Length: 5\r\n\r\n", "Content-Length: 0\n\n", "content-length:70000\n\n", "Content-Length: -1\r\n\r\n",
		"Content-", "Content-Type: x\r\n", ": \n", "\x00\xff\xfe", strings.Repeat("y", 70000), strings.Repeat("Content-Type: a\n", 600), "ünïcödé",
	}
	var b []byte
	for range r.IntN(40) {
		b = append(b, pieces[r.IntN(len(pieces))]...)
	}
	return b
}

// TestNote shows that a note is in the capture and in the log.
func TestNote(t *testing.T) {
	var file, log bytes.Buffer
	w := capture.NewWriter(&file, nil)
	rec := &recorder{w: w, log: slog.New(slog.NewTextHandler(&log, nil))}
	rec.note("restarting the server")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"capture": file.String(), "log": log.String()} {
		if strings.Count(text, `"restarting the server"`) != 1 {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}
