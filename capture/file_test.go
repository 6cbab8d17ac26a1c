package capture_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/internal/base/hooks"
)

// TestRemovedFile shows that a capture that is removed while it is written is created again, and
// reports the missing events.
func TestRemovedFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open cannot be removed")
	}
	for _, ending := range []string{"", ".gz", ".zst"} {
		for _, late := range []bool{false, true} { // with late, only Close notices the removal
			t.Run(ending, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					dir := filepath.Join(t.TempDir(), "captures", "deep")
					if err := os.MkdirAll(dir, 0o700); err != nil {
						t.Fatal(err)
					}
					var notices []error
					opened := 0
					f, err := capture.Create(filepath.Join(dir, "a"+capture.Suffix+ending), &capture.Options{
						Notice: func(err error) { notices = append(notices, err) }, Hooks: &hooks.Writer[capture.Event]{Opened: func(*os.File) { opened++ }},
					})
					if err != nil {
						t.Fatal(err)
					}
					note := func(text string) { f.Record(&capture.Event{Kind: capture.KindNote, Data: []byte(text)}) }
					note("one")
					note("two")
					time.Sleep(2 * time.Second)
					if err := os.RemoveAll(filepath.Dir(dir)); err != nil {
						t.Fatal(err)
					}
					want := "head gap:write note:three tail"
					if late {
						want = "head gap:write tail"
					} else {
						note("three")
						time.Sleep(2 * time.Second)
					}
					if err := f.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
					if len(notices) != 1 || !strings.Contains(notices[0].Error(), "the file was removed") || !strings.Contains(notices[0].Error(), f.Name()) {
						t.Errorf("noticed %v", notices)
					}
					if opened != 2 {
						t.Errorf("opened %d files, want 2", opened)
					}
					r, err := capture.Open(f.Name(), nil)
					if err != nil {
						t.Fatal(err)
					}
					defer r.Close()
					if diff := cmp.Diff(want, briefs(t, r)); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
					r, _ = capture.Open(f.Name(), nil)
					defer r.Close()
					for e := range r.Events() {
						if e.Gap != nil && (e.N != 1 || e.Gap.Lost != 2) {
							t.Errorf("the gap is %d, %+v", e.N, e.Gap)
						}
						if e.Head != nil && e.Head.ID != f.ID() {
							t.Errorf("the head is of %s, want %s", e.Head.ID, f.ID())
						}
					}
					if info, err := os.Stat(f.Name()); err != nil || info.Mode().Perm() != 0o600 {
						t.Errorf("the file is %v, %v", info.Mode(), err)
					}
				})
			})
		}
	}
}

// TestTruncatedFile shows that a capture that is truncated while it is written begins again and
// reports the missing events, whether new events make it longer than before or not.
func TestTruncatedFile(t *testing.T) {
	for _, ending := range []string{"", ".gz", ".zst"} {
		for _, size := range []int64{0, 1, 40} {
			t.Run(fmt.Sprint(ending, size), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var notices []error
					f, err := capture.Create(filepath.Join(t.TempDir(), "a"+capture.Suffix+ending), &capture.Options{
						Notice: func(err error) { notices = append(notices, err) },
					})
					if err != nil {
						t.Fatal(err)
					}
					note := func(text string) {
						f.Record(&capture.Event{Kind: capture.KindNote, Data: []byte(text)})
						time.Sleep(2 * time.Second)
					}
					note("one")
					note("two")
					if err := os.Truncate(f.Name(), size); err != nil {
						t.Fatal(err)
					}
					note("three")
					if err := f.Close(); err != nil {
						t.Errorf("Close: %v", err)
					}
					if len(notices) != 1 || !strings.Contains(notices[0].Error(), "the file was truncated") || !strings.Contains(notices[0].Error(), f.Name()) {
						t.Errorf("noticed %v", notices)
					}
					r, err := capture.Open(f.Name(), nil)
					if err != nil {
						t.Fatal(err)
					}
					defer r.Close()
					if diff := cmp.Diff("head gap:write note:three tail", briefs(t, r)); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

// TestTruncatedUnseen shows that a capture that has grown again before the Writer could see that it
// was truncated has no hole, and can be read.
func TestTruncatedUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := capture.Create(filepath.Join(t.TempDir(), "a"+capture.Suffix), nil)
		if err != nil {
			t.Fatal(err)
		}
		f.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("one")})
		if err := f.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(f.Name(), 0); err != nil {
			t.Fatal(err)
		}
		f.Record(&capture.Event{Kind: capture.KindNote, Data: []byte(strings.Repeat("x", 1000))})
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := capture.Open(f.Name(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if got, want := briefs(t, r), "note:"+strings.Repeat("x", 1000)+" tail"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// TestRemovedForGood shows that a capture that cannot be created again is reported once, and that
// lost events are counted.
func TestRemovedForGood(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("a file that is open cannot be removed")
	}
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "captures")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		var notices []error
		f, err := capture.Create(filepath.Join(dir, "a"+capture.Suffix), &capture.Options{Notice: func(err error) { notices = append(notices, err) }})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir, nil, 0o600); err != nil { // replaces the folder
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(2 * time.Second)
			f.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("x")})
		}
		time.Sleep(2 * time.Second)
		if got := f.Lost(); got != 3 {
			t.Errorf("%d events lost, want 3", got)
		}
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		f.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("back")})
		if err := f.Close(); err == nil || !strings.Contains(err.Error(), "the file was removed") {
			t.Errorf("Close: %v", err)
		}
		if len(notices) != 2 || !strings.Contains(notices[0].Error(), "cannot be created again") || !strings.Contains(notices[1].Error(), "continues") {
			t.Errorf("noticed %v", notices)
		}
		r, err := capture.Open(f.Name(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if got := briefs(t, r); !strings.HasPrefix(got, "head gap:write") || !strings.HasSuffix(got, "note:back tail") {
			t.Errorf("the capture is %s", got)
		}
	})
}

// flushes counts the flushes of a compressor.
type flushes struct {
	io.Writer
	n *atomic.Int64
}

func (f flushes) Flush() error { f.n.Add(1); return nil }

// TestFlushAfterPause checks that a compressor is flushed once, a tenth of a second after the last
// event.
func TestFlushAfterPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n atomic.Int64
		w := capture.NewWriter(flushes{io.Discard, &n}, nil)
		time.Sleep(time.Second)
		before := n.Load()
		w.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("x")})
		time.Sleep(110 * time.Millisecond)
		synctest.Wait()
		if n.Load() != before+1 {
			t.Errorf("%d flushes, want 1", n.Load()-before)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n.Load() != before+1 {
			t.Errorf("%d flushes when nothing was recorded, want 1", n.Load()-before)
		}
		for range 100 { // twice a second
			w.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("x")})
			time.Sleep(20 * time.Millisecond)
		}
		synctest.Wait()
		if got := n.Load() - before; got < 3 || got > 7 {
			t.Errorf("%d flushes in two busy seconds, want about 4", got)
		}
		w.Close()
	})
}
