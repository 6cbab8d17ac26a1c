package watch_test

import (
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/cmd/internal/view/watch"
)

const suffix = capture.Suffix

// TestPast shows that earlier captures form one timeline, and that pending requests in a complete
// capture are unanswered.
func TestPast(t *testing.T) {
	dir := t.TempDir()
	old := begun.Add(-time.Hour)
	write(t, filepath.Join(dir, "older"+suffix), "older", old, 1, tail())
	write(t, filepath.Join(dir, "a"+suffix), "a", begun, 2, tail())
	write(t, filepath.Join(dir, "b"+suffix), "b", begun.Add(300*time.Millisecond), 1, call(7, "open")[0])
	if err := os.WriteFile(filepath.Join(dir, "other.txt"), []byte("no capture"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, "b"+suffix), time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	// These are neither counted nor shown by default.
	write(t, filepath.Join(dir, "r"+suffix), "b resent", begun.Add(time.Hour), 1, tail())
	a := []string{"a/1 request a ok", "b/1 request b ok", "a/3 request a ok", "b/3 request open unanswered"}
	for _, tt := range []struct {
		past  int
		want  []string
		older []string
	}{
		{0, nil, []string{"b", "a", "older"}},
		{2, a, []string{"older"}},
		{-1, append(append([]string{"older/1 request older ok"}, a...), "b resent/1 request b resent ok"), nil},
	} {
		t.Run(fmt.Sprint(tt.past), func(t *testing.T) {
			h := running(t, &watch.Options{Dir: dir, MaxFinished: tt.past, NoRules: true})
			await(t, h, "the captures", func(*trace.Model) bool {
				for _, s := range h.Sources() {
					if s.State != watch.Complete && s.State != watch.Truncated {
						return false
					}
				}
				return len(h.Sources()) > 0 || tt.past == 0
			})
			if diff := cmp.Diff(tt.want, rows(h)); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			await(t, h, "the older captures", func(*trace.Model) bool { return len(h.Older()) == len(tt.older) })
			var older []string
			for _, path := range h.Older() {
				older = append(older, strings.TrimSuffix(filepath.Base(path), suffix))
			}
			if diff := cmp.Diff(tt.older, older); diff != "" {
				t.Errorf("older captures (-want +got):\n%s", diff)
			}
			if len(older) > 0 {
				if err := h.Open(h.Older()[0]); err != nil {
					t.Fatal(err)
				}
				if got := len(h.Older()); got != len(older)-1 {
					t.Errorf("%d older captures after one was opened, want %d", got, len(older)-1)
				}
			}
		})
	}
}

// TestGrowing shows that new captures are found and followed, in the folder, as files, and when
// they are opened.
func TestGrowing(t *testing.T) {
	for _, how := range []string{"folder", "file", "opened"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "x"+suffix)
			create := func() *capture.File {
				f, err := capture.Create(path, &capture.Options{Name: "x"})
				if err != nil {
					t.Fatal(err)
				}
				return f
			}
			opts := &watch.Options{}
			var f *capture.File
			switch how {
			case "folder":
				opts.Dir = dir
			case "file":
				f = create()
				opts.Files = []string{path}
			}
			h := running(t, opts)
			if f == nil {
				f = create()
			}
			if how == "opened" {
				if err := h.Open(path); err != nil {
					t.Fatal(err)
				}
				if err := h.Open(path); err != nil {
					t.Errorf("a second time: %v", err)
				}
			}
			for i := range 3 {
				for _, e := range call(i, "search") {
					f.Record(e)
				}
				await(t, h, "a call", settledRows(i+1))
			}
			if got := sourceState(h, path); got != watch.Growing {
				t.Errorf("its state is %q", got)
			}
			f.Record(call(9, "search")[0])
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			await(t, h, "the end", func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
			list := rows(h)
			if want := "x/7 request search unanswered"; list[len(list)-1] != want {
				t.Errorf("the last row is %q, want %q", list[len(list)-1], want)
			}
		})
	}
}

