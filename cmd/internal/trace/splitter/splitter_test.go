package splitter

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
)

const (
	maxCopy   = 64 << 20 // bytes of a frame, as in a tap
	chunkSize = 64 << 10
)

// split returns the events of a stream, cut into pieces of so many bytes at most; cuts may be nil.
func split(stream []byte, max int, cuts *rand.Rand) []capture.Event {
	var events []capture.Event
	s := New(capture.ToServer, max, func(e *capture.Event) {
		own := *e
		own.Data = bytes.Clone(e.Data)
		events = append(events, own)
	})
	for len(stream) > 0 {
		n := len(stream)
		if cuts != nil {
			n = 1 + cuts.IntN(min(n, 1+cuts.IntN(80)))
		}
		piece := bytes.Clone(stream[:n])
		s.Write(piece)
		clear(piece) // nothing may use it after this
		stream = stream[n:]
	}
	s.Close()
	return events
}

func sameFrame(a, b capture.Event) bool {
	return a.Framing == b.Framing && a.Prefix == b.Prefix && a.Len == b.Len && a.Cut == b.Cut && bytes.Equal(a.Data, b.Data)
}

func join(events []capture.Event) []byte {
	var all []byte
	for i := range events {
		all = AppendRaw(all, &events[i])
	}
	return all
}

