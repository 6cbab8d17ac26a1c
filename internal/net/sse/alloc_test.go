package sse

import (
	"bytes"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"
)

// loop is a reader that repeats the same bytes and returns at most chunk bytes per call.
type loop struct {
	data  string
	chunk int
	i     int
}

func (l *loop) Read(p []byte) (int, error) {
	if l.i == len(l.data) {
		l.i = 0
	}
	n := copy(p, l.data[l.i:min(l.i+l.chunk, len(l.data))])
	l.i += n
	return n, nil
}

// TestAppendAllocations checks the exact number of allocations of everything on the hot path.
func TestAppendAllocations(t *testing.T) {
	dst := make([]byte, 0, 64<<10)
	message := []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)
	lines := bytes.Repeat([]byte("line\r\nline\n"), 100)
	event := Event{Name: "n", ID: []byte("id"), HasID: true, Data: lines, Retry: time.Second, HasRetry: true}
	for _, test := range []struct {
		name string
		f    func()
	}{
		{"AppendMessage", func() { dst = AppendMessage(dst[:0], message) }},
		{"AppendMessage with lines", func() { dst = AppendMessage(dst[:0], lines) }},
		{"Append", func() { dst, _ = Append(dst[:0], event) }},
		{"AppendKeepAlive", func() { dst = AppendKeepAlive(dst[:0]) }},
	} {
		if got := testing.AllocsPerRun(100, test.f); got != 0 {
			t.Errorf("%s: %v allocations", test.name, got)
		}
	}
}

// TestAppendRoom shows that a new slice is allocated once, with the right size. It tries many sizes
// because the allocator rounds sizes up.
func TestAppendRoom(t *testing.T) {
	// 2 with the race detector, else 1
	grow := testing.AllocsPerRun(10, func() { sink = slices.Grow([]byte(nil), 1000) })
	id := strings.Repeat("i", 1000)
	for n := range 300 {
		data := bytes.Repeat([]byte("x"), 1000+10*n)
		event := Event{Name: id, ID: []byte(id), HasID: true, Data: data, Retry: 1<<63 - 1, HasRetry: true}
		for _, test := range []struct {
			name string
			f    func()
		}{
			{"AppendMessage", func() { sink = AppendMessage(nil, data) }},
			{"Append", func() { sink, _ = Append(nil, event) }},
		} {
			if got := testing.AllocsPerRun(10, test.f); got != grow {
				t.Fatalf("%s of %d bytes: %v allocations, want %v", test.name, len(data), got, grow)
			}
		}
	}
}

var sink []byte // keeps the result from being optimized away

func TestReadAllocations(t *testing.T) {
	message := string(AppendMessage(nil, []byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)))
	for _, test := range []struct {
		name, stream string
		chunk        int
	}{
		{"message", message, 1 << 20},
		{"one byte per read", message, 1},
		{"CRLF", strings.ReplaceAll(message, "\n", "\r\n"), 7},
		{"comments", strings.Repeat(": ping\n\n", 10) + message, 100},
		{"all fields", "event: endpoint\nid: 12\nretry: 3\n" + message, 1 << 20},
		{"default name", "event: message\n" + message, 1 << 20},
		{"ids", "id: 1\n" + message + "id: 22\n" + message + "id: 333\n" + message, 1000},
		{"lines", strings.Repeat("data: x\n", 1000) + "\n", 1 << 20},
		{"20 KiB", "data: " + strings.Repeat("x", 20<<10) + "\n\n", 1000},
		{"1 MiB", "data: " + strings.Repeat("x", 1<<20) + "\n\n", 1 << 20},
		{"1 MiB and small events", "data: " + strings.Repeat("x", 1<<20) + "\n\n" + message + message, 10000},
		{"at the limit", "data: " + strings.Repeat("x", DefaultMaxEvent) + "\nid: " + strings.Repeat("i", MaxField) + "\n\n", 1000},
	} {
		r := NewReader(&loop{data: test.stream, chunk: test.chunk}, 0)
		read := func() {
			if _, err := r.Read(); err != nil {
				t.Fatal(err)
			}
		}
		for range 10 {
			read() // grows the buffers
		}
		if got := testing.AllocsPerRun(100, read); got != 0 {
			t.Errorf("%s: %v allocations", test.name, got)
		}
	}
}

