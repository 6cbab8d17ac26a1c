package jsonwire

// space returns the index of the first byte from i on that is not white space,
// or len(b).
func space(b []byte, i int) int {
	if i < len(b) && b[i] <= ' ' {
		return spaceEnd(b, i)
	}
	return i
}

// spaceEnd is space where there may be some. Indentation is what there is much
// of, so spaces go eight at a time.
//
//go:noinline
func spaceEnd(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ' ':
			for i >= 0 && i <= len(b)-8 && load64(b, i) == ' '*ones {
				i += 8
			}
			if i < len(b) && b[i] == ' ' {
				i++
			}
		case '\n', '\r', '\t':
			i++
		default:
			return i
		}
	}
	return i
}

// valueEnd validates the value at b[i] and returns the index behind it, or the
// index where it is wrong and a fault. room is how many containers it may nest.
func valueEnd(b []byte, i, depthLeft int) (int, fault) {
	if i >= len(b) {
		return i, faultValue
	}
	switch b[i] {
	case '"':
		if i, _ = stringEnd(b, i+1); i < 0 {
			return ^i, faultString
		}
		return i + 1, faultNone
	case '{', '[':
		return containerEnd(b, i, depthLeft)
	}
	return scalarEnd(b, i)
}

// containerEnd is valueEnd for an array or object.
//
// There is no recursion: the kinds of the open containers are bits, 1 for an
// object, the innermost lowest. Every 64 levels the full word goes on a stack,
// which has room here for the default depth.
func containerEnd(b []byte, i, depthLeft int) (int, fault) {
	var stackBuf [DefaultMaxDepth / 64]uint64
	stack, kinds, level, f := stackBuf[:0], uint64(0), 0, faultNone
	for {
		if kinds&1 != 0 {
			if i, f = nameEnd(b, i); f != faultNone {
				return i, f
			}
		}
		if i >= len(b) {
			return i, faultValue
		}
		switch c := b[i]; c {
		case '"':
			if i, _ = stringEnd(b, i+1); i < 0 {
				return ^i, faultString
			}
			i++
		case '{', '[':
			if level >= depthLeft {
				return i, faultDepth
			}
			i = space(b, i+1)
			if i >= len(b) || b[i] != c+2 { // '[' + 2 is ']', '{' + 2 is '}'
				if level&63 == 0 && level > 0 {
					stack = append(stack, kinds)
				}
				level++
				kinds = kinds<<1 | uint64(c>>5&1)
				continue
			}
			i++
		default:
			if i, f = scalarEnd(b, i); f != faultNone {
				return i, f
			}
		}
		for { // behind a value: close containers until there is a comma
			if level == 0 {
				return i, faultNone
			}
			if i = space(b, i); i >= len(b) {
				return i, faultElement - fault(kinds&1)
			}
			if b[i] == ',' {
				i = space(b, i+1)
				break
			}
			if b[i] != ']'+byte(kinds&1)<<5 {
				return i, faultElement - fault(kinds&1)
			}
			i++
			kinds >>= 1
			if level--; level&63 == 0 && level > 0 {
				kinds = stack[len(stack)-1]
				stack = stack[:len(stack)-1]
			}
		}
	}
}

// nameEnd validates a member name at b[i] with its colon and returns the index
// where the value starts.
func nameEnd(b []byte, i int) (int, fault) {
	if i >= len(b) || b[i] != '"' {
		return i, faultName
	}
	if i, _ = stringEnd(b, i+1); i < 0 {
		return ^i, faultString
	}
	i = space(b, i+1)
	if i >= len(b) || b[i] != ':' {
		return i, faultColon
	}
	return space(b, i+1), faultNone
}

// scalarEnd validates a number or a literal at b[i].
func scalarEnd(b []byte, i int) (int, fault) {
	c := b[i]
	if c-'0' < 10 || c == '-' {
		if i = numberEnd(b, i); i < 0 {
			return ^i, faultNumber
		}
		return i, faultNone
	}
	want := ""
	switch c {
	case 't':
		want = "true"
	case 'f':
		want = "false"
	case 'n':
		want = "null"
	default:
		return i, faultValue
	}
	if len(b)-i >= len(want) && string(b[i:i+len(want)]) == want {
		return i + len(want), faultNone
	}
	for k := 0; k < len(want) && i < len(b) && b[i] == want[k]; k++ {
		i++
	}
	return i, faultLiteral
}
