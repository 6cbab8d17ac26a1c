package schema

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"reflect"
	"slices"
	"strconv"
	"time"

	"mcpwire/internal/json/decimal"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/plural"
)

// decoder checks and decodes one text in one pass. Its methods read the value
// at the cursor, skip it even if it is invalid, and note problems as findings.
// full reports true after the last finding that fits, and then loops end.
type decoder struct {
	cursor
	plan  *plan
	depth int
	found []finding
	limit bool
}

func (d *decoder) full() bool { return len(d.found) >= maxProblems || d.limit }

// fail notes a problem with the value that starts at an offset.
func (d *decoder) fail(at int, msg string) {
	if !d.full() {
		d.found = append(d.found, finding{at, msg})
	}
}

// check notes the problem msg unless it is "", and reports whether it is.
func (d *decoder) check(at int, msg string) bool {
	if msg != "" {
		d.fail(at, msg)
	}
	return msg == ""
}

// mismatch notes that the value at the cursor is not what was wanted, and passes it.
func (d *decoder) mismatch(want string) {
	d.fail(d.i, expected(want, d.b, d.i))
	d.skip()
}

// enter counts a level of nesting. It reports false, with everything at an end,
// if that is one too many.
func (d *decoder) enter() bool {
	if d.depth++; d.depth <= d.plan.opts.MaxDepth {
		return true
	}
	if !d.full() {
		d.fail(d.i, tooDeep(d.plan.opts.MaxDepth))
		d.limit = true
	}
	d.skip()
	d.depth--
	return false
}

// value decodes the value at or after the cursor into the variable at a.
func (d *decoder) value(n *node, a address) {
	ch := d.space()
	if n.custom != nil && !d.customSchema(n) {
		return
	}
	switch n.dec {
	case opString:
		d.str(n, a, ch)
	case opInt, opUint, opFloat, opNumber, opBigInt:
		if ch != '"' || !d.quoted(n, a) {
			d.numeric(n, a, ch)
		}
	case opBool:
		if ch != '"' || !d.quoted(n, a) {
			d.boolean(a, ch)
		}
	case opStruct:
		d.object(n.fields, a, ch)
	case opPointer:
		d.pointer(n, a, ch)
	case opSlice, opArray:
		d.array(n, a, ch)
	case opMap:
		d.mapping(n, a, ch)
	case opAny:
		*as[any](a) = d.any(ch)
	case opRaw:
		d.raw(a)
	case opBytes:
		d.bytes(a, ch)
	case opTime:
		d.time(a, ch)
	case opText:
		d.text(n, a, ch)
	case opJSON:
		d.json(n, a)
	case opEither:
		d.either(n, a)
	default:
		d.fail(d.i, fmt.Sprintf("values of the Go type %s can only be sent, not received", n.typ))
		d.skip()
	}
}

// customSchema holds the value against the schema that its type gives. On a
// problem it passes the value and reports false.
func (d *decoder) customSchema(n *node) bool {
	found, limit := n.custom.findings(d.b, d.i)
	if len(found) == 0 {
		return true
	}
	for _, f := range found {
		d.fail(f.at, f.msg)
	}
	d.limit = d.limit || limit
	d.skip()
	return false
}

func (d *decoder) str(n *node, a address, ch byte) {
	if ch != '"' {
		d.mismatch(wantString(n))
		return
	}
	at := d.i
	raw, escaped := d.cursor.str()
	if n.enum != nil {
		s, ok := n.enum.lookup(raw, escaped)
		if !ok {
			d.fail(at, n.enum.message(d.b, at))
		}
		*as[string](a) = s
		return
	}
	if n.str == nil || d.check(at, n.str.checkRaw(raw, escaped, false)) {
		*as[string](a) = unquotedString(raw, escaped)
	}
}

func wantString(n *node) string {
	if n.enum != nil {
		return "one of " + listTexts(n.enum.texts)
	}
	return "string"
}

func (d *decoder) boolean(a address, ch byte) {
	switch ch {
	case 't':
		*as[bool](a) = true
	case 'f':
		*as[bool](a) = false
	default:
		d.mismatch("boolean")
		return
	}
	d.skip()
}

