package call

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

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
