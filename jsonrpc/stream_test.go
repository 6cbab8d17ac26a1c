package jsonrpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		{streamTest{"line behind blank ones", "\r\n \n {}\n", 0, []string{"frame {}", end}}, FramingLine},
		{streamTest{"batch", "[]\n", 0, []string{"frame []", end}}, FramingLine},
		{streamTest{"header", block("{}") + block("[]"), 0, []string{"frame {}", "frame []", end}}, FramingHeader},
		{streamTest{"header, other case", "CONTENT-length: 2\r\n\r\n{}", 0, []string{"frame {}", end}}, FramingHeader},
		{streamTest{"header behind blank lines", "\r\n\n" + block("{}"), 0, []string{"frame {}", end}}, FramingHeader},
		{streamTest{"Content-Type first", "content-type: x\r\n" + block("{}"), 0, []string{"frame {}", end}}, FramingHeader},
		{streamTest{"nearly a header", "Content_Length: 2\n{}\n", 0, []string{"frame Content_Length: 2", "frame {}", end}}, FramingLine},
		{streamTest{"a piece of a header", "Conten", 0, []string{"frame Conten", end}}, FramingLine},
		{streamTest{"a header line alone", "Content-Length: 2", 0, []string{cutInHeader, end}}, FramingHeader},
		{streamTest{"garbage", "\x00\xff\n{}\n", 0, []string{"frame \x00\xff", "frame {}", end}}, FramingLine},
		{streamTest{"BOM", "\ufeff{}\n", 0, []string{"frame \ufeff{}", end}}, FramingLine},
		{streamTest{"oversize first line", strings.Repeat("x", 30) + "\n{}\n", 20, []string{tooLarge20, "frame {}", end}}, FramingLine},
		{streamTest{"white space before does not count", strings.Repeat(" \n", 30) + "{}\n", 20, []string{"frame {}", end}}, FramingLine},
	}
	for _, test := range tests {
		testStreams(t, FramingAuto, []streamTest{test.streamTest})
		f := NewFramer(&chunks{data: []byte(test.stream)}, &FramerOptions{MaxFrame: test.max})
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
		a, b := memoryPipe(0)
		b.Write([]byte(test.input))
		b.out.end(io.EOF)
		f := NewFramer(a, &FramerOptions{Framing: test.framing})
		if test.input != "" {
			f.ReadFrame()
		}
		if err := f.WriteFrame([]byte("{}")); err != nil {
			t.Fatal(err)
		}
		if got := string(b.in.take()); got != test.want {
			t.Errorf("%v framing after %q: got %q, want %q", test.framing, test.input, got, test.want)
		}
	}
	for f, want := range map[Framing]string{FramingAuto: "auto", FramingLine: "line", FramingHeader: "header"} {
		if f.String() != want {
			t.Errorf("Framing %d is called %q", f, f)
		}
	}
}

