package frames

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
)

const kept = 64 // maximum number of bytes of a frame

// read is the result of reading a frame.
type read struct {
	Text    string
	Framing capture.Framing
	Prefix  string
	Lost    int64
}

// readAll reads frames to the end.
func readAll(in io.Reader, max int) ([]read, error) {
	r := &Reader{bufio.NewReaderSize(in, 16), max}
	var list []read
	for {
		f, err := r.Next()
		if err == nil || len(f.Text) > 0 {
			if f.Cut != (f.Size > int64(len(f.Text))) {
				return list, errors.New("Cut and Size disagree")
			}
			list = append(list, read{string(f.Text), f.Framing, f.Prefix, f.Size - int64(len(f.Text))})
		}
		if err != nil {
			return list, err
		}
	}
}

func TestReader(t *testing.T) {
	const lf, crlf, none, header = capture.FramingLF, capture.FramingCRLF, capture.FramingNone, capture.FramingHeader
	long, longest := strings.Repeat("x", 100), strings.Repeat("h", maxHeader)
	for _, tt := range []struct {
		name, in string
		want     []read
	}{
		{"none", "", nil},
		{"lines", "a\nb\r\n\nc", []read{{"a", lf, "", 0}, {"b", crlf, "", 0}, {"", lf, "", 0}, {"c", none, "", 0}}},
		{"a return at the end", "a\r", []read{{"a\r", none, "", 0}}},
		{"longer than the buffer", strings.Repeat("y", kept) + "\n", []read{{strings.Repeat("y", kept), lf, "", 0}}},
		{"blocks", "Content-Length: 3\r\nX: y\r\n\r\na\nbc\nContent-Length:4\n\nnull", []read{
			{"a\nb", header, "Content-Length: 3\r\nX: y\r\n\r\n", 0}, {"c", lf, "", 0}, {"null", header, "Content-Length:4\n\n", 0},
		}},
		{"a block that ends early", "content-length:9\n\nab", []read{{"ab", header, "content-length:9\n\n", 0}}},
		{"a block without content", "content-length:9\n\n", []read{{"content-length:9\n\n", none, "", 0}}},
		{"a header that ends early", "Content-Length: 5\nX", []read{{"Content-Length: 5\nX", none, "", 0}}},
		{"a header alone", "Content-Length: 5\r\n", []read{{"Content-Length: 5\r\n", none, "", 0}}},
		{"no length", "Content-Length: x\nContent-Length: -1\nContent-Length: 0\n", []read{
			{"Content-Length: x", lf, "", 0}, {"Content-Length: -1", lf, "", 0}, {"Content-Length: 0", lf, "", 0},
		}},
		{"a long line", long + "\ny\n", []read{{long[:kept], lf, "", int64(len(long) - kept)}, {"y", lf, "", 0}}},
		{"a long line without an end", long, []read{{long[:kept], none, "", int64(len(long) - kept)}}},
		{"a long block", "Content-Length: 100\n\n" + long + "y\n", []read{{long[:kept], header, "Content-Length: 100\n\n", int64(len(long) - kept)}, {"y", lf, "", 0}}},
		{"a huge length", "Content-Length: 9223372036854775807\n\nab", []read{{"ab", header, "Content-Length: 9223372036854775807\n\n", 0}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, in := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in))} {
				got, err := readAll(in, kept)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("frames (-want +got):\n%s", diff)
				}
				if !errors.Is(err, io.EOF) {
					t.Errorf("got error %v, want the end", err)
				}
			}
		})
	}
	t.Run("a header too long to be one", func(t *testing.T) {
		got, _ := readAll(strings.NewReader("Content-Length: 5\n"+longest+"\n\nabcde\n"), 1<<20)
		want := []read{{"Content-Length: 5\n" + longest, lf, "", 0}, {"", lf, "", 0}, {"abcde", lf, "", 0}}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("frames (-want +got):\n%s", diff)
		}
	})
}

// TestReaderFails shows that data before an error is not lost, and that the error is the reader's.
func TestReaderFails(t *testing.T) {
	enough := errors.New("enough")
	for _, in := range []string{"ab", "Content-Length: 9\n", "Content-Length: 9\n\nab", "Content-Length: 100\n\n" + strings.Repeat("x", 99)} {
		got, err := readAll(io.MultiReader(strings.NewReader(in), iotest.ErrReader(enough)), kept)
		if len(got) != 1 || err != enough {
			t.Errorf("%.30q: got %+v, %v", in, got, err)
		}
	}
}

func TestEvent(t *testing.T) {
	f := Frame{Text: []byte("ab"), Framing: capture.FramingHeader, Prefix: "Content-Length: 3\r\n\r\n", Cut: true, Size: 3}
	want := &capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte("ab"), Framing: capture.FramingHeader, Prefix: "Content-Length: 3\r\n\r\n", Cut: true, Len: 3}
	if diff := cmp.Diff(want, f.Event()); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

// FuzzReader shows that no input is lost or added, however it is split.
func FuzzReader(f *testing.F) {
	for _, s := range []string{"{}\n", "a\r\nb", "Content-Length: 2\r\n\r\n{}\n", "Content-Length: 9\n", "\n\r\n\r", "content-length: 9\n\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, _ := readAll(bytes.NewReader(data), 1<<20)
		split, _ := readAll(iotest.OneByteReader(bytes.NewReader(data)), 1<<20)
		if diff := cmp.Diff(whole, split); diff != "" {
			t.Fatalf("split reads differ (-whole +split):\n%s", diff)
		}
		var back bytes.Buffer
		for _, r := range whole {
			back.WriteString(r.Prefix + r.Text)
			switch r.Framing {
			case capture.FramingLF:
				back.WriteString("\n")
			case capture.FramingCRLF:
				back.WriteString("\r\n")
			}
			if r.Lost != 0 {
				t.Fatalf("%d bytes are lost of %q", r.Lost, r.Text)
			}
		}
		if !bytes.Equal(back.Bytes(), data) {
			t.Fatalf("joined: %q, want %q", back.Bytes(), data)
		}
		if cut, _ := readAll(bytes.NewReader(data), kept); len(cut) > 0 {
			var n int64
			for _, r := range cut {
				n += int64(len(r.Prefix)+len(r.Text)) + r.Lost
			}
			if n > int64(len(data)) {
				t.Fatalf("frames of %d bytes of %d", n, len(data))
			}
		}
	})
}
