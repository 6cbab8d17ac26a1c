package jsonwire

import "math"

// numberEnd validates the number at b[i], a digit or '-'. It returns the index
// behind its last byte, or ^k if a digit is missing at k.
func numberEnd(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++ // nothing may follow a leading zero but a point or an exponent
	} else if k := digitsEnd(b, i); k == i {
		return ^i
	} else {
		i = k
	}
	if i < len(b) && b[i] == '.' {
		i++
		k := digitsEnd(b, i)
		if k == i {
			return ^i
		}
		i = k
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		k := digitsEnd(b, i)
		if k == i {
			return ^i
		}
		i = k
	}
	return i
}

func digitsEnd(b []byte, i int) int {
	for i < len(b) && b[i]-'0' < 10 {
		i++
	}
	return i
}

// ParseInt reads text as an integer. It reports false unless text is exactly
// one JSON number without fraction and exponent (no white space, "-0" is 0)
// that fits an int64.
func ParseInt(text []byte) (int64, bool) {
	digits := text
	if len(text) > 0 && text[0] == '-' {
		digits = text[1:]
	}
	if len(digits) == 0 || len(digits) > 19 || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	var n uint64 // 19 digits fit
	for _, c := range digits {
		if c -= '0'; c > 9 {
			return 0, false
		}
		n = n*10 + uint64(c)
	}
	if len(digits) < len(text) {
		if n > -math.MinInt64 {
			return 0, false
		}
		return -int64(n), true
	}
	if n > math.MaxInt64 {
		return 0, false
	}
	return int64(n), true
}