// A message may be framed while the peer's framing becomes known.
func TestFramingFoundBetweenBeginAndFinish(t *testing.T) {
	a, b := memoryPipe(0)
	f := NewFramer(a, nil)
	early := append(f.begin(nil), `{"jsonrpc":"2.0","method":"a method with a name"}`...)
	b.Write([]byte(block("{}")))
	if _, err := f.ReadFrame(); err != nil {
		t.Fatal(err)
	}
	if got, want := string(f.finish(early, 0)), `{"jsonrpc":"2.0","method":"a method with a name"}`+"\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := string(f.finish(append(f.begin(nil), "{}"...), 0)), block("{}"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// transports make the two ends of a connection.
var transports = []struct {
	name string
	open func(t *testing.T) (a, b io.ReadWriteCloser)
}{
	{"net.Pipe", func(t *testing.T) (a, b io.ReadWriteCloser) { return net.Pipe() }},
	{"unix socket", func(t *testing.T) (a, b io.ReadWriteCloser) {
		return dialSelf(t, "unix", filepath.Join(t.TempDir(), "s"))
	}},
	{"TCP", func(t *testing.T) (a, b io.ReadWriteCloser) { return dialSelf(t, "tcp", "127.0.0.1:0") }},
	{"memory", func(t *testing.T) (a, b io.ReadWriteCloser) { return memoryPipe(0) }},
	{"memory of 10 bytes", func(t *testing.T) (a, b io.ReadWriteCloser) { return memoryPipe(10) }},
	{"os.Pipe", func(t *testing.T) (a, b io.ReadWriteCloser) {
		r1, w1, err1 := os.Pipe()
		r2, w2, err2 := os.Pipe()
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return files{r1, w2}, files{r2, w1}
	}},
}

type files struct{ r, w *os.File }

func (f files) Read(p []byte) (int, error)  { return f.r.Read(p) }
func (f files) Write(p []byte) (int, error) { return f.w.Write(p) }
func (f files) Close() error                { return errors.Join(f.r.Close(), f.w.Close()) }

func dialSelf(t *testing.T, network, address string) (a, b io.ReadWriteCloser) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skipf("no %s sockets: %v", network, err)
	}
	defer l.Close()
	if a, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// everyTransport runs f over each transport in each framing.
func everyTransport(t *testing.T, f func(t *testing.T, a, b *StreamFramer)) {
	for _, transport := range transports {
		for _, framing := range []Framing{FramingLine, FramingHeader} {
			t.Run(fmt.Sprintf("%s, %v", transport.name, framing), func(t *testing.T) {
				a, b := transport.open(t)
				f(t, NewFramer(a, &FramerOptions{Framing: framing}), NewFramer(b, nil))
			})
		}
	}
}

