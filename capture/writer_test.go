package capture_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/internal/base/hooks"
)

// A disk is a writer that blocks and fails on demand.
type disk struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	slow chan struct{} // if not nil, writes wait until it is closed
	fail int           // number of writes that fail halfway
}

var errFull = errors.New("disk full")

func (d *disk) Write(p []byte) (int, error) {
	d.mu.Lock()
	slow := d.slow
	d.mu.Unlock()
	if slow != nil {
		<-slow
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail > 0 {
		d.fail--
		n, _ := d.buf.Write(p[:len(p)/2])
		return n, errFull
	}
	return d.buf.Write(p)
}

func (d *disk) set(fail int, slow chan struct{}) {
	d.mu.Lock()
	d.fail, d.slow = fail, slow
	d.mu.Unlock()
}

// TestSlowDisk shows that Record does not wait for a blocked disk: events are lost, and the capture
// says which.
func TestSlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := new(disk)
		w := capture.NewWriter(d, &capture.Options{MaxQueue: 8 << 10})
		note := capture.Event{Kind: capture.KindNote, Data: []byte("0123456789")}
		w.Record(&note)
		synctest.Wait()
		slow := make(chan struct{})
		d.set(0, slow)
		start := time.Now()
		for range 100 {
			w.Record(&note)
		}
		<-time.After(time.Second)
		w.Record(&note)
		if waited := time.Since(start); waited != time.Second {
			t.Errorf("recording waited %v for the disk", waited-time.Second)
		}
		close(slow)
		<-time.After(time.Second)
		if n := w.Record(&note); n != 103 {
			t.Errorf("the last event has number %d, want 103", n)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		next, lost := uint64(1), uint64(0)
		for _, e := range read(t, d.buf.Bytes(), nil)[1:] {
			if e.N != next {
				t.Fatalf("number %d follows %d", e.N, next-1)
			}
			next++
			if e.Kind == capture.KindGap {
				if e.Gap.Why != capture.GapQueue || e.Gap.Bytes != int64(10*e.Gap.Lost) || e.Gap.Until != time.Second {
					t.Errorf("gap: %+v", e.Gap)
				}
				next += e.Gap.Lost - 1
				lost += e.Gap.Lost
			}
			if e.Kind == capture.KindTail && (e.Tail.Lost != lost || e.Tail.Events != 103-lost) {
				t.Errorf("tail: %+v, lost %d", e.Tail, lost)
			}
		}
		if lost < 50 || w.Lost() != lost || next != 105 {
			t.Errorf("%d of 103 events lost by the gaps, %d by Lost, numbers up to %d", lost, w.Lost(), next-1)
		}
	})
}

// TestLargePayloadInFullQueue shows that a large payload that does not fit is lost, and does not
// take the place of small ones.
func TestLargePayloadInFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		d := &disk{slow: slow}
		w := capture.NewWriter(d, &capture.Options{MaxQueue: 1 << 20, Redact: &capture.Redaction{Off: true}})
		large := capture.Event{Kind: capture.KindBody, Data: bytes.Repeat([]byte("x"), 400<<10)}
		for range 4 {
			w.Record(&large)
		}
		w.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("small")})
		close(slow)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		var got []capture.Kind
		for _, e := range read(t, d.buf.Bytes(), nil) {
			got = append(got, e.Kind)
		}
		want := []capture.Kind{"head", "body", "body", "gap", "note", "tail"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// TestFullDisk shows that a failed write loses only its own events.
func TestFullDisk(t *testing.T) {
	for _, first := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			d := new(disk)
			if first {
				d.fail = 1 // the head is lost too
			}
			w := capture.NewWriter(d, nil)
			ctx := context.Background()
			note := func(s string) { w.Record(&capture.Event{Kind: capture.KindNote, Data: []byte(s)}) }
			if !first {
				note("a")
				if err := w.Flush(ctx); err != nil {
					t.Fatal(err)
				}
				d.set(1, nil)
			}
			note("b, which is long enough to be cut")
			note("c")
			if err := w.Flush(ctx); !errors.Is(err, errFull) {
				t.Errorf("Flush: %v", err)
			}
			note("d")
			if err := w.Close(); !errors.Is(err, errFull) {
				t.Errorf("Close: %v", err)
			}
			var kinds []string
			for _, e := range read(t, d.buf.Bytes(), nil) {
				kinds = append(kinds, strings.TrimSpace(string(e.Kind)+" "+string(e.Data)))
				if e.Kind == capture.KindGap && e.Gap.Why == capture.GapWrite && (e.Gap.Lost != 2 || e.Gap.Bytes != 34) {
					t.Errorf("gap: %+v", e.Gap)
				}
				if e.Kind == capture.KindTail && !first && (e.Tail.Lost != 2 || e.Tail.Events != 2) {
					t.Errorf("tail: %+v", e.Tail)
				}
			}
			got := strings.Join(kinds, ", ")
			// half of a line, then the records of the writer
			want := "head, note a, gap, gap, note d, tail"
			if first {
				want = "gap, head, note b, which is long enough to be cut, note c, note d, tail"
			}
			if got != want {
				t.Errorf("got %s, want %s\n%s", got, want, d.buf.Bytes())
			}
		})
	}
}

