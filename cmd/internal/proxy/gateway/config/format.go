package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"
)

// Format returns the text of a file. It has the values that are not zero, in the order of the
// fields. comments has comments for values, by path, such as upstreams.files.env.KEY; a comment of
// an upstream stands above it. Values that [Load] computes are not restored: paths are as they are.
func (c *Config) Format(comments map[string]string) ([]byte, error) {
	root := (&encoder{comments}).value("", reflect.ValueOf(*c))
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return nil, fmt.Errorf("format a configuration: %w", err)
	}
	return b.Bytes(), e.Close()
}

// MarshalJSON returns the configuration as JSON. It has references to secrets, never their values.
func (c *Config) MarshalJSON() ([]byte, error) {
	var v any
	if err := (&encoder{}).value("", reflect.ValueOf(*c)).Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// An encoder turns values into nodes.
type encoder struct{ comments map[string]string }

// value returns the node of a value.
func (e *encoder) value(path string, v reflect.Value) *yaml.Node {
	n := e.bare(path, v)
	if text := e.comments[path]; text != "" && n.Kind == yaml.ScalarNode {
		n.LineComment = text
	}
	return n
}

func (e *encoder) bare(path string, v reflect.Value) *yaml.Node {
	switch x := v.Interface().(type) {
	case Duration:
		return text(time.Duration(x).String())
	case Value:
		if x.Reference.IsZero() {
			return text(x.Text)
		}
		return text(x.Reference.String())
	case Reference:
		return text(x.String())
	case Listen:
		if reflect.DeepEqual(x, Listen{Address: x.Address}) {
			return text(x.Address)
		}
	case Admin:
		if x == (Admin{Address: x.Address}) {
			return text(x.Address)
		}
	case Upstreams:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, u := range x {
			at := join(path, u.Name)
			key := text(u.Name)
			key.HeadComment = e.comments[at]
			n.Content = append(n.Content, key, e.value(at, reflect.ValueOf(*u)))
		}
		return n
	}
	switch v.Kind() {
	case reflect.Pointer:
		return e.value(path, v.Elem())
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for i := range v.NumField() {
			if key := keyOf(v.Type().Field(i)); key != "" && !v.Field(i).IsZero() {
				n.Content = append(n.Content, text(key), e.value(join(path, key), v.Field(i)))
			}
		}
		return n
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, key := range sortedKeys(stringKeys(v)) {
			n.Content = append(n.Content, text(key), e.value(join(path, key), v.MapIndex(reflect.ValueOf(key))))
		}
		return n
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if v.Type().Elem().Kind() == reflect.String {
			n.Style = yaml.FlowStyle
		}
		for i := range v.Len() {
			n.Content = append(n.Content, e.value(fmt.Sprintf("%s[%d]", path, i), v.Index(i)))
		}
		return n
	case reflect.String:
		return text(v.String())
	}
	n := &yaml.Node{}
	// A boolean or a number always has a node.
	_ = n.Encode(v.Interface())
	return n
}

// stringKeys returns the keys of a map.
func stringKeys(v reflect.Value) map[string]bool {
	keys := map[string]bool{}
	for _, k := range v.MapKeys() {
		keys[k.String()] = true
	}
	return keys
}

// sortedKeys returns the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// text returns the node of a text, quoted where needed.
func text(s string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(s)
	return n
}
