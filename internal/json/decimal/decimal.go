// Package decimal reads the numbers of JSON exactly. Its work grows with the text of a number,
// never with its value.
package decimal

import (
	"bytes"
	"math/big"
	"math/bits"
	"strconv"
)

// A Decimal is a JSON number read exactly. Its size is that of its text, never that of its value,
// so 1e1000000000 is as cheap as any other number.
//
// The value is 0.d1d2d3... x 10^Exp with the significant digits d1d2d3... in two pieces, because a
// decimal point may stand between them. Neither the first nor the last digit is 0; zero has no
// digits.
type Decimal struct {
	Neg    bool
	hi, lo []byte // aliases the text
	Exp    int64
}

// MaxExp bounds exponents. It is far beyond what a text in memory can shift back by its own digits,
// so saturated numbers still compare correctly against every other one.
const MaxExp = 1 << 50

// Parse reads a valid JSON number.
func Parse(tok []byte) Decimal {
	var d Decimal
	if len(tok) > 0 && tok[0] == '-' {
		d.Neg = true
		tok = tok[1:]
	}
	if i := bytes.IndexAny(tok, "eE"); i >= 0 {
		d.Exp = parseExp(tok[i+1:])
		tok = tok[:i]
	}
	d.hi = tok
	if i := bytes.IndexByte(tok, '.'); i >= 0 {
		d.hi, d.lo = tok[:i], tok[i+1:]
	}
	d.hi = bytes.TrimLeft(d.hi, "0")
	d.Exp += int64(len(d.hi))
	if len(d.hi) == 0 {
		for len(d.lo) > 0 && d.lo[0] == '0' {
			d.lo = d.lo[1:]
			d.Exp--
		}
	}
	d.lo = bytes.TrimRight(d.lo, "0")
	if len(d.lo) == 0 {
		d.hi = bytes.TrimRight(d.hi, "0")
	}
	if d.Size() == 0 {
		return Decimal{}
	}
	return d
}

func parseExp(tok []byte) int64 {
	neg := false
	if len(tok) > 0 && (tok[0] == '-' || tok[0] == '+') {
		neg = tok[0] == '-'
		tok = tok[1:]
	}
	var n int64
	for _, c := range tok {
		if n = n*10 + int64(c-'0'); n > MaxExp {
			n = MaxExp
		}
	}
	if neg {
		return -n
	}
	return n
}

// Size is the number of significant digits.
func (d Decimal) Size() int { return len(d.hi) + len(d.lo) }

// Digit returns the k-th significant digit as a character, '0' behind the last.
func (d Decimal) Digit(k int) byte {
	switch {
	case k < len(d.hi):
		return d.hi[k]
	case k-len(d.hi) < len(d.lo):
		return d.lo[k-len(d.hi)]
	}
	return '0'
}

// IsInteger reports whether the value has no fraction, however it is written:
// 1.0 and 1e2 are integers in JSON Schema.
func (d Decimal) IsInteger() bool { return d.Exp >= int64(d.Size()) }

// Compare returns -1, 0 or 1 as d is less than, equal to or greater than e.
func (d Decimal) Compare(e Decimal) int {
	switch {
	case d.Size() == 0 && e.Size() == 0:
		return 0
	case d.Size() == 0:
		return -e.Sign()
	case e.Size() == 0 || d.Neg != e.Neg:
		return d.Sign()
	case d.Exp != e.Exp:
		if d.Exp > e.Exp {
			return d.Sign()
		}
		return -d.Sign()
	}
	for k, n := 0, max(d.Size(), e.Size()); k < n; k++ {
		if x, y := d.Digit(k), e.Digit(k); x > y {
			return d.Sign()
		} else if x < y {
			return -d.Sign()
		}
	}
	return 0
}

// Sign returns -1, 0 or 1 as d is less than, equal to or greater than zero.
func (d Decimal) Sign() int {
	switch {
	case d.Size() == 0:
		return 0
	case d.Neg:
		return -1
	}
	return 1
}

