package targets

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
)

// ArgsHelp describes arguments in the help of commands.
const ArgsHelp = `Arguments are NAME=TEXT, or NAME:=JSON for a value of any type. NAME=TEXT is a
string, unless the tool's schema requires another type and TEXT is exactly of
that type: an integer such as 12, a number, or true or false for a boolean. 012
stays a string. --args takes the whole object instead.`

// An Argument is an argument of a tool on the command line: text to convert, or JSON.
type Argument struct {
	Name string
	Text string
	// Raw is the JSON of NAME:=JSON. It is nil for NAME=TEXT.
	Raw json.RawMessage
}

// ParseArguments parses arguments of the forms NAME=TEXT and NAME:=JSON.
func ParseArguments(command string, args []string) ([]Argument, error) {
	var list []Argument
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok || name == "" || name == ":" {
			return nil, exit.Usagef("%s: unexpected argument %q (want NAME=TEXT or NAME:=JSON)", command, clip.Characters(arg, 60))
		}
		a := Argument{Name: name, Text: value}
		if before, ok := strings.CutSuffix(name, ":"); ok {
			a.Name, a.Raw = before, json.RawMessage(strings.TrimSpace(value))
			if err := jsonwire.Valid(a.Raw, 0); err != nil {
				return nil, exit.Usagef("%s: the value of %s:= is not JSON: %w (for a string, write %[2]s=…)", command, safe.Line(before), err)
			}
		}
		if slices.ContainsFunc(list, func(b Argument) bool { return b.Name == a.Name }) {
			return nil, exit.Usagef("%s: argument %s is given twice", command, safe.Line(a.Name))
		}
		list = append(list, a)
	}
	return list, nil
}

// ReadArgs reads the value of --args: JSON text, @FILE, or - for standard input.
func ReadArgs(e *kit.Env, value string) (json.RawMessage, error) {
	text, err := ReadInput(e, value)
	if err != nil {
		return nil, fmt.Errorf("--args: %w", err)
	}
	text = []byte(strings.TrimSpace(string(text)))
	if err := jsonwire.Valid(text, 0); err != nil {
		return nil, fmt.Errorf("--args: not JSON: %w", err)
	}
	if text[0] != '{' {
		return nil, fmt.Errorf("--args: want an object, such as {\"text\":\"hello\"} (mcpwire send can send anything)")
	}
	return text, nil
}

// ReadInput returns text that is given directly, as @FILE, or as - for standard input.
func ReadInput(e *kit.Env, value string) ([]byte, error) {
	switch {
	case value == "-":
		return readStdin(e.Stdin)
	case strings.HasPrefix(value, "@"):
		return os.ReadFile(value[1:])
	}
	return []byte(value), nil
}

func readStdin(f *os.File) ([]byte, error) {
	if f == nil {
		return nil, errors.New("standard input contains the shell's commands")
	}
	return io.ReadAll(f)
}

// A Property is a member of an object that a schema describes.
type Property struct {
	Name   string
	Schema json.RawMessage
	// Kind is the schema's only type. It is empty if the schema names zero or several types.
	Kind        string
	Required    bool
	Description string
	// Fallback is the default value. It may be nil.
	Fallback json.RawMessage
}

// Properties returns the members that a schema lists under "properties", in their order. closed
// reports whether the schema excludes other members.
func Properties(schema json.RawMessage) (list []Property, closed bool) {
	if jsonwire.Valid(schema, maxSchemaDepth) != nil || schema[0] != '{' {
		return nil, false
	}
	var required []string
	members := jsonwire.ObjectMembers(schema)
	for members.Next() {
		value := members.Value()
		switch {
		case members.KeyIs("properties") && value[0] == '{':
			list = list[:0]
			of := jsonwire.ObjectMembers(value)
			for of.Next() && len(list) < maxProperties {
				list = append(list, newProperty(of.KeyString(), of.Value()))
			}
		case members.KeyIs("required"):
			// A value that is not a list of names requires nothing.
			_ = json.Unmarshal(value, &required)
		case members.KeyIs("additionalProperties"):
			closed = string(value) == "false"
		}
	}
	for i := range list {
		list[i].Required = slices.Contains(required, list[i].Name)
	}
	return list, closed
}

// Limits on schemas.
const (
	maxSchemaDepth = 200
	maxProperties  = 1000
)

func newProperty(name string, schema json.RawMessage) Property {
	p := Property{Name: name, Schema: schema}
	if schema[0] != '{' {
		return p
	}
	members := jsonwire.ObjectMembers(schema)
	for members.Next() {
		value := members.Value()
		switch {
		case members.KeyIs("type") && value[0] == '"':
			p.Kind = jsonwire.Text(value)
		case members.KeyIs("description") && value[0] == '"':
			p.Description = jsonwire.Text(value)
		case members.KeyIs("default"):
			p.Fallback = value
		}
	}
	return p
}

// convert returns the JSON for text where a schema wants the type kind. If text does not fit the
// type, it returns a string and false.
func convert(kind, text string) (value []byte, ok bool) {
	number := text != "" && (text[0] == '-' || text[0] >= '0' && text[0] <= '9') && jsonwire.Valid([]byte(text), 1) == nil && !strings.ContainsAny(text, " \t\r\n")
	switch kind {
	case "integer":
		ok = number && !strings.ContainsAny(text, ".eE")
	case "number":
		ok = number
	case "boolean":
		ok = text == "true" || text == "false"
	case "string", "":
		return jsonwire.AppendQuote(nil, text), true
	}
	if !ok {
		return jsonwire.AppendQuote(nil, text), false
	}
	return []byte(text), true
}

// AppendArguments returns the object of a tool's arguments. It calls warn for arguments that the
// schema does not list, for values of the wrong type, and for missing required arguments.
func AppendArguments(list []Argument, schema json.RawMessage, known bool, warn func(format string, args ...any)) json.RawMessage {
	props, closed := Properties(schema)
	var names []string
	for _, p := range props {
		names = append(names, p.Name)
	}
	object := []byte{'{'}
	for i, a := range list {
		if i > 0 {
			object = append(object, ',')
		}
		object = append(jsonwire.AppendQuote(object, a.Name), ':')
		j := slices.Index(names, a.Name)
		if j < 0 && known && (closed || len(props) > 0) {
			warn("the tool has no argument %s%s", safe.Line(a.Name), kit.DidYouMean(a.Name, names))
		}
		if a.Raw != nil {
			object = append(object, a.Raw...)
			continue
		}
		kind := ""
		if j >= 0 {
			kind = props[j].Kind
		}
		value, ok := convert(kind, a.Text)
		if !ok {
			warn("argument %s is sent as a string, but the tool expects %s (%[1]s:=… sends JSON)", safe.Line(a.Name), article(kind))
		}
		object = append(object, value...)
	}
	for _, p := range props {
		if p.Required && !slices.ContainsFunc(list, func(a Argument) bool { return a.Name == p.Name }) {
			warn("the tool requires the argument %s", safe.Line(p.Name))
		}
	}
	return append(object, '}')
}

func article(kind string) string {
	if strings.ContainsAny(kind[:min(1, len(kind))], "aeiou") {
		return "an " + safe.Line(kind)
	}
	return "a " + safe.Line(kind)
}
