package sse_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/net/sse"
)

const (
	eof    = `EOF, last id ""`
	cutOff = `unexpected EOF, last id ""`
)

var long = strings.Repeat("x", sse.MaxField+1)

// streams are streams and what a Reader with a limit of 20 bytes of data returns.
var streams = []struct {
	name, stream string
	want         []string
}{
	{"nothing", "", []string{eof}},
	{"message", "data: {}\n\n", []string{`event data="{}"`, eof}},
	{"CR", "data: {}\r\rdata: 2\r\r", []string{`event data="{}"`, `event data="2"`, eof}},
	{"CRLF", "data: {}\r\n\r\ndata: 2\r\n\r\n", []string{`event data="{}"`, `event data="2"`, eof}},
	{"mixed line ends", "data: 1\n\rdata: 2\r\n\ndata: 3\r\r\ndata: 4\n\r\n\r", []string{`event data="1"`, `event data="2"`, `event data="3"`, `event data="4"`, eof}},
	{"two CRLF are two line ends", "data: 1\r\ndata: 2\r\n\r\n", []string{`event data="1\n2"`, eof}},
	{"many blank lines", "\n\r\n\r\r\ndata: 1\n\n\n\n\ndata: 2\n\n", []string{`event data="1"`, `event data="2"`, eof}},

	{"BOM", "\ufeffdata: 1\n\n", []string{`event data="1"`, eof}},
	{"BOM alone", "\ufeff", []string{eof}},
	{"BOM and blank line", "\ufeff\n\ndata: 1\n\n", []string{`event data="1"`, eof}},
	{"two BOMs", "\ufeff\ufeffdata: 1\n\ndata: 2\n\n", []string{`event data="2"`, eof}},
	{"BOM later", "data: 1\n\n\ufeffdata: 2\n\n", []string{`event data="1"`, eof}},
	{"part of a BOM", "\xef\xbb", []string{cutOff}},
	{"BOM with a wrong last byte", "\xef\xbcdata: 1\n\ndata: 2\n\n", []string{`event data="2"`, eof}},

	{"no space after the colon", "data:1\n\n", []string{`event data="1"`, eof}},
	{"two spaces after the colon", "data:  1 \n\n", []string{`event data=" 1 "`, eof}},
	{"tab is not removed", "data:\t1\n\n", []string{`event data="\t1"`, eof}},
	{"colons in the value", "data: a: b:\n\n", []string{`event data="a: b:"`, eof}},
	{"several data lines", "data: 1\ndata\ndata:\ndata: \ndata: 5\n\n", []string{`event data="1\n\n\n\n5"`, eof}},
	{"several data lines with fields between", "data: 1\nid: 2\n: c\ndata: 3\nx: y\ndata: 4\n\n", []string{`event id="2" data="1\n3\n4"`, `EOF, last id "2"`}},
	{"data without colon", "data\n\ndata\ndata\n\ndata:", []string{`event data=""`, `event data="\n"`, cutOff}},
	{"NUL and high bytes in data", "data: \x00\xff\n\n", []string{`event data="\x00\xff"`, eof}},

	{"comments", ": one\n:\n\n:two\ndata: 1\n: three\n\n", []string{`event data="1"`, eof}},
	{"only comments", ":\n\n: ping\r\n\r\n: half", []string{eof}},
	{"long comment", ":" + long + "\ndata: 1\n:" + long + "\n\n", []string{`event data="1"`, eof}},
	{"unknown fields", "foo: 1\nDATA: 2\n data: 3\ndatax: 4\ndat: 5\ni: d\nids: 7\ne\nretryx: 1\n\n", []string{eof}},
	{"long unknown field", "data: 1\n" + long + ": 1\nfoo: " + long + "\ndatabase: " + long + "\n\n", []string{`event data="1"`, eof}},
	{"data at the limit after another field", "data: 12345678901234567890\ndatabase\n\n", []string{`event data="12345678901234567890"`, eof}},

	{"name", "event: endpoint\ndata: /m\n\ndata: 1\n\n", []string{`event name="endpoint" data="/m"`, `event data="1"`, eof}},
	{"default name", "event: message\ndata: 1\n\nevent:\ndata: 2\n\nevent: a\nevent\ndata: 3\n\n", []string{`event data="1"`, `event data="2"`, `event data="3"`, eof}},
	{"last name wins", "event: a\nevent: b\ndata: 1\n\nevent: Message\ndata: 2\n\n", []string{`event name="b" data="1"`, `event name="Message" data="2"`, eof}},
	{"name without data", "event: a\n\ndata: 1\n\n", []string{`event data="1"`, eof}},

	{"priming", "id: s1-0\ndata:\n\n", []string{`event id="s1-0" data=""`, `EOF, last id "s1-0"`}},
	{"id without data", "id: 7\n\n", []string{`event id="7"`, `EOF, last id "7"`}},
	{"id applies to later events", "id: 7\ndata: 1\n\ndata: 2\n\n", []string{`event id="7" data="1"`, `event data="2"`, `EOF, last id "7"`}},
	{"empty id", "id: 7\ndata: 1\n\nid\ndata: 2\n\n", []string{`event id="7" data="1"`, `event id="" data="2"`, eof}},
	{"id with NUL", "id: 7\nid: 8\x00\ndata: 1\n\nid: \x00\n\n", []string{`event id="7" data="1"`, `EOF, last id "7"`}},
	{"id of an incomplete event", "id: 7\ndata: 1\n\nid: 8\ndata: 2\n", []string{`event id="7" data="1"`, `unexpected EOF, last id "7"`}},
	{"id set and reset", "id: 1\n\nid: 22\n\nid: 3\n\n", []string{`event id="1"`, `event id="22"`, `event id="3"`, `EOF, last id "3"`}},

	{"retry", "retry: 3000\n\n", []string{"event retry=3s", eof}},
	{"retry is reset", "retry: 1\ndata: 1\n\ndata: 2\n\n", []string{`event retry=1ms data="1"`, `event data="2"`, eof}},
	{"retry 0", "retry:0\n\n", []string{"event retry=0s", eof}},
	{"retry 10^12", "retry: 1000000000000\n\n", []string{"event retry=24h0m0s", eof}},
	{"retry above int64", "retry: 99999999999999999999999999\n\n", []string{"event retry=24h0m0s", eof}},
	{"retry with zeros", "retry: 00000000000000000000000001\n\n", []string{"event retry=1ms", eof}},
	{"not a retry", "retry\n\nretry:\n\nretry: -1\n\nretry: +1\n\nretry: 1.5\n\nretry:  1\n\nretry: 1 \n\nretry: ١\n\n", []string{eof}},
	{"invalid retry keeps the earlier one", "retry: 5\nretry: x\n\n", []string{"event retry=5ms", eof}},

	{"cut off in data", "data: 1\n\ndata: 2", []string{`event data="1"`, cutOff}},
	{"cut off after data", "data: 1\n\ndata: 2\n", []string{`event data="1"`, cutOff}},
	{"cut off after CR", "data: 2\r", []string{cutOff}},
	{"cut off in a name", "da", []string{cutOff}},
	{"cut off in an unknown field", "foo", []string{cutOff}},
	{"cut off after an unknown field", "foo\n", []string{cutOff}},

	{"at the limit", "data: 12345678901234567890\n\n", []string{`event data="12345678901234567890"`, eof}},
	{"above the limit", "data: 123456789012345678901\n\ndata: 2\n\n", []string{"sse: event with more than 20 bytes of data was skipped", `event data="2"`, eof}},
	{"at the limit in several lines", "data: 123456789\ndata: 1234567890\n\n", []string{`event data="123456789\n1234567890"`, eof}},
	{"above the limit in several lines", "data: 1234567890\ndata: 1234567890\ndata: 3\n\ndata: 2\n\n", []string{"sse: event with more than 20 bytes of data was skipped", `event data="2"`, eof}},
	{"line feeds count toward the limit", "data: 1" + strings.Repeat("\ndata", 20) + "\n\n", []string{"sse: event with more than 20 bytes of data was skipped", eof}},
	{"far above the limit", "data: " + strings.Repeat("x", 100000) + "\r\n\r\ndata: 2\n\n", []string{"sse: event with more than 20 bytes of data was skipped", `event data="2"`, eof}},
	{"too large, cut off", "data: 1\n\ndata: " + strings.Repeat("x", 30), []string{`event data="1"`, "sse: event with more than 20 bytes of data was skipped", cutOff}},
	{"id of a skipped event", "id: 7\ndata: 123456789012345678901\nevent: a\nretry: 1\n\ndata: 2\n\n", []string{"sse: event with more than 20 bytes of data was skipped", `event data="2"`, `EOF, last id "7"`}},
	{"id after skipped data", "data: 123456789012345678901\nid: 7\n\n", []string{"sse: event with more than 20 bytes of data was skipped", `EOF, last id "7"`}},
	{"fields at the limit", "event: " + long[1:] + "\nid: " + long[1:] + "\n\n", []string{`event name="` + long[1:] + `" id="` + long[1:] + `"`, `EOF, last id "` + long[1:] + `"`}},
	{"long name", "event: " + long + "\ndata: 1\n\ndata: 2\n\n", []string{"sse: event with more than 8192 bytes of event was skipped", `event data="2"`, eof}},
	{"long id", "id: 1\n\nid: " + long + "\ndata: 1\n\ndata: 2\n\n", []string{`event id="1"`, "sse: event with more than 8192 bytes of id was skipped", `event data="2"`, `EOF, last id "1"`}},
	{"long retry", "retry: " + strings.Repeat("0", sse.MaxField+1) + "\n\n", []string{"sse: event with more than 8192 bytes of retry was skipped", eof}},
	{"first exceeded limit is reported", "data: " + long + "\nid: " + long + "\n\n", []string{"sse: event with more than 20 bytes of data was skipped", eof}},
}

