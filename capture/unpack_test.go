package capture

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// TestUnpackLimit shows that a small file that unpacks to very much is not read to its end, and
// that one with ordinary traffic is.
func TestUnpackLimit(t *testing.T) {
	const line = `{"k":"note","n":1,"t":0,"raw":"some text of a capture that is repeated many times"}` + "\n"
	pack := func(kind string, lines int) []byte {
		var buf bytes.Buffer
		var w io.WriteCloser = gzip.NewWriter(&buf)
		if kind == "zstd" {
			w, _ = zstd.NewWriter(&buf)
		}
		block := []byte(strings.Repeat(line, 1000))
		for ; lines > 0; lines -= 1000 {
			w.Write(block[:min(lines, 1000)*len(line)])
		}
		w.Close()
		return buf.Bytes()
	}
	zeros := func() []byte { // 340 MiB, without a line end
		var head, block bytes.Buffer
		w := gzip.NewWriter(&head)
		io.WriteString(w, `{"k":"note","raw":"`)
		w.Close()
		w = gzip.NewWriter(&block)
		w.Write(make([]byte, 1<<20))
		w.Close()
		return append(head.Bytes(), bytes.Repeat(block.Bytes(), 340)...)
	}
	for _, tt := range []struct {
		name   string
		in     []byte
		max    int64
		want   error
		events int
	}{
		{"gzip below the limit", pack("gzip", 3000), int64(3000 * len(line)), nil, 3000},
		{"gzip above the limit", pack("gzip", 5000), int64(1000 * len(line)), errUnpacked, -1},
		{"zstd above the limit", pack("zstd", 5000), int64(1000 * len(line)), errUnpacked, -1},
		{"far more than went in", zeros(), 0, errUnpacked, -1},
		{"far more than went in, below another limit", zeros(), 1 << 30, errUnpacked, -1},
		{"not far more, but a small file", zeros()[:120_000], 0, errUnpacked, -1},
		{"less than is free", pack("gzip", 100_000), 0, nil, 100_000},
		{"not compressed", []byte(strings.Repeat(line, 2000)), 1000, nil, 2000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(bytes.NewReader(tt.in), &ReaderOptions{MaxUnpacked: tt.max, MaxLine: 1 << 20})
			defer r.Close()
			var got error
			n := 0
			for _, err := range r.Events() {
				if err != nil {
					got = err
					break
				}
				n++
			}
			if !errors.Is(got, tt.want) || tt.want == nil && got != nil {
				t.Errorf("error %v, want %v", got, tt.want)
			}
			if tt.events >= 0 && n != tt.events {
				t.Errorf("%d events, want %d", n, tt.events)
			}
		})
	}
}

// TestReadLongLineMemory shows that reading a long line takes memory for it twice, and that a line
// above the limit takes no more than the limit.
func TestReadLongLineMemory(t *testing.T) {
	const size = 32 << 20
	line := []byte(`{"k":"note","n":1,"t":0,"msg":"` + strings.Repeat("x", size) + `"}` + "\n")
	for _, tt := range []struct {
		name    string
		maxLine int
		most    uint64
	}{
		{"below the limit", 0, 2*size + 8<<20},
		{"above the limit", 4 << 20, 9 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReader(bytes.NewReader(line), &ReaderOptions{MaxLine: tt.maxLine})
			before := heapTotal()
			for range r.Events() {
			}
			if grown := heapTotal() - before; grown > tt.most {
				t.Errorf("%d MiB allocated, want at most %d", grown>>20, tt.most>>20)
			}
		})
	}
}

// TestLongestLine shows that a Reader accepts the longest line that a Writer records, whatever the
// payload is.
func TestLongestLine(t *testing.T) {
	const size = 2 << 20
	for _, unit := range []string{"\x01", "\"", "\\", "x", "é", "\xff", "\u2028", "\n"} {
		data := []byte(strings.Repeat(unit, size/len(unit)))
		var buf bytes.Buffer
		enc := NewEncoder(&buf, &Redaction{Off: true})
		enc.Encode(&Event{Kind: KindNote, Data: data})
		enc.Flush()
		if most := 2*size + 8<<10; buf.Len() > most {
			t.Errorf("%q: a line of %d bytes, want at most %d", unit, buf.Len(), most)
		}
		for e, err := range NewReader(&buf, nil).Events() {
			if err != nil || !bytes.Equal(e.Data, data) {
				t.Errorf("%q: %v, or another payload", unit, err)
			}
		}
	}
}