func TestFramesOverCarriers(t *testing.T) {
	msgs := []string{"{}", `"` + strings.Repeat("x", 200000) + `"`, "[]", `"` + strings.Repeat("y", 70000) + `"`, "{}"}
	everyTransport(t, func(t *testing.T, a, b *StreamFramer) {
		send := func(f *StreamFramer) {
			for _, m := range msgs {
				if err := f.WriteFrame([]byte(m)); err != nil {
					t.Errorf("WriteFrame: %v", err)
				}
			}
		}
		receive := func(f *StreamFramer) {
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
		wg.Go(func() { send(b) }) // in a's framing
		receive(a)
		if a.Framing() != b.Framing() {
			t.Errorf("framing %v was answered in %v", a.Framing(), b.Framing())
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

func TestConnOverCarriers(t *testing.T) {
	everyTransport(t, func(t *testing.T, fa, fb *StreamFramer) {
		echo := HandlerFunc(func(ctx context.Context, r *Request) ([]byte, error) {
			if string(r.Method) == "back" { // by way of the caller
				return r.Conn().Call(ctx, "echo", r.Params)
			}
			return r.Params, nil
		})
		a, b := NewConn(fa, &Options{Handler: echo}), NewConn(fb, &Options{Handler: echo})
		var wg sync.WaitGroup
		wg.Go(func() { a.Run(context.Background()) })
		wg.Go(func() { b.Run(context.Background()) })
		for _, n := range []int{0, 1, 100, 70000, 300000} {
			params := []byte(`["` + strings.Repeat("x", n) + `"]`)
			for _, method := range []string{"echo", "back"} {
				got, err := a.Call(context.Background(), method, params)
				if err != nil || !bytes.Equal(got, params) {
					t.Fatalf("%s of %d bytes: got %d bytes and %v", method, n, len(got), err)
				}
			}
		}
		a.Close()
		wg.Wait()
		if err := a.Err(); err != nil {
			t.Errorf("a ended with %v", err)
		}
	})
}

// failingReader yields data, then an error that is not io.EOF.
type failingReader struct {
	chunks
	err error
}

func (r *failingReader) Read(p []byte) (int, error) {
	n, err := r.chunks.Read(p)
	if err == io.EOF {
		err = r.err
	}
	return n, err
}

func TestReadError(t *testing.T) {
	broken := errors.New("cable cut")
	for _, joint := range []bool{false, true} {
		got := readAll(t, &failingReader{chunks{data: []byte("{}\n[]"), joint: joint}, broken}, nil)
		if diff := cmp.Diff([]string{"frame {}", "frame []", "end cable cut"}, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		got = readAll(t, &failingReader{chunks{data: []byte(block("{}") + "Content-Length: 5\n\n["), joint: joint}, broken}, nil)
		if diff := cmp.Diff([]string{"frame {}", cutInFrame, "end cable cut"}, got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	}
}

// A stuckReader neither reads anything nor says why.
type stuckReader struct{ chunks }

func (*stuckReader) Read([]byte) (int, error) { return 0, nil }

func TestReaderWithoutProgress(t *testing.T) {
	if diff := cmp.Diff([]string{"end " + io.ErrNoProgress.Error()}, readAll(t, &stuckReader{}, nil)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A shortWriter writes less than it is given.
type shortWriter struct{ chunks }

func (*shortWriter) Write(p []byte) (int, error) { return len(p) - 1, nil }

func TestShortWrite(t *testing.T) {
	if err := NewFramer(&shortWriter{}, nil).WriteFrame([]byte("{}")); err != io.ErrShortWrite {
		t.Errorf("got %v, want %v", err, io.ErrShortWrite)
	}
}

// An endless reader yields the same bytes n times over.
type endless struct {
	chunks
	text string
	n    int
}

func (r *endless) Read(p []byte) (int, error) {
	if r.n == 0 {
		return r.chunks.Read(p)
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
		{"white space before anything", "", strings.Repeat(" \n", 16<<10), FramerOptions{MaxFrame: limit}},
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
			f := NewFramer(r, &test.opts)
			f.fill(false)
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

// A filler yields a text, n bytes, and the rest.
type filler struct {
	chunks
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

// TestLongLineCost: whoever begins a frame and does not end it costs the limit and a tenth of it,
// in all that is allocated on the way, however long it gets. A frame within the limit is put
// together from its parts, once.
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
		{"behind another", "{}\n", 3 * limit, "\n{}\n", []string{"2", "too large", "2"}, limit + limit/10},
		{"body too long", "Content-Length: 67108865\r\n\r\n", limit + 1, "Content-Length: 2\r\n\r\n{}", []string{"too large", "2"}, limit / 10},
		{"body at the limit", "Content-Length: 67108864\r\n\r\n", limit, "Content-Length: 2\r\n\r\n{}", []string{fmt.Sprint(limit), "2"}, limit + limit/10},
		{"body without an end", "Content-Length: 67108864\r\n\r\n", limit - 1, "", []string{"broken"}, limit + limit/10},
		{"body of an odd length", "Content-Length: 40000001\r\n\r\n", 40_000_001, "", []string{"40000001"}, 44_000_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for range 4 { // the collector empties pools in steps
				runtime.GC()
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			f := NewFramer(&filler{before: tt.before, n: tt.n, rest: tt.rest}, nil)
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
	a, b := memoryPipe(0)
	f := NewFramer(b, nil)
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
		t.Errorf("buffers of %d, %d and %d bytes long after a large frame", len(f.buf), cap(f.line), f.chunkBytes)
	}
}

// An idleTransport counts which way it is read.
type idleTransport struct {
	duplex
	mu         sync.Mutex
	idle, busy int
}

func (c *idleTransport) Read(p []byte) (int, error) {
	c.mu.Lock()
	c.busy++
	c.mu.Unlock()
	return c.duplex.Read(p)
}

func (c *idleTransport) ReadIdle(p []byte) (int, error) {
	c.mu.Lock()
	c.idle++
	c.mu.Unlock()
	return c.duplex.Read(p)
}

func (c *idleTransport) take() (idle, busy int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	idle, busy = c.idle, c.busy
	c.idle, c.busy = 0, 0
	return idle, busy
}
