package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"reflect"
	"slices"
	"strings"

	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// PromptOutput is the result type of a prompt's function: the text of one user message, a list of
// messages, or the whole result. A missing description is filled in from the prompt.
type PromptOutput interface {
	string | []mcp.PromptMessage | *mcp.GetPromptResult
}

// A prompt is a registered prompt.
type prompt struct {
	entry
	def        mcp.Prompt
	get        func(c *Call, args, dst []byte) ([]byte, error)
	completers completers
}

func (p *prompt) appendDefinition(dst []byte, f *era.Features) []byte {
	return mcp.Append(dst, &p.def, f.Revision)
}

// AddPrompt registers a prompt. In is a struct whose fields are the arguments. A field is a string
// or a type that decodes from one, such as [time.Time].
//
//	type args struct {
//		Language string `json:"language" jsonschema:"programming language" schema:"enum=go|rust"`
//		Style    string `json:"style,omitempty" jsonschema:"how to say it"`
//	}
//
// The tags are those of package schema: an argument is required unless it has omitempty, is a
// pointer or has a default. The values of an enum are suggested to the user as completions. In may
// also be a map[string]string; then def.Arguments lists the arguments.
//
// Arguments that are missing, unknown or invalid are rejected before get runs, with an error that
// names them. An error of get is a failure of the server: the client gets an internal error, and
// the text is logged. If it wraps a [jsonrpc.Error], that error is sent instead.
//
// Messages without a role get the role user. Content that the client's revision doesn't have is
// replaced with a text that describes it. Images and audio need a MIME type. Embedded resources
// without one are text/plain or application/octet-stream.
//
// AddPrompt fails for a duplicate name (with [ErrDuplicate]), for an empty name, and for types that
// cannot be arguments. It may be called while the server runs: clients are notified of the change.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/prompts)
func AddPrompt[In any, Out PromptOutput](s *Server, def mcp.Prompt, get func(ctx context.Context, args In) (Out, error), complete ...Completer) error {
	if get == nil {
		return registrationError(KindPrompt, def.Name, errNoFunc)
	}
	args, err := newPromptArgs[In](&def, &s.schema)
	if err != nil {
		return registrationError(KindPrompt, def.Name, err)
	}
	description := def.Description
	return s.addPrompt(def, args.withEnumCompleters(complete), func(c *Call, text, dst []byte) ([]byte, error) {
		var in In
		if err := args.decode(text, &in); err != nil {
			return dst, invalidArguments(err)
		}
		out, err := get(c, in)
		if err != nil {
			return dst, err
		}
		return c.results().prompt(dst, description, promptResultOf(out))
	})
}

func (s *Server) addPrompt(def mcp.Prompt, complete []Completer, get func(c *Call, args, dst []byte) ([]byte, error)) error {
	def.Meta, def.Extra = bytes.Clone(def.Meta), bytes.Clone(def.Extra)
	def.Icons, def.Arguments = slices.Clone(def.Icons), slices.Clone(def.Arguments)
	var names []string
	err := errors.Join(checkMeta(def.Meta), checkExtra(def.Extra))
	for _, a := range def.Arguments {
		err = errors.Join(err, checkExtra(a.Extra))
		names = append(names, a.Name)
	}
	p := &prompt{entry: entry{key: def.Name}, def: def, get: get}
	if err == nil {
		if p.completers, err = newCompleters(names, complete); err != nil {
			err = fmt.Errorf("arguments: %w", err)
		}
	}
	if err != nil {
		return registrationError(KindPrompt, def.Name, err)
	}
	if err := s.prompts.add(p); err != nil {
		return err
	}
	s.completions.note(p.completers)
	s.announce(promptsChanged)
	return nil
}

// RemovePrompts removes prompts and notifies clients of the change. It ignores unknown names.
// Running requests continue.
func (s *Server) RemovePrompts(names ...string) {
	if s.prompts.remove(names) {
		s.announce(promptsChanged)
	}
}

// getPrompt answers prompts/get
// (https://modelcontextprotocol.io/specification/2026-07-28/server/prompts#getting-a-prompt).
func getPrompt(c *Call, r *rpc.Request, dst []byte) ([]byte, error) {
	p, _ := r.Route.(*prompt)
	if p == nil || !c.view.shows(KindPrompt, p.key) {
		name, err := stringParam(r, "name")
		if err != nil {
			return dst, err
		}
		return dst, unknownPrompt(name)
	}
	c.setName(p.key)
	args, err := argumentsParam(r)
	if err != nil {
		return dst, err
	}
	if err := c.session.srv.inputs.resume(c, r); err != nil {
		return dst, err
	}
	defer c.startTimer(c.session.srv.opts.Limits.HandlerTimeout)()
	out, err := p.get(c, args, dst)
	return c.session.srv.inputs.respond(c, r, dst, out, err)
}

func unknownPrompt(name string) error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "unknown prompt: %s", clip.String(name, 100))
}

// invalidArguments returns the error for a prompt's invalid arguments. Unlike for a tool, it is a
// protocol error: no model made the mistake.
func invalidArguments(err error) error {
	var e *schema.Error
	if errors.As(err, &e) {
		e.Root = "params.arguments"
	}
	return invalidParams("%v", err)
}

