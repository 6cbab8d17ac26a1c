package config

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"mcpwire/cmd/internal/text/spelling"
	"mcpwire/internal/text/clip"
)

// A position is a place in a file, counted from 1.
type position struct{ line, column int }

// positionOf returns the position of a node.
func positionOf(n *yaml.Node) position { return position{n.Line, n.Column} }

// A decoder decodes the nodes of one file into Go values, by the rules of the tags of fields:
//
//   - yaml is the key, and required if it must be there
//   - enum lists the allowed texts
//   - least has the smallest value
//   - pattern is a regular expression for texts
//
// It goes on after an error.
type decoder struct{ file *file }

// A custom type decodes itself.
type custom interface {
	decode(d *decoder, path string, n *yaml.Node)
}

// value decodes n, whose path is path, into v. tag is that of the field.
func (d *decoder) value(path string, n *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	d.file.positions[path] = positionOf(n)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		d.file.errorf(positionOf(n), "%s has no value: give one or remove the key", show(path))
		return
	}
	if c, ok := v.Addr().Interface().(custom); ok {
		c.decode(d, path, n)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(path, n, v.Elem(), tag)
	case reflect.Struct:
		d.object(path, n, v)
	case reflect.Map:
		d.table(path, n, v)
	case reflect.Slice:
		d.list(path, n, v, tag)
	default:
		d.scalar(path, n, v, tag)
	}
}

// object decodes the members of a struct.
func (d *decoder) object(path string, n *yaml.Node, v reflect.Value) {
	fields := map[string]int{}
	var names []string
	for i := range v.NumField() {
		if name := keyOf(v.Type().Field(i)); name != "" {
			fields[name] = i
			names = append(names, name)
		}
	}
	seen := map[string]bool{}
	d.members(path, n, func(key, value *yaml.Node) {
		i, ok := fields[key.Value]
		if !ok {
			d.file.unknown[path] = true
			d.file.errorf(positionOf(key), "unknown key %q%s%s", clip.Characters(key.Value, 60), within(path), suggest(key.Value, names))
			return
		}
		seen[key.Value] = true
		d.value(join(path, key.Value), value, v.Field(i), v.Type().Field(i).Tag)
	})
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if name := keyOf(f); n.Kind == yaml.MappingNode && isRequired(f) && !seen[name] {
			d.file.errorf(positionOf(n), "missing key %q%s", name, within(path))
		}
	}
}

// table decodes a map by name.
func (d *decoder) table(path string, n *yaml.Node, v reflect.Value) {
	v.Set(reflect.MakeMap(v.Type()))
	d.members(path, n, func(key, value *yaml.Node) {
		item := reflect.New(v.Type().Elem()).Elem()
		d.value(join(path, key.Value), value, item, "")
		v.SetMapIndex(reflect.ValueOf(key.Value), item)
	})
}

// members calls f for each member of a mapping. It reports other nodes and duplicate keys.
func (d *decoder) members(path string, n *yaml.Node, f func(key, value *yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		d.file.errorf(positionOf(n), "%s is %s: want a mapping of keys to values", show(path), kindOf(n))
		return
	}
	first := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch line, duplicate := first[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			d.file.errorf(positionOf(key), "a key%s is %s: want a text", within(path), kindOf(key))
			continue
		case key.Tag == "!!merge":
			d.file.errorf(positionOf(key), "merge keys (<<) are not supported: repeat the keys")
			continue
		case duplicate:
			d.file.errorf(positionOf(key), "duplicate key %q%s: the first is in line %d", clip.Characters(key.Value, 60), within(path), line)
			continue
		}
		first[key.Value] = key.Line
		d.file.keys[join(path, key.Value)] = positionOf(key)
		f(key, n.Content[i+1])
	}
}

