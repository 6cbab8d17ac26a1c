package schema

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"mcpwire/internal/json/decimal"
	"mcpwire/internal/json/jsonwire"
)

// knownKeywords are the keywords of the schema tag.
const knownKeywords = "minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, " +
	"minLength, maxLength, pattern, format, minItems, maxItems, uniqueItems, minProperties, maxProperties, enum, " +
	"default, examples, title, deprecated, x-mcp-header, required, optional, items.* and values.*"

var errUnknownKeyword = errors.New("unknown keyword; known are " + knownKeywords)

// constrain returns n with the constraints of one tag item added. n is not
// changed: other uses of the type keep theirs.
func (n *node) constrain(it tagItem) (*node, error) {
	c := *n
	if n.dec == opPointer {
		elem, err := n.elem.constrain(it)
		c.elem = elem
		return &c, err
	}
	if n.custom != nil {
		return nil, fmt.Errorf("%s: the type has its own schema", it.key)
	}
	if key, ok := strings.CutPrefix(it.key, "items."); ok && (n.dec == opSlice || n.dec == opArray) {
		return c.constrainElem(key, it)
	}
	if key, ok := strings.CutPrefix(it.key, "values."); ok && n.dec == opMap {
		return c.constrainElem(key, it)
	}
	c.name = ""
	var err error
	switch it.key {
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf":
		err = c.constrainNumber(it)
	case "minLength", "maxLength", "pattern", "format":
		err = c.constrainString(it)
	case "minItems", "maxItems", "uniqueItems":
		err = c.constrainArray(it)
	case "minProperties", "maxProperties":
		err = c.constrainMap(it)
	case "enum":
		err = c.setEnum(it.list)
	default:
		err = errUnknownKeyword
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", it.key, err)
	}
	return &c, nil
}

func (n *node) constrainElem(key string, it tagItem) (*node, error) {
	prefix := strings.TrimSuffix(it.key, key)
	it.key = key
	elem, err := n.elem.constrain(it)
	if err != nil {
		return nil, fmt.Errorf("%s%w", prefix, err)
	}
	n.elem = elem
	n.name = ""
	return n, nil
}

// notApplicable is the error for a keyword that says nothing about the type.
func (n *node) notApplicable(what string) error {
	return fmt.Errorf("is for %s, not for %s", what, n.typ)
}

func (n *node) isNumber() bool {
	return n.types == "integer" || n.types == "number"
}

func (n *node) constrainNumber(it tagItem) error {
	if !n.isNumber() {
		return n.notApplicable("numbers")
	}
	number := []byte(it.value)
	if !isNumber(number) {
		return fmt.Errorf("wants a number, got %q", it.value)
	}
	rule := numberRule{}
	if n.num != nil {
		rule = *n.num
		rule.bounds = rule.bounds[:len(rule.bounds):len(rule.bounds)]
	}
	d := decimal.Parse(number)
	if it.key == "multipleOf" {
		if d.Sign() <= 0 {
			return fmt.Errorf("wants a number greater than 0, got %s", it.value)
		}
		rule.setMultiple(it.value)
	} else {
		if err := n.checkBound(d, it.value); err != nil {
			return err
		}
		rule.addBound(it.key, it.value)
		if boundKeywords[it.key].upper {
			n.dropImplied("maximum")
		} else {
			n.dropImplied("minimum")
		}
	}
	rule.finish()
	n.num = &rule
	n.narrow()
	n.addKeyword(it.key, it.value)
	if n.dec == opInt && n.lo > n.hi || n.dec == opUint && n.ulo > n.uhi {
		return fmt.Errorf("minimum and maximum exclude every value")
	}
	return nil
}

// isNumber reports whether text is one JSON number and nothing else.
func isNumber(text []byte) bool {
	return len(text) > 0 && text[0] > ' ' && text[len(text)-1] > ' ' &&
		(text[0] == '-' || text[0]-'0' < 10) && jsonwire.Valid(text, 0) == nil
}

// checkBound refuses bounds outside the Go type.
func (n *node) checkBound(d decimal.Decimal, text string) error {
	if n.dec != opInt && n.dec != opUint {
		return nil
	}
	lo, hi := n.fullIntRange()
	if d.Compare(decimal.Parse([]byte(lo))) < 0 || d.Compare(decimal.Parse([]byte(hi))) > 0 {
		return fmt.Errorf("%s is outside the range of %s, %s to %s", text, n.typ, lo, hi)
	}
	return nil
}

// dropImplied removes a keyword that came from the type, because one from a tag says more.
func (n *node) dropImplied(name string) {
	var kept []keyword
	for _, k := range n.keywords {
		if k.name != name || !k.implied {
			kept = append(kept, k)
		}
	}
	n.keywords = kept
}

