package call

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/client"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/mcp"
)

const promptLong = `Get a prompt and print its messages, each below its role. Arguments are
NAME=TEXT. --json prints the result object exactly as received.`

const promptExample = `  mcpwire prompt explain topic=pipes -- mcpwire serve
  mcpwire prompt http://127.0.0.1:8080/mcp explain topic=go --json`

// NewPromptCommand returns the command prompt.
func NewPromptCommand(e *kit.Env) *cobra.Command {
	return newVerbCommand(e, &cobra.Command{
		Use:     "prompt TARGET NAME [NAME=TEXT]... [FLAGS]",
		Short:   "get a prompt",
		Long:    promptLong,
		Example: promptExample,
	}, &promptVerb{})
}

// A promptVerb gets a prompt.
type promptVerb struct {
	json bool
	name string
	args map[string]string
}

func (v *promptVerb) register(fs *pflag.FlagSet) {
	fs.BoolVar(&v.json, "json", false, "print the result object exactly as received")
}

func (v *promptVerb) parse(args []string) (err error) {
	if len(args) == 0 {
		return exit.UsageHintf("mcpwire list TARGET prompts lists them", "prompt: missing the prompt's name")
	}
	v.name = args[0]
	v.args, err = textArguments("prompt", args[1:])
	return err
}

// textArguments parses arguments that can only be strings.
func textArguments(command string, args []string) (map[string]string, error) {
	list, err := targets.ParseArguments(command, args)
	if err != nil || list == nil {
		return nil, err
	}
	m := map[string]string{}
	for _, a := range list {
		if a.Raw != nil {
			return nil, exit.Usagef("%s: invalid argument %s:=: arguments of prompts are strings (write %[2]s=…)", command, safe.Line(a.Name))
		}
		m[a.Name] = a.Text
	}
	return m, nil
}

func (v *promptVerb) run(ctx context.Context, s *session) error {
	v.warn(ctx, s)
	s.trace.Forget()
	r, err := s.GetPrompt(ctx, v.name, v.args, client.WithProgress(s.notes.Progress))
	text, _ := s.trace.Result(mcp.MethodPromptsGet)
	more, err := s.received(mcp.MethodPromptsGet, text, v.json, err)
	if !more {
		return err
	}
	for i, m := range r.Messages {
		head := "[" + safe.Line(string(m.Role)) + "]\n"
		if i > 0 {
			head = "\n" + head
		}
		if err := s.write(head); err != nil {
			return err
		}
		if err := s.writePart(contentPart(m.Content)); err != nil {
			return err
		}
	}
	return err
}

// warn prints a warning if the server doesn't list the prompt or one of its arguments.
func (v *promptVerb) warn(ctx context.Context, s *session) {
	var names []string
	for p, err := range s.Prompts(ctx) {
		if err != nil {
			return // the call itself will fail
		}
		if p.Name == v.name {
			v.warnArguments(p, s)
			return
		}
		names = append(names, p.Name)
	}
	if names != nil {
		s.notes.Warnf("the server has no prompt %s%s", safe.Line(v.name), kit.DidYouMean(v.name, names))
	}
}

func (v *promptVerb) warnArguments(p mcp.Prompt, s *session) {
	var names []string
	for _, a := range p.Arguments {
		names = append(names, a.Name)
		if _, given := v.args[a.Name]; a.Required && !given {
			s.notes.Warnf("the prompt requires the argument %s", safe.Line(a.Name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.args)) {
		if !slices.Contains(names, name) {
			s.notes.Warnf("the prompt has no argument %s%s", safe.Line(name), kit.DidYouMean(name, names))
		}
	}
}
