package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"mcpwire/internal/era"
	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// A form is a Go type that users fill in.
type form[T any] struct {
	typed     *schema.Typed[T]
	requested json.RawMessage // its schema, in the part of JSON Schema that forms have
}

// formOf returns the form of a struct type, which is made once.
func formOf[T any](s *Server) (*form[T], error) {
	key := reflect.TypeFor[T]()
	if f, ok := s.forms.Load(key); ok {
		return f.(*form[T]), nil
	}
	typed, err := schema.Of[T](&schema.Options{AllowUnknown: true, Engine: s.opts.SchemaEngine})
	if err != nil {
		return nil, fmt.Errorf("form: %w", err)
	}
	requested, err := requestedSchema(typed.JSON())
	if err != nil {
		return nil, fmt.Errorf("form of type %v: %w", key, err)
	}
	f, _ := s.forms.LoadOrStore(key, &form[T]{typed, requested})
	return f.(*form[T]), nil
}

func (f *form[T]) check(e *era.Features) error { return checkForm(f.requested, e) }

func (f *form[T]) decode(res *mcp.ElicitResult, v *T) error {
	return checkFilled(res, f.requested, func(content []byte) error { return f.typed.Decode(content, v) })
}

// compileForm returns what the content of an accepted form is checked with.
func compileForm(p *mcp.ElicitRequestParams, features *era.Features, engine schema.Engine) (*schema.Validator, error) {
	if p.RequestedSchema == nil {
		return nil, errors.New("a form needs a requestedSchema")
	}
	if err := jsonwire.Valid(p.RequestedSchema, 0); err != nil {
		return nil, fmt.Errorf("requestedSchema: %w", err)
	}
	if err := checkForm(p.RequestedSchema, features); err != nil {
		return nil, fmt.Errorf("requestedSchema: %w", err)
	}
	v, err := schema.Compile(p.RequestedSchema, engine)
	if err != nil {
		return nil, fmt.Errorf("requestedSchema: %w", err)
	}
	return v, nil
}

// checkContent checks what was filled in.
func checkContent(v *schema.Validator, res *mcp.ElicitResult) error {
	return checkFilled(res, v.JSON(), v.Validate)
}

// checkFilled checks the content of a form that was accepted. One that was left empty may have none.
func checkFilled(res *mcp.ElicitResult, requested []byte, check func(content []byte) error) error {
	missing := res.Content == nil
	if missing {
		res.Content = json.RawMessage(`{}`)
	}
	err := check(res.Content)
	if err != nil && missing {
		return errNoContent
	}
	if invalid, ok := errors.AsType[*schema.Error](err); ok {
		invalid.Root = "content"
	}
	if err != nil {
		return err
	}
	return checkFormats(requested, res.Content)
}

var (
	errFormObject     = errors.New(`it must have "type":"object" at its root`)
	errFormProperties = errors.New("it must have properties")
	errFormNested     = errors.New("a form has no fields but strings, numbers, booleans, and lists of which the user chooses")
	errFormList       = errors.New("clients of the revision do not let users choose several values")
)

// checkForm makes sure that a schema is flat, as those of forms are
// (https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation#requested-schema). text is valid JSON.
func checkForm(text []byte, f *era.Features) error {
	if !isObjectSchema(bytes.TrimLeft(text, " \t\r\n")) {
		return errFormObject
	}
	properties := jsonwire.Lookup(text, "properties")
	if len(properties) == 0 || properties[0] != '{' {
		return errFormProperties
	}
	members := jsonwire.ObjectMembers(properties)
	for members.Next() {
		if err := checkField(members.Value(), f); err != nil {
			return fmt.Errorf("property %q: %w", clip(members.KeyString()), err)
		}
	}
	return nil
}

func checkField(field []byte, f *era.Features) error {
	if field[0] != '{' {
		return errFormNested
	}
	switch string(jsonwire.Lookup(field, "type")) {
	case `"string"`, `"number"`, `"integer"`, `"boolean"`:
		return nil
	case `"array"`:
		items := jsonwire.Lookup(field, "items")
		if len(items) == 0 || items[0] != '{' || jsonwire.Lookup(items, "enum") == nil && jsonwire.Lookup(items, "anyOf") == nil {
			return errFormNested
		}
		if !f.MultiSelect {
			return errFormList
		}
		return nil
	}
	return errFormNested
}