func TestReader(t *testing.T) {
	for _, test := range streams {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, parseReference(test.stream, 20)); diff != "" {
				t.Errorf("the reference parser disagrees with the table (-want +got):\n%s", diff)
			}
			for i, src := range sources(test.stream) {
				if diff := cmp.Diff(test.want, readAll(t, src, 20)); diff != "" {
					t.Errorf("source %d (-want +got):\n%s", i, diff)
				}
			}
		})
	}
}

// TestReaderSplits splits each short stream in two and three at every position.
func TestReaderSplits(t *testing.T) {
	for _, test := range streams {
		n := len(test.stream)
		if n > 120 {
			continue
		}
		for i := range n + 1 {
			for j := i; j <= n; j++ {
				src := io.MultiReader(strings.NewReader(test.stream[:i]), strings.NewReader(test.stream[i:j]), strings.NewReader(test.stream[j:]))
				if diff := cmp.Diff(test.want, readAll(t, src, 20)); diff != "" {
					t.Fatalf("%s, cut at %d and %d (-want +got):\n%s", test.name, i, j, diff)
				}
			}
		}
	}
}

// TestReaderExhaustive checks all streams of up to seven structural characters, after a prefix that
// makes an event, read at once and one byte at a time.
func TestReaderExhaustive(t *testing.T) {
	const alphabet = "\n\r: ad"
	depth := 7
	if testing.Short() {
		depth = 5
	}
	var try func(stream string, left int)
	try = func(stream string, left int) {
		want := parseReference(stream, 3)
		for _, src := range []io.Reader{strings.NewReader(stream), iotest.OneByteReader(strings.NewReader(stream))} {
			if got := readAll(t, src, 3); !equal(got, want) {
				t.Fatalf("%q: got %q, want %q", stream, got, want)
			}
		}
		if left == 0 {
			return
		}
		for _, c := range alphabet {
			try(stream+string(c), left-1)
		}
	}
	try("data", depth-1)
	try("id\ndata:a\ndata", depth-1)
}