// Uint64 returns the magnitude of an integer, or false if it is no integer or too large.
func (d Decimal) Uint64() (uint64, bool) {
	if d.Exp > 20 || !d.IsInteger() {
		return 0, false
	}
	var n uint64
	for k := 0; k < int(d.Exp); k++ {
		over, m := bits.Mul64(n, 10)
		sum, carry := bits.Add64(m, uint64(d.Digit(k)-'0'), 0)
		if over|carry != 0 {
			return 0, false
		}
		n = sum
	}
	return n, true
}

// AppendCanonical appends a text that is the same for all spellings of a value and different for
// different values, except those beyond MaxExp. An integer that does not end with 0 looks as usual.
func (d Decimal) AppendCanonical(dst []byte) []byte {
	if d.Size() == 0 {
		return append(dst, '0')
	}
	if d.Neg {
		dst = append(dst, '-')
	}
	dst = append(dst, d.hi...)
	dst = append(dst, d.lo...)
	if exp := d.Exp - int64(d.Size()); exp != 0 {
		dst = strconv.AppendInt(append(dst, 'e'), exp, 10)
	}
	return dst
}

// A Divisor is a number prepared for Divides: c x 10^exp.
type Divisor struct {
	small uint64   // c, or 0 if it is in large
	large *big.Int // c, if it doesn't fit
	exp   int64
}

// NewDivisor prepares d, which must be greater than zero.
func NewDivisor(d Decimal) *Divisor {
	whole := d
	whole.Exp = int64(d.Size()) // drop the power of ten
	v := &Divisor{exp: d.Exp - int64(d.Size())}
	if n, ok := whole.Uint64(); ok {
		v.small = n
		return v
	}
	v.large, _ = new(big.Int).SetString(string(d.hi)+string(d.lo), 10)
	return v
}

// Divides reports whether x is an integer multiple of v. The work grows with
// the digits of x, not with its value.
func (d *Divisor) Divides(x Decimal) bool {
	n := int64(x.Size())
	if n == 0 {
		return true
	}
	// x is a·10^k times the unit of v, with a not a multiple of 10. If k < 0, a would have to be.
	k := x.Exp - n - d.exp
	if k < 0 {
		return false
	}
	if d.small != 0 {
		return mulMod(d.residue(x), powMod(10, uint64(k), d.small), d.small) == 0
	}
	const chunk = 18
	unit, step := new(big.Int).SetUint64(1e18), new(big.Int)
	r := new(big.Int)
	var piece uint64
	for i := range x.Size() {
		piece = piece*10 + uint64(x.Digit(i)-'0')
		if (i+1)%chunk == 0 {
			r.Mod(r.Add(r.Mul(r, unit), step.SetUint64(piece)), d.large)
			piece = 0
		}
	}
	rest := new(big.Int).Exp(big.NewInt(10), big.NewInt(n%chunk), nil)
	r.Mod(r.Add(r.Mul(r, rest), step.SetUint64(piece)), d.large)
	pow := new(big.Int).Exp(big.NewInt(10), big.NewInt(k), d.large)
	return r.Mod(r.Mul(r, pow), d.large).Sign() == 0
}

// residue is the digits of x, as an integer, modulo v.small.
func (d *Divisor) residue(x Decimal) uint64 {
	var r uint64
	for i := range x.Size() {
		hi, lo := bits.Mul64(r, 10)
		lo, carry := bits.Add64(lo, uint64(x.Digit(i)-'0'), 0)
		_, r = bits.Div64((hi+carry)%d.small, lo, d.small)
	}
	return r
}

func mulMod(a, b, m uint64) uint64 {
	hi, lo := bits.Mul64(a%m, b%m)
	_, r := bits.Div64(hi%m, lo, m)
	return r
}

func powMod(base, exp, m uint64) uint64 {
	r := uint64(1) % m
	for base %= m; exp > 0; exp >>= 1 {
		if exp&1 != 0 {
			r = mulMod(r, base, m)
		}
		base = mulMod(base, base, m)
	}
	return r
}
