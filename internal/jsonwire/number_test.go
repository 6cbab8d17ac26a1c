package jsonwire

import (
	"math"
	"testing"
)

var intTests = []struct {
	text string
	want int64
	ok   bool
}{
	{"0", 0, true},
	{"-0", 0, true},
	{"7", 7, true},
	{"-12", -12, true},
	{"9007199254740993", 1<<53 + 1, true},
	{"9223372036854775807", math.MaxInt64, true},
	{"-9223372036854775808", math.MinInt64, true},
	{"9223372036854775808", 0, false},
	{"-9223372036854775809", 0, false},
	{"9999999999999999999", 0, false},
	{"99999999999999999999", 0, false},
	{"18446744073709551616", 0, false},
	{"", 0, false},
	{"-", 0, false},
	{"+1", 0, false},
	{"01", 0, false},
	{"-01", 0, false},
	{"--1", 0, false},
	{"1.0", 0, false},
	{"1e2", 0, false},
	{" 1", 0, false},
	{"1 ", 0, false},
	{"0x1", 0, false},
	{"1_0", 0, false},
	{"/", 0, false},
	{":", 0, false},
	{"null", 0, false},
	{`"1"`, 0, false},
}

func TestParseInt(t *testing.T) {
	for _, tt := range intTests {
		if got, ok := ParseInt([]byte(tt.text)); got != tt.want || ok != tt.ok {
			t.Errorf("ParseInt(%q) = %d, %v, want %d, %v", tt.text, got, ok, tt.want, tt.ok)
		}
	}
}
