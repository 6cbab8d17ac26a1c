package schema

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"unicode/utf8"

	"mcpwire/internal/json/decimal"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/plural"
)

// The rules here are the constraints on one value that hand-written schemas and
// tags on Go types have in common. Each check returns the problem, or "". The
// problem is just failed where it is not reported, in a branch of anyOf.

const failed = "failed"

// numberRule constrains a number. The zero value allows every one.
type numberRule struct {
	bounds []bound
	mult   *decimal.Divisor
	multOf string // as written
	// lo and hi are the bounds that an integer must be within, if they are
	// known as such; only then may quick be set.
	lo, hi int64
	quick  bool
}

// bound is one of minimum, maximum, exclusiveMinimum and exclusiveMaximum.
type bound struct {
	limit decimal.Decimal
	text  string
	upper bool // a maximum
	open  bool // exclusive
}

var boundKeywords = map[string]bound{
	"minimum":          {},
	"maximum":          {upper: true},
	"exclusiveMinimum": {open: true},
	"exclusiveMaximum": {upper: true, open: true},
}

// addBound adds a bound of the kind named by keyword, given as a JSON number.
func (r *numberRule) addBound(keyword, number string) {
	b := boundKeywords[keyword]
	b.text = number
	b.limit = decimal.Parse([]byte(number))
	r.bounds = append(r.bounds, b)
}

// setMultiple sets multipleOf, a JSON number greater than zero.
func (r *numberRule) setMultiple(number string) {
	r.multOf = number
	r.mult = decimal.NewDivisor(decimal.Parse([]byte(number)))
}

// finish prepares the quick check of integers. Call it after the last change.
func (r *numberRule) finish() {
	r.lo, r.hi, r.quick = r.integerRange()
	if r.mult != nil {
		r.quick = false
	}
}

// integerRange returns the int64 values within the bounds, and false if the
// bounds are not such a range. The range may be empty, as lo > hi.
func (r *numberRule) integerRange() (lo, hi int64, ok bool) {
	lo, hi = math.MinInt64, math.MaxInt64
	for _, b := range r.bounds {
		n, ok := b.integer()
		if !ok {
			return 0, 0, false
		}
		switch {
		case !b.upper && b.open:
			if n == math.MaxInt64 {
				return 0, 0, false
			}
			lo = max(lo, n+1)
		case !b.upper:
			lo = max(lo, n)
		case b.open:
			if n == math.MinInt64 {
				return 0, 0, false
			}
			hi = min(hi, n-1)
		default:
			hi = min(hi, n)
		}
	}
	return lo, hi, true
}

func (b bound) integer() (int64, bool) {
	n, ok := b.limit.Uint64()
	switch {
	case !ok || n > math.MaxInt64:
		return 0, false
	case b.limit.Neg:
		return -int64(n), true
	}
	return int64(n), true
}

// check returns what is wrong with the JSON number tok.
func (r *numberRule) check(tok []byte, brief bool) string {
	if r.quick && len(tok) < 19 {
		if n, ok := jsonwire.ParseInt(tok); ok && n >= r.lo && n <= r.hi {
			return ""
		}
	}
	d := decimal.Parse(tok)
	for _, b := range r.bounds {
		if msg := b.check(d); msg != "" {
			if brief {
				return failed
			}
			return "expected a number " + msg + ", got " + clip.String(tok, maxQuoted)
		}
	}
	if r.mult != nil && !r.mult.Divides(d) {
		if brief {
			return failed
		}
		return "expected a multiple of " + r.multOf + ", got " + clip.String(tok, maxQuoted)
	}
	return ""
}

func (b bound) check(d decimal.Decimal) string {
	c := d.Compare(b.limit)
	switch {
	case !b.upper && !b.open && c < 0:
		return "of at least " + b.text
	case !b.upper && b.open && c <= 0:
		return "greater than " + b.text
	case b.upper && !b.open && c > 0:
		return "of at most " + b.text
	case b.upper && b.open && c >= 0:
		return "less than " + b.text
	}
	return ""
}

// stringRule constrains a string.
type stringRule struct {
	sizeRule // of characters, that is code points
	pattern  *regexp.Regexp
	source   string // of pattern, as written
}

// checkRaw returns what is wrong with the string whose content is raw.
func (r *stringRule) checkRaw(raw []byte, escaped, brief bool) string {
	if r.min > 0 || r.max >= 0 {
		n := len(raw)
		// A character takes one byte to twelve. Mostly that says enough.
		if n/12 < r.min || r.max >= 0 && n > r.max {
			n = rawLen(raw, escaped)
		}
		if msg := r.check(n, "character", brief); msg != "" {
			return msg
		}
	}
	if r.pattern == nil {
		return ""
	}
	if !r.pattern.Match(unquoted(raw, escaped)) {
		if brief {
			return failed
		}
		return r.mismatch(quoteRaw(raw))
	}
	return ""
}

