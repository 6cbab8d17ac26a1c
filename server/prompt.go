package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"

	"mcpwire/internal/era"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// PromptOutput is what the function of a prompt returns: the text of one message of the user, messages, or the whole result. A description that is missing is
// that of the prompt.
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
	return p.def.AppendRevision(dst, f.Revision)
}

// AddPrompt registers a prompt. In is a struct, whose fields are the arguments: strings, and what reads itself from one, such as a [time.Time].
//
//	type args struct {
//		Language string `json:"language" jsonschema:"the language of the code" schema:"enum=go|rust"`
//		Style    string `json:"style,omitempty" jsonschema:"how to say it"`
//	}
//
// Tags are those of package schema, so an argument is required unless it has omitempty, is a pointer or has a default. Values of an enum are suggested to
// the user as they type. Or In is a map[string]string; def.Arguments says which arguments there are then.
//
// An argument that is missing, is none of the prompt's or does not fit is refused before get runs, with an error that names it. An error of get is the
// server's failure: the client gets an internal error, and the text stays in the log. One that wraps a [jsonrpc.Error] is answered as what it is.
//
// Messages without a role are the user's. Content that a client's revision does not have becomes a text that says what was there. Images and sounds need a MIME
// type; embedded resources without one are text/plain or application/octet-stream.
//
// AddPrompt fails on a duplicate name (with [ErrDuplicate]), on a missing one, and on types that cannot be arguments. It may be called while the
// server runs: clients are told that the list has changed.
// (https://modelcontextprotocol.io/specification/2026-07-28/server/prompts)
func AddPrompt[In any, Out PromptOutput](s *Server, def mcp.Prompt, get func(ctx context.Context, args In) (Out, error), complete ...Completer) error {
	if get == nil {
		return registrationError(KindPrompt, def.Name, errNoFunc)
	}
	args, err := newPromptArgs[In](&def)
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
		return c.appendPrompt(dst, description, promptResultOf(out))
	})
}

func (s *Server) addPrompt(def mcp.Prompt, complete []Completer, get func(c *Call, args, dst []byte) ([]byte, error)) error {
	def.Meta, def.Extra = bytes.Clone(def.Meta), bytes.Clone(def.Extra)
	def.Icons, def.Arguments = slices.Clone(def.Icons), slices.Clone(def.Arguments)
	var names []string
	err := errors.Join(mcp.CheckMeta(def.Meta), checkExtra(def.Extra))
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
	s.noteCompleters(p.completers)
	s.announce(promptsChanged)
	return nil
}

// RemovePrompts takes prompts out and tells clients that the list has changed. Names that are not registered are passed over. Requests under way go on.
func (s *Server) RemovePrompts(names ...string) {
	if s.prompts.remove(names) {
		s.announce(promptsChanged)
	}
}

// getPrompt answers prompts/get (https://modelcontextprotocol.io/specification/2026-07-28/server/prompts#getting-a-prompt).
func (s *session) getPrompt(c *Call, r *jsonrpc.Request, dst []byte) ([]byte, error) {
	p, _ := r.Route.(*prompt)
	if p == nil || !c.view.shows(KindPrompt, p.key) {
		name, err := stringParam(r, "name")
		if err != nil {
			return dst, err
		}
		return dst, unknownPrompt(name)
	}
	c.setName(p.key)
	args, ok := r.Param("arguments")
	switch {
	case !ok, string(args) == "null":
		args = emptyObject
	case args[0] != '{':
		return dst, invalidParams("params.arguments must be an object")
	}
	if err := c.resumeInput(r); err != nil {
		return dst, err
	}
	defer c.startTimer()()
	out, err := p.get(c, args, dst)
	return c.respond(r, dst, out, err)
}

func unknownPrompt(name string) error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "unknown prompt: %s", clip(name))
}

// invalidArguments is the error for arguments that do not fit a prompt. Unlike a tool's, they are not a model's mistake.
func invalidArguments(err error) error {
	var e *schema.Error
	if errors.As(err, &e) {
		e.Root = "params.arguments"
	}
	return invalidParams("%v", err)
}

// promptResultOf returns the result that a function meant, or nil.
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

// appendPrompt appends the result.
func (c *Call) appendPrompt(dst []byte, description string, res *mcp.GetPromptResult) ([]byte, error) {
	if res == nil {
		return dst, c.invalidResult("there is none")
	}
	out := *res
	if out.Description == "" {
		out.Description = description
	}
	out.Messages = slices.Clone(res.Messages)
	for i := range out.Messages {
		if err := checkPromptMessage(&out.Messages[i]); err != nil {
			return dst, c.invalidResult("messages[%d]: %v", i, err)
		}
	}
	if err := errors.Join(mcp.CheckMeta(out.Meta), checkExtra(out.Extra)); err != nil {
		return dst, c.invalidResult("%v", err)
	}
	meta := out.Meta
	out.Meta, out.ResultType = nil, ""
	return c.endWithMeta(out.AppendRevision(dst, c.ex.Revision), meta), nil
}

// checkPromptMessage fills in what is missing, and returns an error if the message is none of a prompt.
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
		return fmt.Errorf("%q is no MIME type, such as image/png", s)
	}
	return nil
}
