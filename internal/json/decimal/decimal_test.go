package decimal

import (
	"math/big"
	"strings"
	"testing"

	"mcpwire/internal/json/jsonwire"
)

// decimalTexts are spellings of numbers, some of them equal.
var decimalTexts = []string{
	"0", "-0", "0.0", "0e99", "1", "-1", "1.0", "10e-1", "0.1e1", "100", "1e2", "1.00e+2", "0.01", "1E-2", "10", "9", "99", "9.9", "0.99", "1.5", "-1.5",
	"15e-1", "150e-2", "123.456", "123456e-3", "0.000123", "9007199254740993", "9007199254740992", "18446744073709551615", "18446744073709551616",
	"-9223372036854775808", "123456789012345678901234567890.123", "5e30", "4999999999999999999999999999999", "0.10", "1000.0001", "20", "2e1", "7", "70", "0.7",
}

func TestCompare(t *testing.T) {
	for _, x := range decimalTexts {
		for _, y := range decimalTexts {
			rx, _ := new(big.Rat).SetString(x)
			ry, _ := new(big.Rat).SetString(y)
			dx, dy := Parse([]byte(x)), Parse([]byte(y))
			if got, want := dx.Compare(dy), rx.Cmp(ry); got != want {
				t.Errorf("%s compare %s: got %d, want %d", x, y, got, want)
			}
			equal := string(dx.AppendCanonical(nil)) == string(dy.AppendCanonical(nil))
			if want := rx.Cmp(ry) == 0; equal != want {
				t.Errorf("%s and %s: the same canonical text is %v, want %v", x, y, equal, want)
			}
			if ry.Sign() > 0 {
				want := new(big.Rat).Quo(rx, ry).IsInt()
				if got := NewDivisor(dy).Divides(dx); got != want {
					t.Errorf("%s divides %s: got %v, want %v", y, x, got, want)
				}
			}
		}
	}
}

func TestInteger(t *testing.T) {
	for _, x := range decimalTexts {
		r, _ := new(big.Rat).SetString(x)
		d := Parse([]byte(x))
		if got, want := d.IsInteger(), r.IsInt(); got != want {
			t.Errorf("%s is an integer: got %v, want %v", x, got, want)
		}
		if !r.IsInt() {
			continue
		}
		n := new(big.Int).Abs(r.Num())
		got, ok := d.Uint64()
		if ok != n.IsUint64() || ok && got != n.Uint64() {
			t.Errorf("%s: got %d, %v", x, got, ok)
		}
	}
}

// FuzzDecimal compares with math/big.
func FuzzDecimal(f *testing.F) {
	for i, x := range decimalTexts {
		f.Add(x, decimalTexts[(i*7+3)%len(decimalTexts)])
	}
	f.Fuzz(func(t *testing.T, x, y string) {
		if !isNumber(x) || !isNumber(y) || len(x) > 40 || len(y) > 40 {
			return
		}
		dx, dy := Parse([]byte(x)), Parse([]byte(y))
		if max(abs(dx.Exp), abs(dy.Exp)) > 500 {
			_ = dx.Compare(dy)
			if dy.Sign() > 0 {
				_ = NewDivisor(dy).Divides(dx)
			}
			return
		}
		rx, ok1 := new(big.Rat).SetString(x)
		ry, ok2 := new(big.Rat).SetString(y)
		if !ok1 || !ok2 {
			return
		}
		if got, want := dx.Compare(dy), rx.Cmp(ry); got != want {
			t.Fatalf("%s compare %s: got %d, want %d", x, y, got, want)
		}
		if got, want := dx.IsInteger(), rx.IsInt(); got != want {
			t.Fatalf("%s is an integer: got %v, want %v", x, got, want)
		}
		if dy.Sign() > 0 {
			if got, want := NewDivisor(dy).Divides(dx), new(big.Rat).Quo(rx, ry).IsInt(); got != want {
				t.Fatalf("%s divides %s: got %v, want %v", y, x, got, want)
			}
		}
	})
}

func isNumber(s string) bool {
	return s != "" && strings.IndexByte("-0123456789", s[0]) >= 0 && strings.TrimSpace(s) == s && jsonwire.Valid([]byte(s), 0) == nil
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}
