package probe

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

type readLine struct {
	Text    string
	Framing capture.Framing
	Prefix  string
}

// readAll reads frames to the end.
func readAll(r io.Reader) ([]readLine, error) {
	in := &lineReader{r: bufio.NewReaderSize(r, 64), left: maxVisit}
	var list []readLine
	for {
		l, err := in.next()
		if err == nil || len(l.text) > 0 {
			list = append(list, readLine{string(l.text), l.framing, l.prefix})
		}
		if err != nil {
			return list, err
		}
	}
}

func TestLines(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, tt := range []struct {
		name, in string
		want     []readLine
	}{
		{"none", "", nil},
		{"lines", "{}\n[]\n", []readLine{{"{}", capture.FramingLF, ""}, {"[]", capture.FramingLF, ""}}},
		{"blank", "\n\n", []readLine{{"", capture.FramingLF, ""}, {"", capture.FramingLF, ""}}},
		{"CR LF", "{}\r\n", []readLine{{"{}", capture.FramingCRLF, ""}}},
		{"without an end", "{}\nabc", []readLine{{"{}", capture.FramingLF, ""}, {"abc", capture.FramingNone, ""}}},
		{"longer than the buffer", long + "\n", []readLine{{long, capture.FramingLF, ""}}},
		{"header", "Content-Length: 2\r\n\r\n{}Content-Length:4\n\nnull", []readLine{
			{"{}", capture.FramingHeader, "Content-Length: 2\r\n\r\n"}, {"null", capture.FramingHeader, "Content-Length:4\n\n"},
		}},
		{"header, cut off", "Content-Length: 5\r\n\r\n{}", []readLine{{"{}", capture.FramingHeader, "Content-Length: 5\r\n\r\n"}}},
		{"header alone", "Content-Length: 5\r\n", []readLine{{"Content-Length: 5\r\n", capture.FramingNone, ""}}},
		{"no number", "Content-Length: many\n", []readLine{{"Content-Length: many", capture.FramingLF, ""}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in))} {
				got, err := readAll(r)
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("frames (-want +got):\n%s", diff)
				}
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("error %v, want the end", err)
				}
			}
		})
	}
}

// TestLinesBounded: neither a line nor a server that never stops takes all memory.
func TestLinesBounded(t *testing.T) {
	endless := bufio.NewReader(io.LimitReader(repeat{}, maxFrame+100))
	l, err := (&lineReader{r: endless, left: maxVisit}).next()
	if len(l.text) != maxFrame || l.size != maxFrame+100 || !l.cut || !errors.Is(err, io.EOF) {
		t.Errorf("%d of %d bytes, cut %v, %v; want %d of %d", len(l.text), l.size, l.cut, err, maxFrame, maxFrame+100)
	}
	if _, err := (&lineReader{r: bufio.NewReader(repeat{}), left: 1000}).next(); !errors.Is(err, errTooMuch) {
		t.Errorf("error %v, want errTooMuch", err)
	}
}

type repeat struct{}

func (repeat) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
	}
	return len(b), nil
}

// FuzzLines: no input is lost or made up, however it is split.
func FuzzLines(f *testing.F) {
	for _, s := range []string{"{}\n", "a\r\nb", "Content-Length: 2\r\n\r\n{}\n", "Content-Length: 9\n", "\n\r\n\r"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, _ := readAll(bytes.NewReader(data))
		split, _ := readAll(iotest.OneByteReader(bytes.NewReader(data)))
		if diff := cmp.Diff(whole, split); diff != "" {
			t.Fatalf("split reads differ (-whole +split):\n%s", diff)
		}
		var back bytes.Buffer
		for _, l := range whole {
			back.WriteString(l.Prefix + l.Text)
			switch l.Framing {
			case capture.FramingLF:
				back.WriteString("\n")
			case capture.FramingCRLF:
				back.WriteString("\r\n")
			}
		}
		if !bytes.Contains(bytes.ToLower(data), []byte("content-")) && !bytes.Equal(back.Bytes(), data) {
			t.Fatalf("put together again: %q, want %q", back.Bytes(), data)
		}
	})
}
