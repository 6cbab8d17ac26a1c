package capture

import (
	"bytes"
	"encoding/base64"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"mcpwire/internal/jsonwire"
)

var errNotEvent = errors.New("no event")

// lineDepth is how deep a line may nest: a message, in its line.
const lineDepth = 2 * jsonwire.DefaultMaxDepth

// decode reads a line into r.ev. Members it does not know, and those of a type that it does not expect, are passed over.
func (r *Reader) decode(line []byte) error {
	if err := jsonwire.Valid(line, lineDepth); err != nil {
		return err
	}
	e := &r.ev
	var err error
	for key, v := range members(line) {
		switch string(key) {
		case "k":
			e.Kind = oneOf(v, kinds)
		case "n":
			e.N = parseUint(v)
		case "t":
			e.T = parseSeconds(v)
		case "dir":
			e.Dir = oneOf(v, dirs)
		case "side":
			e.Side = oneOf(v, sides)
		case "s":
			e.Session = parseUint(v)
		case "x":
			e.Exchange = parseUint(v)
		case "msg":
			e.Data = v
		case "raw":
			if len(v) > 1 && v[0] == '"' {
				if len(v) > largePayload && cap(r.data) < len(v) {
					r.data = make([]byte, 0, len(v))
				}
				r.data = jsonwire.AppendUnquote(r.data[:0], v[1:len(v)-1])
				e.Data = nonNil(r.data)
			}
		case "b64":
			if r.data, err = appendBase64(r.data[:0], v); err != nil {
				return err
			}
			e.Data = nonNil(r.data)
		default:
			decodeMember(e, string(key), v)
		}
	}
	if e.Kind == "" {
		return errNotEvent
	}
	e.Len = max(e.Len, 0)
	decodeKindMembers(e, line)
	return nil
}

// nonNil returns b, never nil.
func nonNil(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func decodeMember(e *Event, key string, v []byte) {
	switch key {
	case "len":
		e.Len = parseInt(v)
	case "cut":
		e.Cut = string(v) == "true"
	case "part":
		e.Part = int(min(parseUint(v), math.MaxInt32))
	case "enc":
		e.Encoding = unquote(v)
	case "frame":
		e.Framing = oneOf(v, framings)
	case "pre":
		e.Prefix = unquote(v)
	case "why":
		e.Why = unquote(v)
	case "red":
		e.Redacted = unquoteList(v)
	case "redmore":
		e.RedactedMore = int(min(parseUint(v), math.MaxInt32))
	case "req":
		e.Request = decodeRequest(v)
	case "res":
		e.Response = decodeResponse(v)
	case "sse":
		e.SSE = decodeSSE(v)
	}
}

// decodeKindMembers reads the members whose meaning the kind decides.
func decodeKindMembers(e *Event, line []byte) {
	switch e.Kind {
	case KindHead:
		e.Head = decodeHead(line)
	case KindStart:
		s := new(Start)
		for key, v := range members(line) {
			switch string(key) {
			case "cmd":
				s.Command = unquoteList(v)
			case "cwd":
				s.Dir = unquote(v)
			case "env":
				s.Env = unquoteList(v)
			case "pid":
				s.PID = int(parseInt(v))
			}
		}
		e.Start = s
	case KindExit:
		x := new(Exit)
		for key, v := range members(line) {
			switch string(key) {
			case "code":
				x.Code = int(parseInt(v))
			case "signal":
				x.Signal = unquote(v)
			}
		}
		e.Exit = x
	case KindGap, KindTail, KindTranslate:
		decodeCounters(e, line)
	case KindSSE:
		if e.SSE == nil {
			e.SSE = new(SSE)
		}
		e.SSE.HasData = e.Data != nil
	}
}

func decodeHead(line []byte) *Head {
	h := new(Head)
	for key, v := range members(line) {
		switch string(key) {
		case "v":
			h.Version = int(min(parseUint(v), math.MaxInt32))
		case "id":
			h.ID = unquote(v)
		case "at":
			h.At, _ = time.Parse(time.RFC3339Nano, unquote(v))
		case "tool":
			h.Tool = unquote(v)
		case "transport":
			h.Transport = unquote(v)
		case "name":
			h.Name = unquote(v)
		case "url":
			h.URL = unquote(v)
		case "redact":
			h.Redact = unquote(v)
		}
	}
	return h
}

func decodeCounters(e *Event, line []byte) {
	var g Gap
	var x Translation
	var t Tail
	for key, v := range members(line) {
		switch string(key) {
		case "lost":
			g.Lost = parseUint(v)
			t.Lost = g.Lost
		case "bytes":
			g.Bytes = parseInt(v)
		case "until":
			g.Until = parseSeconds(v)
		case "of":
			x.Of = parseUint(v)
		case "rule":
			x.Rule = unquote(v)
		case "events":
			t.Events = parseUint(v)
		case "to":
			for n := range elements(v) {
				x.To = append(x.To, parseUint(n))
			}
		}
	}
	switch e.Kind {
	case KindGap:
		g.Why, e.Why = e.Why, ""
		e.Gap = &g
	case KindTranslate:
		e.Translation = &x
	default:
		e.Tail = &t
	}
}

func decodeRequest(v []byte) *Request {
	q := new(Request)
	for key, v := range members(v) {
		switch string(key) {
		case "method":
			q.Method = unquote(v)
		case "url":
			q.URL = unquote(v)
		case "proto":
			q.Proto = unquote(v)
		case "remote":
			q.Remote = unquote(v)
		case "headers":
			q.Headers = decodeHeaders(v)
		}
	}
	return q
}

func decodeResponse(v []byte) *Response {
	s := new(Response)
	for key, v := range members(v) {
		switch string(key) {
		case "status":
			s.Status = int(min(parseUint(v), math.MaxInt32))
		case "proto":
			s.Proto = unquote(v)
		case "headers":
			s.Headers = decodeHeaders(v)
		}
	}
	return s
}

func decodeHeaders(v []byte) []Header {
	var list []Header
	for pair := range elements(v) {
		var h Header
		n := 0
		for t := range elements(pair) {
			switch n {
			case 0:
				h.Name = unquote(t)
			case 1:
				h.Value = unquote(t)
			case 2:
				if exact, err := base64.StdEncoding.DecodeString(unquote(t)); err == nil {
					h.Value = string(exact)
				}
			}
			n++
		}
		if n >= 2 {
			list = append(list, h)
		}
	}
	return list
}

func decodeSSE(v []byte) *SSE {
	s := new(SSE)
	for key, v := range members(v) {
		switch string(key) {
		case "event":
			s.Event = unquote(v)
		case "id":
			s.ID, s.HasID = unquote(v), true
		case "retry":
			s.Retry, s.HasRetry = time.Duration(min(parseUint(v), math.MaxInt64/uint64(time.Millisecond)))*time.Millisecond, true
		case "comment":
			s.Comment, s.HasComment = unquote(v), true
		}
	}
	return s
}

// members walks an object, and nothing else.
func members(v []byte) func(yield func(key, value []byte) bool) {
	return func(yield func(key, value []byte) bool) {
		if !startsWith(v, '{') {
			return
		}
		for m := jsonwire.ObjectMembers(v); m.Next(); {
			if !yield(m.RawKey(), m.Value()) {
				return
			}
		}
	}
}

// elements walks an array, and nothing else.
func elements(v []byte) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		if !startsWith(v, '[') {
			return
		}
		for m := jsonwire.ArrayElements(v); m.Next(); {
			if !yield(m.Value()) {
				return
			}
		}
	}
}

