package capture_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"iter"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"mcpwire/capture"
)

const headLine = `{"k":"head","v":1,"id":"A","at":"2026-11-20T12:00:00.5Z"}` + "\n"

// brief describes each event in a word.
func brief(e *capture.Event) string {
	s := string(e.Kind)
	if e.Gap != nil {
		s += ":" + string(e.Gap.Why)
	}
	if e.Data != nil {
		s += ":" + string(e.Data)
	}
	return s
}

func briefs(t *testing.T, r *capture.Reader) string {
	t.Helper()
	var list []string
	for e, err := range r.Events() {
		if err != nil {
			list = append(list, "error")
			t.Logf("error: %v", err)
			continue
		}
		list = append(list, brief(e))
	}
	return strings.Join(list, " ")
}

// TestReaderTolerates shows that an invalid line affects no other line.
func TestReaderTolerates(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"no head", `{"n":1,"t":0,"k":"eof"}`, "eof"},
		{"byte order mark", "\xef\xbb\xbf" + headLine, "head"},
		{"CRLF and blank lines", "\r\n" + strings.ReplaceAll(headLine, "\n", "\r\n") + "\n\n" + `{"k":"eof"}` + "\r\n", "head eof"},
		{"unknown members and kinds", `{"k":"novel","n":1,"t":0,"x":{"y":1},"n2":[{}],"msg":{"a":1}}` + "\n" + `{"k":"eof","zzz":null}`, `novel:{"a":1} eof`},
		{"members of other types", `{"k":"msg","n":"x","t":[],"dir":1,"s":-1,"x":1.5,"len":"y","red":{},"raw":5,"sse":[],"req":1}` + "\n", "msg"},
		{"not an event", "{}\n[]\n5\n{\"k\":5}\n{\"k\":\"eof\"}\n", "gap:malformed gap:malformed gap:malformed gap:malformed eof"},
		{"garbage", "\x00\xff\n" + headLine, "gap:malformed head"},
		{"bad base64", `{"k":"invalid","b64":"!!"}` + "\n", "gap:malformed"},
		{"escaped base64", `{"k":"invalid","b64":"Pz8\/"}` + "\n", "invalid:???"},
		{"cut line", headLine + `{"n":1,"t":0,"k":"no`, "head gap:truncated"},
		{"no last line end", headLine + `{"k":"eof"}`, "head eof"},
		{"long line", headLine + `{"k":"note","raw":"` + strings.Repeat("x", 200<<10) + `"}` + "\n" + `{"k":"eof"}`, "head gap:limit eof"},
		{"long line without an end", `{"k":"note","raw":"` + strings.Repeat("x", 200<<10), "gap:limit"},
		{"longer than the buffer", `{"k":"note","raw":"` + strings.Repeat("x", 80<<10) + `"}` + "\n" + `{"k":"eof"}`, "note:" + strings.Repeat("x", 80<<10) + " eof"},
		{"two captures", headLine + `{"k":"eof"}` + "\n" + headLine, "head eof head"},
		{"newer version", `{"k":"head","v":2}` + "\n" + `{"k":"eof"}`, "error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			opts := &capture.ReaderOptions{MaxLine: 100 << 10}
			if got := briefs(t, capture.NewReader(strings.NewReader(tt.in), opts)); got != tt.want {
				t.Errorf("got %.300s, want %.300s", got, tt.want)
			}
			if got := briefs(t, capture.NewReader(iotest.OneByteReader(strings.NewReader(tt.in)), opts)); got != tt.want {
				t.Errorf("byte by byte: got %.300s, want %.300s", got, tt.want)
			}
		})
	}
}

func TestReaderTimes(t *testing.T) {
	in := headLine
	want := []time.Duration{0}
	for text, d := range map[string]time.Duration{"0.000264762": 264762, "12": 12 * time.Second, "1.5": 1500 * time.Millisecond, "1e3": 1000 * time.Second, "-1": 0, "1e300": 0, "123456789.000000001": 123456789*time.Second + 1} {
		in += `{"k":"eof","t":` + text + "}\n"
		want = append(want, d)
	}
	for i, e := range read(t, []byte(in), nil) {
		if e.T != want[i] || !e.At.Equal(time.Date(2026, 11, 20, 12, 0, 0, 5e8, time.UTC).Add(want[i])) || e.Capture != "A" {
			t.Errorf("event %d: %v, %v, want %v", i, e.T, e.At, want[i])
		}
	}
}

