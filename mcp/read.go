package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"mcpwire/internal/jsonwire"
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
func (d *reader) next() bool {
	if d.err != nil || !d.members.Next() {
		return false
	}
	if d.key = d.members.RawKey(); bytes.IndexByte(d.key, '\\') >= 0 {
		d.key = jsonwire.AppendUnquote(nil, d.key)
	}
	d.val = d.members.Value()
	return true
}

// must reports whether the member, whose number this is, is to be read. A member that stands twice is an error: readers that disagree on which of the
// two counts are how a filter is passed by.
func (d *reader) must(number uint) bool {
	if d.seen&(1<<number) != 0 {
		d.fail("stands twice")
		return false
	}
	d.seen |= 1 << number
	return true
}

// may is must for a member that may be null, which means that it is absent.
func (d *reader) may(number uint) bool {
	if !d.must(number) {
		return false
	}
	if string(d.val) == "null" {
		d.keep()
		return false
	}
	return true
}

// keep collects the member as it stands.
func (d *reader) keep() {
	if d.extra == nil {
		d.extra = append(d.extra, '{')
	} else {
		d.extra = append(d.extra, ',')
	}
	d.extra = append(append(append(d.extra, '"'), d.members.RawKey()...), `":`...)
	d.extra = append(d.extra, d.val...)
}

func (d *reader) fail(problem string) { d.wrong(&DecodeError{Problem: problem}) }

// wrong takes the error of the member's value, which may be nil.
func (d *reader) wrong(err *DecodeError) {
	if err != nil && d.err == nil {
		d.err = err.in(clip(string(d.key)))
	}
}

// end finishes the object. needed are the names of the members that must be there, whose numbers start at 0.
func (d *reader) end(extra *json.RawMessage, needed ...string) *DecodeError {
	if d.err != nil {
		return d.err
	}
	for number, name := range needed {
		if d.seen&(1<<number) == 0 {
			return &DecodeError{Path: name, Problem: "missing"}
		}
	}
	if d.extra != nil {
		*extra = append(d.extra, '}')
	}
	return nil
}

func stringOf(text []byte) (s string, ok bool) {
	if len(text) < 2 || text[0] != '"' || text[len(text)-1] != '"' {
		return "", false
	}
	return jsonwire.UnquoteString(text[1 : len(text)-1]), true
}

func (d *reader) string(dst *string) {
	var ok bool
	if *dst, ok = stringOf(d.val); !ok {
		d.fail("expected a string")
	}
}

// text is string for a field that cannot tell an empty string from none.
func (d *reader) text(dst *string) {
	if d.string(dst); *dst == "" {
		d.keep()
	}
}

func (d *reader) stringPtr(dst **string) {
	*dst = new(string)
	d.string(*dst)
}

// constant checks a member that has only one value.
func (d *reader) constant(want string) {
	if s, ok := stringOf(d.val); !ok || s != want {
		d.fail(`expected "` + want + `"`)
	}
}

func (d *reader) bool(dst *bool) {
	switch string(d.val) {
	case "true":
		*dst = true
	case "false":
		*dst = false
	default:
		d.fail("expected a boolean")
	}
}

// flag is bool for a field that cannot tell false from nothing.
func (d *reader) flag(dst *bool) {
	if d.bool(dst); !*dst {
		d.keep()
	}
}

func (d *reader) boolPtr(dst **bool) {
	*dst = new(bool)
	d.bool(*dst)
}

// int reads an integer, also one that is spelled like 1.0 or 1e3.
func (d *reader) int(dst *int64) {
	var ok bool
	if *dst, ok = jsonwire.ParseInt(d.val); ok {
		return
	}
	if f, ok := number(d.val); ok && f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		*dst = int64(f)
		return
	}
	d.fail("expected an integer")
}

func (d *reader) intPtr(dst **int64) {
	*dst = new(int64)
	d.int(*dst)
}

// intOrNull reads an integer for which null is a value.
func (d *reader) intOrNull(dst **int64) {
	if string(d.val) != "null" {
		d.intPtr(dst)
	}
}

func number(text []byte) (float64, bool) {
	if c := lead(text); c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(text), 64)
	return f, err == nil
}

func (d *reader) float(dst *float64) {
	var ok bool
	if *dst, ok = number(d.val); !ok {
		d.fail("expected a number")
	}
}

func (d *reader) floatPtr(dst **float64) {
	*dst = new(float64)
	d.float(*dst)
}

// raw takes any value. The text is copied, as is that of all raw fields: what was read must not keep the frame in memory.
func (d *reader) raw(dst *json.RawMessage) { *dst = bytes.Clone(d.val) }

func (d *reader) object(dst *json.RawMessage) {
	if !isObject(d.val) {
		d.fail("expected an object")
		return
	}
	d.raw(dst)
}

func (d *reader) id(dst *jsonrpc.ID) {
	id := jsonrpc.ID(d.val)
	if !id.Valid() {
		d.fail("expected a string or an integer")
		return
	}
	*dst = id.Clone()
}

func (d *reader) level(dst *LoggingLevel) {
	name, _ := stringOf(d.val)
	var ok bool
	if *dst, ok = ParseLoggingLevel(name); !ok {
		d.fail("expected one of " + strings.Join(levelNames[1:], ", "))
	}
}

// bytes reads binary data, which is never nil afterwards.
func (d *reader) bytes(dst *[]byte) {
	if len(d.val) < 2 || d.val[0] != '"' || d.val[len(d.val)-1] != '"' {
		d.fail("expected a string")
		return
	}
	text := d.val[1 : len(d.val)-1]
	if bytes.IndexByte(text, '\\') >= 0 { // such as \/
		text = jsonwire.AppendUnquote(nil, text)
	}
	data := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(data, text)
	if err != nil || bytes.ContainsAny(text, "\r\n") { // which the decoder passes over
		d.fail("expected base64")
		return
	}
	*dst = data[:n]
}

// array calls each for the elements. at is what an error's path begins with.
func (d *reader) array(each func(element []byte) *DecodeError) {
	if lead(d.val) != '[' {
		d.fail("expected an array")
		return
	}
	elements := jsonwire.ArrayElements(d.val)
	for i := 0; elements.Next(); i++ {
		if err := each(elements.Value()); err != nil {
			d.wrong(err.in("[" + strconv.Itoa(i) + "]"))
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
func (d *reader) each(seen func(name string) bool, each func(name string, value []byte) *DecodeError) {
	if !isObject(d.val) {
		d.fail("expected an object")
		return
	}
	members := jsonwire.ObjectMembers(d.val)
	for members.Next() {
		name := members.KeyString()
		err := &DecodeError{Problem: "stands twice"}
		if !seen(name) {
			err = each(name, members.Value())
		}
		if err != nil {
			d.wrong(err.in(clip(name)))
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
func (d *reader) error(dst **jsonrpc.Error) {
	*dst = new(jsonrpc.Error)
	d.wrong(readError(*dst, d.val))
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