// hooked is a reader that calls f before each read.
type hooked struct {
	src io.Reader
	f   func()
}

func (w *hooked) Read(p []byte) (int, error) {
	w.f()
	return w.src.Read(p)
}

// TestMemory shows that the buffer of a Reader never exceeds its limit, and is small while the
// Reader waits between events or skips unwanted data.
func TestMemory(t *testing.T) {
	const size = 8 << 20
	big := strings.Repeat("x", size)
	for _, test := range []struct {
		name, stream string
		max          int
		idle         bool // whether the buffer must be small at every read
		events       int
	}{
		{"large events", "data: " + big + "\n\nid: 1\n\ndata: " + big + "\n\n", size, false, 3},
		{"many lines", strings.Repeat("data: 0123456789\r\n", size/16) + "\r\n", size, false, 1},
		{"empty lines of data", strings.Repeat("data\r", size/8) + "\r", size, false, 1},
		{"small events that end with CR", strings.Repeat("data:\r\r", size/8), size, true, size / 8},
		{"comments inside a large event", "data: " + big[:size/2] + "\n" + strings.Repeat(": 123456789\n", size/10) + "data: " + big[:size/2-1] + "\n\n", size, false, 1},
		{"comment", ":" + big + "\n\nid: 1\n\n", size, true, 1},
		{"unknown field", "x" + big + "\nxx: " + big + "\n\nid: 1\n\n", size, true, 1},
		{"blank lines", strings.Repeat("\n", size) + "id: 1\n\n", size, true, 1},
		{"too large", "data: " + big + "\n\nid: 1\n\n", 1000, true, 1},
		{"too large after small events", "data: " + big[:90<<10] + "\ndata: " + big + "\ndata: " + big + "\n\nid: 1\n\n", 100 << 10, false, 1},
		{"too large in many lines", strings.Repeat("data: 0123456789\r\n", size/16) + "\r\nid: 1\n\n", 1000, true, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var r *Reader
			src := &hooked{src: strings.NewReader(test.stream)}
			src.f = func() {
				if r.win.limit > test.max+16<<10 || len(r.win.buf) > r.win.limit {
					t.Fatalf("buffer has %d bytes, limit %d", len(r.win.buf), r.win.limit)
				}
				if between := !r.hasFields && r.win.pos == r.win.end; (between || test.idle || r.tooLarge != nil) && (r.win.large != nil || len(r.win.buf) > maxIdleBuffer) {
					t.Fatalf("buffer has %d bytes without an event in it", len(r.win.buf))
				}
			}
			r = NewReader(src, test.max)
			events := 0
			for {
				_, err := r.Read()
				if err == io.EOF {
					break
				}
				if _, ok := err.(*TooLargeError); err != nil && !ok {
					t.Fatal(err)
				}
				if err == nil {
					events++
				}
			}
			if events != test.events {
				t.Errorf("%d events, want %d", events, test.events)
			}
		})
	}
}

// TestSpare shows that a stream of large events reuses one block until the garbage collector frees
// it.
func TestSpare(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	runtime.GC() // completes a cycle in progress
	r := NewReader(&loop{data: "data: " + strings.Repeat("x", 100<<10) + "\n\n", chunk: 1000}, 0)
	var first *block
	for i := range 10 {
		if _, err := r.Read(); err != nil {
			t.Fatal(err)
		}
		switch {
		case r.win.large == nil:
			t.Fatal("no block")
		case i == 0:
			first = r.win.large
		case r.win.large != first:
			t.Fatal("a new block")
		}
	}
}

func TestSpareIsCollected(t *testing.T) {
	var r *Reader
	waits := 0
	src := &hooked{src: &loop{data: "data: " + strings.Repeat("x", 100<<10) + "\n\n", chunk: 1 << 20}}
	src.f = func() {
		if r.win.large != nil || r.win.spare == (weak.Pointer[block]{}) {
			return // the reader is within an event, or before the first one
		}
		waits++
		runtime.GC()
		if r.win.spare.Value() != nil {
			t.Error("an idle stream keeps a large block")
		}
	}
	r = NewReader(src, 0)
	for range 3 {
		if e, err := r.Read(); err != nil || len(e.Data) != 100<<10 {
			t.Fatalf("%d bytes, %v", len(e.Data), err)
		}
	}
	if waits == 0 {
		t.Error("the stream was never idle")
	}
}