// promptResultOf converts a function's output to a result, or nil.
func promptResultOf[Out PromptOutput](out Out) *mcp.GetPromptResult {
	switch v := any(out).(type) {
	case string:
		return &mcp.GetPromptResult{Messages: []mcp.PromptMessage{{Content: mcp.TextContent{Text: v}}}}
	case []mcp.PromptMessage:
		return &mcp.GetPromptResult{Messages: v}
	case *mcp.GetPromptResult:
		return v
	}
	return nil
}

// checkPromptMessage fills in missing members of a message and checks that a prompt may have it.
func checkPromptMessage(m *mcp.PromptMessage) (err error) {
	switch m.Role {
	case "":
		m.Role = mcp.RoleUser
	case mcp.RoleUser, mcp.RoleAssistant:
	default:
		return fmt.Errorf("role %q: it must be %q or %q", m.Role, mcp.RoleUser, mcp.RoleAssistant)
	}
	if m.Content, err = mcp.CheckContent(m.Content); err != nil {
		return err
	}
	switch v := m.Content.(type) {
	case mcp.ImageContent:
		err = checkMIME(v.MIMEType)
	case mcp.AudioContent:
		err = checkMIME(v.MIMEType)
	case mcp.ResourceLink:
		err = checkURI(v.URI)
	case mcp.EmbeddedResource:
		if v.Resource.MIMEType == "" {
			if v.Resource.MIMEType = "text/plain"; v.Resource.Blob != nil {
				v.Resource.MIMEType = "application/octet-stream"
			}
		}
		m.Content = v
		err = errors.Join(checkURI(v.Resource.URI), checkMIME(v.Resource.MIMEType))
	case mcp.ToolUseContent, mcp.ToolResultContent:
		err = fmt.Errorf("%T is for sampling only", v)
	}
	return errors.Join(err, checkExtra(m.Extra))
}

func checkMIME(s string) error {
	if t, _, err := mime.ParseMediaType(s); err != nil || !strings.Contains(t, "/") {
		return fmt.Errorf("%q is not a MIME type, such as image/png", s)
	}
	return nil
}

var (
	errPromptInput     = errors.New("its input must be a struct, whose fields are the arguments, or a map[string]string")
	errPromptArguments = errors.New("its arguments come from the type of its input, so its definition must not have any; use a map[string]string to name them there")
)

// promptArgs decodes and checks the arguments of a prompt.
type promptArgs[In any] struct {
	decode func(text []byte, in *In) error
	// enums holds the enum values by the name of the argument.
	enums map[string][]string
}

// newPromptArgs returns the decoder of a prompt's arguments. If In is a struct, it also sets
// def.Arguments.
func newPromptArgs[In any](def *mcp.Prompt, opts *schema.Options) (*promptArgs[In], error) {
	if _, ok := any(new(In)).(*map[string]string); ok {
		return newNamedPromptArgs[In](def.Arguments, opts.AllowUnknown)
	}
	if t := reflect.TypeFor[In](); t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("%v: %w", t, errPromptInput)
	}
	if def.Arguments != nil {
		return nil, errPromptArguments
	}
	typed, err := schema.Of[In](opts)
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

// newNamedPromptArgs returns the decoder of the arguments in a definition. In is map[string]string.
func newNamedPromptArgs[In any](list []mcp.PromptArgument, allowUnknown bool) (*promptArgs[In], error) {
	properties, required := make(map[string]any), []string{}
	for i, a := range list {
		if a.Name == "" || properties[a.Name] != nil {
			return nil, fmt.Errorf("argument %d: it needs a unique name, not %q", i+1, a.Name)
		}
		properties[a.Name] = map[string]string{"type": "string"}
		if a.Required {
			required = append(required, a.Name)
		}
	}
	text, err := json.Marshal(map[string]any{"type": "object", "additionalProperties": allowUnknown, "properties": properties, "required": required})
	if err != nil {
		return nil, err
	}
	v, err := schema.Compile(text, nil)
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
			if name := members.KeyString(); properties[name] != nil {
				args[name] = jsonwire.Text(members.Value())
			}
		}
		*any(in).(*map[string]string) = args
		return nil
	}}, nil
}

// withEnumCompleters adds a completer for each argument that has an enum and no completer.
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

// checkStrings returns an error unless all members are strings. A type may decode from null or a
// number, but the arguments of a prompt are strings.
func checkStrings(args []byte) error {
	members := jsonwire.ObjectMembers(args)
	for members.Next() {
		if members.Value()[0] != '"' {
			return fmt.Errorf("params.arguments[%q] must be a string", clip.String(members.KeyString(), 100))
		}
	}
	return nil
}

// argumentsFromSchema returns the arguments in the schema of a struct and collects their enums.
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
				a.Title = jsonwire.Text(value)
			case keywords.KeyIs("description"):
				a.Description = jsonwire.Text(value)
			case keywords.KeyIs("enum"):
				values := jsonwire.ArrayElements(value)
				for values.Next() {
					if values.Value()[0] == '"' { // skip the null of a pointer
						enums[a.Name] = append(enums[a.Name], jsonwire.Text(values.Value()))
					}
				}
			}
		}
		if !isString {
			return nil, fmt.Errorf("argument %q: it must be a string or implement encoding.TextUnmarshaler", a.Name)
		}
		list = append(list, a)
	}
	required := jsonwire.ArrayElements(jsonwire.Lookup(text, "required"))
	for required.Next() {
		for i := range list {
			list[i].Required = list[i].Required || list[i].Name == jsonwire.Text(required.Value())
		}
	}
	return list, nil
}