func equal(a, b []string) bool { return strings.Join(a, "\x1e") == strings.Join(b, "\x1e") }

// A script is a reader that returns chunks and fails the test when it is read after the last one.
type script struct {
	t      *testing.T
	chunks []string
	closed bool
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.chunks) == 0 {
		if !s.closed {
			s.t.Error("the reader wants more input although an event is complete")
		}
		return 0, io.EOF
	}
	n := copy(p, s.chunks[0])
	s.chunks = s.chunks[1:]
	return n, nil
}

func TestReaderDoesNotWait(t *testing.T) {
	for _, test := range []struct {
		name   string
		chunks []string
		want   []string
	}{
		{"LF", []string{"data: 1\n\n"}, []string{"1"}},
		{"CR at the end of a chunk", []string{"data: 1\r\r"}, []string{"1"}},
		{"CRLF split between chunks", []string{"data: 1\r\n\r"}, []string{"1"}},
		{"LF after an event that ended with CR", []string{"data: 1\r\n\r", "\ndata: 2\r\n\r"}, []string{"1", "2"}},
		{"LF CR", []string{"data: 1\n\r"}, []string{"1"}},
		{"several events in a chunk", []string{"data: 1\n\ndata: 2\r\rdata: 3\r\n\r"}, []string{"1", "2", "3"}},
		{"chunk with the start of the next event", []string{"data: 1\n\ndata: 2"}, []string{"1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			src := &script{t: t, chunks: test.chunks}
			r := sse.NewReader(src, 0)
			for _, want := range test.want {
				e, err := r.Read()
				if err != nil || string(e.Data) != want {
					t.Fatalf("got %q, %v; want %q", e.Data, err, want)
				}
			}
			src.closed = true
			if e, err := r.Read(); err == nil {
				t.Errorf("one more event: %s", describe(e))
			}
		})
	}
}

