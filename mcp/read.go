package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
)

// A DecodeError says where a JSON text does not match its type. The UnmarshalJSON methods return it
// as a *DecodeError.
type DecodeError struct {
	// Path is the path to the value, such as tools[3].title. It is empty for the text itself.
	Path string
	// Problem says what is wrong, such as "expected a string".
	Problem string
}

// Error returns the path and the problem.
func (e *DecodeError) Error() string {
	if e.Path == "" {
		return e.Problem
	}
	return e.Path + ": " + e.Problem
}

// in returns e with step added in front of its path.
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

// orNil converts a nil *DecodeError to a nil error.
func (e *DecodeError) orNil() error {
	if e == nil {
		return nil
	}
	return e
}

// A reader walks the members of an object. Each member with a field has a number, which records
// that the member was present. Members that no field expresses are collected verbatim: unknown
// ones, null where it means absence, and values that a field cannot distinguish from absence.
//
// The text must be valid JSON. Otherwise the result is undefined, but the reader does not panic.
type reader struct {
	members jsonwire.Members
	// key is the member's decoded name.
	key   []byte
	val   []byte
	seen  uint64
	extra []byte
	err   *DecodeError
}

func readObject(text []byte) reader {
	d := reader{members: jsonwire.ObjectMembers(text)}
	if !isObject(text) {
		d.err = &DecodeError{Problem: "expected an object"}
	}
	return d
}

// next moves to the next member. It reports false at the end and after an error.
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

// must reports whether to read the member with this number. A duplicate member is an error: readers
// may disagree on which one counts, which can be used to bypass a filter.
func (r *reader) must(number uint) bool {
	if r.seen&(1<<number) != 0 {
		r.fail("appears twice")
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

// keep collects the member verbatim.
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

// wrong records the error of the member's value, which may be nil.
func (r *reader) wrong(err *DecodeError) {
	if err != nil && r.err == nil {
		r.err = err.in(clip.String(string(r.key), 60))
	}
}

// end finishes the object. needed are the names of the required members, whose numbers start at 0.
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

func (r *reader) string(dst *string) {
	var ok bool
	if *dst, ok = jsonwire.String(r.val); !ok {
		r.fail("expected a string")
	}
}

// text is string for a field that cannot distinguish an empty string from absence.
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
	if s, ok := jsonwire.String(r.val); !ok || s != want {
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

// flag is bool for a field that cannot distinguish false from absence.
func (r *reader) flag(dst *bool) {
	if r.bool(dst); !*dst {
		r.keep()
	}
}

func (r *reader) boolPtr(dst **bool) {
	*dst = new(bool)
	r.bool(*dst)
}

// int reads an integer, also with a spelling like 1.0 or 1e3.
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

// intOrNull reads an integer or null.
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

// raw accepts any value. It copies the text, as all raw fields do, so that a decoded value does not
// keep the frame in memory.
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
	var ok bool
	if *dst, ok = ParseLoggingLevel(jsonwire.Text(r.val)); !ok {
		r.fail("expected one of " + strings.Join(levelNames[1:], ", "))
	}
}

// bytes reads binary data. The result is never nil.
func (r *reader) bytes(dst *[]byte) {
	if len(r.val) < 2 || r.val[0] != '"' || r.val[len(r.val)-1] != '"' {
		r.fail("expected a string")
		return
	}
	text := r.val[1 : len(r.val)-1]
	if bytes.IndexByte(text, '\\') >= 0 { // for example \/
		text = jsonwire.AppendUnquote(nil, text)
	}
	data := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Strict().Decode(data, text)
	if err != nil || bytes.ContainsAny(text, "\r\n") { // which the decoder ignores
		r.fail("expected base64")
		return
	}
	*dst = data[:n]
}

// array calls each for the elements.
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
		s, ok := jsonwire.String(element)
		if !ok {
			return &DecodeError{Problem: "expected a string"}
		}
		*dst = append(*dst, S(s))
		return nil
	})
}

// readList reads an array of objects. The result is never nil.
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

// each calls each for the members of an object, with the decoded name. A duplicate name is an
// error.
func (r *reader) each(seen func(name string) bool, each func(name string, value []byte) *DecodeError) {
	if !isObject(r.val) {
		r.fail("expected an object")
		return
	}
	members := jsonwire.ObjectMembers(r.val)
	for members.Next() {
		name := members.KeyString()
		err := &DecodeError{Problem: "appears twice"}
		if !seen(name) {
			err = each(name, members.Value())
		}
		if err != nil {
			r.wrong(err.in(clip.String(name, 60)))
			return
		}
	}
}

// readMap reads an object of uniform values.
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
	if *dst, ok = jsonwire.String(text); !ok {
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

// error reads a JSON-RPC error object. It drops members that JSON-RPC does not know.
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
