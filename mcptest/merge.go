package mcptest

import "mcpwire/internal/jsonwire"

// merge appends the pattern of a message that came where another was expected: what was a variable in the old pattern, and still has a value,
// stays one; the rest is as it came. want is nil where there is no old pattern. Variables get their values as in compare.
func (m *match) merge(dst []byte, want *value, got value) []byte {
	if want != nil {
		if _, ok := want.variable(); ok {
			before := len(m.diffs)
			if m.compareValue("", *want, got); len(m.diffs) == before {
				return append(dst, want.raw...)
			}
			want = nil
		} else if want.kind != got.kind {
			want = nil
		}
	}
	switch got.kind {
	case '{':
		return m.mergeObject(dst, want, got)
	case '[':
		dst = append(dst, '[')
		for i, e := range got.elems {
			var w *value
			if want != nil && i < len(want.elems) {
				w = &want.elems[i]
			}
			dst = m.merge(appendComma(dst, i), w, e)
		}
		return append(dst, ']')
	case '"':
		if escaped := escape(got.text); escaped != got.text {
			return jsonwire.AppendQuote(dst, escaped)
		}
	}
	return append(dst, got.raw...)
}

func (m *match) mergeObject(dst []byte, want *value, got value) []byte {
	dst = append(dst, '{')
	allowsExtra := want != nil && want.allowsExtra()
	n := 0
	for _, g := range got.members {
		var w *value
		if want != nil {
			w = want.member(escapeName(g.name))
		}
		if w == nil && allowsExtra {
			continue
		}
		dst = appendComma(dst, n)
		dst = append(jsonwire.AppendQuote(dst, escapeName(g.name)), ':')
		dst = m.merge(dst, w, g.value)
		n++
	}
	if allowsExtra {
		dst = append(appendComma(dst, n), `"`+anything+`":"`+anything+`"`...)
	}
	return append(dst, '}')
}
