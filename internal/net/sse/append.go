package sse

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	dataOverhead = len("data: \n\n")
	// fieldOverhead is an upper bound for the names, separators and line ends of the other fields,
	// and the digits of a retry.
	fieldOverhead = 64
)

// Append appends e in wire format, with the blank line that ends it. It splits Data at LF, CR and
// CRLF into several data fields, which a reader joins by LF. It writes a data field even if Data is
// empty, as a priming event needs it, unless Data is nil and e has only a Retry. Retry is rounded
// up to whole milliseconds.
//
// The error is [ErrInvalidID], [ErrInvalidName] or [ErrInvalidRetry]; dst is then returned
// unchanged.
func Append(dst []byte, e Event) ([]byte, error) {
	switch {
	case len(e.Name) > MaxField || strings.ContainsAny(e.Name, "\r\n"):
		return dst, ErrInvalidName
	case e.HasID && !validID(e.ID):
		return dst, ErrInvalidID
	case e.HasRetry && e.Retry < 0:
		return dst, ErrInvalidRetry
	}
	dst = slices.Grow(dst, len(e.Name)+len(e.ID)+len(e.Data)+fieldOverhead+dataOverhead)
	if e.Name != "" {
		dst = append(dst, "event: "...)
		dst = append(dst, e.Name...)
		dst = append(dst, '\n')
	}
	if e.HasID {
		dst = append(dst, "id: "...)
		dst = append(dst, e.ID...)
		dst = append(dst, '\n')
	}
	if e.HasRetry {
		ms := int64(e.Retry / time.Millisecond)
		if e.Retry%time.Millisecond != 0 {
			ms++
		}
		dst = append(dst, "retry: "...)
		dst = strconv.AppendInt(dst, ms, 10)
		dst = append(dst, '\n')
		if e.Data == nil && e.Name == "" && !e.HasID {
			return append(dst, '\n'), nil
		}
	}
	return AppendMessage(dst, e.Data), nil
}

// AppendMessage appends an event with only data, such as one JSON-RPC message. It splits data at
// line ends like [Append].
func AppendMessage(dst, data []byte) []byte {
	dst = slices.Grow(dst, len(data)+dataOverhead)
	for {
		n := bytes.IndexByte(data, '\n')
		line := data
		if n >= 0 {
			line = data[:n]
		}
		if bytes.IndexByte(line, '\r') >= 0 {
			return appendSplit(dst, data)
		}
		dst = append(dst, "data: "...)
		dst = append(dst, line...)
		dst = append(dst, '\n')
		if n < 0 {
			return append(dst, '\n')
		}
		data = data[n+1:]
	}
}

// appendSplit is AppendMessage for data that contains a CR. It examines every byte: a search for
// the next LF from each CR would take quadratic time.
func appendSplit(dst, data []byte) []byte {
	dst = append(dst, "data: "...)
	start := 0
	for i := 0; i < len(data); i++ {
		c := data[i]
		if c != '\n' && c != '\r' {
			continue
		}
		dst = append(dst, data[start:i]...)
		dst = append(dst, "\ndata: "...)
		if c == '\r' && i+1 < len(data) && data[i+1] == '\n' {
			i++
		}
		start = i + 1
	}
	dst = append(dst, data[start:]...)
	return append(dst, "\n\n"...)
}

// AppendKeepAlive appends a comment for a quiet stream, which every reader ignores. A blank line
// follows, because some clients and proxies forward nothing before they see one. It must be placed
// between events, like everything that this package appends.
func AppendKeepAlive(dst []byte) []byte { return append(dst, ": keep-alive\n\n"...) }

func validID(id []byte) bool {
	return len(id) <= MaxField && !bytes.ContainsAny(id, "\r\n\x00")
}