// TestTruncatedCapture shows that a file without a last line that no process locks counts as
// truncated, and is followed again if it grows.
func TestTruncatedCapture(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "a"+suffix), "a", begun, 1, call(7, "open")[0])
	old := time.Now().Add(-time.Minute)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	h := running(t, &watch.Options{Files: []string{path}})
	await(t, h, "it to be broken off", func(*trace.Model) bool { return sourceState(h, path) == watch.Truncated })
	if diff := cmp.Diff([]string{"a/1 request a ok", "a/3 request open unanswered"}, rows(h)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	enc := capture.NewEncoder(f, nil)
	enc.Encode(&capture.Event{Kind: capture.KindNote, N: 4, Data: []byte("back")})
	enc.Encode(&capture.Event{Kind: capture.KindTail, N: 5, Tail: &capture.Tail{}})
	if err := enc.Flush(); err != nil {
		t.Fatal(err)
	}
	await(t, h, "the end", func(m *trace.Model) bool { return sourceState(h, path) == watch.Complete && len(m.Rows()) == 3 })
}

// TestTap watches running taps with a file in the folder, with one elsewhere, with a compressed
// one, and without a file.
func TestTap(t *testing.T) {
	for _, where := range []string{"folder", "elsewhere", "compressed", "none"} {
		t.Run(where, func(t *testing.T) {
			base := t.TempDir()
			opts := &watch.Options{Dir: filepath.Join(base, "captures"), SocketDir: filepath.Join(base, "live")}
			path := ""
			switch where {
			case "folder":
				path = filepath.Join(opts.Dir, "x"+suffix)
			case "elsewhere":
				path = filepath.Join(base, "x"+suffix)
			case "compressed":
				path = filepath.Join(base, "x"+suffix+".zst")
			}
			if err := os.Mkdir(opts.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			asked := make(chan struct{}, 1)
			p := startTap(t, opts.SocketDir, path, &live.Options{Restart: func() { asked <- struct{}{} }})
			h := running(t, opts)
			// An event that the tap records later shows that the hub watches.
			await(t, h, "the tap", func(*trace.Model) bool {
				list := h.Sources()
				return len(list) == 1 && list[0].ID == p.ID() && list[0].State == watch.Live && list[0].CanRestart
			})
			for i := range 3 {
				p.call(i)
				await(t, h, "a call", settledRows(i+1))
			}
			if e, err := h.Event(t.Context(), p.ID(), 3); err != nil || !strings.Contains(string(e.Data), "question 1") {
				t.Errorf("the event is %v, error %v", e, err)
			}
			if head := h.Head(p.ID()); head == nil || head.Name != "live" {
				t.Errorf("the head is %v", head)
			}
			if err := h.Restart(t.Context(), p.ID()); err != nil {
				t.Error(err)
			}
			<-asked
			p.Record(call(9, "search")[0])
			p.stop()
			await(t, h, "the end", func(*trace.Model) bool {
				list := h.Sources()
				return len(list) == 1 && list[0].State == watch.Complete && !list[0].CanRestart
			})
			list := rows(h)
			if want := "live/7 request search unanswered"; len(list) != 4 || list[3] != want {
				t.Errorf("the rows are %q, want %q as the last", list, want)
			}
			if err := h.Restart(t.Context(), p.ID()); !errors.Is(err, watch.ErrNoRestart) {
				t.Errorf("Restart: %v", err)
			}
		})
	}
}

// TestLateViewer shows that a viewer that connects late gets a gap for what a tap without a file
// has sent before.
func TestLateViewer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "live")
	p := startTap(t, dir, "", &live.Options{Backlog: -1})
	p.call(0)
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := running(t, &watch.Options{SocketDir: dir})
	await(t, h, "the gap", func(m *trace.Model) bool { return len(m.Rows()) == 1 })
	p.call(1)
	await(t, h, "a call", settledRows(2))
	if diff := cmp.Diff([]string{"live/1 gap  ", "live/3 request search ok"}, rows(h)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if err := h.Restart(t.Context(), p.ID()); !errors.Is(err, watch.ErrNoRestart) {
		t.Errorf("Restart: %v", err)
	}
}