func TestReaderErrors(t *testing.T) {
	broken := errors.New("broken")
	for _, test := range []struct {
		name string
		src  io.Reader
		want []string
	}{
		{"error at the first read", iotest.ErrReader(broken), []string{`broken, last id ""`}},
		{"error after an event", io.MultiReader(strings.NewReader("data: 1\n\ndata: 2"), iotest.ErrReader(broken)), []string{`event data="1"`, `broken, last id ""`}},
		{"error together with data", iotest.DataErrReader(io.MultiReader(strings.NewReader("data: 1\n\ndata: 2\n\n"), iotest.ErrReader(broken))), []string{`event data="1"`, `event data="2"`, `broken, last id ""`}},
		{"error within a skipped event", io.MultiReader(strings.NewReader("data: "+long), iotest.ErrReader(broken)), []string{`broken, last id ""`}},
		{"reads without progress", &chunkReader{data: []byte("data: 1\n\n"), sizes: []byte{0}}, []string{`multiple Read calls return no data or error, last id ""`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, readAll(t, test.src, 20)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestTooLargeError(t *testing.T) {
	_, err := sse.NewReader(strings.NewReader("data: 123\n\n"), 2).Read()
	var e *sse.TooLargeError
	if !errors.As(err, &e) || *e != (sse.TooLargeError{Field: "data", Limit: 2}) || !errors.Is(err, sse.ErrTooLarge) {
		t.Errorf("got %#v", err)
	}
}

func TestSetLastEventID(t *testing.T) {
	r := sse.NewReader(strings.NewReader("data: 1\n\nid: 8\n\n"), 0)
	r.SetLastEventID("7")
	for _, want := range []string{"7", "8"} {
		if _, err := r.Read(); err != nil || r.LastEventID() != want {
			t.Errorf("got %q, %v; want %q", r.LastEventID(), err, want)
		}
	}
}
