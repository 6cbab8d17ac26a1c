package call

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/client"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
)

const readLong = `Read a resource. Text is printed unchanged. Data goes to -o FILE, or to standard
output if that is not a terminal and the resource has nothing else; otherwise a
line describes it. --json prints the result object exactly as received.`

const readExample = `  mcpwire read demo://about -- mcpwire serve
  mcpwire read http://127.0.0.1:8080/mcp demo:///squares/12 -o square.txt`

// NewReadCommand returns the command read.
func NewReadCommand(e *kit.Env) *cobra.Command {
	return newVerbCommand(e, &cobra.Command{
		Use:     "read TARGET URI [FLAGS]",
		Short:   "read a resource",
		Long:    readLong,
		Example: readExample,
	}, &readVerb{})
}

// A readVerb reads a resource.
type readVerb struct {
	json bool
	file string
	uri  string
}

func (v *readVerb) register(fs *pflag.FlagSet) {
	fs.BoolVar(&v.json, "json", false, "print the result object exactly as received")
	fs.StringVarP(&v.file, "output", "o", "", "write the contents of the resource to `FILE`; - is standard output")
}

func (v *readVerb) parse(args []string) error {
	switch {
	case len(args) == 0:
		return exit.UsageHintf("mcpwire list TARGET resources lists them", "read: missing the resource's URI")
	case len(args) > 1:
		return exit.Usagef("read: unexpected argument %q (read takes one URI)", clip.Characters(args[1], 60))
	}
	v.uri = args[0]
	return nil
}

func (v *readVerb) run(ctx context.Context, s *session) error {
	s.trace.Forget()
	r, err := s.ReadResource(ctx, v.uri, client.WithoutCache(), client.WithProgress(s.notes.Progress))
	if client.IsServerError(err) && client.IsNotFound(err) {
		if f, ok := errors.AsType[*exit.Failure](s.d.Failure(err)); ok && f.RPC != nil {
			f.Hint = "mcpwire list TARGET resources templates lists them"
			return f
		}
	}
	text, _ := s.trace.Result(mcp.MethodResourcesRead)
	more, err := s.received(mcp.MethodResourcesRead, text, v.json, err)
	if !more {
		return err
	}
	var parts []part
	for _, c := range r.Contents {
		parts = append(parts, resourcePart(c))
	}
	if len(parts) == 0 {
		return exit.Fail(exit.Answer, "empty", "", fmt.Errorf("the server returned no contents for %s", safe.Clip(v.uri, 200)))
	}
	file := v.file
	if file == "" && len(parts) == 1 && parts[0].data != nil && !kit.WriterIsTerminal(s.e.Stdout) {
		file = "-"
	}
	return cmp.Or(s.writeParts(parts, file), err)
}