func startsWith(v []byte, c byte) bool {
	for _, b := range v {
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return b == c
		}
	}
	return false
}

func unquote(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	return jsonwire.UnquoteString(v[1 : len(v)-1])
}

// Words that every line has are not made anew for each.
var (
	kinds = []Kind{
		KindMessage, KindStderr, KindInvalid, KindSSE, KindRequest, KindResponse, KindBody, KindEnd, KindHead, KindStart, KindEOF, KindExit, KindTranslate, KindNote, KindGap, KindTail,
	}
	dirs     = []Dir{ToServer, ToClient}
	sides    = []Side{Downstream, Upstream}
	framings = []Framing{FramingLF, FramingCRLF, FramingNone, FramingHeader}
)

// oneOf is text for a member that is mostly one of a few words.
func oneOf[T ~string](v []byte, known []T) T {
	if len(v) > 2 && v[0] == '"' {
		for _, w := range known {
			if string(v[1:len(v)-1]) == string(w) {
				return w
			}
		}
	}
	return T(unquote(v))
}

func unquoteList(v []byte) []string {
	var list []string
	for t := range elements(v) {
		list = append(list, unquote(t))
	}
	return list
}

func parseUint(v []byte) uint64 {
	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func parseInt(v []byte) int64 {
	n, _ := jsonwire.ParseInt(v)
	return n
}

// parseSeconds reads a number of seconds without rounding what has up to nine decimals.
func parseSeconds(v []byte) time.Duration {
	whole, frac, _ := strings.Cut(string(v), ".")
	s, err := strconv.ParseInt(whole, 10, 64)
	if err == nil && len(frac) <= 9 && s >= 0 && s < math.MaxInt64/int64(time.Second) && strings.Trim(frac, "0123456789") == "" {
		ns, _ := strconv.ParseInt((frac + "000000000")[:9], 10, 64)
		return time.Duration(s)*time.Second + time.Duration(ns)
	}
	f, err := strconv.ParseFloat(string(v), 64)
	if err != nil || f < 0 || f > math.MaxInt64/1e9 {
		return 0
	}
	return time.Duration(f * 1e9)
}

func appendBase64(dst, v []byte) ([]byte, error) {
	if len(v) < 2 || v[0] != '"' {
		return dst, errNotEvent
	}
	raw := v[1 : len(v)-1]
	if bytes.IndexByte(raw, '\\') >= 0 { // another writer may escape the slash
		raw = jsonwire.AppendUnquote(nil, raw)
	}
	return base64.StdEncoding.AppendDecode(dst, raw)
}
