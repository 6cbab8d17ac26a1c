package jsonrpc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"

	"mcpwire/internal/test/pipes"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestAutoFraming(t *testing.T) {
	tests := []struct {
		streamTest
		framing Framing
	}{
		{streamTest{"nothing", "", 0, []string{end}}, FramingAuto},
		{streamTest{"white space", " \r\n\t", 0, []string{end}}, FramingAuto},
		{streamTest{"line", "{}\n[]\n", 0, []string{"frame {}", "frame []", end}}, FramingLine},
		{streamTest{"line without end", "{}", 0, []string{"frame {}", end}}, FramingLine},
		{streamTest{"line after blank lines", "\r\n \n {}\n", 0, []string{"frame {}", end}}, FramingLine},
		{streamTest{"batch", "[]\n", 0, []string{"frame []", end}}, FramingLine},
		{streamTest{"header", block("{}") + block("[]"), 0, []string{"frame {}", "frame []", end}}, FramingHeader},
		{streamTest{"header in upper case", "CONTENT-length: 2\r\n\r\n{}", 0, []string{"frame {}", end}}, FramingHeader},
		{streamTest{"header after blank lines", "\r\n\n" + block("{}"), 0, []string{"frame {}", end}}, FramingHeader},
		{streamTest{"header and BOM", block("\ufeff{}"), 0, []string{"frame {}", end}}, FramingHeader},
		{streamTest{"Content-Type first", "content-type: x\r\n" + block("{}"), 0, []string{"frame {}", end}}, FramingHeader},
		{streamTest{"similar to a header", "Content_Length: 2\n{}\n", 0, []string{"frame Content_Length: 2", "frame {}", end}}, FramingLine},
		{streamTest{"first bytes of a header", "Conten", 0, []string{"frame Conten", end}}, FramingLine},
		{streamTest{"a header line without end", "Content-Length: 2", 0, []string{cutInHeader, end}}, FramingHeader},
		{streamTest{"garbage", "\x00\xff\n{}\n", 0, []string{"frame \x00\xff", "frame {}", end}}, FramingLine},
		{streamTest{"BOM", "\ufeff{}\n\ufeff \n\ufeff[]\r\n\ufeff\n\ufeff{}", 0, []string{"frame {}", "frame []\r", "frame {}", end}}, FramingLine},
		{streamTest{"oversize first line", strings.Repeat("x", 30) + "\n{}\n", 20, []string{tooLarge20, "frame {}", end}}, FramingLine},
		{streamTest{"leading white space does not count", strings.Repeat(" \n", 30) + "{}\n", 20, []string{"frame {}", end}}, FramingLine},
	}
	for _, test := range tests {
		testStreams(t, FramingAuto, []streamTest{test.streamTest})
		f := newFramer(&chunkReader{data: []byte(test.stream)}, &FramerOptions{MaxFrame: test.max})
		if got := f.Framing(); got != FramingAuto {
			t.Errorf("%s: framing %v before anything was read", test.name, got)
		}
		f.ReadFrame()
		if got := f.Framing(); got != test.framing {
			t.Errorf("%s: framing %v, want %v", test.name, got, test.framing)
		}
	}
}

func TestWriteFrame(t *testing.T) {
	tests := []struct {
		framing Framing
		input   string
		want    string
	}{
		{FramingLine, "", "{}\n"},
		{FramingHeader, "", "Content-Length: 2\r\n\r\n{}"},
		{FramingAuto, "", "{}\n"},
		{FramingAuto, "[]\n", "{}\n"},
		{FramingAuto, "content-length:2\n\n[]", "Content-Length: 2\r\n\r\n{}"},
		{FramingLine, "content-length:2\n\n[]", "{}\n"},
		{FramingHeader, "[]\n", "Content-Length: 2\r\n\r\n{}"},
	}
	for _, test := range tests {
		a, b := pipes.Memory(0)
		b.Write([]byte(test.input))
		b.Out.End(io.EOF)
		f := newFramer(a, &FramerOptions{Framing: test.framing})
		if test.input != "" {
			f.ReadFrame()
		}
		if err := f.WriteFrame([]byte("{}")); err != nil {
			t.Fatal(err)
		}
		if got := string(b.In.Take()); got != test.want {
			t.Errorf("%v framing after %q: got %q, want %q", test.framing, test.input, got, test.want)
		}
	}
	for f, want := range map[Framing]string{FramingAuto: "auto", FramingLine: "line", FramingHeader: "header"} {
		if f.String() != want {
			t.Errorf("Framing %d has the name %q", f, f)
		}
	}
}