func TestReaderErrors(t *testing.T) {
	broken := errors.New("broken")
	r := capture.NewReader(io.MultiReader(strings.NewReader(headLine), iotest.ErrReader(broken)), nil)
	var got []string
	for e, err := range r.Events() {
		if err != nil {
			if !errors.Is(err, broken) {
				t.Errorf("error %v", err)
			}
			got = append(got, "error")
			continue
		}
		got = append(got, brief(e))
	}
	if diff := cmp.Diff([]string{"head", "error"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, err := range capture.NewReader(strings.NewReader(`{"k":"head","v":9}`), nil).Events() {
		if !errors.Is(err, capture.ErrVersion) {
			t.Errorf("error %v", err)
		}
	}
}

// endless is a source with a single endless line.
type endless byte

func (b endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}

// TestNotCapture shows that in a file that is not a capture, the reader does not search for the end
// of an endless line.
func TestNotCapture(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for name, events := range map[string]iter.Seq2[*capture.Event, error]{
		"Events": capture.NewReader(endless(0), nil).Events(),
		"Follow": capture.NewReader(endless('x'), nil).Follow(ctx),
	} {
		var errs []error
		for e, err := range events {
			if e != nil {
				t.Errorf("%s: an event: %s", name, brief(e))
			}
			errs = append(errs, err)
		}
		if len(errs) != 1 || !errors.Is(errs[0], capture.ErrNotCapture) {
			t.Errorf("%s: got %v", name, errs)
		}
	}
}

// TestReaderCompressed shows that a compressed capture that breaks off is read as far as possible,
// and that this is reported.
func TestReaderCompressed(t *testing.T) {
	text := headLine + strings.Repeat(`{"k":"eof"}`+"\n", 3)
	var gz, zst bytes.Buffer
	g := gzip.NewWriter(&gz)
	io.WriteString(g, text)
	g.Flush()
	cutGz := bytes.Clone(gz.Bytes())
	g.Close()
	z, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(z, text)
	z.Flush()
	cutZst := bytes.Clone(zst.Bytes())
	z.Close()
	for _, tt := range []struct {
		name string
		in   []byte
		want string
	}{
		{"gzip", gz.Bytes(), "head eof eof eof"},
		{"gzip, twice", bytes.Repeat(gz.Bytes(), 2), "head eof eof eof head eof eof eof"},
		{"zstd", zst.Bytes(), "head eof eof eof"},
		{"cut gzip", cutGz, "head eof eof eof gap:truncated"},
		{"cut zstd", cutZst, "head eof eof eof gap:truncated"},
		{"broken gzip", []byte("\x1f\x8bxx"), "error"},
	} {
		r := capture.NewReader(bytes.NewReader(tt.in), nil)
		if got := briefs(t, r); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
		r.Close()
	}
	r := capture.NewReader(bytes.NewReader(gz.Bytes()), nil)
	defer r.Close()
	for _, err := range r.Follow(t.Context()) {
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Follow: %v", err)
		}
	}
}

// A growing is a source that returns io.EOF until more is written to it.
type growing struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (g *growing) Read(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.buf.Read(p)
}

func (g *growing) add(s string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.buf.WriteString(s)
}

// TestFollow shows that Follow waits for lines to be complete, and ends with the capture or the
// context.
func TestFollow(t *testing.T) {
	for _, tail := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g := new(growing)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			events := make(chan string, 10)
			go func() {
				defer close(events)
				for e, err := range capture.NewReader(g, nil).Follow(ctx) {
					if err != nil {
						t.Error(err)
						return
					}
					events <- brief(e)
				}
			}()
			expect := func(want string) {
				t.Helper()
				<-time.After(time.Second)
				select {
				case got := <-events:
					if got != want {
						t.Errorf("got %q, want %q", got, want)
					}
				default:
					if want != "" {
						t.Errorf("nothing came, want %q", want)
					}
				}
			}
			expect("")
			g.add(headLine[:10])
			expect("")
			g.add(headLine[10:])
			expect("head")
			g.add(`{"k":"note","raw":"` + strings.Repeat("x", 100<<10))
			expect("")
			g.add(`"}` + "\n" + `{"k":`)
			expect("note:" + strings.Repeat("x", 100<<10))
			if g.add(`"eof"}` + "\n"); tail {
				g.add(`{"k":"tail","events":2}` + "\n")
			}
			expect("eof")
			if tail {
				expect("tail")
			} else {
				cancel()
			}
			if rest, ok := <-events; ok {
				t.Errorf("%q came after the end", rest)
			}
		})
	}
}