// quoted decodes the text of a string as a number or a boolean, see [Options.AllowQuoted]. It
// reports false, and passes nothing, for other strings.
func (d *decoder) quoted(n *node, a address) bool {
	if !d.plan.opts.AllowQuoted {
		return false
	}
	end := d.cursor
	text, _ := end.str()
	isBool := string(text) == "true" || string(text) == "false"
	isNumber := len(text) > 0 && (text[0]-'0' <= 9 || text[0] == '-') && text[len(text)-1]-'0' <= 9 && jsonwire.Valid(text, 0) == nil
	if n.dec == opBool && !isBool || n.dec != opBool && !isNumber {
		return false
	}
	inner := decoder{cursor: cursor{b: text}, plan: d.plan}
	if n.dec == opBool {
		inner.boolean(a, text[0])
	} else {
		inner.numeric(n, a, text[0])
	}
	for _, f := range inner.found {
		d.fail(d.i, f.msg)
	}
	d.cursor = end
	return true
}

func (d *decoder) pointer(n *node, a address, ch byte) {
	if ch == 'n' && !n.required {
		d.skip()
		return // the variable is nil already
	}
	p := newAddress(n.elem.typ)
	a.store(p)
	d.value(n.elem, p)
}

func (d *decoder) bytes(a address, ch byte) {
	const want = "string of base64"
	if ch != '"' {
		d.mismatch(want)
		return
	}
	at := d.i
	text := unquoted(d.cursor.str())
	b := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	k, err := base64.StdEncoding.Decode(b, text)
	if err != nil {
		d.fail(at, expected(want, d.b, at))
		return
	}
	*as[[]byte](a) = b[:k]
}

func (d *decoder) time(a address, ch byte) {
	const want = "RFC 3339 date-time such as 2006-01-02T15:04:05Z"
	if ch != '"' {
		d.mismatch(want)
		return
	}
	at := d.i
	if err := as[time.Time](a).UnmarshalText(unquoted(d.cursor.str())); err != nil {
		d.fail(at, expected(want, d.b, at))
	}
}

// text decodes through UnmarshalText.
func (d *decoder) text(n *node, a address, ch byte) {
	if ch != '"' {
		d.mismatch(wantString(n))
		return
	}
	at := d.i
	raw, escaped := d.cursor.str()
	if n.enum != nil {
		if _, ok := n.enum.lookup(raw, escaped); !ok {
			d.fail(at, n.enum.message(d.b, at))
			return
		}
	}
	if n.str != nil && !d.check(at, n.str.checkRaw(raw, escaped, false)) {
		return
	}
	text := jsonwire.AppendUnquote(nil, raw) // a copy, lest the method keep it
	if err := a.pointer(n.typ).(encoding.TextUnmarshaler).UnmarshalText(text); err != nil {
		d.fail(at, "invalid string "+quoteRaw(raw)+": "+clip.String(err.Error(), maxErrorText))
	}
}

// json decodes through UnmarshalJSON.
func (d *decoder) json(n *node, a address) {
	at := d.i
	if !d.checkedSkip() {
		return
	}
	text := slices.Clone(d.b[at:d.i])
	if err := a.pointer(n.typ).(json.Unmarshaler).UnmarshalJSON(text); err != nil {
		d.fail(at, "invalid value: "+clip.String(err.Error(), maxErrorText))
	}
}

func (d *decoder) raw(a address) {
	at := d.i
	if d.checkedSkip() {
		*as[json.RawMessage](a) = slices.Clone(d.b[at:d.i])
	}
}

// checkedSkip passes a value that is not decoded here and reports whether its
// member names are unique.
func (d *decoder) checkedSkip() bool {
	if ch := d.first(); ch != '{' && ch != '[' {
		d.skip()
		return true
	}
	found := d.duplicates(maxProblems)
	for _, f := range found {
		d.fail(f.at, f.msg)
	}
	return len(found) == 0
}

// object decodes the members of a struct.
func (d *decoder) object(s *structPlan, a address, ch byte) {
	if ch != '{' {
		d.mismatch("object")
		return
	}
	if !d.enter() {
		return
	}
	at := d.i
	var small [4]uint64
	seen := small[:]
	if len(s.required) > len(small) {
		seen = make([]uint64, len(s.required))
	}
	var unknown unknownNames
	next := 0 // members mostly come in the order of the schema
	for more := d.open(); more && !d.full(); more = d.more() {
		start := d.i
		k, raw, escaped := d.member(s, next)
		if k < 0 {
			d.unknown(s, &unknown, start, raw, escaped)
			continue
		}
		f := &s.fields[k]
		next = k + 1
		if seen[k/64]>>(k%64)&1 != 0 {
			d.fail(start, "duplicate property "+quote(f.name))
			d.skip()
			continue
		}
		seen[k/64] |= 1 << (k % 64)
		to, _ := f.at(a, true)
		d.value(f.node, to)
	}
	d.depth--
	for w, required := range s.required {
		if missing := required &^ seen[w]; missing != 0 {
			d.missing(s, at, w, missing)
		}
		if absent := s.defaults[w] &^ seen[w]; absent != 0 {
			d.setDefaults(s, a, w, absent)
		}
	}
}

