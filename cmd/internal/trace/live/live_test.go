package live_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/internal/base/hooks"
)

// begin starts the side of the tap: events recorded with the Writer are sent to viewers.
func begin(t *testing.T, dir string, opts *live.Options) (*capture.Writer, *live.Server) {
	t.Helper()
	s := live.NewServer(opts)
	w := capture.NewWriter(io.Discard, &capture.Options{Hooks: &hooks.Writer[capture.Event]{Tee: s}, Name: "files", Transport: "stdio"})
	t.Cleanup(func() { w.Close() })
	if err := s.Start(dir, live.Greeting{Capture: w.ID(), Name: "files", Transport: "stdio"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return w, s
}

func folder(t *testing.T) string { return filepath.Join(t.TempDir(), "live") }

func ping(i int) *capture.Event {
	return &capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i)}
}

func flush(t *testing.T, w *capture.Writer) {
	t.Helper()
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func dial(t *testing.T, path string) *live.Conn {
	t.Helper()
	c, err := live.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestWatchTap(t *testing.T) {
	dir := folder(t)
	w, s := begin(t, dir, &live.Options{Backlog: -1})
	w.Record(ping(1))
	flush(t, w)
	paths, err := live.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{s.Path()}, paths); diff != "" {
		t.Fatalf("sockets (-want +got):\n%s", diff)
	}
	if info, err := os.Lstat(s.Path()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v, error %v", info.Mode(), err)
	}
	c := dial(t, s.Path())
	want := live.Greeting{Version: live.Version, Capture: w.ID(), Name: "files", Transport: "stdio", PID: os.Getpid(), Next: 2}
	if diff := cmp.Diff(want, c.Greeting()); diff != "" {
		t.Errorf("greeting (-want +got):\n%s", diff)
	}
	w.Record(ping(2))
	w.Close()
	s.Close()
	var got []string
	for e, err := range capture.NewReader(c, nil).Events() {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprint(e.Kind, e.N))
	}
	if diff := cmp.Diff([]string{"head0", "msg2", "tail3"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if paths, err := live.List(dir); err != nil || len(paths) > 0 {
		t.Errorf("files left: %v, error %v", paths, err)
	}
}

// TestBacklog shows that the last lines of a tap without a file are kept.
func TestBacklog(t *testing.T) {
	w, s := begin(t, folder(t), &live.Options{Backlog: 10_000})
	see := func(want ...string) {
		t.Helper()
		c := dial(t, s.Path())
		next := c.Greeting().Next
		got := []string{fmt.Sprint("from ", next)}
		if len(want) > 1 {
			for e := range capture.NewReader(c, nil).Events() {
				if got = append(got, fmt.Sprint(e.Kind, e.N)); len(got) == len(want) {
					break
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("seen (-want +got):\n%s", diff)
		}
	}
	see("from 1", "head0")
	w.Record(ping(1))
	w.Record(ping(2))
	flush(t, w)
	w.Record(ping(3))
	flush(t, w)
	see("from 1", "head0", "msg1", "msg2", "msg3")
	large := ping(4)
	large.Data = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":4,"method":"ping","params":{"x":"%s"}}`, strings.Repeat("x", 9_950))
	w.Record(large)
	flush(t, w)
	see("from 5")
	w.Record(ping(5))
	flush(t, w)
	see("from 5", "head0", "msg5")
	for i := range 200 {
		w.Record(ping(6 + i))
		flush(t, w)
	}
	c := dial(t, s.Path())
	if next := c.Greeting().Next; next < 100 || next > 180 {
		t.Errorf("of 205 events, those from %d on are kept", next)
	}
}

// TestWake shows that a viewer that only waits for wake-ups gets no lines, and one wake-up for any
// number of new events.
func TestWake(t *testing.T) {
	w, s := begin(t, folder(t), nil)
	c := dial(t, s.Path())
	if err := c.Wake(); err != nil {
		t.Fatal(err)
	}
	// The tap sends lines until it has read the viewer's request.
	buf := make([]byte, 64<<10)
	for i := range 1000 {
		w.Record(ping(i))
		flush(t, w)
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		if string(buf[:n]) == "\n" {
			return
		}
	}
	t.Error("lines go on coming")
}

func TestRestart(t *testing.T) {
	asked := make(chan struct{}, 1)
	_, s := begin(t, folder(t), &live.Options{Restart: func() { asked <- struct{}{} }})
	c := dial(t, s.Path())
	if !c.Greeting().Restart {
		t.Error("the greeting does not say that the tap restarts")
	}
	if err := c.Restart(); err != nil {
		t.Fatal(err)
	}
	<-asked
}

// TestLaggingViewer shows that a viewer that does not read is disconnected, and that the others are
// served.
func TestLaggingViewer(t *testing.T) {
	w, s := begin(t, folder(t), &live.Options{MaxQueue: 64 << 10})
	lazy, good := dial(t, s.Path()), dial(t, s.Path())
	seen := make(chan uint64)
	go func() {
		defer close(seen)
		for e := range capture.NewReader(good, nil).Events() {
			seen <- e.N
		}
	}()
	<-seen // the head
	large := ping(1)
	large.Data = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"%s"}}`, strings.Repeat("x", 20_000))
	const n = 300
	for i := range uint64(n) {
		w.Record(large)
		if got := <-seen; got != i+1 {
			t.Fatalf("the other viewer has seen %d, want %d", got, i+1)
		}
	}
	got, _ := io.Copy(io.Discard, lazy) // it ends, although the tap continues
	if got >= n*20_000 {
		t.Errorf("the viewer that did not read got all %d bytes", got)
	}
	go w.Close()
	<-seen // the tail
	s.Close()
	for range seen {
		t.Error("something comes after the end")
	}
}

func TestTooManyViewers(t *testing.T) {
	_, s := begin(t, folder(t), &live.Options{MaxViewers: 2})
	dial(t, s.Path())
	dial(t, s.Path())
	if c, err := live.Dial(t.Context(), s.Path()); !errors.Is(err, live.ErrGreeting) {
		t.Errorf("the third: %v, error %v", c, err)
	}
}

// stale creates a socket of a tap that was killed.
func stale(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "dead.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	return path
}

func TestStaleSockets(t *testing.T) {
	dir := folder(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Run("viewer", func(t *testing.T) {
		path := stale(t, dir)
		if _, err := live.Dial(t.Context(), path); !errors.Is(err, live.ErrStale) {
			t.Errorf("error %v", err)
		}
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("it is still there: %v", err)
		}
		if _, err := live.Dial(t.Context(), path); !errors.Is(err, live.ErrStale) {
			t.Errorf("a tap that has ended: error %v", err)
		}
	})
	t.Run("next tap", func(t *testing.T) {
		path := stale(t, dir)
		_, other := begin(t, dir, nil)
		_, s := begin(t, dir, nil)
		s.Close() // waits for the removal of stale sockets
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("it is still there: %v", err)
		}
		dial(t, other.Path()) // the socket of a running tap still exists
	})
}

func TestNotPrivate(t *testing.T) {
	open := filepath.Join(t.TempDir(), "live")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "live")
	if err := os.Symlink(t.TempDir(), link); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"open to others": open, "a link": link} {
		t.Run(name, func(t *testing.T) {
			if err := live.NewServer(nil).Start(dir, live.Greeting{}); !errors.Is(err, live.ErrNotPrivate) {
				t.Errorf("Start: %v", err)
			}
			if _, err := live.List(dir); !errors.Is(err, live.ErrNotPrivate) {
				t.Errorf("List: %v", err)
			}
			if _, err := live.Dial(t.Context(), filepath.Join(dir, "x.sock")); !errors.Is(err, live.ErrNotPrivate) {
				t.Errorf("Dial: %v", err)
			}
		})
	}
	if list, err := live.List(filepath.Join(open, "none")); list != nil || err != nil {
		t.Errorf("a missing folder: %v, %v", list, err)
	}
	if err := live.NewServer(nil).Start(filepath.Join(folder(t), strings.Repeat("x", 120)), live.Greeting{}); err == nil {
		t.Error("a path that is too long is no error")
	}
}

// TestHostileGreeting shows that a greeting of a program that is not a tap is ignored.
func TestHostileGreeting(t *testing.T) {
	dir := folder(t)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "hello\n", "newer": `{"mcpwire":99,"capture":"x"}` + "\n", "not a capture": `{"mcpwire":1}` + "\n",
		"no line end": strings.Repeat("x", 1<<20),
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("unix", filepath.Join(dir, "x.sock"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				c, err := l.Accept()
				if err == nil {
					io.WriteString(c, text)
					c.Close()
				}
			}()
			if _, err := live.Dial(t.Context(), filepath.Join(dir, "x.sock")); !errors.Is(err, live.ErrGreeting) {
				t.Errorf("error %v", err)
			}
			<-done
		})
	}
}

func TestDialEndsWithContext(t *testing.T) {
	_, s := begin(t, folder(t), nil)
	ctx, cancel := context.WithCancel(t.Context())
	c, err := live.Dial(ctx, s.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	cancel()
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, net.ErrClosed) {
		t.Errorf("error %v", err)
	}
}

// TestUnwatched shows that a tap without a file records only its beginning until the first viewer
// connects, and everything from then on.
func TestUnwatched(t *testing.T) {
	s := live.NewServer(nil)
	w := capture.NewWriter(io.Discard, &capture.Options{Hooks: &hooks.Writer[capture.Event]{Tee: s, Want: s.Wants}})
	t.Cleanup(func() { w.Close() })
	if err := s.Start(folder(t), live.Greeting{Capture: w.ID()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	large := ping(0)
	large.Data = fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":"ping","params":{"x":"%s"}}`, strings.Repeat("x", 600<<10))
	w.Record(ping(1))
	w.Record(large)
	w.Record(large) // 3: the buffer is full
	w.Record(ping(4))
	w.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("always")})
	flush(t, w)
	if s.Wants(600 << 10) {
		t.Error("more than 1 MiB is wanted without a viewer")
	}
	c := dial(t, s.Path())
	if !s.Wants(50 << 20) {
		t.Error("a large event is not wanted with a viewer")
	}
	w.Record(large)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for e, err := range capture.NewReader(c, nil).Events() {
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(e.Kind, e.N)
		if e.Gap != nil {
			text += fmt.Sprint(" ", e.Gap.Why, e.Gap.Lost)
		}
		got = append(got, text)
		if e.Kind == capture.KindTail {
			break
		}
	}
	if diff := cmp.Diff([]string{"head0", "msg1", "msg2", "gap3 unwatched1", "msg4", "note5", "msg6", "tail7"}, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