// narrow moves bounds into the integer range if the range can express them,
// which makes the check cheap and its message short.
func (n *node) narrow() {
	lo, hi, ok := n.num.integerRange()
	if !ok {
		return
	}
	upper := false
	for _, b := range n.num.bounds {
		upper = upper || b.upper
	}
	switch n.dec {
	case opInt:
		n.lo, n.hi = max(n.lo, lo), min(n.hi, hi)
	case opUint:
		if lo > 0 {
			n.ulo = max(n.ulo, uint64(lo))
		}
		if upper && hi >= 0 {
			n.uhi = min(n.uhi, uint64(hi))
		}
	default:
		return
	}
	if n.num.mult == nil {
		n.num = nil
	}
}

func (n *node) constrainString(it tagItem) error {
	if n.types != "string" || n.dec == opBytes || n.dec == opTime {
		return n.notApplicable("strings")
	}
	if it.key == "format" {
		if it.value == "" {
			return fmt.Errorf("wants the name of a format")
		}
		n.addKeyword("format", string(jsonwire.AppendQuote(nil, it.value)))
		return nil
	}
	rule := stringRule{sizeRule: sizeRule{max: -1}}
	if n.str != nil {
		rule = *n.str
	}
	if it.key == "pattern" {
		re, err := regexp.Compile(goPattern(it.value))
		if err != nil {
			return fmt.Errorf("%w", err)
		}
		rule.pattern, rule.source = re, it.value
		n.addKeyword("pattern", string(jsonwire.AppendQuote(nil, it.value)))
	} else if err := n.setSize(it, "minLength", &rule.min, &rule.max); err != nil {
		return err
	}
	n.str = &rule
	return nil
}

func (n *node) constrainArray(it tagItem) error {
	if n.types != "array" {
		return n.notApplicable("slices")
	}
	if it.key == "uniqueItems" {
		if it.hasValue && it.value != "true" {
			return fmt.Errorf("takes no value")
		}
		n.unique = true
		n.addKeyword("uniqueItems", "true")
		return nil
	}
	if n.dec == opArray {
		return fmt.Errorf("the length of %s is fixed", n.typ)
	}
	return n.constrainCount(it, "minItems")
}

func (n *node) constrainMap(it tagItem) error {
	if n.dec != opMap {
		return n.notApplicable("maps")
	}
	return n.constrainCount(it, "minProperties")
}

func (n *node) constrainCount(it tagItem, lower string) error {
	rule := sizeRule{max: -1}
	if n.count != nil {
		rule = *n.count
	}
	n.count = &rule
	return n.setSize(it, lower, &rule.min, &rule.max)
}

// setSize parses a size. The keyword lower sets minimum, any other maximum.
func (n *node) setSize(it tagItem, lower string, minimum, maximum *int) error {
	v, err := strconv.ParseUint(it.value, 10, 31)
	if err != nil {
		return fmt.Errorf("wants a whole number of 0 or more, got %q", it.value)
	}
	if it.key == lower {
		*minimum = int(v)
	} else {
		*maximum = int(v)
	}
	if *maximum >= 0 && *minimum > *maximum {
		return fmt.Errorf("the minimum %d is greater than the maximum %d", *minimum, *maximum)
	}
	n.addKeyword(it.key, strconv.FormatUint(v, 10))
	return nil
}

// setEnum sets the values allowed, given as plain text.
func (n *node) setEnum(values []string) error {
	if len(values) == 0 {
		return fmt.Errorf("wants at least one value")
	}
	if n.types != "string" && !n.isNumber() || n.dec == opBytes || n.dec == opTime {
		return n.notApplicable("strings and numbers")
	}
	texts := make([]string, len(values))
	list := []byte{'['}
	for i, v := range values {
		if n.types == "string" {
			texts[i] = string(jsonwire.AppendQuote(nil, v))
		} else if !isNumber([]byte(v)) || n.types == "integer" && !decimal.Parse([]byte(v)).IsInteger() {
			return fmt.Errorf("%q is not %s %s", v, article(n.types), n.types)
		} else if err := n.checkBound(decimal.Parse([]byte(v)), v); err != nil {
			return err
		} else {
			texts[i] = v
		}
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, texts[i]...)
	}
	n.enum = newEnum(texts)
	for i, k := range n.enum.keys {
		for j := range i {
			if n.enum.keys[j] == k {
				return fmt.Errorf("%s is listed twice", texts[i])
			}
		}
	}
	n.dropImplied("minimum")
	n.dropImplied("maximum")
	n.dropImplied("enum")
	n.addKeyword("enum", string(append(list, ']')))
	return nil
}

func article(noun string) string {
	if noun[0] == 'i' || noun[0] == 'o' || noun[0] == 'a' {
		return "an"
	}
	return "a"
}

// defaultText turns the text of a default into JSON: strings stand as they are,
// everything else is JSON already.
func (n *node) defaultText(v string) ([]byte, error) {
	for n.dec == opPointer {
		n = n.elem
	}
	if n.types == "string" {
		return jsonwire.AppendQuote(nil, v), nil
	}
	if err := jsonwire.Valid([]byte(v), 0); err != nil {
		return nil, fmt.Errorf("%q is not JSON: %w", v, err)
	}
	return jsonwire.AppendCompact(nil, []byte(v)), nil
}