// member passes a member's name and returns which field has it, or -1.
func (d *decoder) member(s *structPlan, next int) (k int, raw []byte, escaped bool) {
	if next < len(s.fields) {
		q := s.fields[next].quoted
		if len(d.b)-d.i >= len(q) && string(d.b[d.i:d.i+len(q)]) == q {
			d.i += len(q)
			d.colon()
			return next, nil, false
		}
	}
	raw, escaped = d.name()
	return s.find(raw, escaped), raw, escaped
}

// find returns the index of the field with the name raw, or -1.
func (s *structPlan) find(raw []byte, escaped bool) int {
	if s.byName != nil {
		if k, ok := s.byName[string(unquoted(raw, escaped))]; ok {
			return k
		}
		return -1
	}
	for k := range s.fields {
		name := s.fields[k].name
		if !escaped && string(raw) == name || escaped && jsonwire.RawEqual(raw, name) {
			return k
		}
	}
	return -1
}

// unknown handles a member that no field stands for.
func (d *decoder) unknown(s *structPlan, seen *unknownNames, start int, raw []byte, escaped bool) {
	if !s.lenient {
		d.fail(start, unknownProperty(raw, s.names))
		d.skip()
		return
	}
	var ok bool
	seen.names, ok = seen.set.add(d.b, seen.names, nameRange{start + 1, start + 1 + len(raw), escaped})
	if !ok {
		d.fail(start, duplicateProperty(raw))
		d.skip()
		return
	}
	d.checkedSkip()
}

// unknownNames is the ignored members of an object.
type unknownNames struct {
	set   nameSet
	names []nameRange
}

func (d *decoder) missing(s *structPlan, at, word int, set uint64) {
	for ; set != 0; set &= set - 1 {
		k := word*64 + bits.TrailingZeros64(set)
		d.fail(at, missingProperty(s.fields[k].name))
	}
}

// setDefaults decodes the defaults of absent members.
func (d *decoder) setDefaults(s *structPlan, a address, word int, set uint64) {
	for ; set != 0 && !d.full(); set &= set - 1 {
		f := &s.fields[word*64+bits.TrailingZeros64(set)]
		to, ok := f.at(a, false)
		if !ok {
			continue // its embedded struct is absent as a whole
		}
		in := decoder{cursor: cursor{b: f.defaultValue}, plan: d.plan}
		in.value(f.node, to)
	}
}

var (
	typeAnyMap    = reflect.TypeFor[map[string]any]()
	typeStringMap = reflect.TypeFor[map[string]string]()
)

// mapping decodes an object into a new map.
func (d *decoder) mapping(n *node, a address, ch byte) {
	if ch != '{' {
		d.mismatch("object")
		return
	}
	at, count := d.i, 0
	switch n.typ {
	case typeAnyMap:
		*as[map[string]any](a), count = members(d, d.anyValue)
	case typeStringMap:
		*as[map[string]string](a), count = members(d, func() (s string) {
			d.value(n.elem, addressOf(&s))
			return s
		})
	default:
		count = d.anyMapping(n, a)
	}
	if n.count != nil {
		d.check(at, n.count.check(count, "property", false))
	}
}

// anyMapping is mapping for any type of map.
func (d *decoder) anyMapping(n *node, a address) (count int) {
	m := reflect.MakeMap(n.typ)
	a.value(n.typ).Set(m)
	if !d.enter() {
		return 0
	}
	elem := reflect.New(n.elem.typ).Elem()
	for more := d.open(); more && !d.full(); more = d.more() {
		start := d.i
		raw, escaped := d.name()
		count++
		key := reflect.New(n.key.typ).Elem()
		if msg := n.key.set(key, raw, escaped); msg != "" {
			d.fail(start, "property name "+quoteRaw(raw)+": "+msg)
			d.skip()
			continue
		}
		if m.MapIndex(key).IsValid() {
			d.fail(start, duplicateProperty(raw))
			d.skip()
			continue
		}
		elem.SetZero()
		d.value(n.elem, addressIn(elem))
		m.SetMapIndex(key, elem)
	}
	d.depth--
	return count
}

