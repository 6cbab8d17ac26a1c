package natscluster

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestServerLog checks that a repeated warning of the server is logged every ten seconds.
func TestServerLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := &serverLog{log: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.MessageKey {
				return a
			}
			return slog.Attr{}
		}})), node: "n1"}
		for i := range 15 {
			for _, address := range []string{"a", "b"} {
				l.Errorf("route (attempt %d): %v", i, errors.New(address))
			}
			<-time.After(time.Second)
		}
		var want []string
		for _, i := range []int{0, 10} {
			for _, address := range []string{"a", "b"} {
				want = append(want, fmt.Sprintf("msg=\"NATS: route (attempt %d): %s\"", i, address))
			}
		}
		if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
	})
}

// TestStartFails checks that a server that cannot start says why, without waiting.
func TestStartFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	readOnly := t.TempDir()
	if err := os.WriteFile(filepath.Join(readOnly, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{file: "not a directory", readOnly: "storage directory is not a directory"} {
		s, err := startEmbedded(t.Context(), &Embed{Dir: dir}, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want one with %q", err, want)
		}
		s.close()
	}
}

// TestCheckRoom checks that the check leaves nothing behind.
func TestCheckRoom(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new")
	if err := checkRoom(dir); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("got %v, %v", left, err)
	}
}
