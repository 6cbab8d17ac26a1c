package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/client"
	"mcpwire/mcp"
)

const listLong = `Lists what a server offers: tools, resources, templates (of resources) and
prompts, or only those that are named. Tools and prompts are shown as functions,
with a ? at arguments that can be left out. All pages are asked for, one after
the other.

--json prints the result objects as they came, one on each line: a line for each
page, in the order tools, resources, templates, prompts.`

const listExample = `  mcpwire list -- mcpwire serve
  mcpwire list http://127.0.0.1:8080/mcp tools --json
  mcpwire list cursor:files resources --page eyJvIjoxMDB9`

func newListCommand(e *env) *cobra.Command {
	return newVerbCommand(e, &cobra.Command{
		Use:     "list TARGET [tools | resources | templates | prompts]... [FLAGS]",
		Short:   "list tools, resources, templates and prompts",
		Long:    listLong,
		Example: listExample,
	}, &listVerb{})
}

// The kinds of things that can be listed.
const (
	kindTools     = "tools"
	kindResources = "resources"
	kindTemplates = "templates"
	kindPrompts   = "prompts"
)

// listKinds are all of them, in the order in which they are listed.
func listKinds() []string { return []string{kindTools, kindResources, kindTemplates, kindPrompts} }

// A listVerb lists what a server offers.
type listVerb struct {
	json  bool
	page  pageFlag
	kinds []string // nil is all that the server declares
}

// A pageFlag is the value of --page: a cursor, which may be empty.
type pageFlag struct{ cursor *string }

func (p *pageFlag) Type() string       { return "" }
func (p *pageFlag) Set(s string) error { p.cursor = &s; return nil }
func (p *pageFlag) String() string {
	if p.cursor == nil {
		return ""
	}
	return *p.cursor
}

func (v *listVerb) register(fs *pflag.FlagSet) {
	fs.BoolVar(&v.json, "json", false, "print the result objects as they came, one on each line")
	fs.Var(&v.page, "page", "ask for the page with this `CURSOR` only")
}

func (v *listVerb) parse(args []string) error {
	v.kinds = nil
	for _, arg := range args {
		kind := strings.ToLower(arg)
		if !strings.HasSuffix(kind, "s") {
			kind += "s"
		}
		switch kind {
		case kindTools, kindResources, kindTemplates, kindPrompts:
			v.kinds = append(v.kinds, kind)
		default:
			return usagef("list: unexpected argument %q (want tools, resources, templates or prompts)%s", clip(arg, 60), didYouMean(arg, listKinds()))
		}
	}
	if v.page.cursor != nil && len(v.kinds) != 1 {
		return usagef("list: --page goes with one of tools, resources, templates and prompts, whose page it is")
	}
	return nil
}

func (v *listVerb) run(ctx context.Context, s *session) error {
	kinds := v.kinds
	if kinds == nil {
		kinds = declaredKinds(s.ServerCapabilities())
	}
	if len(kinds) == 0 {
		s.notes.linef("the server offers neither tools nor resources nor prompts")
	}
	for _, kind := range kinds {
		if err := v.list(ctx, s, kind, len(kinds) > 1); err != nil {
			return err
		}
	}
	return nil
}

// declaredKinds are those that a server says that it has.
func declaredKinds(c mcp.ServerCapabilities) []string {
	var kinds []string
	if c.Tools != nil {
		kinds = append(kinds, kindTools)
	}
	if c.Resources != nil {
		kinds = append(kinds, kindResources, kindTemplates)
	}
	if c.Prompts != nil {
		kinds = append(kinds, kindPrompts)
	}
	return kinds
}

