package sse_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"mcpwire/internal/net/sse"
)

// describe formats an event for comparison.
func describe(e sse.Event) string {
	s := "event"
	if e.Name != "" {
		s += " name=" + strconv.Quote(e.Name)
	}
	if e.HasID {
		s += " id=" + strconv.Quote(string(e.ID))
	}
	if e.HasRetry {
		s += " retry=" + e.Retry.String()
	}
	if e.Data != nil {
		s += " data=" + strconv.Quote(string(e.Data))
	}
	return s
}

// parseReference reads a whole stream in the words of the standard, without regard for speed or
// chunks. It returns what a Reader must return: the events, the final error and the last id.
func parseReference(stream string, maxEvent int) []string {
	stream = strings.TrimPrefix(stream, "\ufeff")
	stream = strings.ReplaceAll(stream, "\r\n", "\n")
	stream = strings.ReplaceAll(stream, "\r", "\n")
	lines := strings.Split(stream, "\n")
	rest := lines[len(lines)-1]
	var got []string
	var e sse.Event
	var data []string
	var lastID, tooLarge string
	begun := false
	for _, line := range lines[:len(lines)-1] {
		if line == "" {
			if e.HasID {
				lastID = string(e.ID)
			}
			if data != nil {
				e.Data = []byte(strings.Join(data, "\n"))
			}
			switch {
			case tooLarge != "":
				got = append(got, tooLarge)
			case data != nil || e.HasID || e.HasRetry:
				got = append(got, describe(e))
			}
			e, data, tooLarge, begun = sse.Event{}, nil, "", false
			continue
		}
		if line[0] == ':' {
			continue
		}
		begun = true
		parseReferenceField(line, maxEvent, &e, &data, &tooLarge)
	}
	// A field that is too large is reported before the end of its line if its name is known.
	if strings.Contains(rest, ":") {
		parseReferenceField(rest, maxEvent, &e, &data, &tooLarge)
	}
	if tooLarge != "" {
		got = append(got, tooLarge)
	}
	final := io.EOF
	if begun || rest != "" && rest[0] != ':' {
		final = io.ErrUnexpectedEOF
	}
	return append(got, final.Error()+", last id "+strconv.Quote(lastID))
}

func parseReferenceField(line string, maxEvent int, e *sse.Event, data *[]string, tooLarge *string) {
	name, value, _ := strings.Cut(line, ":")
	value = strings.TrimPrefix(value, " ")
	limit, size := sse.MaxField, len(value)
	switch name {
	default:
		return
	case "id", "event", "retry":
	case "data":
		if *tooLarge != "" {
			return
		}
		limit = maxEvent
		for _, d := range *data {
			size += len(d) + 1
		}
	}
	if size > limit {
		if *tooLarge == "" {
			*tooLarge = (&sse.TooLargeError{Field: name, Limit: limit}).Error()
		}
		return
	}
	switch name {
	case "data":
		*data = append(*data, value)
	case "event":
		e.Name = value
		if value == "message" {
			e.Name = ""
		}
	case "id":
		if !strings.Contains(value, "\x00") {
			e.ID, e.HasID = []byte(value), true
		}
	case "retry":
		if value != "" && strings.Trim(value, "0123456789") == "" {
			e.Retry, e.HasRetry = sse.MaxRetry, true
			if ms, err := strconv.ParseInt(value, 10, 32); err == nil && time.Duration(ms)*time.Millisecond < sse.MaxRetry {
				e.Retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
}

// readAll returns what a Reader returns for a source, in the format of parseReference.
func readAll(t *testing.T, src io.Reader, maxEvent int) []string {
	t.Helper()
	r := sse.NewReader(src, maxEvent)
	var got []string
	for {
		e, err := r.Read()
		switch {
		case err == nil:
			got = append(got, describe(e))
		case errors.Is(err, sse.ErrTooLarge):
			got = append(got, err.Error())
		default:
			if _, again := r.Read(); again != err {
				t.Errorf("after %v came %v", err, again)
			}
			return append(got, fmt.Sprintf("%v, last id %q", err, r.LastEventID()))
		}
	}
}

// chunkReader returns data in chunks of the given sizes, which repeat. A size of zero returns no
// bytes. Without sizes it returns all data at once.
type chunkReader struct {
	data        []byte
	sizes       []byte
	i           int
	eofWithData bool // the last chunk and io.EOF are returned together
}

func (c *chunkReader) Read(p []byte) (int, error) {
	if len(c.data) == 0 {
		return 0, io.EOF
	}
	n := len(c.data)
	if len(c.sizes) > 0 {
		n = int(c.sizes[c.i%len(c.sizes)])
		c.i++
	}
	n = copy(p, c.data[:min(n, len(c.data))])
	c.data = c.data[n:]
	if c.eofWithData && len(c.data) == 0 {
		return n, io.EOF
	}
	return n, nil
}

// sources returns readers that split data in different ways.
func sources(stream string) []io.Reader {
	return []io.Reader{
		strings.NewReader(stream),
		iotest.OneByteReader(strings.NewReader(stream)),
		iotest.DataErrReader(bytes.NewReader([]byte(stream))),
		&chunkReader{data: []byte(stream), sizes: []byte{5, 0, 1, 255}, eofWithData: true},
		&chunkReader{data: []byte(stream), sizes: []byte{100, 7}},
	}
}