// set stores the member name raw in key, or says what is wrong with it.
func (k *keyPlan) set(key reflect.Value, raw []byte, escaped bool) string {
	name := unquotedString(raw, escaped)
	switch k.op {
	case opString:
		key.SetString(name)
	case opText:
		u := key.Addr().Interface().(encoding.TextUnmarshaler)
		if err := u.UnmarshalText([]byte(name)); err != nil {
			return clip.String(err.Error(), maxErrorText)
		}
	case opInt:
		v, err := strconv.ParseInt(name, 10, 8*int(k.size))
		if err != nil || strconv.FormatInt(v, 10) != name {
			return "expected an integer of " + strconv.Itoa(8*int(k.size)) + " bits"
		}
		key.SetInt(v)
	case opUint:
		v, err := strconv.ParseUint(name, 10, 8*int(k.size))
		if err != nil || strconv.FormatUint(v, 10) != name {
			return "expected an integer of " + strconv.Itoa(8*int(k.size)) + " bits without sign"
		}
		key.SetUint(v)
	}
	return ""
}

// array decodes an array into a slice or a Go array.
func (d *decoder) array(n *node, a address, ch byte) {
	if ch != '[' {
		d.mismatch("array")
		return
	}
	if !d.enter() {
		return
	}
	at := d.i
	v := a.value(n.typ)
	fixed := n.dec == opArray
	k := 0
	for more := d.open(); more && !d.full(); more = d.more() {
		if !fixed {
			if k == v.Cap() {
				v.Grow(max(1, 4-k))
			}
			v.SetLen(k + 1)
		}
		if k < v.Len() {
			d.value(n.elem, addressIn(v.Index(k)))
		} else {
			d.skip()
		}
		k++
	}
	d.depth--
	switch {
	case fixed && k != v.Len():
		d.fail(at, fmt.Sprintf("expected exactly %s, got %d", plural.Of(v.Len(), "item"), k))
		return
	case !fixed && k == 0:
		v.Set(reflect.MakeSlice(n.typ, 0, 0))
	}
	if n.count != nil {
		d.check(at, n.count.check(k, "item", false))
	}
	if n.unique && !d.full() {
		d.check(at, equalItems(d.b[at:d.i], nil))
	}
}

// anyValue decodes the value at or after the cursor as any does.
func (d *decoder) anyValue() any { return d.any(d.space()) }

// any decodes a value of any type: nil, bool, float64 or json.Number, string,
// []any, map[string]any.
func (d *decoder) any(ch byte) any {
	switch ch {
	case '"':
		return unquotedString(d.cursor.str())
	case '{':
		m, _ := members(d, d.anyValue)
		return m
	case '[':
		list := []any{}
		if d.enter() {
			for more := d.open(); more && !d.full(); more = d.more() {
				list = append(list, d.any(d.space()))
			}
			d.depth--
		}
		return list
	case 't':
		d.skip()
		return true
	case 'f':
		d.skip()
		return false
	case 'n', 0:
		d.skip()
		return nil
	default:
		return d.anyNumber(d.number())
	}
}

// members decodes an object whose names are strings, and returns the number of its members too.
func members[V any](d *decoder, value func() V) (m map[string]V, n int) {
	m = map[string]V{}
	if !d.enter() {
		return m, 0
	}
	for more := d.open(); more && !d.full(); more = d.more() {
		start := d.i
		raw, escaped := d.name()
		name := unquotedString(raw, escaped)
		n++
		if _, ok := m[name]; ok {
			d.fail(start, duplicateProperty(raw))
			d.skip()
			continue
		}
		m[name] = value()
	}
	d.depth--
	return m, n
}

// maxBigDigits bounds a big.Int decoded from a text such as 1e1000000000.
const maxBigDigits = 10000

// numeric decodes a number into any of the numeric kinds.
func (d *decoder) numeric(n *node, a address, ch byte) {
	if ch-'0' > 9 && ch != '-' {
		d.mismatch(n.types)
		return
	}
	at := d.i
	tok := d.number()
	if !d.check(at, n.setNumber(a, tok)) || n.num != nil && !d.check(at, n.num.check(tok, false)) {
		return
	}
	if n.enum != nil && !n.enum.has(tok) {
		d.fail(at, n.enum.message(d.b, at))
	}
}