// TestFramingFoundBetweenBeginAndFinish shows that the peer's framing may become known between
// BeginFrame and FinishFrame.
func TestFramingFoundBetweenBeginAndFinish(t *testing.T) {
	a, b := pipes.Memory(0)
	f := newFramer(a, nil)
	early := append(f.BeginFrame(nil), `{"jsonrpc":"2.0","method":"a method with a name"}`...)
	b.Write([]byte(block("{}")))
	if _, err := f.ReadFrame(); err != nil {
		t.Fatal(err)
	}
	if got, want := string(f.FinishFrame(early, 0)), `{"jsonrpc":"2.0","method":"a method with a name"}`+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := string(f.FinishFrame(append(f.BeginFrame(nil), "{}"...), 0)), block("{}"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// everyTransport runs f for each transport and framing.
func everyTransport(t *testing.T, f func(t *testing.T, a, b *streamFramer)) {
	for _, transport := range pipes.Transports {
		for _, framing := range []Framing{FramingLine, FramingHeader} {
			t.Run(fmt.Sprintf("%s, %v", transport.Name, framing), func(t *testing.T) {
				a, b := transport.Open(t)
				f(t, newFramer(a, &FramerOptions{Framing: framing}), newFramer(b, nil))
			})
		}
	}
}

func TestFramesOverTransports(t *testing.T) {
	msgs := []string{"{}", `"` + strings.Repeat("x", 200000) + `"`, "[]", `"` + strings.Repeat("y", 70000) + `"`, "{}"}
	everyTransport(t, func(t *testing.T, a, b *streamFramer) {
		send := func(f *streamFramer) {
			for _, m := range msgs {
				if err := f.WriteFrame([]byte(m)); err != nil {
					t.Errorf("WriteFrame: %v", err)
				}
			}
		}
		receive := func(f *streamFramer) {
			for _, want := range msgs {
				got, err := f.ReadFrame()
				if err != nil || string(got) != want {
					t.Fatalf("got a frame of %d bytes and %v, want %d bytes", len(got), err, len(want))
				}
			}
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { send(a) })
		receive(b)
		wg.Go(func() { send(b) }) // a uses its own framing
		receive(a)
		if a.Framing() != b.Framing() {
			t.Errorf("framing %v got a response in %v", a.Framing(), b.Framing())
		}
		if err := a.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if _, err := b.ReadFrame(); err == nil {
			t.Error("no error after the other end was closed")
		}
		b.Close()
	})
}

// failingReader returns data, then err.
type failingReader struct {
	chunkReader
	err error
}

func (r *failingReader) Read(p []byte) (int, error) {
	n, err := r.chunkReader.Read(p)
	if err == io.EOF {
		err = r.err
	}
	return n, err
}

func TestReadError(t *testing.T) {
	broken := errors.New("cable cut")
	for _, eofWithData := range []bool{false, true} {
		got := readAll(t, &failingReader{chunkReader{data: []byte("{}\n[]"), eofWithData: eofWithData}, broken}, nil)
		if diff := cmp.Diff([]string{"frame {}", "frame []", "end cable cut"}, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		got = readAll(t, &failingReader{chunkReader{data: []byte(block("{}") + "Content-Length: 5\n\n["), eofWithData: eofWithData}, broken}, nil)
		if diff := cmp.Diff([]string{"frame {}", cutInFrame, "end cable cut"}, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

// A stuckReader returns neither data nor an error.
type stuckReader struct{ chunkReader }

func (*stuckReader) Read([]byte) (int, error) { return 0, nil }

func TestReaderWithoutProgress(t *testing.T) {
	if diff := cmp.Diff([]string{"end " + io.ErrNoProgress.Error()}, readAll(t, &stuckReader{}, nil)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A shortWriter accepts fewer bytes than it gets.
type shortWriter struct{ chunkReader }

func (*shortWriter) Write(p []byte) (int, error) { return len(p) - 1, nil }

func TestShortWrite(t *testing.T) {
	if err := newFramer(&shortWriter{}, nil).WriteFrame([]byte("{}")); err != io.ErrShortWrite {
		t.Errorf("got %v, want %v", err, io.ErrShortWrite)
	}
}

// An endless reader repeats text n times.
type endless struct {
	chunkReader
	text string
	n    int
}

func (r *endless) Read(p []byte) (int, error) {
	if r.n == 0 {
		return r.chunkReader.Read(p)
	}
	r.n--
	return copy(p, r.text), nil
}

func TestBufferIsBounded(t *testing.T) {
	const limit = 256 << 10
	tests := []struct {
		name  string
		first string
		text  string
		opts  FramerOptions
	}{
		{"leading white space", "", strings.Repeat(" \n", 16<<10), FramerOptions{MaxFrame: limit}},
		{"blank lines", "", "\n\n \n", FramerOptions{Framing: FramingLine, MaxFrame: limit}},
		{"endless line", "", strings.Repeat("x", 32<<10), FramerOptions{MaxFrame: limit}},
		{"endless blank line", "", strings.Repeat(" ", 32<<10), FramerOptions{Framing: FramingLine, MaxFrame: limit}},
		{"endless header", "", strings.Repeat("x: y\n", 6000), FramerOptions{Framing: FramingHeader, MaxFrame: limit}},
		{"endless body", "Content-Length: 99999999999\n\n", strings.Repeat("x", 32<<10), FramerOptions{MaxFrame: limit}},
		{"headers over headers", "", strings.Repeat("Content-Length: z\n\n", 1000), FramerOptions{Framing: FramingHeader, MaxFrame: limit}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := &endless{text: test.first, n: 1}
			f := newFramer(r, &test.opts)
			f.Fill(false)
			r.text, r.n = test.text, 200
			for r.n > 0 {
				if _, err := f.ReadFrame(); err == io.EOF {
					break
				}
			}
			if got := len(f.buf); got > 4*limit {
				t.Errorf("the buffer grew to %d bytes with a limit of %d", got, limit)
			}
		})
	}
}

// A filler returns before, n bytes, and rest.
type filler struct {
	chunkReader
	before string
	n      int
	rest   string
}

func (r *filler) Read(p []byte) (int, error) {
	if r.before != "" {
		n := copy(p, r.before)
		r.before = r.before[n:]
		return n, nil
	}
	if r.n == 0 {
		if r.rest == "" {
			return 0, io.EOF
		}
		n := copy(p, r.rest)
		r.rest = r.rest[n:]
		return n, nil
	}
	n := min(len(p), r.n)
	for i := range p[:n] {
		p[i] = 'x'
	}
	r.n -= n
	return n, nil
}

// TestLongLineCost checks that a frame above the limit allocates at most 110% of the limit in
// total, however long it is. A frame within the limit is assembled once.
func TestLongLineCost(t *testing.T) {
	const limit = 64 << 20
	for _, tt := range []struct {
		name   string
		before string
		n      int
		rest   string
		want   []string // lengths of frames, or errors
		most   int
	}{
		{"without an end", "", 3 * limit, "", []string{"too large"}, limit + limit/10},
		{"too long", "", 3 * limit, "\n{}\n", []string{"too large", "2"}, limit + limit/10},
		{"too long by one", "", limit + 1, "\n{}\n", []string{"too large", "2"}, limit + limit/10},
		{"at the limit", "", limit, "\n{}\n", []string{fmt.Sprint(limit), "2"}, 2*limit + limit/10},
		{"cut off", "", limit, "", []string{fmt.Sprint(limit)}, 2*limit + limit/10},
		{"after another", "{}\n", 3 * limit, "\n{}\n", []string{"2", "too large", "2"}, limit + limit/10},
		{"body too long", "Content-Length: 67108865\r\n\r\n", limit + 1, "Content-Length: 2\r\n\r\n{}", []string{"too large", "2"}, limit / 10},
		{"body at the limit", "Content-Length: 67108864\r\n\r\n", limit, "Content-Length: 2\r\n\r\n{}", []string{fmt.Sprint(limit), "2"}, limit + limit/10},
		{"body without an end", "Content-Length: 67108864\r\n\r\n", limit - 1, "", []string{"broken"}, limit + limit/10},
		{"body with an odd length", "Content-Length: 40000001\r\n\r\n", 40_000_001, "", []string{"40000001"}, 44_000_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 4 { // the collector empties pools in two cycles
				runtime.GC()
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f := newFramer(&filler{before: tt.before, n: tt.n, rest: tt.rest}, nil)
			var got []string
			for {
				frame, err := f.ReadFrame()
				if err == io.EOF {
					break
				}
				bad, ok := errors.AsType[*FrameError](err)
				switch {
				case err == nil:
					got = append(got, fmt.Sprint(len(frame)))
				case !ok:
					t.Fatal(err)
				case bad.Code == CodeInvalidRequest:
					got = append(got, "too large")
				default:
					got = append(got, "broken")
				}
			}
			runtime.ReadMemStats(&after)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if n := int(after.TotalAlloc - before.TotalAlloc); n > tt.most {
				t.Errorf("%d bytes were allocated, want at most %d", n, tt.most)
			}
		})
	}
}

func TestBufferShrinks(t *testing.T) {
	a, b := pipes.Memory(0)
	f := newFramer(b, nil)
	read := func(msg string) {
		t.Helper()
		a.Write([]byte(msg + "\n"))
		if got, err := f.ReadFrame(); err != nil || string(got) != msg {
			t.Fatalf("got %d bytes and %v, want %d bytes", len(got), err, len(msg))
		}
	}
	read(`"` + strings.Repeat("x", 5<<20) + `"`)
	if n := cap(f.line) + len(f.buf); n < 5<<20 {
		t.Fatalf("buffers of %d bytes", n)
	}
	for range maxUnderusedReads + 2 {
		read("{}")
	}
	if len(f.buf) != minBuffer || f.line != nil || f.chunks != nil {
		t.Errorf("buffers of %d, %d and %d bytes after a large frame", len(f.buf), cap(f.line), f.chunkBytes)
	}
}

// lastWrite is a stream that keeps the last write.
type lastWrite struct {
	chunkReader
	last []byte
}

func (w *lastWrite) Write(p []byte) (int, error) {
	w.last = append(w.last[:0], p...)
	return len(p), nil
}

// TestWriteFrameMemory shows that frames of any size are written with reused memory, and that no
// frame contains bytes of another.
func TestWriteFrameMemory(t *testing.T) {
	for _, framing := range []Framing{FramingLine, FramingHeader} {
		w := &lastWrite{}
		f := newFramer(w, &FramerOptions{Framing: framing})
		sizes := []int{200_000, 2, minBuffer - headerRoom, minBuffer - headerRoom + 1, 1 << 10, 300_000}
		write := func() {
			for i, n := range sizes {
				msg := bytes.Repeat([]byte{byte('a' + i)}, n)
				if err := f.WriteFrame(msg); err != nil {
					t.Fatal(err)
				}
				want := append(bytes.Clone(msg), '\n')
				if framing == FramingHeader {
					want = []byte(block(string(msg)))
				}
				if !bytes.Equal(w.last, want) {
					t.Errorf("%v framing, %d bytes: %.40q… of %d bytes was written, want %.40q… of %d", framing, n, w.last, len(w.last), want, len(want))
				}
			}
		}
		write()
		write()
		msg := make([]byte, 200_000)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		const times = 100
		for range times {
			f.WriteFrame(msg)
		}
		runtime.ReadMemStats(&after)
		// with the race detector, pools drop some buffers
		if got := (after.TotalAlloc - before.TotalAlloc) / times; got > uint64(len(msg)*9/10) {
			t.Errorf("%v framing: writing %d bytes takes %d bytes of memory", framing, len(msg), got)
		}
	}
}

// A streamTest has a stream and the results of reading frames from it; see readAll.
type streamTest struct {
	name   string
	stream string
	max    int
	want   []string
}

const end = "end EOF"

var tooLarge20 = "error -32600 " + newTooLarge(20).Reason

var lineStreams = []streamTest{
	{"nothing", "", 0, []string{end}},
	{"one", "{}\n", 0, []string{"frame {}", end}},
	{"without newline at the end", "{}\n[]", 0, []string{"frame {}", "frame []", end}},
	{"cut off at the end", "{}\n{\"id\":1,\"result\":\"x", 0, []string{"frame {}", cutInLine, end}},
	{"cut off in an array", "[1,", 0, []string{cutInLine, end}},
	{"invalid before the end", "{\"id\":x", 0, []string{"frame {\"id\":x", end}},
	{"garbage at the end", "{}\nhello", 0, []string{"frame {}", "frame hello", end}},
	{"CRLF", "{}\r\n[]\r\n", 0, []string{"frame {}\r", "frame []\r", end}},
	{"lone CR is part of the line", "{}\r[]\n", 0, []string{"frame {}\r[]", end}},
	{"blank lines", "\n\r\n  \t\n{}\n\n \r\n[]\n\n", 0, []string{"frame {}", "frame []", end}},
	{"only blank lines", "\n\n \r\n", 0, []string{end}},
	{"white space at the end", "{}\n  ", 0, []string{"frame {}", end}},
	{"garbage is a frame", "{}\nhello\n[]\n", 0, []string{"frame {}", "frame hello", "frame []", end}},
	{"NUL", "\x00\n", 0, []string{"frame \x00", end}},
	{"BOM", "\ufeff{}\n\ufeff \n\ufeff[]\r\n\ufeff\n\ufeff{}", 0, []string{"frame {}", "frame []\r", "frame {}", end}},
	{"form feed is not white space", "\f\n", 0, []string{"frame \f", end}},
	{"header line after the first frame", "{}\nContent-Length: 2\n\n{}\n", 0, []string{"frame {}", "frame Content-Length: 2", "frame {}", end}},

	{"exactly at the limit", strings.Repeat("x", 20) + "\n{}\n", 20, []string{"frame " + strings.Repeat("x", 20), "frame {}", end}},
	{"exactly at the limit at the end", strings.Repeat("x", 20), 20, []string{"frame " + strings.Repeat("x", 20), end}},
	{"one more than the limit", strings.Repeat("x", 21) + "\n{}\n", 20, []string{tooLarge20, "frame {}", end}},
	{"CR counts", strings.Repeat("x", 20) + "\r\n{}\n", 20, []string{tooLarge20, "frame {}", end}},
	{"far above the limit", "[]\n" + strings.Repeat("x", 100000) + "\n{}\n", 20, []string{"frame []", tooLarge20, "frame {}", end}},
	{"above the limit at the end", "{}\n" + strings.Repeat("x", 30), 20, []string{"frame {}", tooLarge20, end}},
	{"two above the limit", strings.Repeat("x", 30) + "\n" + strings.Repeat("y", 100) + "\n{}", 20, []string{tooLarge20, tooLarge20, "frame {}", end}},
	{"responses above the limit", `{"id":1,"result":"` + strings.Repeat("x", 20) + `"}` + "\n" + `{"result":"` + strings.Repeat("y", 20) + `","id":2}`, 20, []string{tooLarge20 + " of response 1", tooLarge20 + " of response 2", end}},
	{"large", `"` + strings.Repeat("x", 300000) + "\"\n{}\n", 0, []string{`frame "` + strings.Repeat("x", 300000) + `"`, "frame {}", end}},
}

// testStreams reads each stream whole and in chunks.
func testStreams(t *testing.T, framing Framing, tests []streamTest) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			for _, sizes := range [][]byte{nil, {1}, {5, 1}, {200, 255}} {
				for _, eofWithData := range []bool{false, true} {
					got := readAll(t, &chunkReader{data: []byte(test.stream), sizes: sizes, eofWithData: eofWithData}, &FramerOptions{Framing: framing, MaxFrame: test.max})
					if diff := cmp.Diff(test.want, got); diff != "" {
						t.Fatalf("chunks of %v (-want +got):\n%s", sizes, diff)
					}
				}
			}
		})
	}
}

func TestLineFraming(t *testing.T) { testStreams(t, FramingLine, lineStreams) }

// block returns a message with its header.
func block(msg string) string { return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(msg), msg) }

func badHeader(reason string) string { return "error -32700 bad frame header: " + reason }

const (
	noLength    = "Content-Length is missing"
	cutInLine   = "error -32700 the input ended within a message"
	cutInHeader = "error -32700 the input ended within a header"
	cutInFrame  = "error -32700 the input ended within a frame: Content-Length is larger than the body"
)

var headerStreams = []streamTest{
	{"nothing", "", 0, []string{end}},
	{"one", block("{}"), 0, []string{"frame {}", end}},
	{"several", block("{}") + block("[]") + block("1"), 0, []string{"frame {}", "frame []", "frame 1", end}},
	{"LF alone", "Content-Length: 2\n\n{}", 0, []string{"frame {}", end}},
	{"any case and space in the header", "cOnTeNt-LENGTH \t:\t 2 \r\n\r\n{}CONTENT-LENGTH:2\r\n\r\n[]", 0, []string{"frame {}", "frame []", end}},
	{"Content-Type before", "Content-Type: application/vscode-jsonrpc; charset=utf-8\r\n" + block("{}"), 0, []string{"frame {}", end}},
	{"Content-Type after", "Content-Length: 2\r\nContent-Type: x\r\nX: y:z\r\n\r\n{}", 0, []string{"frame {}", end}},
	{"bytes, not characters", "Content-Length: 6\r\n\r\n\"\u00e9\u00e9\"" + block("{}"), 0, []string{"frame \"\u00e9\u00e9\"", "frame {}", end}},
	{"line breaks in the body", block("{\n\r\n}") + block("{}"), 0, []string{"frame {\n\r\n}", "frame {}", end}},
	{"line breaks between frames", "\r\n\n" + block("{}") + "\r\n\r\n" + block("[]") + "\n", 0, []string{"frame {}", "frame []", end}},
	{"length 0", block("") + block("{}"), 0, []string{"frame ", "frame {}", end}},
	{"leading zeros", "Content-Length: 0002\r\n\r\n{}", 0, []string{"frame {}", end}},
	{"the same length twice", "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 0, []string{"frame {}", end}},
	{"header in the body", block(block("{}")) + block("[]"), 0, []string{"frame " + block("{}"), "frame []", end}},

	{"length missing", "Content-Type: x\r\n\r\n{}" + block("[]"), 0, []string{badHeader(noLength), "frame []", end}},
	{"length empty", "Content-Length:\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "" is not a length in bytes`), "frame []", end}},
	{"length bad", "Content-Length: two\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "two" is not a length in bytes`), "frame []", end}},
	{"length hexadecimal", "Content-Length: 0x2\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "0x2" is not a length in bytes`), "frame []", end}},
	{"length negative", "Content-Length: -2\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "-2" is not a length in bytes`), "frame []", end}},
	{"length with a sign", "Content-Length: +2\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "+2" is not a length in bytes`), "frame []", end}},
	{"length with a fraction", "Content-Length: 2.0\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "2.0" is not a length in bytes`), "frame []", end}},
	{"two lengths in one field", "Content-Length: 2, 2\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "2, 2" is not a length in bytes`), "frame []", end}},
	{"length of 2^64", "Content-Length: 18446744073709551616\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`Content-Length "18446744073709551616" is not a length in bytes`), "frame []", end}},
	{"two different lengths", "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}" + block("[]"), 0, []string{badHeader("two different Content-Length headers"), "frame []", end}},
	{"no colon", "Content-Length 2\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`line "Content-Length 2" is not a header field`), "frame []", end}},
	{"folded line", "Content-Length: 2\r\n folded\r\n\r\n{}" + block("[]"), 0, []string{badHeader(`line "folded" is not a header field`), "frame []", end}},

	{"garbage before a header", "hello\nworld\n" + block("{}"), 0, []string{badHeader(`line "hello" is not a header field`), "frame {}", end}},
	{"garbage in the header line", "xyz" + block("{}") + block("[]"), 0, []string{badHeader(noLength), "frame {}", "frame []", end}},
	{"NULs", "\x00\x00" + block("{}") + block("[]"), 0, []string{badHeader(`line "\x00\x00Content-Length: 2" is not a header field`), "frame {}", "frame []", end}},
	{"no field name", ": 2\r\n" + block("{}"), 0, []string{badHeader(`line ": 2" is not a header field`), "frame {}", end}},
	{"a line of the other framing", block("{}") + "{\"a\":\"b\"}\n" + block("[]"), 0, []string{"frame {}", badHeader(`line "{\"a\":\"b\"}" is not a header field`), "frame []", end}},
	{"endless header", strings.Repeat("X-Junk: 1\r\n", 2000) + block("{}"), 0, []string{badHeader("no end of the header within 8192 bytes"), "frame {}", end}},
	{"endless line", strings.Repeat("x", 20000) + block("{}"), 0, []string{badHeader("no end of the header within 8192 bytes"), "frame {}", end}},
	{"header above 8 KiB", "X: " + strings.Repeat("x", 8192) + "\r\nContent-Length: 2\r\n\r\n{}", 0, []string{badHeader("no end of the header within 8192 bytes"), "frame {}", end}},
	{"long line after a bad header", "bad\n\nContent-Length:" + strings.Repeat(" ", 40) + "2\n\n{}" + block("[]"), 0, []string{badHeader(`line "bad" is not a header field`), "frame []", end}},
	{"incomplete headers after a bad header", "bad\n\ncontent-length\nContent-Length: x\nContent-Length:\n" + block("[]"), 0, []string{badHeader(`line "bad" is not a header field`), "frame []", end}},

	{"length too small", "Content-Length: 3\r\n\r\n{}{}" + block("[]") + block("1"), 0, []string{"frame {}{", badHeader(`line "}Content-Length: 2" is not a header field`), "frame []", "frame 1", end}},
	{"length too large", "Content-Length: 10\r\n\r\n{}" + block("[]") + block("1"), 0, []string{"frame {}Content-", badHeader(noLength), "frame 1", end}},
	{"length larger than the rest of the input", "Content-Length: 1000\r\n\r\n" + block("[]"), 0, []string{cutInFrame, end}},
	{"cut off in the header", block("{}") + "Content-Len", 0, []string{"frame {}", cutInHeader, end}},
	{"cut off after the header", block("{}") + "Content-Length: 2\r\n\r\n", 0, []string{"frame {}", cutInFrame, end}},
	{"cut off before the blank line", block("{}") + "Content-Length: 2\r\n", 0, []string{"frame {}", cutInHeader, end}},
	{"cut off in the body", block("{}") + "Content-Length: 3\r\n\r\n{}", 0, []string{"frame {}", cutInFrame, end}},

	{"exactly at the limit", block(strings.Repeat("x", 20)) + block("{}"), 20, []string{"frame " + strings.Repeat("x", 20), "frame {}", end}},
	{"one more than the limit", block(strings.Repeat("x", 21)) + block("{}"), 20, []string{tooLarge20, "frame {}", end}},
	{"far above the limit", block(strings.Repeat("x", 200000)) + block("{}"), 20, []string{tooLarge20, "frame {}", end}},
	{"two above the limit", block(strings.Repeat("x", 50)) + block(strings.Repeat("y", 21)) + block("{}"), 20, []string{tooLarge20, tooLarge20, "frame {}", end}},
	{"responses above the limit", block(`{"id":1,"result":"`+strings.Repeat("x", 20)+`"}`) + block(`{"result":"`+strings.Repeat("y", 20)+`","id":2}`), 20, []string{tooLarge20 + " of response 1", tooLarge20 + " of response 2", end}},
	{"above the limit and cut off", block("{}") + "Content-Length: 50\r\n\r\nxxx", 20, []string{"frame {}", tooLarge20, end}},
	{"above the limit, length too large", "Content-Length: 999999999999\r\n\r\n{}" + block("[]"), 20, []string{tooLarge20, "frame []", end}},
	{"above the limit, header in the body", block("Content-Length: "+strings.Repeat("9", 50)+"\n\n") + block("{}"), 20, []string{tooLarge20, "frame {}", end}},
	{"large", block(strings.Repeat("x", 300000)) + block("{}"), 0, []string{"frame " + strings.Repeat("x", 300000), "frame {}", end}},
}

func TestHeaderFraming(t *testing.T) { testStreams(t, FramingHeader, headerStreams) }

// TestOversize checks that the id of a frame above the limit is found.
func TestOversize(t *testing.T) {
	x := strings.Repeat(`x\"}],`, 50)
	many := `[{"id":9,"result":"` + x + `"},` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `]`
	tests := []struct {
		name, msg string
		kind      Kind
		id        ID
	}{
		{"id first", `{"jsonrpc":"2.0","id":7,"result":{"a":"` + x + `"}}`, KindResponse, ID("7")},
		{"id last", `{"result":{"id":1,"a":["` + x + `",{"method":"m"}]},"jsonrpc":"2.0","id":7}`, KindResponse, ID("7")},
		{"id in the middle", `{"result":` + many + ` , "id" : "a\"b" ,"jsonrpc":"2.0"}`, KindResponse, ID(`"a\"b"`)},
		{"id between two long members", `{"` + x + `":"` + x + `","id":-3,"error":{"code":1,"message":"` + x + `"}}`, KindError, ID("-3")},
		{"escaped names", `{"\u0069d":7,"r\u0065sult":"` + x + `"}`, KindResponse, ID("7")},
		{"request", `{"jsonrpc":"2.0","id":7,"method":"m","params":["` + x + `"]}`, KindRequest, ID("7")},
		{"notification", `{"jsonrpc":"2.0","method":"m","params":["` + x + `"]}`, KindNotification, nil},
		{"no id", `{"result":{"id":1,"a":"` + x + `"}}`, KindResponse, nil},
		{"id null", `{"id":null,"result":{"a":"` + x + `"}}`, KindResponse, nil},
		{"id with a fraction", `{"id":1.5,"result":{"a":"` + x + `"}}`, KindResponse, nil},
		{"id is an object", `{"id":{"a":1},"result":{"a":"` + x + `"}}`, KindResponse, nil},
		{"id too long", `{"id":"` + strings.Repeat("1", 300) + `","result":{}}`, KindResponse, nil},
		{"two ids", `{"id":1,"id":2,"result":"` + x + `"}`, KindResponse, nil},
		{"id as a value", `{"a":"id","result":"` + x + `"}`, KindResponse, nil},
		{"id in a string", `{"result":"` + x + `,\"id\":5}`, KindResponse, nil},
		{"no member of a message", `{"a":"` + x + `"}`, KindInvalid, nil},
		{"batch", many, KindInvalid, nil},
		{"noise", strings.Repeat("x", 200), KindInvalid, nil},
		{"unmatched closing brackets", strings.Repeat("}", 200), KindInvalid, nil},
	}
	for _, test := range tests {
		for framing, stream := range map[Framing]string{
			FramingLine:   "{}\n" + test.msg + "\n[]\n",
			FramingHeader: block("{}") + block(test.msg) + block("[]"),
		} {
			for _, sizes := range [][]byte{nil, {1}, {3, 50}} {
				f := newFramer(&chunkReader{data: []byte(stream), sizes: sizes}, &FramerOptions{Framing: framing, MaxFrame: 100})
				if frame, err := f.ReadFrame(); string(frame) != "{}" || err != nil {
					t.Fatalf("%s, %v: %q, %v before it", test.name, framing, frame, err)
				}
				_, err := f.ReadFrame()
				got, ok := errors.AsType[*TooLargeError](err)
				if bad, isFrame := errors.AsType[*FrameError](err); !ok || !isFrame || bad.Code != CodeInvalidRequest {
					t.Fatalf("%s, %v: %v", test.name, framing, err)
				}
				want := &TooLargeError{Limit: 100, Kind: test.kind, ID: test.id}
				if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(TooLargeError{}, "Size")); diff != "" {
					t.Errorf("%s, %v, chunks of %v (-want +got):\n%s", test.name, framing, sizes, diff)
				}
				if got.Size <= 100 || got.Size > int64(len(test.msg)) || framing == FramingHeader && got.Size != int64(len(test.msg)) {
					t.Errorf("%s, %v: size %d of %d", test.name, framing, got.Size, len(test.msg))
				}
				lost, isCall := errors.AsType[*CallError](err)
				if wantCall := test.id != nil && test.kind != KindRequest; isCall != wantCall || isCall && !bytes.Equal(lost.ID, test.id) {
					t.Errorf("%s, %v: call error %v", test.name, framing, lost)
				}
				if frame, err := f.ReadFrame(); string(frame) != "[]" || err != nil {
					t.Errorf("%s, %v: %q, %v behind it", test.name, framing, frame, err)
				}
			}
		}
	}
}

// TestOversizeMemory checks that the content of a skipped frame is not kept, and that its id is
// found even in the part that was buffered before.
func TestOversizeMemory(t *testing.T) {
	const size = 16 << 20
	for _, limit := range []int{256 << 10, 4 << 20} {
		for _, ends := range [][2]string{{`{"id":7,"result":{"text":"`, `"}}`}, {`{"result":{"text":"`, `"},"id":7}`}} {
			for _, framing := range []Framing{FramingLine, FramingHeader} {
				body := io.MultiReader(strings.NewReader(ends[0]), io.LimitReader(xs{}, size), strings.NewReader(ends[1]+"\n"))
				if framing == FramingHeader {
					body = io.MultiReader(strings.NewReader(fmt.Sprintf("Content-Length: %d\r\n\r\n", len(ends[0])+size+len(ends[1]))), body)
				}
				f := newFramer(readOnly{body}, &FramerOptions{Framing: framing, MaxFrame: limit})
				held := 0
				var tooLarge *TooLargeError
				var err error
				for err != io.EOF {
					var frame []byte
					frame, err = f.NextFrame()
					if large, ok := errors.AsType[*TooLargeError](err); ok {
						if tooLarge != nil {
							t.Errorf("%v, limit %d: reported twice: %v", framing, limit, large)
						}
						tooLarge = large
					}
					if frame == nil && err == nil {
						err = f.Fill(false)
						held = max(held, f.BufferSize()+f.chunkBytes)
					}
				}
				if tooLarge == nil || string(tooLarge.ID) != "7" || tooLarge.Kind != KindResponse || tooLarge.Size <= int64(limit) {
					t.Errorf("%v, limit %d: %v", framing, limit, tooLarge)
				}
				if most := limit + max(limit/10, maxIdleBuffer); held > most {
					t.Errorf("%v, limit %d: buffered %d bytes of a message of %d", framing, limit, held, size)
				}
			}
		}
	}
}

type xs struct{}

func (xs) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

type readOnly struct{ io.Reader }

func (readOnly) Write(p []byte) (int, error) { return len(p), nil }
func (readOnly) Close() error                { return nil }

// BenchmarkOversize skips a message above the limit whose id is its last member.
func BenchmarkOversize(b *testing.B) {
	msg := []byte(`{"result":[` + strings.Repeat(`{"text":"twenty characters!","n":1},`, 100000) + `1],"jsonrpc":"2.0","id":7}`)
	b.SetBytes(int64(len(msg)))
	b.ReportAllocs()
	for b.Loop() {
		o := &oversizeScanner{limit: 100}
		for piece := msg; len(piece) > 0; {
			n := min(len(piece), minBuffer)
			if err := o.feed(piece[:n], n == len(piece)); err != nil && n < len(piece) {
				b.Fatal(err)
			}
			piece = piece[n:]
		}
	}
}

// TestLongLineReleased shows that a connection that waits for input keeps no buffer above
// maxIdleBuffer, even after long lines, and that later lines reuse the memory.
func TestLongLineReleased(t *testing.T) {
	long := `"` + strings.Repeat("x", 5*maxIdleBuffer) + "\"\n"
	f := newFramer(readOnly{strings.NewReader(strings.Repeat(long+"1\n", 5))}, &FramerOptions{Framing: FramingLine})
	for i := range 10 {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		want := long[:len(long)-1]
		if i%2 == 1 {
			want = "1"
		}
		if string(frame) != want {
			t.Fatalf("frame %d: got %d bytes, want %d", i, len(frame), len(want))
		}
	}
	if _, err := f.ReadFrame(); err != io.EOF {
		t.Errorf("got %v, want EOF", err)
	}
	if got := f.BufferSize(); got > maxIdleBuffer {
		t.Errorf("%d bytes are kept, want at most %d", got, maxIdleBuffer)
	}
}

// linesReader repeats one line forever.
type linesReader struct {
	line string
	at   int
}

func (r *linesReader) Read(p []byte) (int, error) {
	n := copy(p, r.line[r.at:])
	if r.at += n; r.at == len(r.line) {
		r.at = 0
	}
	return n, nil
}

func (r *linesReader) Write(p []byte) (int, error) { return len(p), nil }
func (r *linesReader) Close() error                { return nil }

func BenchmarkLongLines(b *testing.B) {
	for _, size := range []int{64 << 10, 1 << 20, 8 << 20} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			f := NewFramer(&linesReader{line: `"` + strings.Repeat("x", size) + "\"\n"}, nil)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.ReadFrame(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
