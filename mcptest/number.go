package mcptest

import (
	"strconv"
	"strings"
)

// sameNumber reports whether two JSON numbers have the same value, however they are written. It is exact: no digits are lost.
func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	x, ok := parseDecimal(a)
	y, ok2 := parseDecimal(b)
	return ok && ok2 && x == y
}

// A decimal is digits × 10^exponent, with neither leading nor trailing zeros in digits, so that equal numbers are equal decimals.
type decimal struct {
	negative bool
	digits   string
	exponent int64
}

// parseDecimal takes a JSON number. ok is false if its exponent is beyond all reason.
func parseDecimal(number string) (d decimal, ok bool) {
	number, d.negative = strings.CutPrefix(number, "-")
	mantissa, exponent := number, ""
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		mantissa, exponent = number[:i], number[i+1:]
		e, err := strconv.ParseInt(exponent, 10, 32)
		if err != nil {
			return d, false
		}
		d.exponent = e
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := whole + fraction
	d.exponent -= int64(len(fraction))
	d.digits = strings.TrimRight(digits, "0")
	d.exponent += int64(len(digits) - len(d.digits))
	if d.digits = strings.TrimLeft(d.digits, "0"); d.digits == "" {
		return decimal{}, true
	}
	return d, true
}
