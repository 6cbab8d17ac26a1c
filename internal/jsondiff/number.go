package jsondiff

import (
	"bytes"
	"strconv"
)

// appendNumber appends a text that is the same for all ways to write a number: its digits without zeros at either end, and the power of ten to multiply them by. A power that is
// beyond an int64 stays as it is written.
func appendNumber(dst, text []byte) []byte {
	begin := len(dst)
	if text[0] == '-' {
		dst, text = append(dst, '-'), text[1:]
	}
	var power []byte
	if i := bytes.IndexAny(text, "eE"); i >= 0 {
		text, power = text[:i], text[i+1:]
	}
	whole, fraction, _ := bytes.Cut(text, []byte("."))
	digits := len(dst)
	dst = append(append(dst, whole...), fraction...)
	zeros := 0
	for digits+zeros < len(dst) && dst[digits+zeros] == '0' {
		zeros++
	}
	dst = append(dst[:digits], dst[digits+zeros:]...)
	end := len(bytes.TrimRight(dst[digits:], "0"))
	if end == 0 {
		return append(dst[:begin], '0')
	}
	shift := int64(len(dst) - digits - end - len(fraction))
	dst = append(dst[:digits+end], 'e')
	var exponent int64
	if len(power) > 0 {
		var err error
		if exponent, err = strconv.ParseInt(string(power), 10, 62); err != nil {
			dst = append(append(dst, '?'), power...)
		}
	}
	return strconv.AppendInt(dst, exponent+shift, 10)
}