// TestCloseTimeout shows that Close waits only a limited time for a blocked disk.
func TestCloseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		w := capture.NewWriter(&disk{slow: slow}, nil)
		start := time.Now()
		if err := w.Close(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("Close: %v", err)
		}
		if d := time.Since(start); d != 10*time.Second {
			t.Errorf("Close took %v", d)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := w.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Flush: %v", err)
		}
		close(slow)
		if err := w.Close(); err != nil {
			t.Errorf("Close, once the disk works: %v", err)
		}
	})
}

// TestMaxPayload shows that payloads above the limit are cut and marked as such.
func TestMaxPayload(t *testing.T) {
	long := capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(`{"jsonrpc":"2.0","id":1,"result":"` + strings.Repeat("x", 5000) + `"}`)}
	got := read(t, record(t, &capture.Options{MaxPayload: 1000, Redact: &capture.Redaction{Off: true}}, long), nil)[1]
	if got.Kind != capture.KindMessage || !got.Cut || got.Why != "cut" || got.Len != int64(len(long.Data)) || string(got.Data) != string(long.Data[:1000]) {
		t.Errorf("got %+v", got)
	}
	got = read(t, record(t, &capture.Options{MaxPayload: 1000}, long), nil)[1]
	if want := `{"jsonrpc":"2.0","id":1,"result":<cut:1024>`; legible(string(got.Data)) != want {
		t.Errorf("got %s, want %s", legible(string(got.Data)), want)
	}
}

// TestConcurrentRecord shows that the numbers of concurrent recorders have no gaps, and that the
// file is in their order.
func TestConcurrentRecord(t *testing.T) {
	var buf bytes.Buffer
	w := capture.NewWriter(&buf, nil)
	const recorders, each = 8, 500
	var wg sync.WaitGroup
	for range recorders {
		wg.Go(func() {
			last := uint64(0)
			for range each {
				n := w.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(`{"jsonrpc":"2.0","method":"x"}`)})
				if n <= last {
					t.Errorf("number %d after %d", n, last)
				}
				last = n
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	var n uint64
	var at time.Duration
	for _, e := range read(t, buf.Bytes(), nil)[1:] {
		if e.N != n+1 || e.T < at {
			t.Fatalf("event %d at %v follows %d at %v", e.N, e.T, n, at)
		}
		n, at = e.N, e.T
	}
	if n != recorders*each+1 {
		t.Errorf("%d events", n)
	}
}

func TestCreate(t *testing.T) {
	for _, suffix := range []string{"", ".gz", ".zst"} {
		t.Run("suffix "+suffix, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "a"+capture.Suffix+suffix)
			w, err := capture.Create(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			w.Record(&capture.Event{Kind: capture.KindNote, Data: []byte(strings.Repeat("abc ", 1000))})
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Errorf("a second Close: %v", err)
			}
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
				t.Errorf("mode %v", info.Mode())
			}
			if compressed := info.Size() < 1000; compressed != (suffix != "") {
				t.Errorf("%d bytes", info.Size())
			}
			if _, err := capture.Create(name, nil); !errors.Is(err, fs.ErrExist) {
				t.Errorf("a second Create: %v", err)
			}
			r, err := capture.Open(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			n := 0
			for e, err := range r.Events() {
				if err != nil {
					t.Fatal(err)
				}
				if n++; e.Kind == capture.KindNote && len(e.Data) != 4000 {
					t.Errorf("%d bytes", len(e.Data))
				}
			}
			if n != 3 {
				t.Errorf("%d events", n)
			}
			if w, err := capture.Create(name, &capture.Options{Append: true}); (suffix != "") != errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("append: %v", err)
			} else if err == nil {
				w.Close()
			}
		})
	}
}

