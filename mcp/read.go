package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
)

// A DecodeError says where a JSON text is not what its type expects. It is what the UnmarshalJSON methods return, as a *DecodeError.
type DecodeError struct {
	Path    string // such as tools[3].title; empty for the text itself
	Problem string // such as "expected a string"
}

// Error returns the path and the problem.
func (e *DecodeError) Error() string {
	if e.Path == "" {
		return e.Problem
	}
	return e.Path + ": " + e.Problem
}

// in returns e for a text that is part of another one, where it stands at step.
func (e *DecodeError) in(step string) *DecodeError {
	switch {
	case e.Path == "":
		e.Path = step
	case e.Path[0] == '[':
		e.Path = step + e.Path
	default:
		e.Path = step + "." + e.Path
	}
	return e
}

// orNil keeps a nil *DecodeError from becoming an error that is not nil.
func (e *DecodeError) orNil() error {
	if e == nil {
		return nil
	}
	return e
}

// A reader walks the members of an object. Each member that a field expresses has a number, by which it is known whether it was there. Those that no
// field expresses are collected word for word: unknown ones, null where that means absence, and values that a field cannot tell from absence.
//
// The text has passed a scanner. If it has not, the reader does not panic, and that is all.
type reader struct {
	members jsonwire.Members
	key     []byte // the member's name, decoded
	val     []byte
	seen    uint64
	extra   []byte
	err     *DecodeError
}

func readObject(text []byte) reader {
	d := reader{members: jsonwire.ObjectMembers(text)}
	if !isObject(text) {
		d.err = &DecodeError{Problem: "expected an object"}
	}
	return d
}

// next moves to the next member. It reports false at the end, and after an error.
func (r *reader) next() bool {
	if r.err != nil || !r.members.Next() {
		return false
	}
	if r.key = r.members.RawKey(); bytes.IndexByte(r.key, '\\') >= 0 {
		r.key = jsonwire.AppendUnquote(nil, r.key)
	}
	r.val = r.members.Value()
	return true
}

// must reports whether the member, whose number this is, is to be read. A member that stands twice is an error: readers that disagree on which of the
// two counts are how a filter is passed by.
func (r *reader) must(number uint) bool {
	if r.seen&(1<<number) != 0 {
		r.fail("stands twice")
		return false
	}
	r.seen |= 1 << number
	return true
}

// may is must for a member that may be null, which means that it is absent.
func (r *reader) may(number uint) bool {
	if !r.must(number) {
		return false
	}
	if string(r.val) == "null" {
		r.keep()
		return false
	}
	return true
}

// keep collects the member as it stands.
func (r *reader) keep() {
	if r.extra == nil {
		r.extra = append(r.extra, '{')
	} else {
		r.extra = append(r.extra, ',')
	}
	r.extra = append(append(append(r.extra, '"'), r.members.RawKey()...), `":`...)
	r.extra = append(r.extra, r.val...)
}

func (r *reader) fail(problem string) { r.wrong(&DecodeError{Problem: problem}) }

// wrong takes the error of the member's value, which may be nil.
func (r *reader) wrong(err *DecodeError) {
	if err != nil && r.err == nil {
		r.err = err.in(clip(string(r.key)))
	}
}

// end finishes the object. needed are the names of the members that must be there, whose numbers start at 0.
func (r *reader) end(extra *json.RawMessage, needed ...string) *DecodeError {
	if r.err != nil {
		return r.err
	}
	for number, name := range needed {
		if r.seen&(1<<number) == 0 {
			return &DecodeError{Path: name, Problem: "missing"}
		}
	}
	if r.extra != nil {
		*extra = append(r.extra, '}')
	}
	return nil
}

func stringOf(text []byte) (s string, ok bool) {
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return "", false
	}
	return jsonwire.UnquoteString(text[1 : len(text)-1]), true
}

func (r *reader) string(dst *string) {
	var ok bool
	if *dst, ok = stringOf(r.val); !ok {
		r.fail("expected a string")
	}
}

// text is string for a field that cannot tell an empty string from none.
func (r *reader) text(dst *string) {
	if r.string(dst); *dst == "" {
		r.keep()
	}
}

func (r *reader) stringPtr(dst **string) {
	*dst = new(string)
	r.string(*dst)
}

// constant checks a member that has only one value.
func (r *reader) constant(want string) {
	if s, ok := stringOf(r.val); !ok || s != want {
		r.fail(`expected "` + want + `"`)
	}
}

func (r *reader) bool(dst *bool) {
	switch string(r.val) {
	case "true":
		*dst = true
	case "false":
		*dst = false
	default:
		r.fail("expected a boolean")
	}
}

// flag is bool for a field that cannot tell false from nothing.
func (r *reader) flag(dst *bool) {
	if r.bool(dst); !*dst {
		r.keep()
	}
}

func (r *reader) boolPtr(dst **bool) {
	*dst = new(bool)
	r.bool(*dst)
}

// int reads an integer, also one that is spelled like 1.0 or 1e3.
func (r *reader) int(dst *int64) {
	var ok bool
	if *dst, ok = jsonwire.ParseInt(r.val); ok {
		return
	}
	if f, ok := number(r.val); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		*dst = int64(f)
		return
	}
	r.fail("expected an integer")
}

func (r *reader) intPtr(dst **int64) {
	*dst = new(int64)
	r.int(*dst)
}

// intOrNull reads an integer for which null is a value.
func (r *reader) intOrNull(dst **int64) {
	if string(r.val) != "null" {
		r.intPtr(dst)
	}
}

func number(text []byte) (float64, bool) {
	if c := firstByte(text); c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(text), 64)
	return f, err == nil
}