// fieldKeywords are those that the fields of forms have. What else a Go type says of them is checked when the answer is decoded.
var fieldKeywords = []string{"type", "title", "description", "default", "enum", "enumNames", "oneOf", "minLength", "maxLength", "format", "minimum", "maximum",
	"minItems", "maxItems", "items"}

// requestedSchema makes the schema of a struct, as package schema writes it, that of a form.
func requestedSchema(text []byte) (json.RawMessage, error) {
	if !isObjectSchema(text) || jsonwire.Lookup(text, "properties") == nil {
		return nil, errors.New("it must be a struct")
	}
	dst := []byte(`{"type":"object","properties":{`)
	members := jsonwire.ObjectMembers(jsonwire.Lookup(text, "properties"))
	for first := true; members.Next(); first = false {
		if !first {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, '"'), members.RawKey()...), `":`...)
		if members.Value()[0] != '{' {
			return nil, fmt.Errorf("property %q: %w", members.KeyString(), errFormNested)
		}
		dst = appendField(dst, members.Value())
	}
	dst = append(dst, '}')
	if required := jsonwire.Lookup(text, "required"); required != nil {
		dst = append(append(dst, `,"required":`...), required...)
	}
	return append(dst, '}'), nil
}

// appendField appends the schema of a field without what forms do not have. A pointer may be null in Go; a form leaves the field out.
func appendField(dst, field []byte) []byte {
	dst = append(dst, '{')
	first := true
	members := jsonwire.ObjectMembers(field)
	for members.Next() {
		key, value := members.KeyString(), members.Value()
		switch {
		case !slices.Contains(fieldKeywords, key), key == "format" && !slices.Contains(formFormats, string(value)):
			continue
		case (key == "type" || key == "enum") && value[0] == '[':
			value = withoutNull(value, key == "type")
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(append(jsonwire.AppendQuote(dst, key), ':'), value...)
	}
	return append(dst, '}')
}

// withoutNull returns an array without null, or, if it is to be a single value, its first other element.
func withoutNull(array []byte, single bool) []byte {
	dst := []byte{'['}
	elements := jsonwire.ArrayElements(array)
	for elements.Next() {
		switch v := elements.Value(); {
		case string(v) == "null", string(v) == `"null"`:
		case single:
			return v
		default:
			if len(dst) > 1 {
				dst = append(dst, ',')
			}
			dst = append(dst, v...)
		}
	}
	return append(dst, ']')
}

var formFormats = []string{`"email"`, `"uri"`, `"date"`, `"date-time"`}

// checkFormats holds the strings of the content against the formats of the schema, which are annotations in JSON Schema but meant in forms.
func checkFormats(schema, content []byte) error {
	properties := jsonwire.Lookup(schema, "properties")
	members := jsonwire.ObjectMembers(content)
	for members.Next() {
		v := members.Value()
		if v[0] != '"' {
			continue
		}
		field := jsonwire.Lookup(properties, members.KeyString())
		if len(field) == 0 || field[0] != '{' {
			continue
		}
		format := string(jsonwire.Lookup(field, "format"))
		if !slices.Contains(formFormats, format) {
			continue
		}
		if !hasFormat(format, unquote(v)) {
			return fmt.Errorf("content.%s: expected the format %s", clip(members.KeyString()), format[1:len(format)-1])
		}
	}
	return nil
}

func hasFormat(format, s string) bool {
	var err error
	switch format {
	case `"email"`:
		name, host, ok := strings.Cut(s, "@")
		if i := strings.LastIndexByte(s, '@'); i >= 0 {
			name, host = s[:i], s[i+1:]
		}
		return ok && name != "" && host != "" && !strings.ContainsAny(s, " \t\r\n")
	case `"uri"`:
		var u *url.URL
		u, err = url.Parse(s)
		return err == nil && u.Scheme != ""
	case `"date"`:
		_, err = time.Parse(time.DateOnly, s)
	case `"date-time"`:
		_, err = time.Parse(time.RFC3339, strings.ToUpper(s))
	}
	return err == nil
}