// TestAppend shows that appending to a file whose writer was killed loses at most its last line,
// and that a link or a file that others may read is rejected.
func TestAppend(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "a.ndjson")
	if err := os.WriteFile(name, []byte(`{"k":"head","v":1,"id":"A","at":"2026-11-20T12:00:00Z"}`+"\n"+`{"n":1,"t":0.5,"k":"no`), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := capture.Create(name, &capture.Options{Append: true})
	if err != nil {
		t.Fatal(err)
	}
	w.Record(&capture.Event{Kind: capture.KindEOF, Dir: capture.ToServer})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range read(t, text, nil) {
		got = append(got, string(e.Kind)+" "+map[bool]string{true: "A", false: "new"}[e.Capture == "A"])
	}
	want := []string{"head A", "gap A", "head new", "eof new", "tail new"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if runtime.GOOS == "windows" {
		return
	}
	link := filepath.Join(dir, "link.ndjson")
	if err := os.Symlink(name, link); err != nil {
		t.Fatal(err)
	}
	public := filepath.Join(dir, "public.ndjson")
	if err := os.WriteFile(public, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{link, public, dir} {
		if w, err := capture.Create(name, &capture.Options{Append: true}); !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "not private") {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				w.Close()
			}
		}
	}
}

// TestEmptyPayload shows that an empty payload is recorded as one, whatever else the queue has
// held: a priming event has a data field.
func TestEmptyPayload(t *testing.T) {
	var out bytes.Buffer
	w := capture.NewWriter(&out, nil)
	w.Record(&capture.Event{Kind: capture.KindSSE, Dir: capture.ToClient, SSE: &capture.SSE{ID: "1", HasID: true, HasData: true}, Data: []byte{}})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for e, err := range capture.NewReader(&out, nil).Events() {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == capture.KindSSE && !e.SSE.HasData {
			t.Errorf("the event has lost its data field: %s", out.String())
		}
	}
}

// TestHand hands payloads over: each is in the capture unchanged or counted as lost, and returned
// once.
func TestHand(t *testing.T) {
	var (
		mu    sync.Mutex
		freed = map[string]int{}
	)
	var hooks hooks.Writer[capture.Event]
	hand := func(name string, data []byte) uint64 {
		return hooks.RecordOwned(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: data}, func() {
			mu.Lock()
			defer mu.Unlock()
			freed[name]++
			for i := range data { // a reader would now get zeros
				data[i] = 0
			}
		})
	}
	payload := func(n int) []byte { return append(append([]byte(`"`), bytes.Repeat([]byte("x"), n-2)...), '"') }

	var out bytes.Buffer
	w := capture.NewWriter(&out, &capture.Options{Redact: &capture.Redaction{Off: true}, MaxQueue: 4 << 20, Hooks: &hooks})
	hand("small", payload(100))
	hand("large", payload(1<<20))
	hand("above the limit", payload(3<<20)) // recorded in part
	hand("no room", payload(2<<20))         // lost, unless the disk was fast
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := hand("closed", payload(1<<20)); n != 0 {
		t.Errorf("after Close: got number %d", n)
	}
	for _, name := range []string{"small", "large", "above the limit", "no room", "closed"} {
		if freed[name] != 1 {
			t.Errorf("%s: returned %d times", name, freed[name])
		}
	}
	var seen, lost uint64
	for e, err := range capture.NewReader(&out, nil).Events() {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Kind {
		case capture.KindMessage:
			seen++
			if rest := bytes.Trim(e.Data, `x"`); len(rest) > 0 {
				t.Errorf("event %d has another payload", e.N)
			}
		case capture.KindGap:
			lost += e.Gap.Lost
		}
	}
	if seen+lost != 4 || seen < 2 {
		t.Errorf("%d events and %d lost, want 4 in all", seen, lost)
	}
}