func TestSplit(t *testing.T) {
	const length = "Content-Length: 2\r\n\r\n"
	for _, tt := range []struct {
		name, stream string
		want         []string // framing, prefix and data of each frame
	}{
		{"nothing", "", nil},
		{"lines", "{}\n[]\n", []string{`lf "" "{}"`, `lf "" "[]"`}},
		{"CRLF and LF", "{}\r\n[]\n", []string{`crlf "" "{}"`, `lf "" "[]"`}},
		{"CR within", "a\rb\n\r\r\n", []string{`lf "" "a\rb"`, `crlf "" "\r"`}},
		{"blank lines", "\n\r\n \n", []string{`lf "" ""`, `crlf "" ""`, `lf "" " "`}},
		{"no line end", "{}\n{", []string{`lf "" "{}"`, `eof "" "{"`}},
		{"CR at the end", "{}\r", []string{`eof "" "{}\r"`}},
		{"header", length + "{}" + length + "[]", []string{`header "Content-Length: 2\r\n\r\n" "{}"`, `header "Content-Length: 2\r\n\r\n" "[]"`}},
		{"header in other spellings", "content-type: x\ncontent-LENGTH:2\n\n{}", []string{`header "content-type: x\ncontent-LENGTH:2\n\n" "{}"`}},
		{"empty body", "Content-Length: 0\r\n\r\n{}\n", []string{`header "Content-Length: 0\r\n\r\n" ""`, `lf "" "{}"`}},
		{"a line break in a body", "Content-Length: 3\n\n{\n}\n", []string{`header "Content-Length: 3\n\n" "{\n}"`, `lf "" ""`}},
		{"a line before headers", "starting\n" + length + "{}", []string{`lf "" "starting"`, `header "Content-Length: 2\r\n\r\n" "{}"`}},
		{"a body that is cut off", "Content-Length: 9\n\n{", []string{`header "Content-Length: 9\n\n" "{"`}},
		{"a header that is cut off", "Content-Length: 9\n", []string{`lf "" "Content-Length: 9"`}},
		{"a header that is cut off within", "{}\nConte", []string{`lf "" "{}"`, `eof "" "Conte"`}},
		{"no number", "Content-Length: x\r\n\r\n{}\n", []string{`crlf "" "Content-Length: x"`, `crlf "" ""`, `lf "" "{}"`}},
		{"two numbers", "Content-Length: 1\nContent-Length: 2\n\n{}\n", []string{`lf "" "Content-Length: 1"`, `lf "" "Content-Length: 2"`, `lf "" ""`, `lf "" "{}"`}},
		{"too large a number", "Content-Length: 99999999999999999999\n\n", []string{`lf "" "Content-Length: 99999999999999999999"`, `lf "" ""`}},
		{"text that begins like one", "content is king\nContent-Length: 2 is wrong\n{}\n", []string{`lf "" "content is king"`, `lf "" "Content-Length: 2 is wrong"`, `lf "" "{}"`}},
		{"no length", "Content-Type: a/b\n\n{}\n", []string{`lf "" "Content-Type: a/b"`, `lf "" ""`, `lf "" "{}"`}},
		{"binary", "\x00\xff\n\xfe", []string{`lf "" "\x00\xff"`, `eof "" "\xfe"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(20) {
				var cuts *rand.Rand
				if seed > 0 {
					cuts = rand.New(rand.NewPCG(seed, 0))
				}
				var got []string
				for _, e := range split([]byte(tt.stream), 1<<20, cuts) {
					got = append(got, fmt.Sprintf("%s %q %q", e.Framing, e.Prefix, e.Data))
					if e.Len != int64(len(e.Data)) || e.Cut {
						t.Errorf("frame %q: Len %d, Cut %v", e.Data, e.Len, e.Cut)
					}
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Fatalf("seed %d: frames (-want +got):\n%s", seed, diff)
				}
			}
		})
	}
}

// hostile returns a stream of what may confuse.
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

// TestSplitAnywhere shows that the frames do not depend on how the stream is cut, and that together
// they are the stream.
func TestSplitAnywhere(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		stream := hostile(r)
		whole := split(stream, 1<<20, nil)
		if got := join(whole); !bytes.Equal(got, stream) {
			t.Fatalf("seed %d: the frames are not the stream: %d bytes, want %d", seed, len(got), len(stream))
		}
		if got := split(stream, 1<<20, r); !slices.EqualFunc(whole, got, sameFrame) {
			t.Fatalf("seed %d: the frames differ in pieces: %d frames, want %d", seed, len(got), len(whole))
		}
	}
}

// TestSplitCut shows that the beginning and the size of a frame above the limit are known.
func TestSplitCut(t *testing.T) {
	for _, tt := range []struct {
		stream  string
		framing capture.Framing
		size    int64
	}{
		{strings.Repeat("z", 5000) + "\n", capture.FramingLF, 5000},
		{strings.Repeat("z", 5000) + "\r\n", capture.FramingCRLF, 5000},
		{strings.Repeat("z", 5000), capture.FramingNone, 5000},
		{"Content-Length: 5000\n\n" + strings.Repeat("z", 5000), capture.FramingHeader, 5000},
		{"Content-Length: 9000\n\n" + strings.Repeat("z", 5000), capture.FramingHeader, 5000},
	} {
		events := split([]byte(tt.stream+""), 1000, rand.New(rand.NewPCG(1, 1)))
		if len(events) != 1 {
			t.Fatalf("%s: %d frames, want 1", tt.framing, len(events))
		}
		e := events[0]
		// One byte more than the limit, so that the Writer sees where a character ends.
		if e.Framing != tt.framing || e.Len != tt.size || !e.Cut || len(e.Data) != 1001 {
			t.Errorf("%s: framing %s, Len %d, Cut %v, %d bytes of data", tt.framing, e.Framing, e.Len, e.Cut, len(e.Data))
		}
	}
}

// TestSplitAllocs shows that the splitter does not allocate in the steady state, neither for frames
// in one piece nor for those in several.
func TestSplitAllocs(t *testing.T) {
	for _, size := range []int{100, 200_000, 3 << 20} {
		for _, header := range []bool{false, true} {
			frame := append(bytes.Repeat([]byte("a"), size), '\n')
			if header {
				frame = append([]byte(fmt.Sprintf("Content-Length: %d\r\n\r\n", len(frame))), frame...)
			}
			s := New(capture.ToServer, maxCopy, func(*capture.Event) {})
			feed := func() {
				for p := frame; len(p) > 0; {
					n := min(len(p), chunkSize)
					s.Write(p[:n])
					p = p[n:]
				}
			}
			feed()
			limit := 0.0
			if size > maxHeapCopy {
				limit = 4 // of the mapping's bookkeeping
				if b := newLarge(1); b != nil {
					freeLarge(b)
				} else {
					limit = 7 // a copy for each time it grows
				}
			}
			if n := testing.AllocsPerRun(20, feed); n > limit {
				t.Errorf("%d bytes, header %v: %v allocations", size, header, n)
			}
		}
	}
}

// TestSplitLargeOnce checks that memory holds a large frame once, and not at all when it has
// passed.
func TestSplitLargeOnce(t *testing.T) {
	const size = 32 << 20
	if newLarge(1) == nil {
		t.Skip("large frames are in the heap here")
	}
	var seen int64
	s := New(capture.ToServer, maxCopy, func(e *capture.Event) { seen = int64(len(e.Data)) })
	piece := bytes.Repeat([]byte("a"), chunkSize)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range size / chunkSize {
		s.Write(piece)
	}
	s.Write([]byte("\n"))
	runtime.ReadMemStats(&after)
	if seen != size {
		t.Fatalf("a frame of %d bytes, want %d", seen, size)
	}
	// What grows up to maxHeapCopy, and nothing of the rest.
	if got := after.TotalAlloc - before.TotalAlloc; got > 4*maxHeapCopy {
		t.Errorf("%d bytes were allocated for a frame of %d", got, size)
	}
	if s.mapped || cap(s.copied) > maxHeapCopy {
		t.Errorf("%d bytes are kept behind the frame", cap(s.copied))
	}
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte("{}\n{}\r\n"), uint64(1))
	f.Add([]byte("Content-Length: 2\r\n\r\n{}x\nContent-Length: 9\n\n{"), uint64(2))
	f.Add([]byte("Content-Length: 99999999999999999\n\ncontent-type:\n\n\r\r\n"), uint64(3))
	f.Add([]byte("Content-Length: 1\nContent-Length: 1\n\n\nConten"), uint64(4))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		whole := split(stream, 1<<20, nil)
		if got := join(whole); !bytes.Equal(got, stream) {
			t.Fatalf("the frames of %q are %q", stream, got)
		}
		if got := split(stream, 1<<20, rand.New(rand.NewPCG(seed, 0))); !slices.EqualFunc(whole, got, sameFrame) {
			t.Fatalf("%q in pieces (-want +got):\n%s", stream, cmp.Diff(whole, got))
		}
		for _, e := range split(stream, 16, rand.New(rand.NewPCG(seed, 0))) {
			if e.Cut && len(e.Data) > 17 || e.Cut != (e.Len > int64(len(e.Data))) {
				t.Fatalf("a frame with a limit of 16: %d bytes of data, Len %d, Cut %v", len(e.Data), e.Len, e.Cut)
			}
		}
	})
}

// TestFrameNotWanted shows that a frame that is not wanted is not copied, and that the next one is
// complete.
func TestFrameNotWanted(t *testing.T) {
	var got []string
	s := New(capture.ToServer, 1<<20, func(e *capture.Event) {
		got = append(got, fmt.Sprint(len(e.Data), " ", e.Len, " ", e.Cut))
	})
	wanted := false
	s.WantCopy = func(int) bool { return wanted }
	for range 100 {
		s.Write(bytes.Repeat([]byte("x"), 10_000))
	}
	s.Write([]byte("y\nwhole\n"))
	if cap(s.copied) > 0 {
		t.Errorf("%d bytes were copied", cap(s.copied))
	}
	wanted = true
	s.Write([]byte("in "))
	s.Write([]byte("pieces\n"))
	if diff := cmp.Diff([]string{"0 1000001 true", "5 5 false", "9 9 false"}, got); diff != "" {
		t.Errorf("frames (-want +got):\n%s", diff)
	}
}

// BenchmarkSplit is the cost of telling frames apart, and of recording them, on top of forwarding.
func BenchmarkSplit(b *testing.B) {
	line := func(n int) []byte {
		return append(append([]byte(`{"jsonrpc":"2.0","id":1,"result":{"text":"`), bytes.Repeat([]byte("x"), n-44)...), "\"}}\n"...)
	}
	header := append([]byte("Content-Length: 200\r\n\r\n"), line(200)...)
	for _, bb := range []struct {
		name  string
		frame []byte
	}{
		{"line200", line(200)}, {"header200", header[:len(header)-1]}, {"line64K", line(64 << 10)}, {"line1M", line(1 << 20)}, {"line32M", line(32 << 20)},
	} {
		run := func(b *testing.B, sink func(*capture.Event)) {
			s := New(capture.ToServer, maxCopy, sink)
			b.SetBytes(int64(len(bb.frame)))
			b.ReportAllocs()
			for b.Loop() {
				for p := bb.frame; len(p) > 0; {
					n := min(len(p), chunkSize)
					s.Write(p[:n])
					p = p[n:]
				}
			}
		}
		b.Run(bb.name+"/split", func(b *testing.B) { run(b, func(*capture.Event) {}) })
		b.Run(bb.name+"/record", func(b *testing.B) {
			w := capture.NewWriter(io.Discard, nil)
			defer w.Close()
			run(b, func(e *capture.Event) { w.Record(e) })
		})
	}
}
