package mcp

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
)

// A Value is a type of this package that is a JSON object: results, params, tools, content blocks
// and their parts.
type Value interface {
	// appendRevision appends the JSON text without the members that the revision lacks.
	// RevisionNone has all members.
	appendRevision(dst []byte, r Revision) []byte
}

// Append appends the JSON text of v to dst, on one line, and returns the extended slice. It omits
// the members that revision r lacks; RevisionNone keeps every member that is set. A content block
// of a kind that r lacks becomes a text block that describes it. Most types are a Value by pointer:
// Append(dst, &list, r).
func Append(dst []byte, v Value, r Revision) []byte { return v.appendRevision(dst, r) }

// The put functions append one member each to an object whose opening brace is in dst. A key
// includes its quotes and colon, as in `"name":`. A comma precedes it unless the object is empty.
// All generated code goes through these functions, so they are few and small.

// putKey appends a key. The caller appends the value.
func putKey(dst []byte, key string) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(dst, key...)
}

// putString appends a string even if it is empty.
func putString(dst []byte, key, v string) []byte {
	return jsonwire.AppendQuote(putKey(dst, key), v)
}

// putText appends a string unless it is empty.
func putText(dst []byte, key, v string) []byte {
	if v == "" {
		return dst
	}
	return putString(dst, key, v)
}

// putStringPtr appends a string, which may be empty, unless v is nil.
func putStringPtr(dst []byte, key string, v *string) []byte {
	if v == nil {
		return dst
	}
	return putString(dst, key, *v)
}

// putTrue appends true if v is true, and nothing otherwise.
func putTrue(dst []byte, key string, v bool) []byte {
	if !v {
		return dst
	}
	return append(putKey(dst, key), "true"...)
}

// putBoolPtr appends a boolean unless v is nil.
func putBoolPtr(dst []byte, key string, v *bool) []byte {
	if v == nil {
		return dst
	}
	return strconv.AppendBool(putKey(dst, key), *v)
}

// putInt appends an integer even if it is 0.
func putInt(dst []byte, key string, v int64) []byte {
	return strconv.AppendInt(putKey(dst, key), v, 10)
}

// putIntPtr appends an integer unless v is nil.
func putIntPtr(dst []byte, key string, v *int64) []byte {
	if v == nil {
		return dst
	}
	return putInt(dst, key, *v)
}

// putIntOrNull appends an integer, or null if v is nil.
func putIntOrNull(dst []byte, key string, v *int64) []byte {
	if v == nil {
		return append(putKey(dst, key), "null"...)
	}
	return putInt(dst, key, *v)
}

// putFloat appends a number even if it is 0. Infinities and NaN, which JSON lacks, become null.
func putFloat(dst []byte, key string, v float64) []byte {
	dst = putKey(dst, key)
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return append(dst, "null"...)
	case v == math.Trunc(v) && math.Abs(v) < 1<<53:
		return strconv.AppendInt(dst, int64(v), 10)
	}
	return strconv.AppendFloat(dst, v, 'g', -1, 64)
}

// putFloatPtr appends a number unless v is nil.
func putFloatPtr(dst []byte, key string, v *float64) []byte {
	if v == nil {
		return dst
	}
	return putFloat(dst, key, *v)
}

// putRaw appends JSON text, on one line, unless it is nil.
func putRaw(dst []byte, key string, v []byte) []byte {
	if v == nil {
		return dst
	}
	return jsonwire.AppendCompact(putKey(dst, key), v)
}

// putRawOr is putRaw for a required member: orElse replaces nil.
func putRawOr(dst []byte, key string, v []byte, orElse string) []byte {
	if v == nil {
		return append(putKey(dst, key), orElse...)
	}
	return putRaw(dst, key, v)
}

// putBytes appends binary data in base64 (RFC 4648, section 4).
func putBytes(dst []byte, key string, v []byte) []byte {
	dst = append(putKey(dst, key), '"')
	return append(base64.StdEncoding.AppendEncode(dst, v), '"')
}