// checkString is checkRaw for a Go string.
func (r *stringRule) checkString(s string) string {
	if r.min > 0 || r.max >= 0 {
		if msg := r.check(utf8.RuneCountInString(s), "character", false); msg != "" {
			return msg
		}
	}
	if r.pattern != nil && !r.pattern.MatchString(s) {
		return r.mismatch(quote(s))
	}
	return ""
}

func (r *stringRule) mismatch(quoted string) string {
	return "expected a string matching the pattern " + r.source + ", got " + quoted
}

// rawLen counts the code points of a JSON string's content.
func rawLen(raw []byte, escaped bool) int {
	if !escaped {
		return utf8.RuneCount(raw)
	}
	n := 0
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return n + utf8.RuneCount(raw)
		}
		n += utf8.RuneCount(raw[:i])
		step := 2
		if len(raw) > i+1 && raw[i+1] == 'u' {
			step = 6
			var buf [12]byte
			if pair := raw[i:min(i+12, len(raw))]; len(pair) == 12 && pair[6] == '\\' && pair[7] == 'u' &&
				utf8.RuneCount(jsonwire.AppendUnquote(buf[:0], pair)) == 1 {
				step = 12
			}
		}
		n++
		raw = raw[min(i+step, len(raw)):]
	}
	return n
}

// sizeRule bounds the number of characters, items or properties. max is -1 if there is none.
type sizeRule struct{ min, max int }

func (r *sizeRule) check(n int, what string, brief bool) string {
	switch {
	case n >= r.min && (r.max < 0 || n <= r.max):
		return ""
	case brief:
		return failed
	case n < r.min:
		return fmt.Sprintf("expected at least %s, got %d", plural.Of(r.min, what), n)
	}
	return fmt.Sprintf("expected at most %s, got %d", plural.Of(r.max, what), n)
}

// enumRule lists the values allowed. Values are compared as JSON Schema does:
// numbers by value, objects without regard to order.
type enumRule struct {
	texts   []string // as JSON, for messages
	keys    []string // canonical, in the order of texts
	strings []string // the strings among them, decoded
	others  []string // the keys of all that are not strings

	// Instead of strings and others, if there are more than a few.
	byString map[string]string
	byKey    map[string]bool
}

// maxLinearValues is up to how many values comparing each is faster than a map.
const maxLinearValues = 12

// newEnum compiles an enum from the JSON texts of its values.
func newEnum(texts []string) *enumRule {
	r := &enumRule{texts: texts}
	for _, t := range texts {
		key := string(appendCanonical(nil, []byte(t)))
		r.keys = append(r.keys, key)
		if t[0] == '"' {
			r.strings = append(r.strings, jsonwire.UnquoteString([]byte(t[1:len(t)-1])))
		} else {
			r.others = append(r.others, key)
		}
	}
	if len(texts) > maxLinearValues {
		r.byString, r.byKey = map[string]string{}, map[string]bool{}
		for _, s := range r.strings {
			r.byString[s] = s
		}
		for _, k := range r.others {
			r.byKey[k] = true
		}
	}
	return r
}

// lookup returns the enum's own copy of the string with the content raw.
func (r *enumRule) lookup(raw []byte, escaped bool) (string, bool) {
	raw = unquoted(raw, escaped)
	if r.byString != nil {
		s, ok := r.byString[string(raw)]
		return s, ok
	}
	for _, s := range r.strings {
		if string(raw) == s {
			return s, true
		}
	}
	return "", false
}

// hasString reports whether s is among the values.
func (r *enumRule) hasString(s string) bool {
	if r.byString != nil {
		_, ok := r.byString[s]
		return ok
	}
	return slices.Contains(r.strings, s)
}

// has reports whether the JSON value text, of any type and without white space
// around it, is among the values.
func (r *enumRule) has(text []byte) bool {
	if len(text) > 1 && text[0] == '"' {
		raw := text[1 : len(text)-1]
		_, ok := r.lookup(raw, bytes.IndexByte(raw, '\\') >= 0)
		return ok
	}
	if len(r.others) == 0 {
		return false
	}
	var buf [64]byte
	key := appendCanonical(buf[:0], text)
	if r.byKey != nil {
		return r.byKey[string(key)]
	}
	for _, k := range r.others {
		if string(key) == k {
			return true
		}
	}
	return false
}

// message describes the value at text[at], which is not among the enum's.
func (r *enumRule) message(text []byte, at int) string {
	switch len(r.texts) {
	case 0:
		return "expected no value, got " + gotAt(text, at)
	case 1:
		return expected(clip.String(r.texts[0], maxQuoted), text, at)
	}
	return expected("one of "+listTexts(r.texts), text, at)
}
