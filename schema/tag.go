package schema

import (
	"fmt"
	"strings"
)

// tagItem is one keyword of a schema tag: minimum=1 or uniqueItems.
type tagItem struct {
	key      string
	value    string
	list     []string // enum only: the values
	hasValue bool
}

// parseTag splits a schema tag. See the package documentation for the grammar.
func parseTag(tag string) ([]tagItem, error) {
	var items []tagItem
	for rest := tag; ; {
		n := strings.IndexAny(rest, ",=")
		if n < 0 {
			n = len(rest)
		}
		item := tagItem{key: strings.TrimSpace(rest[:n])}
		if item.key == "" {
			return nil, fmt.Errorf("empty keyword")
		}
		rest = rest[n:]
		if strings.HasPrefix(rest, "=") {
			var err error
			if rest, err = item.parseValue(rest[1:]); err != nil {
				return nil, fmt.Errorf("%s: %w", item.key, err)
			}
		}
		items = append(items, item)
		if rest == "" {
			return items, nil
		}
		rest = rest[1:] // the comma
	}
}

// parseValue reads the value and returns what is left, from the comma on.
func (t *tagItem) parseValue(s string) (rest string, err error) {
	t.hasValue = true
	ends := ","
	isList := t.key == "enum" || strings.HasSuffix(t.key, ".enum")
	if isList {
		ends = ",|"
	}
	for {
		var v string
		if v, s, err = cutValue(s, ends); err != nil {
			return "", err
		}
		t.value = v
		if isList {
			t.list = append(t.list, v)
		}
		if s == "" || s[0] == ',' {
			return s, nil
		}
		s = s[1:]
	}
}

// cutValue reads up to one of ends. A value in single quotes may contain them;
// a quote in it is doubled.
func cutValue(s, ends string) (v, rest string, err error) {
	if !strings.HasPrefix(s, "'") {
		if n := strings.IndexAny(s, ends); n >= 0 {
			return s[:n], s[n:], nil
		}
		return s, "", nil
	}
	var b strings.Builder
	for s = s[1:]; ; {
		n := strings.IndexByte(s, '\'')
		if n < 0 {
			return "", "", fmt.Errorf("missing closing quote")
		}
		b.WriteString(s[:n])
		s = s[n+1:]
		if !strings.HasPrefix(s, "'") {
			break
		}
		b.WriteByte('\'')
		s = s[1:]
	}
	if s != "" && strings.IndexByte(ends, s[0]) < 0 {
		return "", "", fmt.Errorf("unexpected %q behind the closing quote", s)
	}
	return b.String(), s, nil
}