// putLevel appends a level's name unless it is LevelNone.
func putLevel(dst []byte, key string, v LoggingLevel) []byte {
	return putText(dst, key, v.String())
}

// putStrings appends an array of strings even if it is empty or nil.
func putStrings[S ~string](dst []byte, key string, v []S) []byte {
	dst = append(putKey(dst, key), '[')
	for i, s := range v {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonwire.AppendQuote(dst, s)
	}
	return append(dst, ']')
}

// putList appends an array of objects even if it is empty or nil.
func putList[T any](dst []byte, key string, v []T, r Revision, put func(*T, []byte, Revision) []byte) []byte {
	dst = append(putKey(dst, key), '[')
	for i := range v {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = put(&v[i], dst, r)
	}
	return append(dst, ']')
}

// putTexts appends an object of strings, sorted by name.
func putTexts(dst []byte, key string, v map[string]string) []byte {
	dst = append(putKey(dst, key), '{')
	for _, name := range slices.Sorted(maps.Keys(v)) {
		dst = putString(dst, quotedKey(name), v[name])
	}
	return append(dst, '}')
}

// putRaws appends an object of JSON texts, sorted by name. A nil text becomes {}.
func putRaws(dst []byte, key string, v map[string]json.RawMessage) []byte {
	dst = append(putKey(dst, key), '{')
	for _, name := range slices.Sorted(maps.Keys(v)) {
		dst = putRawOr(dst, quotedKey(name), v[name], "{}")
	}
	return append(dst, '}')
}

// putMap appends an object of objects, sorted by name.
func putMap[T any](dst []byte, key string, v map[string]T, r Revision, put func(*T, []byte, Revision) []byte) []byte {
	dst = append(putKey(dst, key), '{')
	for _, name := range slices.Sorted(maps.Keys(v)) {
		one := v[name]
		dst = put(&one, putKey(dst, quotedKey(name)), r)
	}
	return append(dst, '}')
}

func quotedKey(name string) string {
	return string(append(jsonwire.AppendQuote(nil, name), ':'))
}

// putError appends an error object unless it is nil.
func putError(dst []byte, key string, e *jsonrpc.Error) []byte {
	if e == nil {
		return dst
	}
	dst = putInt(append(putKey(dst, key), '{'), `"code":`, int64(e.Code))
	dst = putString(dst, `"message":`, e.Message)
	return append(putRaw(dst, `"data":`, e.Data), '}')
}

// putExtra appends the members of extra, the text of an object or nil, to the object that begins at
// dst[start]. It omits members that the object already has: a field that is set takes precedence.
func putExtra(dst []byte, start int, extra []byte) []byte {
	if extra == nil {
		return dst
	}
	own := len(dst)
	more := jsonwire.ObjectMembers(extra)
	for more.Next() {
		if !hasMember(dst[start:own], &more) {
			dst = append(append(putKey(dst, `"`), more.RawKey()...), `":`...)
			dst = jsonwire.AppendCompact(dst, more.Value())
		}
	}
	return dst
}

// hasMember reports whether an object, which may lack its closing brace, has a member with the name
// of m's current member.
func hasMember(object []byte, m *jsonwire.Members) bool {
	own := jsonwire.ObjectMembers(object)
	for own.Next() {
		if m.KeyIs(string(own.RawKey())) { // our own keys have no escapes
			return true
		}
	}
	return false
}

// putEnd appends the members of extra and the closing brace to the object that begins at
// dst[start].
func putEnd(dst []byte, start int, extra []byte) []byte {
	return append(putExtra(dst, start, extra), '}')
}

// isObject reports whether a JSON text is an object.
func isObject(text []byte) bool { return firstByte(text) == '{' }

// firstByte returns the first byte of a JSON text after white space, or 0.
func firstByte(text []byte) byte {
	for _, c := range text {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
	}
	return 0
}

// isObjectSchema reports whether a schema has "type":"object" at its root.
func isObjectSchema(schema []byte) bool {
	return string(jsonwire.Lookup(bytes.TrimSpace(schema), "type")) == `"object"`
}
