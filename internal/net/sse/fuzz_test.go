package sse_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"mcpwire/internal/net/sse"
)

// FuzzReader compares a Reader with the reference parser, for whole streams and for chunks of any
// size.
func FuzzReader(f *testing.F) {
	for _, test := range streams {
		if len(test.stream) < 1000 { // large seeds slow the fuzzer down
			f.Add([]byte(test.stream), []byte{3, 1}, uint8(19))
		}
	}
	f.Fuzz(func(t *testing.T, stream, sizes []byte, maxEvent uint8) {
		limit := int(maxEvent) + 1
		want := parseReference(string(stream), limit)
		if zeros := bytes.Count(sizes, []byte{0}); zeros > 50 || zeros == len(sizes) {
			sizes = nil // a source that returns no bytes too often fails
		}
		for _, src := range []io.Reader{bytes.NewReader(stream), &chunkReader{data: stream, sizes: sizes}, &chunkReader{data: stream, sizes: sizes, eofWithData: true}} {
			if got := readAll(t, src, limit); !equal(got, want) {
				t.Fatalf("got %q\nwant %q", got, want)
			}
		}
	})
}

var unifyLineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// FuzzAppend reads what Append wrote. Append must reject the event or write exactly one event.
func FuzzAppend(f *testing.F) {
	for _, test := range appendTests {
		e := test.event
		f.Add(e.Name, e.ID, e.HasID, e.Data, e.Data == nil, int64(e.Retry), e.HasRetry, "text")
	}
	f.Fuzz(func(t *testing.T, name string, id []byte, hasID bool, data []byte, noData bool, retry int64, hasRetry bool, text string) {
		e := sse.Event{Name: name, ID: id, HasID: hasID, Data: data, Retry: time.Duration(retry), HasRetry: hasRetry}
		if noData {
			e.Data = nil
		}
		stream, err := sse.Append(nil, e)
		bad := len(name) > sse.MaxField || strings.ContainsAny(name, "\r\n") ||
			hasID && (len(id) > sse.MaxField || bytes.ContainsAny(id, "\r\n\x00")) || hasRetry && retry < 0
		if bad != (err != nil) {
			t.Fatalf("%s: %v", describe(e), err)
		}
		if err != nil {
			stream = nil
		}
		stream = append(stream, ": "+strings.NewReplacer("\n", " ", "\r", " ").Replace(text)+"\n\n"...)
		stream = sse.AppendMessage(stream, data)

		var want []string
		if err == nil {
			want = append(want, describe(normalized(e)))
		}
		want = append(want, describe(normalized(sse.Event{Data: data})))
		lastID := ""
		if err == nil && hasID {
			lastID = string(id)
		}
		r := sse.NewReader(bytes.NewReader(stream), len(data)+1)
		for _, w := range want {
			got, err := r.Read()
			if err != nil || describe(got) != w {
				t.Fatalf("%q reads as %s, %v; want %s", stream, describe(got), err, w)
			}
		}
		if got, err := r.Read(); !errors.Is(err, io.EOF) || r.LastEventID() != lastID {
			t.Fatalf("%q reads on as %s, %v, last id %q", stream, describe(got), err, r.LastEventID())
		}
	})
}

// normalized returns the event that a reader gets for e.
func normalized(e sse.Event) sse.Event {
	if e.Data != nil || e.HasID || e.Name != "" || !e.HasRetry {
		e.Data = []byte(unifyLineEnds.Replace(string(e.Data)))
	}
	if e.Name == "message" {
		e.Name = ""
	}
	e.Retry = min((e.Retry + time.Millisecond - 1).Truncate(time.Millisecond), sse.MaxRetry)
	if e.HasRetry && e.Retry < 0 { // the addition overflowed
		e.Retry = sse.MaxRetry
	}
	return e
}