// TestFollowFile shows that Follow yields what a Writer writes to a file while it is written.
func TestFollowFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a"+capture.Suffix)
	w, err := capture.Create(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := capture.Open(name, &capture.ReaderOptions{Poll: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	n := 0
	for e, err := range r.Follow(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == capture.KindTail {
			break
		}
		if n++; n == 10 {
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		w.Record(&capture.Event{Kind: capture.KindNote, Data: []byte("next")})
	}
	if n != 10 {
		t.Errorf("%d events", n)
	}
}

func TestMerge(t *testing.T) {
	one := headLine + `{"n":1,"t":1,"k":"note","raw":"a"}` + "\n" + `{"n":2,"t":3,"k":"note","raw":"c"}` + "\n"
	two := `{"k":"head","v":1,"id":"B","at":"2026-11-20T12:00:01.5Z"}` + "\n" + `{"n":1,"t":1,"k":"note","raw":"b"}` + "\n" + `{"n":2,"t":3,"k":"note","raw":"d"}` + "\n"
	bad := `{"k":"head","v":9}`
	from := func(s string) *capture.Reader { return capture.NewReader(strings.NewReader(s), nil) }
	var got []string
	for e, err := range capture.Merge(from(one).Events(), from(bad).Events(), from(two).Events()) {
		if err != nil {
			got = append(got, "error")
			continue
		}
		got = append(got, e.Capture+" "+brief(e))
	}
	want := []string{"error", "A head", "A note:a", "B head", "B note:b", "A note:c", "B note:d"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestSourceFails shows that an error of the source is returned, wherever it occurs.
func TestSourceFails(t *testing.T) {
	broken := errors.New("broken")
	const head = `{"k":"head","v":1,"id":"A","at":"2026-11-20T12:00:00Z"}` + "\n"
	for _, before := range []string{"", head, head + `{"n":1,`} {
		var got error
		for _, err := range capture.NewReader(io.MultiReader(strings.NewReader(before), iotest.ErrReader(broken)), nil).Events() {
			got = err
		}
		if !errors.Is(got, broken) {
			t.Errorf("behind %q: got %v, want %v", before, got, broken)
		}
	}
}

// TestSide reads one side of a bridge's capture as a separate capture.
func TestSide(t *testing.T) {
	text := record(t, nil,
		capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Side: capture.Downstream, Session: 1, Data: []byte(`{"a":1}`)},
		capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Side: capture.Upstream, Session: 2, Data: []byte(`{"b":1}`)},
		capture.Event{Kind: capture.KindTranslate, Translation: &capture.Translation{Of: 1, To: []uint64{2}, Rule: "same"}},
		capture.Event{Kind: capture.KindNote, Data: []byte("of none")},
	)
	for side, want := range map[capture.Side]string{
		"":                 "head - downstream1 upstream2 translate3 note4 tail - ",
		capture.Downstream: "head - 1 note4 tail - ",
		capture.Upstream:   "head - 2 note4 tail - ",
	} {
		var got strings.Builder
		for _, e := range read(t, text, &capture.ReaderOptions{Side: side}) {
			kind := string(e.Kind)
			if e.Kind == capture.KindMessage {
				kind = string(e.Side)
			}
			number := " -"
			if e.N > 0 && e.Kind != capture.KindTail {
				number = strconv.FormatUint(e.N, 10)
			}
			got.WriteString(kind + number + " ")
		}
		if got.String() != want {
			t.Errorf("side %q: got %q, want %q", side, got.String(), want)
		}
	}
}