// TestNoCapture checks that a file that is not a capture is rejected, and does not block.
func TestNoCapture(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text"+suffix)
	if err := os.WriteFile(text, []byte("some text\nmore\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := write(t, filepath.Join(dir, "good"+suffix), "good", begun, 1, tail())
	copied := write(t, filepath.Join(dir, "zcopy"+suffix), "good", begun, 1, tail())
	h := running(t, &watch.Options{Files: []string{text, good, filepath.Join(dir, "none"), copied}, Dir: dir, MaxFinished: -1})
	await(t, h, "the end", func(*trace.Model) bool {
		list := h.Sources()
		return len(list) == 4 && list[1].State == watch.Complete && list[3].Err != ""
	})
	for i, s := range h.Sources() {
		if (s.Err == "") != (i == 1) {
			t.Errorf("%s: error %q", s.Path, s.Err)
		}
	}
	if diff := cmp.Diff([]string{"good/1 request good ok"}, rows(h)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	if err := h.Open(text); !errors.Is(err, capture.ErrNotCapture) {
		t.Errorf("Open of a text: %v", err)
	}
	if err := h.Open(dir); !errors.Is(err, capture.ErrNotCapture) {
		t.Errorf("Open of a folder: %v", err)
	}
}

// TestSameFile shows that one file under two names is one source.
func TestSameFile(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "a"+suffix), "a", begun, 1, tail())
	link := filepath.Join(dir, "link"+suffix)
	if err := os.Symlink(path, link); err != nil {
		t.Skip(err)
	}
	h := running(t, &watch.Options{Files: []string{path, link}})
	await(t, h, "the capture", func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
	if err := h.Open(link); err != nil {
		t.Error(err)
	}
	if list := h.Sources(); len(list) != 1 {
		t.Errorf("%d sources: %+v", len(list), list)
	}
}

// TestNotPrivate shows that a folder of sockets that others can access is reported as not private.
func TestNotPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "live")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	h := running(t, &watch.Options{SocketDir: dir})
	await(t, h, "the error", func(*trace.Model) bool {
		list := h.Sources()
		return len(list) == 1 && strings.Contains(list[0].Err, "not private")
	})
}

func TestCompressed(t *testing.T) {
	dir := t.TempDir()
	plain, err := os.ReadFile(write(t, filepath.Join(dir, "a"), "a", begun, 500, tail()))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a"+suffix+".gz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(f)
	z.Write(plain)
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	h := running(t, &watch.Options{Files: []string{path}})
	await(t, h, "the capture", func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
	e, err := h.Event(t.Context(), "a", 900)
	if err != nil || !strings.Contains(string(e.Data), "answer 449") || e.N != 900 {
		t.Errorf("event %v, error %v", e, err)
	}
}

// TestEvent reads events again, from a large capture, and from one that has gone.
func TestEvent(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "a"+suffix), "a", begun, 10_000, tail())
	h := running(t, &watch.Options{Files: []string{path}, NoRules: true})
	await(t, h, "the capture", func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
	for _, n := range []uint64{1, 2, 777, 10_000, 19_999, 20_000} {
		e, err := h.Event(t.Context(), "a", n)
		if err != nil {
			t.Errorf("event %d: %v", n, err)
			continue
		}
		at := begun.Add(time.Duration(n-1) * time.Second / 2)
		if e.N != n || e.Capture != "a" || !e.At.Equal(at) || !strings.Contains(string(e.Data), fmt.Sprintf(" %d\"", (n-1)/2)) {
			t.Errorf("event %d is %d of %s at %v: %s", n, e.N, e.Capture, e.At, e.Data)
		}
	}
	gone := func(what, id string, n uint64) {
		t.Helper()
		if e, err := h.Event(t.Context(), id, n); !errors.Is(err, watch.ErrGone) {
			t.Errorf("%s: %v, error %v", what, e, err)
		}
	}
	gone("no such event", "a", 30_000)
	gone("number 0", "a", 0)
	gone("no such capture", "b", 1)
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	gone("the file was removed", "a", 1)
	write(t, path, "a", begun, 1, tail())
	gone("the file was replaced", "a", 1)
}

// TestSeveralInOne reads a file with several captures.
func TestSeveralInOne(t *testing.T) {
	dir := t.TempDir()
	a, err := os.ReadFile(write(t, filepath.Join(dir, "a"), "a", begun, 2, tail()))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(write(t, filepath.Join(dir, "b"), "b", begun, 1, call(5, "b")[0]))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "both"+suffix)
	if err := os.WriteFile(path, append(a, b...), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	h := running(t, &watch.Options{Files: []string{path}})
	await(t, h, "the end", func(*trace.Model) bool { return sourceState(h, path) == watch.Truncated })
	if diff := cmp.Diff([]string{"a/1 request a ok", "b/1 request b ok", "a/3 request a ok", "b/3 request b unanswered"}, rows(h)); diff != "" {
		t.Errorf("rows (-want +got):\n%s", diff)
	}
	for _, id := range []string{"a", "b"} {
		if e, err := h.Event(t.Context(), id, 2); err != nil || e.Capture != id {
			t.Errorf("event 2 of %s: %v, error %v", id, e, err)
		}
	}
	if _, err := h.Event(t.Context(), "a", 6); err == nil {
		t.Error("an event of the next capture belongs to a")
	}
}