// A teeLog records what a Writer passes to its Tee.
type teeLog struct {
	bytes.Buffer
	next  uint64
	whole []int // lengths at each EndLine
}

func (l *teeLog) Write(p []byte) { l.Buffer.Write(p) }

func (l *teeLog) EndLine(next uint64) {
	l.next = next
	l.whole = append(l.whole, l.Len())
}

func message(text string) *capture.Event {
	return &capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(text)}
}

// TestTee compares the output of the Tee with the file, and with the events that a reader gets.
func TestTee(t *testing.T) {
	for _, name := range []string{"a.mcpcap.ndjson", "a.mcpcap.ndjson.gz", "a.mcpcap.ndjson.zst"} {
		t.Run(name, func(t *testing.T) {
			var tee teeLog
			path := filepath.Join(t.TempDir(), name)
			w, err := capture.Create(path, &capture.Options{Hooks: &hooks.Writer[capture.Event]{Tee: &tee}, Name: "files"})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				w.Record(message(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"password":"hunter2","x":"` + strings.Repeat("x", 100_000) + `"}}`))
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(tee.String(), "hunter2") {
				t.Error("a secret was shown")
			}
			for _, n := range tee.whole {
				if n > 0 && tee.Bytes()[n-1] != '\n' {
					t.Errorf("the first %d bytes are said to be whole lines", n)
				}
			}
			if tee.next != 4 {
				t.Errorf("the next event has number %d, want 4", tee.next)
			}
			r, err := capture.Open(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			want := events(t, r)
			if diff := cmp.Diff(want, events(t, capture.NewReader(&tee.Buffer, nil)), cmp.Comparer(bytes.Equal)); diff != "" || len(want) != 5 {
				t.Errorf("%d events (-file +shown):\n%s", len(want), diff)
			}
		})
	}
}

func events(t *testing.T, r *capture.Reader) (list []*capture.Event) {
	t.Helper()
	for e, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, e.Clone())
	}
	return list
}

// TestTeeFullDisk shows that the tee gets events that could not be written, and that later lines
// are not joined to an incomplete one.
func TestTeeFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tee teeLog
		d := new(disk)
		w := capture.NewWriter(d, &capture.Options{Hooks: &hooks.Writer[capture.Event]{Tee: &tee}})
		synctest.Wait()
		d.set(1, nil)
		w.Record(message(`{"jsonrpc":"2.0","id":1,"method":"lost"}`))
		<-time.After(time.Second)
		w.Record(message(`{"jsonrpc":"2.0","id":2,"method":"written"}`))
		if err := w.Close(); err == nil {
			t.Error("closed without an error")
		}
		var got []string
		for _, e := range events(t, capture.NewReader(&tee.Buffer, nil)) {
			got = append(got, string(e.Kind))
		}
		want := []string{"head", "msg", "gap", "msg", "tail"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("kinds (-want +got):\n%s", diff)
		}
	})
}

// TestTeeOnly records for the Tee only.
func TestTeeOnly(t *testing.T) {
	var tee teeLog
	w := capture.NewWriter(io.Discard, &capture.Options{Hooks: &hooks.Writer[capture.Event]{Tee: &tee}})
	w.Record(message(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := len(events(t, capture.NewReader(&tee.Buffer, nil))); got != 3 {
		t.Errorf("%d events, want 3", got)
	}
}
