package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"mcpwire/internal/jsonwire"
)

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
	if msg := n.setNumber(a, tok); msg != "" {
		d.fail(at, msg)
		return
	}
	if n.num != nil {
		if msg := n.num.check(tok, false); msg != "" {
			d.fail(at, msg)
			return
		}
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
		a.setInt(n.size, v)
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
			return fmt.Sprintf("expected a number within the range of a %d-bit float, got %s", 8*n.size, clipText(tok))
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

func notInteger(tok []byte) string { return "expected integer, got number " + clipText(tok) }

// parseInt reads an integer that is written with a fraction or an exponent, or
// finds out why it can't be read.
func (n *node) parseInt(tok []byte) (int64, string) {
	d := parseDecimal(tok)
	if !d.isInteger() {
		return 0, notInteger(tok)
	}
	v, ok := d.uint64()
	switch {
	case ok && v <= math.MaxInt64 && !d.neg:
		return int64(v), ""
	case ok && v <= -math.MinInt64 && d.neg:
		return -int64(v), ""
	}
	return 0, n.outOfRange(tok, true)
}

func (n *node) parseUint(tok []byte) (uint64, string) {
	if v, ok := jsonwire.ParseInt(tok); ok && v >= 0 {
		return uint64(v), ""
	}
	d := parseDecimal(tok)
	if !d.isInteger() {
		return 0, notInteger(tok)
	}
	v, ok := d.uint64()
	if !ok || d.neg {
		return 0, n.outOfRange(tok, true)
	}
	return v, ""
}

// outOfRange names the range that tok is not within. Both ends are named if one
// was missed that no constraint mentions.
func (n *node) outOfRange(tok []byte, both bool) string {
	var lo, hi string
	full := node{typ: n.typ, size: n.size}
	full.setIntRange()
	var fullLo, fullHi bool
	if full.signed() {
		lo, hi = strconv.FormatInt(n.lo, 10), strconv.FormatInt(n.hi, 10)
		fullLo, fullHi = n.lo == full.lo, n.hi == full.hi
	} else {
		lo, hi = strconv.FormatUint(n.ulo, 10), strconv.FormatUint(n.uhi, 10)
		fullLo, fullHi = n.ulo == 0, n.uhi == full.uhi
	}
	want := "between " + lo + " and " + hi
	if !both && fullHi && !fullLo {
		want = "of at least " + lo
	}
	if !both && fullLo && !fullHi && full.signed() {
		want = "of at most " + hi
	}
	return "expected integer " + want + ", got " + clipText(tok)
}

// setBigInt stores an integer of any size, up to a limit that keeps a short
// text from becoming a huge number.
func setBigInt(v *big.Int, tok []byte) string {
	d := parseDecimal(tok)
	if !d.isInteger() {
		return notInteger(tok)
	}
	if d.exp > maxBigDigits {
		return fmt.Sprintf("expected integer of at most %d digits, got %s", maxBigDigits, clipText(tok))
	}
	digits := make([]byte, 0, d.exp+1)
	if d.neg {
		digits = append(digits, '-')
	}
	for k := range int(d.exp) {
		digits = append(digits, d.digit(k))
	}
	if d.size() == 0 {
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