// TestFindings shows that findings of rules are on the rows.
func TestFindings(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "a"+suffix), "a", begun, 0,
		&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(`{"jsonrpc":"2.0","id":null,"method":"tools/list"}`)}, tail())
	for _, quiet := range []bool{false, true} {
		h := running(t, &watch.Options{Files: []string{path}, NoRules: quiet})
		await(t, h, "the end", func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
		h.Read(func(m *trace.Model) {
			n := 0
			for _, r := range m.Rows() {
				n += r.CountFindings()
			}
			if (n == 0) != quiet {
				t.Errorf("rules off: %v, findings: %d", quiet, n)
			}
		})
	}
}

func TestRunOnce(t *testing.T) {
	h := watch.New(nil)
	stop := run(t, h)
	stop()
	if err := h.Run(t.Context()); !errors.Is(err, watch.ErrStopped) {
		t.Errorf("Run: %v", err)
	}
	path := write(t, filepath.Join(t.TempDir(), "a"+suffix), "a", begun, 1)
	if err := h.Open(path); !errors.Is(err, watch.ErrStopped) {
		t.Errorf("Open: %v", err)
	}
	if h.ID() == "" || h.ID() == watch.New(nil).ID() {
		t.Error("hubs cannot be told apart")
	}
}

// TestStopEarly stops a hub while everything runs; goleak finds leaked goroutines.
func TestStopEarly(t *testing.T) {
	dir := t.TempDir()
	for i := range 5 {
		write(t, filepath.Join(dir, fmt.Sprint(i, suffix)), fmt.Sprint(i), begun.Add(time.Duration(i)*time.Second), 2000)
	}
	h := watch.New(&watch.Options{Dir: dir, MaxFinished: -1})
	stop := run(t, h)
	await(t, h, "a row", func(m *trace.Model) bool { return len(m.Rows()) > 0 })
	s := h.Select(parse(t, "answer -\"answer 5\""))
	stop()
	await(t, h, "the search to end", func(*trace.Model) bool {
		_, busy := s.SearchProgress()
		return !busy
	})
	s.Close()
}

// TestReplaced shows that a capture that replaces a removed one is followed, and that the events of
// the old one are gone.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	path := write(t, filepath.Join(dir, "a"+suffix), "old", begun, 1, tail())
	h := running(t, &watch.Options{Files: []string{path}})
	await(t, h, "the old one", func(*trace.Model) bool { return sourceState(h, path) == watch.Complete })
	other := write(t, filepath.Join(dir, "b"+suffix), "new", begun, 2, tail())
	if err := os.Rename(other, path); err != nil {
		t.Fatal(err)
	}
	if err := h.Open(path); err != nil {
		t.Fatal(err)
	}
	await(t, h, "the new one", settledRows(3))
	if _, err := h.Event(t.Context(), "old", 1); !errors.Is(err, watch.ErrGone) {
		t.Errorf("an event of the old one: error %v", err)
	}
	if e, err := h.Event(t.Context(), "new", 1); err != nil || e.N != 1 {
		t.Errorf("an event of the new one: %v, error %v", e, err)
	}
}

// TestProbesAreLeftOut shows that captures that mcpwire check makes while a hub runs are not shown,
// unless all captures are, or they are opened.
func TestProbesAreLeftOut(t *testing.T) {
	for _, past := range []int{0, 3, -1} {
		t.Run(fmt.Sprint(past), func(t *testing.T) {
			dir := t.TempDir()
			h := running(t, &watch.Options{Dir: dir, MaxFinished: past, NoRules: true})
			probe, err := captures.CreateProbe(dir, "1", &capture.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer probe.Close()
			for _, e := range call(1, "probed") {
				probe.Record(e)
			}
			if err := probe.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := []string{"host/1 request search ok"}
			if past == -1 {
				want = append([]string{"probe/1 request probed ok"}, want...)
				await(t, h, "the probe", settledRows(1))
			}
			f, err := capture.Create(filepath.Join(dir, "z"+suffix), &capture.Options{Name: "host"})
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			for _, e := range call(2, "search") {
				f.Record(e)
			}
			if err := f.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			await(t, h, "the rows", settledRows(len(want)))
			await(t, h, "the sources", func(*trace.Model) bool { return len(h.Sources()) == len(want) })
			if diff := cmp.Diff(want, rows(h)); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if err := h.Open(probe.Name()); err != nil {
				t.Fatal(err)
			}
			await(t, h, "the probe that was opened", settledRows(2))
		})
	}
}