func (r *reader) float(dst *float64) {
	var ok bool
	if *dst, ok = number(r.val); !ok {
		r.fail("expected a number")
	}
}

func (r *reader) floatPtr(dst **float64) {
	*dst = new(float64)
	r.float(*dst)
}

// raw takes any value. The text is copied, as is that of all raw fields: what was read must not keep the frame in memory.
func (r *reader) raw(dst *json.RawMessage) { *dst = bytes.Clone(r.val) }

func (r *reader) object(dst *json.RawMessage) {
	if !isObject(r.val) {
		r.fail("expected an object")
		return
	}
	r.raw(dst)
}

func (r *reader) id(dst *jsonrpc.ID) {
	id := jsonrpc.ID(r.val)
	if !id.Valid() {
		r.fail("expected a string or an integer")
		return
	}
	*dst = id.Clone()
}

func (r *reader) level(dst *LoggingLevel) {
	name, _ := stringOf(r.val)
	var ok bool
	if *dst, ok = ParseLoggingLevel(name); !ok {
		r.fail("expected one of " + strings.Join(levelNames[1:], ", "))
	}
}

// bytes reads binary data, which is never nil afterwards.
func (r *reader) bytes(dst *[]byte) {
	if len(r.val) < 2 || r.val[0] != '"' || r.val[len(r.val)-1] != '"' {
		r.fail("expected a string")
		return
	}
	text := r.val[1 : len(r.val)-1]
	if bytes.IndexByte(text, '\\') >= 0 { // such as \/
		text = jsonwire.AppendUnquote(nil, text)
	}
	data := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(data, text)
	if err != nil || bytes.ContainsAny(text, "\r\n") { // which the decoder passes over
		r.fail("expected base64")
		return
	}
	*dst = data[:n]
}

// array calls each for the elements. at is what an error's path begins with.
func (r *reader) array(each func(element []byte) *DecodeError) {
	if firstByte(r.val) != '[' {
		r.fail("expected an array")
		return
	}
	elements := jsonwire.ArrayElements(r.val)
	for i := 0; elements.Next(); i++ {
		if err := each(elements.Value()); err != nil {
			r.wrong(err.in("[" + strconv.Itoa(i) + "]"))
			return
		}
	}
}

func readStrings[S ~string](d *reader, dst *[]S) {
	*dst = []S{}
	d.array(func(element []byte) *DecodeError {
		s, ok := stringOf(element)
		if !ok {
			return &DecodeError{Problem: "expected a string"}
		}
		*dst = append(*dst, S(s))
		return nil
	})
}

// readList reads an array of objects. The slice is never nil afterwards.
func readList[T any](d *reader, dst *[]T, read func(*T, []byte) *DecodeError) {
	*dst = []T{}
	d.array(func(element []byte) *DecodeError {
		var v T
		err := read(&v, element)
		*dst = append(*dst, v)
		return err
	})
}

// readPtr reads an object into a new T.
func readPtr[T any](d *reader, dst **T, read func(*T, []byte) *DecodeError) {
	*dst = new(T)
	d.wrong(read(*dst, d.val))
}

// each calls each for the members of an object, with the decoded name. A name that stands twice is an error.
func (r *reader) each(seen func(name string) bool, each func(name string, value []byte) *DecodeError) {
	if !isObject(r.val) {
		r.fail("expected an object")
		return
	}
	members := jsonwire.ObjectMembers(r.val)
	for members.Next() {
		name := members.KeyString()
		err := &DecodeError{Problem: "stands twice"}
		if !seen(name) {
			err = each(name, members.Value())
		}
		if err != nil {
			r.wrong(err.in(clip(name)))
			return
		}
	}
}

// readMap reads an object whose values are all alike.
func readMap[T any](d *reader, dst *map[string]T, read func(*T, []byte) *DecodeError) {
	m := map[string]T{}
	*dst = m
	seen := func(name string) bool { _, ok := m[name]; return ok }
	d.each(seen, func(name string, value []byte) *DecodeError {
		var v T
		err := read(&v, value)
		m[name] = v
		return err
	})
}

func readText(dst *string, text []byte) *DecodeError {
	var ok bool
	if *dst, ok = stringOf(text); !ok {
		return &DecodeError{Problem: "expected a string"}
	}
	return nil
}

func readRaw(dst *json.RawMessage, text []byte) *DecodeError {
	*dst = bytes.Clone(text)
	return nil
}

func readRawObject(dst *json.RawMessage, text []byte) *DecodeError {
	if !isObject(text) {
		return &DecodeError{Problem: "expected an object"}
	}
	return readRaw(dst, text)
}

// error reads a JSON-RPC error object. Its type has no place for members that JSON-RPC does not know.
func (r *reader) error(dst **jsonrpc.Error) {
	*dst = new(jsonrpc.Error)
	r.wrong(readError(*dst, r.val))
}

func readError(e *jsonrpc.Error, text []byte) *DecodeError {
	d := readObject(text)
	for d.next() {
		switch string(d.key) {
		case "code":
			if d.must(0) {
				var code int64
				d.int(&code)
				e.Code = jsonrpc.Code(code)
			}
		case "message":
			if d.must(1) {
				d.string(&e.Message)
			}
		case "data":
			if d.must(2) {
				d.raw((*json.RawMessage)(&e.Data))
			}
		}
	}
	var rest json.RawMessage
	return d.end(&rest, "code", "message")
}

// clip shortens a peer's text for a message.
func clip(s string) string {
	if len(s) > 60 {
		return strings.ToValidUTF8(s[:60], "") + "…"
	}
	return s
}