// setNumber stores the number tok in the variable at a, or says what is wrong.
func (n *node) setNumber(a address, tok []byte) string {
	switch n.dec {
	case opInt:
		v, ok := jsonwire.ParseInt(tok)
		if !ok {
			var msg string
			if v, msg = n.parseInt(tok); msg != "" {
				return msg
			}
		}
		if v < n.lo || v > n.hi {
			return n.outOfRange(tok, false)
		}
		a.setUint(n.size, uint64(v))
	case opUint:
		v, msg := n.parseUint(tok)
		if msg != "" {
			return msg
		}
		if v < n.ulo || v > n.uhi {
			return n.outOfRange(tok, false)
		}
		a.setUint(n.size, v)
	case opFloat:
		f, err := strconv.ParseFloat(bytesAsString(tok), int(n.size)*8)
		if err != nil {
			return fmt.Sprintf("expected a number within the range of a %d-bit float, got %s", 8*n.size, clip.String(tok, maxQuoted))
		}
		if n.size == 4 {
			*as[float32](a) = float32(f)
		} else {
			*as[float64](a) = f
		}
	case opNumber:
		*as[json.Number](a) = json.Number(tok)
	case opBigInt:
		return setBigInt(as[big.Int](a), tok)
	}
	return ""
}

func notInteger(tok []byte) string {
	return "expected integer, got number " + clip.String(tok, maxQuoted)
}

// parseInt reads an integer that is written with a fraction or an exponent, or
// finds out why it can't be read.
func (n *node) parseInt(tok []byte) (int64, string) {
	d := decimal.Parse(tok)
	if !d.IsInteger() {
		return 0, notInteger(tok)
	}
	v, ok := d.Uint64()
	switch {
	case ok && v <= math.MaxInt64 && !d.Neg:
		return int64(v), ""
	case ok && v <= -math.MinInt64 && d.Neg:
		return -int64(v), ""
	}
	return 0, n.outOfRange(tok, true)
}

func (n *node) parseUint(tok []byte) (uint64, string) {
	if v, ok := jsonwire.ParseInt(tok); ok && v >= 0 {
		return uint64(v), ""
	}
	d := decimal.Parse(tok)
	if !d.IsInteger() {
		return 0, notInteger(tok)
	}
	v, ok := d.Uint64()
	if !ok || d.Neg {
		return 0, n.outOfRange(tok, true)
	}
	return v, ""
}

// outOfRange names the range that tok is not within. Both ends are named if one
// was missed that no constraint mentions.
func (n *node) outOfRange(tok []byte, both bool) string {
	lo, hi := n.intRange()
	least, greatest := n.fullIntRange()
	want := "between " + lo + " and " + hi
	if !both && hi == greatest && lo != least {
		want = "of at least " + lo
	}
	if !both && lo == least && hi != greatest && n.signed() {
		want = "of at most " + hi
	}
	return "expected integer " + want + ", got " + clip.String(tok, maxQuoted)
}

// setBigInt stores an integer of any size, up to a limit that keeps a short
// text from becoming a huge number.
func setBigInt(v *big.Int, tok []byte) string {
	d := decimal.Parse(tok)
	if !d.IsInteger() {
		return notInteger(tok)
	}
	if d.Exp > maxBigDigits {
		return fmt.Sprintf("expected integer of at most %d digits, got %s", maxBigDigits, clip.String(tok, maxQuoted))
	}
	digits := make([]byte, 0, d.Exp+1)
	if d.Neg {
		digits = append(digits, '-')
	}
	for k := range int(d.Exp) {
		digits = append(digits, d.Digit(k))
	}
	if d.Size() == 0 {
		digits = append(digits, '0')
	}
	v.SetString(bytesAsString(digits), 10)
	return ""
}

// anyNumber is what a number in an any becomes.
func (d *decoder) anyNumber(tok []byte) any {
	const exact = 1 << 53
	if d.plan.opts.UseNumber {
		return json.Number(tok)
	}
	if v, ok := jsonwire.ParseInt(tok); ok && v != 0 {
		if v >= -exact && v <= exact {
			return float64(v)
		}
		return json.Number(tok)
	}
	f, err := strconv.ParseFloat(bytesAsString(tok), 64)
	if err != nil || math.Abs(f) > exact && !bytes.ContainsAny(tok, ".eE") {
		return json.Number(tok)
	}
	return f // also 0 and -0
}