// list prints the things of one kind.
func (v *listVerb) list(ctx context.Context, s *session, kind string, headed bool) error {
	if headed && !v.json {
		if err := s.write(kind + "\n"); err != nil {
			return err
		}
	}
	indent := ""
	if headed {
		indent = "  "
	}
	return eachPage(v.page.cursor, func(cursor *string) (*string, error) {
		s.trace.forget()
		method, lines, next, err := fetchPage(ctx, s.Client, kind, cursor)
		if v.json {
			if text, _ := s.trace.result(method); text != nil { // what the client did not take is shown too
				if e := s.writeJSON(method); e != nil {
					return nil, e
				}
			}
		}
		if err != nil {
			return nil, err
		}
		for _, line := range lines {
			if v.json {
				break
			}
			if err := s.write(indent + line + "\n"); err != nil {
				return nil, err
			}
		}
		if v.page.cursor != nil {
			if next != nil {
				s.notes.linef("more: --page '%s'", safeLine(*next))
			}
			next = nil
		}
		return next, nil
	})
}

// maxPages is how many pages of a list are asked for.
const maxPages = 10_000

// eachPage calls fetch with the first cursor and then with each that it returns, until that is nil.
func eachPage(cursor *string, fetch func(cursor *string) (next *string, err error)) error {
	seen := map[[sha256.Size]byte]bool{} // cursors may be long
	for range maxPages {
		next, err := fetch(cursor)
		if err != nil || next == nil {
			return err
		}
		sum := sha256.Sum256([]byte(*next))
		if seen[sum] {
			return fail(exitAnswer, "protocol_error", "--page asks for single pages", fmt.Errorf("%w: %s", client.ErrCursorLoop, clipLine(*next, 100)))
		}
		seen[sum] = true
		cursor = next
	}
	return fail(exitAnswer, "protocol_error", "--page asks for single pages", client.ErrTooManyPages)
}

// fetchPage asks for one page and returns a line for each thing on it.
func fetchPage(ctx context.Context, c *client.Client, kind string, cursor *string) (method string, lines []string, next *string, err error) {
	switch kind {
	case kindTools:
		r, err := c.ListTools(ctx, cursor)
		if err != nil {
			return mcp.MethodToolsList, nil, nil, err
		}
		for _, t := range r.Tools {
			lines = append(lines, described(signature(t.Name, t.InputSchema), t.Description))
		}
		return mcp.MethodToolsList, lines, r.NextCursor, nil
	case kindResources:
		r, err := c.ListResources(ctx, cursor)
		if err != nil {
			return mcp.MethodResourcesList, nil, nil, err
		}
		for _, r := range r.Resources {
			lines = append(lines, described(safeLine(r.URI)+aside(r.Name, r.MIMEType, r.Size), r.Description))
		}
		return mcp.MethodResourcesList, lines, r.NextCursor, nil
	case kindTemplates:
		r, err := c.ListResourceTemplates(ctx, cursor)
		if err != nil {
			return mcp.MethodResourceTemplatesList, nil, nil, err
		}
		for _, r := range r.ResourceTemplates {
			lines = append(lines, described(safeLine(r.URITemplate)+aside(r.Name, r.MIMEType, nil), r.Description))
		}
		return mcp.MethodResourceTemplatesList, lines, r.NextCursor, nil
	case kindPrompts:
		r, err := c.ListPrompts(ctx, cursor)
		if err != nil {
			return mcp.MethodPromptsList, nil, nil, err
		}
		for _, p := range r.Prompts {
			lines = append(lines, described(promptSignature(p), p.Description))
		}
		return mcp.MethodPromptsList, lines, r.NextCursor, nil
	}
	return "", nil, nil, errors.New("no such kind: " + kind)
}

// described appends the first line of a description.
func described(line, description string) string {
	if text := firstLine(description); text != "" {
		line += " — " + clipLine(text, 300)
	}
	return line
}

// aside is what there is to say of a resource besides its URI.
func aside(name, kind string, size *int64) string {
	var parts []string
	if name != "" {
		parts = append(parts, clipLine(name, 100))
	}
	if kind != "" {
		parts = append(parts, clipLine(kind, 60))
	}
	if size != nil {
		parts = append(parts, sizeText(int(*size)))
	}
	if parts == nil {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func promptSignature(p mcp.Prompt) string {
	var args []string
	for _, a := range p.Arguments {
		arg := safeLine(a.Name)
		if !a.Required {
			arg += "?"
		}
		args = append(args, arg)
	}
	return safeLine(p.Name) + "(" + strings.Join(args, ", ") + ")"
}