// list decodes a sequence.
func (d *decoder) list(path string, n *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	if n.Kind != yaml.SequenceNode {
		d.file.errorf(positionOf(n), "%s is %s: want a list", show(path), kindOf(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		d.value(fmt.Sprintf("%s[%d]", path, i), item, v.Index(i), tag)
	}
}

// scalar decodes a text, a number or a boolean.
func (d *decoder) scalar(path string, n *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	at := positionOf(n)
	switch v.Kind() {
	case reflect.Bool:
		if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" {
			d.file.errorf(at, "%s is %s: want true or false", show(path), kindOf(n))
			return
		}
		v.SetBool(strings.EqualFold(n.Value, "true"))
	case reflect.Int64: // Duration
		text, ok := d.text(path, n, "a time with a unit, such as 10s")
		if !ok {
			return
		}
		t, err := parseDuration(text)
		if err != nil {
			d.file.errorf(at, "%s is %q: %v", show(path), clip.Characters(text, 60), err)
			return
		}
		if least, _ := parseDuration(tag.Get("least")); d.atLeast(path, at, cmp.Compare(t, least), tag) {
			v.SetInt(int64(t))
		}
	case reflect.Int:
		d.integer(path, n, v, tag)
	case reflect.Float64:
		x, err := strconv.ParseFloat(n.Value, 64)
		if n.Kind != yaml.ScalarNode || n.Tag != "!!int" && n.Tag != "!!float" || err != nil || math.IsNaN(x) {
			d.file.errorf(at, "%s is %s: want a number", show(path), kindOf(n))
			return
		}
		if least, _ := strconv.ParseFloat(tag.Get("least"), 64); d.atLeast(path, at, cmp.Compare(x, least), tag) {
			v.SetFloat(x)
		}
	default:
		text, ok := d.text(path, n, "a text")
		if !ok {
			return
		}
		if allowed := strings.Fields(tag.Get("enum")); len(allowed) > 0 && !slices.Contains(allowed, text) {
			d.file.errorf(at, "%s is %q: want %s%s", show(path), clip.Characters(text, 60), orList(allowed), suggest(text, allowed))
			return
		}
		if p := tag.Get("pattern"); p != "" && !regexp.MustCompile(p).MatchString(text) {
			d.file.errorf(at, "%s is %q, which does not match %s", show(path), clip.Characters(text, 60), p)
			return
		}
		if text == "" {
			d.file.errorf(at, "%s is empty: give a text or remove it", show(path))
			return
		}
		v.SetString(text)
	}
}

// integer decodes an int or a Size.
func (d *decoder) integer(path string, n *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	at, what := positionOf(n), "a whole number"
	parse := func(s string) (int, error) { return strconv.Atoi(s) }
	isSize := v.Type() == reflect.TypeFor[Size]()
	if isSize {
		what = "a number of bytes, such as 65536, 64K or 16M"
		parse = func(s string) (int, error) { x, err := parseSize(s); return int(x), err }
	}
	x, err := parse(n.Value)
	if n.Kind != yaml.ScalarNode || n.Tag != "!!int" && !(isSize && n.Tag == "!!str") || err != nil {
		d.file.errorf(at, "%s is %s: want %s", show(path), kindOf(n), what)
		return
	}
	if least, _ := parse(tag.Get("least")); d.atLeast(path, at, cmp.Compare(x, least), tag) {
		v.SetInt(int64(x))
	}
}

// text returns the text of a scalar. A number or a boolean is an error, because YAML may have
// changed it: 1.10 is 1.1, and no is false.
func (d *decoder) text(path string, n *yaml.Node, want string) (string, bool) {
	switch {
	case n.Kind == yaml.ScalarNode && n.Tag == "!!str":
		return n.Value, true
	case n.Kind == yaml.ScalarNode && want == "a text":
		d.file.errorf(positionOf(n), "%s is %s: want a text (write %q)", show(path), kindOf(n), clip.Characters(n.Value, 60))
	default:
		d.file.errorf(positionOf(n), "%s is %s: want %s", show(path), kindOf(n), want)
	}
	return "", false
}

// atLeast reports an error unless the value is at least that of the tag. compared is the result of
// their comparison.
func (d *decoder) atLeast(path string, at position, compared int, tag reflect.StructTag) bool {
	least := tag.Get("least")
	if least == "" || compared >= 0 {
		return true
	}
	d.file.errorf(at, "%s is too small: want at least %s", show(path), least)
	return false
}

// decode decodes a list of texts or a single text.
func (t *Texts) decode(d *decoder, path string, n *yaml.Node) {
	if n.Kind == yaml.SequenceNode {
		d.list(path, n, reflect.ValueOf((*[]string)(t)).Elem(), "")
		return
	}
	one := make([]string, 1)
	d.scalar(path, n, reflect.ValueOf(&one[0]).Elem(), "")
	*t = one
}

// decode decodes a text or a reference.
func (v *Value) decode(d *decoder, path string, n *yaml.Node) {
	text, ok := d.text(path, n, "a text")
	if !ok {
		return
	}
	var isReference bool
	if v.Reference, isReference = d.reference(path, n, text); !isReference {
		v.Text = text
	}
}

// reference returns the reference that a text is. It reports false if the text is none.
func (d *decoder) reference(path string, n *yaml.Node, text string) (r Reference, isReference bool) {
	r, isReference, err := parseReference(text)
	switch {
	case err != nil:
		d.file.errorf(positionOf(n), "%s: %v", show(path), err)
	case isReference:
		r.File = below(d.file.dir, r.File)
		d.file.references = append(d.file.references, located{path, r})
	}
	return r, isReference
}

// decode decodes a reference. The error for a literal value does not contain it.
func (r *Reference) decode(d *decoder, path string, n *yaml.Node) {
	if n.Kind != yaml.ScalarNode {
		d.file.errorf(positionOf(n), "%s is %s: want env:NAME or file:PATH", show(path), kindOf(n))
		return
	}
	var isReference bool
	if *r, isReference = d.reference(path, n, n.Value); !isReference {
		d.file.errorf(positionOf(n), "%s is a secret in plain text: put it into an environment variable and write env:NAME, or into a file and write file:PATH", show(path))
	}
}

// decode decodes the path of a file.
func (p *Path) decode(d *decoder, path string, n *yaml.Node) {
	text, ok := d.text(path, n, "a text")
	if !ok {
		return
	}
	text = strings.TrimPrefix(text, "file:")
	if text == "" || strings.ContainsRune(text, '\n') {
		d.file.errorf(positionOf(n), "%s: want the path of a file", show(path))
		return
	}
	*p = Path(below(d.file.dir, text))
	d.file.paths = append(d.file.paths, located{path, Reference{File: string(*p)}})
}

// decode decodes an address or an object.
func (l *Listen) decode(d *decoder, path string, n *yaml.Node) {
	d.addressOr(path, n, &l.Address, reflect.ValueOf(l).Elem())
}

// decode decodes an address or an object.
func (a *Admin) decode(d *decoder, path string, n *yaml.Node) {
	d.addressOr(path, n, &a.Address, reflect.ValueOf(a).Elem())
}

// addressOr decodes a text, which is the address of an object, or the object.
func (d *decoder) addressOr(path string, n *yaml.Node, address *string, object reflect.Value) {
	if n.Kind == yaml.ScalarNode {
		d.scalar(path, n, reflect.ValueOf(address).Elem(), "")
		d.file.positions[path+".address"] = positionOf(n)
		return
	}
	d.object(path, n, object)
}

// decode decodes the upstreams, in the order of the file.
func (u *Upstreams) decode(d *decoder, path string, n *yaml.Node) {
	*u = Upstreams{}
	d.members(path, n, func(key, value *yaml.Node) {
		one := &Upstream{Name: key.Value}
		d.value(join(path, key.Value), value, reflect.ValueOf(one).Elem(), "")
		*u = append(*u, one)
	})
}

// keyOf returns the key of a field, or "" if it has none.
func keyOf(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if name == "-" {
		return ""
	}
	return name
}

// isRequired reports whether the key of a field must be there.
func isRequired(f reflect.StructField) bool {
	_, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	return options == "required"
}

// join returns the path of a member. A name with a dot or a bracket is quoted.
func join(path, name string) string {
	if strings.ContainsAny(name, ".[]\" ") || name == "" {
		name = strconv.Quote(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

// show returns a path for messages.
func show(path string) string {
	if path == "" {
		return "the configuration"
	}
	return clip.Characters(path, 120)
}

// within returns where a key is, for messages.
func within(path string) string {
	if path == "" {
		return ""
	}
	return " in " + show(path)
}

// kindOf says what a node is.
func kindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.Tag {
		case "!!bool":
			return "true or false"
		case "!!int", "!!float":
			return "the number " + clip.Characters(n.Value, 40)
		case "!!timestamp":
			return "a date"
		}
		return "a text"
	}
	return "not a value"
}

// suggest returns a question about the nearest of the names, or "" if none is similar.
func suggest(name string, names []string) string {
	best, nearest := "", math.MaxInt
	for _, n := range names {
		d := spelling.Distance(strings.ToLower(name), strings.ToLower(n))
		if d < nearest && d <= max(1, min(len(name), len(n))/3) {
			best, nearest = n, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", best)
}

// orList joins texts for a message.
func orList(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}
