package server

import (
	"errors"
	"fmt"
	"reflect"

	"mcpwire/internal/jsonwire"
	"mcpwire/mcp"
	"mcpwire/schema"
)

var (
	errPromptInput     = errors.New("its input must be a struct, whose fields are the arguments, or a map[string]string")
	errPromptArguments = errors.New("its arguments come from the type of its input, so there must be none in its definition; use a map[string]string to name them there")
)

// promptArgs decode and check those of a prompt.
type promptArgs[In any] struct {
	decode func(text []byte, in *In) error
	enums  map[string][]string // by the names of arguments
}

// newPromptArgs finds out which arguments the prompt has, and fills them into the definition if it is the type that says so.
func newPromptArgs[In any](def *mcp.Prompt) (*promptArgs[In], error) {
	if _, ok := any(new(In)).(*map[string]string); ok {
		return newNamedPromptArgs[In](def.Arguments)
	}
	if t := reflect.TypeFor[In](); t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%v: %w", t, errPromptInput)
	}
	if def.Arguments != nil {
		return nil, errPromptArguments
	}
	typed, err := schema.Of[In](nil)
	if err != nil {
		return nil, err
	}
	a := &promptArgs[In]{enums: make(map[string][]string)}
	a.decode = func(text []byte, in *In) error {
		if err := checkStrings(text); err != nil {
			return err
		}
		return typed.Decode(text, in)
	}
	if def.Arguments, err = argumentsFromSchema(typed.JSON(), a.enums); err != nil {
		return nil, err
	}
	return a, nil
}

// newNamedPromptArgs are those that the definition lists. In is map[string]string.
func newNamedPromptArgs[In any](list []mcp.PromptArgument) (*promptArgs[In], error) {
	text := []byte(`{"type":"object","additionalProperties":false,"properties":{`)
	required := []byte(`},"required":[`)
	seen := make(map[string]bool)
	for i, a := range list {
		if a.Name == "" || seen[a.Name] {
			return nil, fmt.Errorf("argument %d: it needs a name that no other has, not %q", i+1, a.Name)
		}
		if len(seen) > 0 {
			text = append(text, ',')
		}
		seen[a.Name] = true
		text = append(jsonwire.AppendQuote(text, a.Name), `:{"type":"string"}`...)
		if a.Required {
			required = append(jsonwire.AppendQuote(required, a.Name), ',')
		}
	}
	if n := len(required) - 1; required[n] == ',' {
		required = required[:n]
	}
	v, err := schema.Compile(append(append(text, required...), "]}"...), nil)
	if err != nil {
		return nil, err
	}
	return &promptArgs[In]{decode: func(text []byte, in *In) error {
		if err := v.Validate(text); err != nil {
			return err
		}
		args := make(map[string]string)
		members := jsonwire.ObjectMembers(text)
		for members.Next() {
			args[members.KeyString()] = unquote(members.Value())
		}
		*any(in).(*map[string]string) = args
		return nil
	}}, nil
}

// withEnumCompleters adds a completer for each argument that has an enum but none.
func (a *promptArgs[In]) withEnumCompleters(list []Completer) []Completer {
	has := make(map[string]bool)
	for _, c := range list {
		has[c.name] = true
	}
	for name, values := range a.enums {
		if !has[name] {
			list = append(list[:len(list):len(list)], CompleteFrom(name, values...))
		}
	}
	return list
}

// checkStrings returns an error unless all members are strings: what a type can read from null or a number is no argument of a prompt.
func checkStrings(args []byte) error {
	members := jsonwire.ObjectMembers(args)
	for members.Next() {
		if members.Value()[0] != '"' {
			return fmt.Errorf("params.arguments[%q] must be a string", clip(members.KeyString()))
		}
	}
	return nil
}

// argumentsFromSchema returns the arguments that the schema of a struct describes, and collects their enums.
func argumentsFromSchema(text []byte, enums map[string][]string) ([]mcp.PromptArgument, error) {
	var list []mcp.PromptArgument
	properties := jsonwire.ObjectMembers(jsonwire.Lookup(text, "properties"))
	for properties.Next() {
		a := mcp.PromptArgument{Name: properties.KeyString()}
		isString := false
		keywords := jsonwire.ObjectMembers(properties.Value())
		for keywords.Next() {
			value := keywords.Value()
			switch {
			case keywords.KeyIs("type"):
				isString = string(value) == `"string"` || string(value) == `["string","null"]`
			case keywords.KeyIs("title"):
				a.Title = unquote(value)
			case keywords.KeyIs("description"):
				a.Description = unquote(value)
			case keywords.KeyIs("enum"):
				values := jsonwire.ArrayElements(value)
				for values.Next() {
					if values.Value()[0] == '"' { // not the null of a pointer
						enums[a.Name] = append(enums[a.Name], unquote(values.Value()))
					}
				}
			}
		}
		if !isString {
			return nil, fmt.Errorf("argument %q: prompts take strings only, and what reads itself from one", a.Name)
		}
		list = append(list, a)
	}
	required := jsonwire.ArrayElements(jsonwire.Lookup(text, "required"))
	for required.Next() {
		for i := range list {
			list[i].Required = list[i].Required || list[i].Name == unquote(required.Value())
		}
	}
	return list, nil
}
