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

var errNoEvent = errors.New("no event")

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
			e.N = number(v)
		case "t":
			e.T = seconds(v)
		case "dir":
			e.Dir = oneOf(v, dirs)
		case "side":
			e.Side = oneOf(v, sides)
		case "s":
			e.Session = number(v)
		case "x":
			e.Exchange = number(v)
		case "msg":
			e.Data = v
		case "raw":
			if len(v) > 1 && v[0] == '"' {
				if len(v) > largePayload && cap(r.data) < len(v) {
					r.data = make([]byte, 0, len(v))
				}
				r.data = jsonwire.AppendUnquote(r.data[:0], v[1:len(v)-1])
				e.Data = filled(r.data)
			}
		case "b64":
			if r.data, err = appendBase64(r.data[:0], v); err != nil {
				return err
			}
			e.Data = filled(r.data)
		default:
			decodeMore(e, string(key), v)
		}
	}
	if e.Kind == "" {
		return errNoEvent
	}
	e.Len = max(e.Len, 0)
	decodeFacts(e, line)
	return nil
}

// filled returns b, never nil.
func filled(b []byte) []byte {
	if b == nil {
		return []byte{}
	}
	return b
}

func decodeMore(e *Event, key string, v []byte) {
	switch key {
	case "len":
		e.Len = integer(v)
	case "cut":
		e.Cut = string(v) == "true"
	case "part":
		e.Part = int(min(number(v), math.MaxInt32))
	case "enc":
		e.Encoding = text(v)
	case "frame":
		e.Framing = oneOf(v, framings)
	case "pre":
		e.Prefix = text(v)
	case "why":
		e.Why = text(v)
	case "red":
		e.Redacted = texts(v)
	case "redmore":
		e.RedactedMore = int(min(number(v), math.MaxInt32))
	case "req":
		e.Request = decodeRequest(v)
	case "res":
		e.Response = decodeResponse(v)
	case "sse":
		e.SSE = decodeSSE(v)
	}
}

// decodeFacts reads the members whose meaning the kind decides.
func decodeFacts(e *Event, line []byte) {
	switch e.Kind {
	case KindHead:
		e.Head = decodeHead(line)
	case KindStart:
		s := new(Start)
		for key, v := range members(line) {
			switch string(key) {
			case "cmd":
				s.Command = texts(v)
			case "cwd":
				s.Dir = text(v)
			case "env":
				s.Env = texts(v)
			case "pid":
				s.PID = int(integer(v))
			}
		}
		e.Start = s
	case KindExit:
		x := new(Exit)
		for key, v := range members(line) {
			switch string(key) {
			case "code":
				x.Code = int(integer(v))
			case "signal":
				x.Signal = text(v)
			}
		}
		e.Exit = x
	case KindGap, KindTail, KindXlate:
		decodeCounts(e, line)
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
			h.Version = int(min(number(v), math.MaxInt32))
		case "id":
			h.ID = text(v)
		case "at":
			h.At, _ = time.Parse(time.RFC3339Nano, text(v))
		case "tool":
			h.Tool = text(v)
		case "transport":
			h.Transport = text(v)
		case "name":
			h.Name = text(v)
		case "url":
			h.URL = text(v)
		case "redact":
			h.Redact = text(v)
		}
	}
	return h
}

func decodeCounts(e *Event, line []byte) {
	var g Gap
	var x Xlate
	var t Tail
	for key, v := range members(line) {
		switch string(key) {
		case "lost":
			g.Lost = number(v)
			t.Lost = g.Lost
		case "bytes":
			g.Bytes = integer(v)
		case "until":
			g.Until = seconds(v)
		case "of":
			x.Of = number(v)
		case "rule":
			x.Rule = text(v)
		case "events":
			t.Events = number(v)
		case "to":
			for n := range elements(v) {
				x.To = append(x.To, number(n))
			}
		}
	}
	switch e.Kind {
	case KindGap:
		g.Why, e.Why = e.Why, ""
		e.Gap = &g
	case KindXlate:
		e.Xlate = &x
	default:
		e.Tail = &t
	}
}

func decodeRequest(v []byte) *Request {
	q := new(Request)
	for key, v := range members(v) {
		switch string(key) {
		case "method":
			q.Method = text(v)
		case "url":
			q.URL = text(v)
		case "proto":
			q.Proto = text(v)
		case "remote":
			q.Remote = text(v)
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
			s.Status = int(min(number(v), math.MaxInt32))
		case "proto":
			s.Proto = text(v)
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
				h.Name = text(t)
			case 1:
				h.Value = text(t)
			case 2:
				if exact, err := base64.StdEncoding.DecodeString(text(t)); err == nil {
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
			s.Event = text(v)
		case "id":
			s.ID, s.HasID = text(v), true
		case "retry":
			s.Retry, s.HasRetry = time.Duration(min(number(v), math.MaxInt64/uint64(time.Millisecond)))*time.Millisecond, true
		case "comment":
			s.Comment, s.HasComment = text(v), true
		}
	}
	return s
}

// members walks an object, and nothing else.
func members(v []byte) func(yield func(key, value []byte) bool) {
	return func(yield func(key, value []byte) bool) {
		if !begins(v, '{') {
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
		if !begins(v, '[') {
			return
		}
		for m := jsonwire.ArrayElements(v); m.Next(); {
			if !yield(m.Value()) {
				return
			}
		}
	}
}

func begins(v []byte, c byte) bool {
	for _, b := range v {
		if b != ' ' && b != '\t' && b != '\r' && b != '\n' {
			return b == c
		}
	}
	return false
}

func text(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	return jsonwire.UnquoteString(v[1 : len(v)-1])
}

// Words that every line has are not made anew for each.
var (
	kinds = []Kind{
		KindMessage, KindStderr, KindBad, KindSSE, KindRequest, KindResponse, KindBody, KindEnd, KindHead, KindStart, KindEOF, KindExit, KindXlate, KindNote, KindGap, KindTail,
	}
	dirs     = []Dir{ToServer, ToClient}
	sides    = []Side{Near, Far}
	framings = []Framing{FramingLF, FramingCRLF, FramingNone, FramingHeader}
)

// oneOf is text for a member that is mostly one of a few words.
func oneOf[T ~string](v []byte, words []T) T {
	if len(v) > 2 && v[0] == '"' {
		for _, w := range words {
			if string(v[1:len(v)-1]) == string(w) {
				return w
			}
		}
	}
	return T(text(v))
}

func texts(v []byte) []string {
	var list []string
	for t := range elements(v) {
		list = append(list, text(t))
	}
	return list
}

func number(v []byte) uint64 {
	n, err := strconv.ParseUint(string(v), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func integer(v []byte) int64 {
	n, _ := jsonwire.ParseInt(v)
	return n
}

// seconds reads a number of seconds without rounding what has up to nine decimals.
func seconds(v []byte) time.Duration {
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
		return dst, errNoEvent
	}
	raw := v[1 : len(v)-1]
	if bytes.IndexByte(raw, '\\') >= 0 { // another writer may escape the slash
		raw = jsonwire.AppendUnquote(nil, raw)
	}
	return base64.StdEncoding.AppendDecode(dst, raw)
}
