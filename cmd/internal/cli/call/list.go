package call

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/client"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/text/shellword"
	"mcpwire/cmd/internal/text/tokens"
	"mcpwire/cmd/internal/trace"
	"mcpwire/internal/era"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/plural"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const listLong = `List what a server offers: tools, resources, templates (of resources) and
prompts, or only the named kinds. Tools and prompts are shown as functions, with
a ? after optional arguments. On a terminal, long descriptions are cut, unless
--wide is given. list requests all pages, one after the other.
Names after tools or prompts select only those, and show them with full
descriptions and a line for each argument. If one kind cannot be listed, list
still prints the others, and the exit status is 5. If a gateway has no current
lists of some of its servers yet, list names them on standard error.

--json prints the result objects exactly as received, one per line: a line for
each page, in the order tools, resources, templates, prompts.

--tokens prints how many tokens of the encoding o200k_base each tool costs in
every context that offers it, the most expensive first. Counted is the compact
JSON of an object with its name, description and inputSchema, which is what most
hosts send to models. outputSchema is counted separately, because they do not
send it. Models with other encodings count differently. With --json, --tokens
prints an object.`

const listExample = `  mcpwire list -- mcpwire serve
  mcpwire list http://127.0.0.1:8080/mcp tools --json
  mcpwire list cursor:files tools read_file
  mcpwire list cursor:files tools --tokens
  mcpwire list cursor:files resources --page eyJvIjoxMDB9`

// NewListCommand returns the command list.
func NewListCommand(e *kit.Env) *cobra.Command {
	return newVerbCommand(e, &cobra.Command{
		Use:     "list TARGET [tools [NAME...] | resources | templates | prompts [NAME...]]... [FLAGS]",
		Short:   "list tools, resources, templates and prompts",
		Long:    listLong,
		Example: listExample,
	}, &listVerb{})
}

// The kinds of things that the list command lists.
const (
	kindTools     = "tools"
	kindResources = "resources"
	kindTemplates = "templates"
	kindPrompts   = "prompts"
)

// listKinds returns all kinds, in the order in which they are listed.
func listKinds() []string { return []string{kindTools, kindResources, kindTemplates, kindPrompts} }

// A listVerb lists what a server offers.
type listVerb struct {
	json bool
	// wide prints each thing on one line on a terminal, too.
	wide bool
	// tokens prints the number of tokens of each tool instead.
	tokens bool
	// page is the cursor of --page, which may be empty, or nil without the flag.
	page *string
	// kinds are the kinds to list. Nil lists all that the server declares.
	kinds []string
	// names are the tools or prompts to show in full. Nil lists all.
	names []string
}

func (v *listVerb) register(fs *pflag.FlagSet) {
	fs.BoolVar(&v.json, "json", false, "print the result objects exactly as received, one per line")
	fs.BoolVar(&v.wide, "wide", false, "on a terminal, print whole descriptions, and one line for each thing")
	fs.BoolVar(&v.tokens, "tokens", false, "count the o200k tokens of the tools' definitions")
	fs.Func("page", "request only the page at this `CURSOR`", v.setPage)
}

func (v *listVerb) setPage(cursor string) error {
	v.page = &cursor
	return nil
}

func (v *listVerb) parse(args []string) error {
	v.kinds, v.names = nil, nil
	for i, arg := range args {
		kind := strings.ToLower(arg)
		if !strings.HasSuffix(kind, "s") {
			kind += "s"
		}
		switch kind {
		case kindTools, kindResources, kindTemplates, kindPrompts:
			v.kinds = append(v.kinds, kind)
		default:
			if i > 0 && len(v.kinds) == 1 && (v.kinds[0] == kindTools || v.kinds[0] == kindPrompts) {
				v.names = args[i:]
				return v.checkNames()
			}
			return exit.Usagef("list: unexpected argument %q (want tools, resources, templates or prompts)%s", clip.Characters(arg, 60), kit.DidYouMean(arg, listKinds()))
		}
	}
	if v.tokens && (v.page != nil || len(v.kinds) > 1 || len(v.kinds) == 1 && v.kinds[0] != kindTools) {
		return exit.Usagef("list: --tokens counts all tools, and nothing else: remove --page and the other kinds")
	}
	if v.page != nil && len(v.kinds) != 1 {
		return exit.Usagef("list: --page needs exactly one of tools, resources, templates and prompts")
	}
	return nil
}

// checkNames returns an error if a flag doesn't go with names.
func (v *listVerb) checkNames() error {
	if v.json || v.tokens || v.page != nil {
		return exit.Usagef("list: --json, --page and --tokens print whole pages: they cannot be combined with %s", safe.Clip(v.names[0], 60))
	}
	return nil
}

func (v *listVerb) run(ctx context.Context, s *session) error {
	if v.names != nil {
		return v.details(ctx, s)
	}
	if v.tokens {
		return v.countTokens(ctx, s)
	}
	kinds := v.kinds
	if kinds == nil {
		kinds = DeclaredKinds(s.Profile().Capabilities)
	}
	if len(kinds) == 0 {
		s.notes.Linef("the server offers neither tools nor resources nor prompts")
	}
	var failed error
	var stale []string
	defer func() { noteStale(s, stale) }()
	for _, kind := range kinds {
		err := v.list(ctx, s, kind, len(kinds) > 1, &stale)
		switch {
		case err == nil:
			continue
		case len(kinds) == 1, !IsOfOneKind(ctx, err):
			return err
		}
		err = s.failure(err)
		if failed == nil {
			failed = err
		}
		if v.json {
			s.notes.Warnf("%s: no response: %s", kind, safe.Clip(err.Error(), 1000))
		} else if err := s.write("  no response: " + safe.Clip(err.Error(), 1000) + "\n"); err != nil {
			return err
		}
	}
	return failed
}

// IsOfOneKind reports whether err concerns one kind only, so that the others can still be listed:
// the server answered, but not with a list.
func IsOfOneKind(ctx context.Context, err error) bool {
	_, isProtocol := errors.AsType[*client.ProtocolError](err)
	return ctx.Err() == nil && (isProtocol || client.IsServerError(err) || errors.Is(err, client.ErrEndlessList))
}

// IsNone reports whether err says that there are no templates. Servers with resources may have
// none, and can't declare which of the two they have.
func IsNone(kind string, err error) bool {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	return ok && kind == kindTemplates && e.Code == jsonrpc.CodeMethodNotFound
}

// DeclaredKinds returns the kinds that the server's capabilities declare.
func DeclaredKinds(c mcp.ServerCapabilities) []string {
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

// list prints the things of one kind. It adds what staleUpstreams returns to stale.
func (v *listVerb) list(ctx context.Context, s *session, kind string, headed bool, stale *[]string) error {
	if headed && !v.json {
		if err := s.write(kit.NewScreen(s.e.Stdout).Paint.In(kit.Bold, kind) + "\n"); err != nil {
			return err
		}
	}
	indent := ""
	if headed {
		indent = "  "
	}
	width, paint := 0, kit.NewScreen(s.e.Stdout).Paint
	if !v.wide {
		width = kit.TerminalWidth(s.e.Stdout)
	}
	count := 0
	err := EachPage(s.notes, v.page, func(cursor *string, pages *era.Pages) (*string, error) {
		s.trace.Forget()
		method, entries, next, err := FetchPage(ctx, s.Client, kind, cursor, pages)
		if v.json {
			// Show results that the client rejected, too.
			if text, _ := s.trace.Result(method); text != nil {
				if e := s.writeJSON(method); e != nil {
					return nil, e
				}
			}
		}
		if err != nil {
			return nil, err
		}
		*stale = append(*stale, staleUpstreams(s, method)...)
		count += len(entries)
		for _, entry := range entries {
			if v.json {
				break
			}
			if err := s.write(entry.format(indent, width, paint)); err != nil {
				return nil, err
			}
		}
		if v.page != nil {
			if next != nil {
				s.notes.Linef("more: --page %s", shellword.Word(*next))
			}
			next = nil
		}
		return next, nil
	})
	switch {
	case IsNone(kind, err) && v.page == nil && s.Profile().Capabilities.Resources != nil:
		err = nil
	case err != nil:
		return err
	}
	if count == 0 && !v.json && v.page == nil {
		if headed {
			return s.write("  none\n")
		}
		if len(*stale) == 0 {
			s.notes.Linef("the server has no %s", kind)
		}
	}
	return nil
}

// tokenCounts are the tokens of a tool, or of all tools with their counts.
type tokenCounts struct {
	Name string `json:"name,omitempty"`
	// Tokens counts the name, the description and the inputSchema.
	Tokens int           `json:"tokens"`
	Output int           `json:"outputSchemaTokens"`
	Tools  []tokenCounts `json:"tools,omitempty"`
}

// countTokens prints the number of tokens of each tool.
func (v *listVerb) countTokens(ctx context.Context, s *session) error {
	var sum tokenCounts
	var stale []string
	defer func() { noteStale(s, stale) }()
	err := EachPage(s.notes, nil, func(cursor *string, pages *era.Pages) (*string, error) {
		s.trace.Forget()
		page, err := s.ListTools(ctx, cursor)
		if err != nil {
			return nil, err
		}
		stale = append(stale, staleUpstreams(s, mcp.MethodToolsList)...)
		result, _ := s.trace.Result(mcp.MethodToolsList)
		for el := jsonwire.ArrayElements(jsonwire.Lookup(result, "tools")); el.Next(); {
			tool := tokenCounts{Name: jsonwire.Text(jsonwire.Lookup(el.Value(), "name"))}
			if !pages.IsNew(tool.Name) && cursor != nil {
				continue
			}
			tool.Tokens, tool.Output = tokens.CountTool(el.Value())
			sum.Tools = append(sum.Tools, tool)
			sum.Tokens += tool.Tokens
			sum.Output += tool.Output
		}
		return page.NextCursor, nil
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(sum.Tools, func(a, b tokenCounts) int { return cmp.Compare(b.Tokens, a.Tokens) })
	if v.json {
		return s.writeObject(sum)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%s o200k tokens in %s: name, description, inputSchema", trace.FormatCount(sum.Tokens), plural.Of(len(sum.Tools), "tool"))
	if sum.Output > 0 {
		fmt.Fprintf(&text, " (outputSchema, not sent by most hosts: %s)", trace.FormatCount(sum.Output))
	}
	for _, tool := range sum.Tools {
		fmt.Fprintf(&text, "\n%*s  %s", len(trace.FormatCount(sum.Tools[0].Tokens)), trace.FormatCount(tool.Tokens), safe.Clip(tool.Name, 100))
		if tool.Output > 0 {
			fmt.Fprintf(&text, " (outputSchema: %s)", trace.FormatCount(tool.Output))
		}
	}
	return s.write(text.String() + "\n")
}

// staleUpstreams returns the servers behind a gateway whose part of the last list is missing or may
// be out of date, if the gateway says so.
func staleUpstreams(s *session, method string) (names []string) {
	result, _ := s.trace.Result(method)
	for m := jsonwire.ArrayElements(jsonwire.Lookup(jsonwire.Lookup(result, "_meta"), gateway.MetaStale)); m.Next(); {
		if name := jsonwire.Text(m.Value()); name != "" {
			names = append(names, name)
		}
	}
	return names
}

// noteStale says which servers behind a gateway are missing in lists.
func noteStale(s *session, names []string) {
	slices.Sort(names)
	if names = slices.Compact(names); names == nil {
		return
	}
	s.notes.Linef("the list is not complete: the gateway has no current lists of %s yet; list again later", safe.Clip(strings.Join(names, ", "), 300))
}

// maxPages limits how many pages of a list are requested.
const maxPages = 10_000

// EachPage calls fetch with cursor, then with each cursor that fetch returns, until that is nil or
// repeats an earlier one.
func EachPage(n *kit.Notes, cursor *string, fetch func(cursor *string, pages *era.Pages) (next *string, err error)) error {
	var pages era.Pages
	for range maxPages {
		next, err := fetch(cursor, &pages)
		if err != nil || next == nil {
			return err
		}
		if pages.Repeats(*next) {
			n.Warnf("the list ends here: the server sent the cursor %s twice", safe.Clip(strconv.Quote(*next), 100))
			return nil
		}
		cursor = next
	}
	return exit.Fail(exit.Answer, "protocol_error", "--page requests single pages", fmt.Errorf("%w: %d pages", client.ErrEndlessList, maxPages))
}

// A listEntry is a tool, resource, template or prompt in a list. Its texts are escaped.
type listEntry struct {
	name string
	// args lists the arguments with their types, and names only their names.
	args, names string
	// note is printed after the name and the arguments.
	note string
	// badges are printed behind them on a terminal.
	badges      string
	description string
}

// format returns the lines of an entry. Without a width, it is one line.
func (l *listEntry) format(indent string, width int, p kit.Paint) string {
	if width == 0 {
		line := indent + l.name + l.args + l.note
		if l.description != "" {
			line += " — " + l.description
		}
		return line + "\n"
	}
	note := l.note + l.badges
	room := width - trace.Width(indent+l.name+note)
	args := l.args
	if trace.Width(args) > room {
		args = trace.Truncate(l.names, max(room, kit.MinWidth))
	}
	text := indent + p.In(kit.Bold, l.name) + args + p.In(kit.Yellow, note) + "\n"
	if l.description != "" {
		margin := len(indent) + 4
		f := kit.NewFolder(false, width, margin, margin)
		f.Words(l.description, "")
		lines := strings.Split(f.String(), "\n")
		if len(lines) > maxListLines {
			lines = lines[:maxListLines]
			lines[maxListLines-1] = trace.Truncate(lines[maxListLines-1]+" …", width-1)
		}
		for _, line := range lines {
			text += strings.Repeat(" ", margin) + p.In(kit.Dim, strings.TrimLeft(line, " ")) + "\n"
		}
	}
	return text
}

// maxListLines limits the lines of a description on a terminal.
const maxListLines = 2

// badges names the hints of a tool that matter to its user.
func badges(a *mcp.ToolAnnotations) string {
	if a == nil {
		return ""
	}
	var list []string
	switch {
	case a.ReadOnlyHint != nil && *a.ReadOnlyHint:
		list = append(list, "read-only")
	case a.DestructiveHint != nil && *a.DestructiveHint:
		list = append(list, "destructive")
	}
	if list == nil {
		return ""
	}
	return " [" + strings.Join(list, ", ") + "]"
}

// FetchPage requests one page and returns an entry for each thing on it. It skips things of earlier
// pages, since some servers ignore cursors.
func FetchPage(ctx context.Context, c *client.Client, kind string, cursor *string, pages *era.Pages) (method string, entries []listEntry, next *string, err error) {
	defer func() {
		entries = slices.DeleteFunc(entries, func(e listEntry) bool { return !pages.IsNew(e.name) && cursor != nil })
	}()
	switch kind {
	case kindTools:
		r, err := c.ListTools(ctx, cursor)
		if err != nil {
			return mcp.MethodToolsList, nil, nil, err
		}
		for _, t := range r.Tools {
			entry := listEntry{name: safe.Line(t.Name), badges: badges(t.Annotations), description: summary(t.Description)}
			entry.args, entry.names = argumentTexts(t.InputSchema)
			if !isObjectSchema(t.InputSchema) {
				entry.note += ` (its inputSchema has no "type": "object": many clients reject that)`
			}
			entries = append(entries, entry)
		}
		return mcp.MethodToolsList, entries, r.NextCursor, nil
	case kindResources:
		r, err := c.ListResources(ctx, cursor)
		if err != nil {
			return mcp.MethodResourcesList, nil, nil, err
		}
		for _, r := range r.Resources {
			entries = append(entries, listEntry{name: safe.Line(r.URI), note: aside(r.Name, r.MIMEType, r.Size), description: summary(r.Description)})
		}
		return mcp.MethodResourcesList, entries, r.NextCursor, nil
	case kindTemplates:
		r, err := c.ListResourceTemplates(ctx, cursor)
		if err != nil {
			return mcp.MethodResourceTemplatesList, nil, nil, err
		}
		for _, r := range r.ResourceTemplates {
			entries = append(entries, listEntry{name: safe.Line(r.URITemplate), note: aside(r.Name, r.MIMEType, nil), description: summary(r.Description)})
		}
		return mcp.MethodResourceTemplatesList, entries, r.NextCursor, nil
	case kindPrompts:
		r, err := c.ListPrompts(ctx, cursor)
		if err != nil {
			return mcp.MethodPromptsList, nil, nil, err
		}
		for _, p := range r.Prompts {
			args := strings.TrimPrefix(promptSignature(p), safe.Line(p.Name))
			entries = append(entries, listEntry{name: safe.Line(p.Name), args: args, names: args, description: summary(p.Description)})
		}
		return mcp.MethodPromptsList, entries, r.NextCursor, nil
	}
	return "", nil, nil, errors.New("unknown kind: " + kind)
}

// isObjectSchema reports whether a schema itself has the type object, as the protocol requires of
// inputSchema.
func isObjectSchema(schema []byte) bool {
	return jsonwire.Text(jsonwire.Lookup(schema, "type")) == "object"
}

// summary returns the first line of a description.
func summary(description string) string { return safe.Clip(safe.FirstLine(description), 300) }

// aside returns the name, MIME type and size of a resource, in parentheses.
func aside(name, kind string, size *int64) string {
	var parts []string
	if name != "" {
		parts = append(parts, safe.Clip(name, 100))
	}
	if kind != "" {
		parts = append(parts, safe.Clip(kind, 60))
	}
	if size != nil {
		parts = append(parts, kit.SizeText(int(*size)))
	}
	if parts == nil {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func promptSignature(p mcp.Prompt) string {
	var args []string
	for _, a := range p.Arguments {
		arg := safe.Line(a.Name)
		if !a.Required {
			arg += "?"
		}
		args = append(args, arg)
	}
	return safe.Line(p.Name) + "(" + strings.Join(args, ", ") + ")"
}

// details prints the named tools or prompts in full.
func (v *listVerb) details(ctx context.Context, s *session) error {
	var all, shown []string
	show := func(name, text string) error {
		all = append(all, name)
		if !slices.Contains(v.names, name) {
			return nil
		}
		if len(shown) > 0 {
			text = "\n" + text
		}
		shown = append(shown, name)
		return s.write(text)
	}
	if v.kinds[0] == kindTools {
		for tool, err := range s.Tools(ctx) {
			if err != nil {
				return err
			}
			if err := show(tool.Name, toolDetails(tool)); err != nil {
				return err
			}
		}
	} else {
		for prompt, err := range s.Prompts(ctx) {
			if err != nil {
				return err
			}
			if err := show(prompt.Name, promptDetails(prompt)); err != nil {
				return err
			}
		}
	}
	method := mcp.MethodToolsList
	if v.kinds[0] == kindPrompts {
		method = mcp.MethodPromptsList
	}
	noteStale(s, staleUpstreams(s, method))
	for _, name := range v.names {
		if !slices.Contains(shown, name) {
			return exit.Fail(exit.Answer, "not_listed", "mcpwire list TARGET "+v.kinds[0]+" lists them",
				fmt.Errorf("the server has no %s %s%s", strings.TrimSuffix(v.kinds[0], "s"), safe.Clip(name, 100), kit.DidYouMean(name, all)))
		}
	}
	return nil
}

// toolDetails returns everything that a tool's definition tells a model and its user.
func toolDetails(t mcp.Tool) string {
	var b strings.Builder
	writeHead(&b, signature(t.Name, t.InputSchema), t.Title, t.Description)
	list, _ := targets.Properties(t.InputSchema)
	writeArguments(&b, list)
	if len(t.OutputSchema) > 0 {
		fmt.Fprintf(&b, "  result: %s\n", safe.Clip(typeText(t.OutputSchema, 0), 80))
		list, _ := targets.Properties(t.OutputSchema)
		writeArguments(&b, list)
	}
	if t.Annotations != nil {
		if text := string(mcp.Append(nil, t.Annotations, mcp.RevisionNone)); text != "{}" {
			fmt.Fprintf(&b, "  annotations: %s\n", safe.Clip(text, 500))
		}
	}
	return b.String()
}

func promptDetails(p mcp.Prompt) string {
	var b strings.Builder
	writeHead(&b, promptSignature(p), p.Title, p.Description)
	var list []targets.Property
	for _, a := range p.Arguments {
		list = append(list, targets.Property{Name: a.Name, Description: a.Description, Required: a.Required})
	}
	writeArguments(&b, list)
	return b.String()
}

// maxDescription limits how much of a description is shown, in bytes.
const maxDescription = 64 << 10

func writeHead(b *strings.Builder, signature, title, description string) {
	b.WriteString(signature + "\n")
	if title != "" {
		b.WriteString("  " + safe.Clip(title, 300) + "\n")
	}
	if text := strings.TrimSpace(clip.Characters(description, maxDescription)); text != "" {
		b.WriteString("  " + indented(text, "  ") + "\n")
	}
}

// writeArguments writes a line for each argument, and more for long descriptions.
func writeArguments(b *strings.Builder, list []targets.Property) {
	width := 0
	for _, p := range list {
		width = max(width, len([]rune(safe.Line(p.Name)))+1)
	}
	width = min(width, 24)
	for _, p := range list {
		name := safe.Line(p.Name)
		if !p.Required {
			name += "?"
		}
		var parts []string
		if p.Schema != nil {
			parts = append(parts, safe.Clip(typeText(p.Schema, 0), 200))
		}
		if p.Fallback != nil {
			parts = append(parts, "default "+safe.Clip(string(jsonwire.AppendCompact(nil, p.Fallback)), 100))
		}
		parts = append(parts, limitsText(p.Schema)...)
		line := strings.Join(parts, ", ")
		if text := strings.TrimSpace(clip.Characters(p.Description, maxDescription)); text != "" {
			if line != "" {
				line += ": "
			}
			line += indented(text, strings.Repeat(" ", width+5))
		}
		fmt.Fprintf(b, "    %-*s %s\n", width, name, line)
	}
}

// limitsText lists a schema's constraints on numbers, strings and arrays.
func limitsText(schema json.RawMessage) (list []string) {
	for _, name := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern", "format", "minItems", "maxItems"} {
		if v := jsonwire.Lookup(schema, name); v != nil {
			list = append(list, name+" "+safe.Clip(string(jsonwire.AppendCompact(nil, v)), 100))
		}
	}
	return list
}

// indented escapes text from the server and indents its lines after the first by margin.
func indented(text, margin string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(safe.Line(line), " ")
		if i > 0 && lines[i] != "" {
			lines[i] = margin + lines[i]
		}
	}
	return strings.Join(lines, "\n")
}
