package mock

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"slices"
	"strconv"

	"mcpwire/internal/jsonwire"
)

// A sum stands for a JSON value: equal values have equal ones. The zero sum is that of no value.
type sum [sha256.Size]byte

// sumOf returns the sum of a valid JSON text, nil being none. What the mask covers does not count.
func sumOf(text []byte, m *mask) sum {
	if text == nil {
		return sum{}
	}
	return sha256.Sum256(appendCanonical(nil, text, m))
}

// masked stands in a canonical text for what a mask covers: it is no JSON, so that nothing else looks like it.
const masked = "~"

// appendCanonical appends a valid JSON text so that equal values become equal texts.
func appendCanonical(dst, text []byte, m *mask) []byte {
	if m != nil && m.all {
		return append(dst, masked...)
	}
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return dst
	}
	switch text[0] {
	case '{':
		return appendObject(dst, text, m)
	case '[':
		dst = append(dst, '[')
		elements := jsonwire.ArrayElements(text)
		for i := 0; elements.Next(); i++ {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendCanonical(dst, elements.Value(), m.at(i))
		}
		return append(dst, ']')
	case '"':
		return jsonwire.AppendQuote(dst, jsonwire.AppendUnquote(nil, text[1:len(text)-1]))
	case 't', 'f', 'n':
		return append(dst, text...)
	}
	return appendNumber(dst, text)
}

func appendObject(dst, text []byte, m *mask) []byte {
	type member struct {
		name  string
		value []byte
	}
	var members []member
	for o := jsonwire.ObjectMembers(text); o.Next(); {
		members = append(members, member{o.KeyString(), o.Value()})
	}
	slices.SortStableFunc(members, func(a, b member) int { return cmp.Compare(a.name, b.name) })
	dst = append(dst, '{')
	for i, x := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonwire.AppendQuote(dst, x.name)
		dst = append(dst, ':')
		dst = appendCanonical(dst, x.value, m.member(x.name))
	}
	return append(dst, '}')
}

// appendNumber appends a number as its digits and an exponent. One whose exponent is beyond reason stays as it is.
func appendNumber(dst, text []byte) []byte {
	mantissa, exponent := text, 0
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		e, err := strconv.ParseInt(string(text[i+1:]), 10, 32)
		if err != nil {
			return append(dst, text...)
		}
		mantissa, exponent = text[:i], int(e)
	}
	negative := mantissa[0] == '-'
	mantissa = bytes.TrimPrefix(mantissa, []byte("-"))
	whole, fraction, _ := bytes.Cut(mantissa, []byte("."))
	digits := append(bytes.Clone(whole), fraction...)
	exponent -= len(fraction)
	if kept := bytes.TrimRight(digits, "0"); len(kept) < len(digits) {
		exponent += len(digits) - len(kept)
		digits = kept
	}
	if digits = bytes.TrimLeft(digits, "0"); len(digits) == 0 {
		return append(dst, '0')
	}
	if negative {
		dst = append(dst, '-')
	}
	dst = append(dst, digits...)
	if exponent != 0 {
		dst = append(dst, 'e')
		dst = strconv.AppendInt(dst, int64(exponent), 10)
	}
	return dst
}
