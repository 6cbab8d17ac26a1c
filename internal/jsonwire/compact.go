package jsonwire

// AppendCompact appends the JSON text src, which must have passed a [Scanner],
// without its insignificant white space: what it appends has no raw newline.
// Strings and numbers are copied as they are. dst may be src[:0].
func AppendCompact(dst, src []byte) []byte {
	start := 0
	for i := 0; i < len(src); {
		switch src[i] {
		case '"':
			i = quotedEnd(src, i+1)
		case ' ', '\n', '\r', '\t':
			dst = append(dst, src[start:i]...)
			i = spaceEnd(src, i)
			start = i
		default:
			i++
		}
	}
	return append(dst, src[start:]...)
}

// HasSpace reports whether the JSON text src, which must have passed a
// [Scanner], has any insignificant white space, so that [AppendCompact] would
// shorten it.
func HasSpace(src []byte) bool {
	for i := 0; i < len(src); {
		switch src[i] {
		case '"':
			i = quotedEnd(src, i+1)
		case ' ', '\n', '\r', '\t':
			return true
		default:
			i++
		}
	}
	return false
}
