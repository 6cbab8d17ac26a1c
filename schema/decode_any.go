package schema

import "mcpwire/internal/jsonwire"

// any decodes a value of any type: nil, bool, float64 or json.Number, string,
// []any, map[string]any.
func (d *decoder) any(ch byte) any {
	switch ch {
	case '"':
		raw, escaped := d.cursor.str()
		if escaped {
			return jsonwire.UnquoteString(raw)
		}
		return string(raw)
	case '{':
		m := map[string]any{}
		d.members(func(name string) { m[name] = d.any(d.space()) }, func(name string) bool {
			_, ok := m[name]
			return ok
		})
		return m
	case '[':
		list := []any{}
		if d.enter() {
			for more := d.open(); more && !d.full(); more = d.more() {
				list = append(list, d.any(d.space()))
			}
			d.depth--
		}
		return list
	case 't':
		d.skip()
		return true
	case 'f':
		d.skip()
		return false
	case 'n', 0:
		d.skip()
		return nil
	default:
		return d.anyNumber(d.number())
	}
}

// members walks an object whose names are strings, refusing those that has
// knows already. It returns their number.
func (d *decoder) members(each func(name string), has func(name string) bool) (n int) {
	if !d.enter() {
		return 0
	}
	for more := d.open(); more && !d.full(); more = d.more() {
		start := d.i
		raw, escaped := d.name()
		var name string
		if escaped {
			name = jsonwire.UnquoteString(raw)
		} else {
			name = string(raw)
		}
		n++
		if has(name) {
			d.fail(start, duplicateProperty(raw))
			d.skip()
			continue
		}
		each(name)
	}
	d.depth--
	return n
}
