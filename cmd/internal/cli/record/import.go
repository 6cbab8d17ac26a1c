package record

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/proxy/recording"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/importer"
)

const importLong = `Create a capture from another tool's recording, so that all commands can read
it. import detects the format from the beginning of FILE, unless --from sets it:

  mcpsnoop        recordings of mcpsnoop
  har             HTTP archives of browsers and proxies; entries that are not
                  MCP are skipped
  claude-desktop  its logs, mcp-server-NAME.log
  vscode          the output of an MCP server, at the log level debug or trace
  claude-code     its logs, mcp-logs-NAME/*.jsonl, which rarely have messages

The capture goes to the folder that mcpwire captures lists, and its path is
printed. -o names another file, or - for standard output. Values that look like
secrets are redacted, unless --redact off is given. If FILE is -, import reads
standard input.`

const importExample = `  mcpwire import ~/Library/Logs/Claude/mcp-server-files.log && mcpwire show
  mcpwire import page.har -o - | mcpwire check -
  mcpwire import --from vscode --local-time output.log --name tasks`

// importFlags holds the flags of the import command.
type importFlags struct {
	from, output, name, redact string
	local                      bool
}

// NewImportCommand returns the command import.
func NewImportCommand(e *kit.Env) *cobra.Command {
	var f importFlags
	names := make([]string, 0, 8)
	for _, n := range importer.Formats() {
		names = append(names, string(n))
	}
	c := &cobra.Command{
		Use:     "import FILE [-o FILE] [FLAGS]",
		Short:   "create a capture from a host's log, an mcpsnoop recording or HAR",
		Long:    importLong,
		Example: importExample,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return exit.Usagef("import: it takes one file, or - for standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.from != "" && !slices.Contains(names, f.from) {
				return exit.Usagef("import: unknown format %q: want one of %s", f.from, strings.Join(names, ", "))
			}
			return runImport(cmd.Context(), e, &f, args[0])
		},
	}
	c.Flags().StringVar(&f.from, "from", "", "input `FORMAT`: "+strings.Join(names, ", "))
	c.Flags().StringVarP(&f.output, "output", "o", "", "write to `FILE`, which must not exist; - is standard output")
	c.Flags().StringVar(&f.name, "name", "", "`NAME` of the server, if FILE does not contain it")
	c.Flags().StringVar(&f.redact, "redact", "default", "what to redact: `WHAT` is default, or off for nothing")
	c.Flags().BoolVar(&f.local, "local-time", false, "read times without a time zone as local time, not UTC")
	_ = c.RegisterFlagCompletionFunc("from", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func runImport(ctx context.Context, e *kit.Env, f *importFlags, path string) error {
	in := io.Reader(e.Stdin)
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return exit.Fail(exit.Unexpected, "unreadable", "", err)
		}
		defer file.Close()
		in = file
	}
	name := f.name
	if name == "" {
		name = importName(path)
	}
	opts := &importer.Options{Format: importer.Format(f.from), Name: f.name, Tool: "mcpwire " + build.Version() + " import", Redact: recording.Redaction(f.redact)}
	if f.local {
		opts.Zone = time.Local
	}
	var result importer.Result
	write := func(w io.Writer) (err error) {
		result, err = importer.Run(w, contextReader{ctx, in}, opts)
		return err
	}
	if err := importTo(e, f.output, name, write); err != nil {
		if errors.Is(err, importer.ErrUnknown) {
			return exit.Fail(exit.Unexpected, "unknown_format", "mcpwire import --help lists what can be imported; --from names the format", fmt.Errorf("%s: %w", safe.Line(path), err))
		}
		return err
	}
	fmt.Fprintf(e.Stderr, "%s: %d events, %d of them messages", result.Format, result.Events, result.Messages)
	if result.Notes > 0 {
		fmt.Fprintf(e.Stderr, ", %d lines kept as notes", result.Notes)
	}
	if result.Skipped > 0 {
		fmt.Fprintf(e.Stderr, ", %d entries skipped that are not MCP", result.Skipped)
	}
	if result.Dropped > 0 {
		fmt.Fprintf(e.Stderr, ", %d lines dropped before the first one with a time", result.Dropped)
	}
	fmt.Fprintln(e.Stderr)
	return nil
}

// importName returns the default name of the server.
func importName(path string) string {
	name := filepath.Base(path)
	name = strings.TrimSuffix(name, filepath.Ext(name))
	name = strings.TrimPrefix(name, "mcp-server-")
	if path == "-" || name == "" || name == "." {
		return "imported"
	}
	return name
}

// importTo calls write with the output of the capture. It prints the path of a file that the user
// did not name.
func importTo(e *kit.Env, output, name string, write func(io.Writer) error) error {
	switch output {
	case "-":
		return write(e.Stdout)
	case "":
		dir, err := captures.Dir()
		if err == nil {
			err = os.MkdirAll(dir, 0o700)
		}
		if err != nil {
			return exit.Fail(exit.Unexpected, "output", "name a file with -o", err)
		}
		path := filepath.Join(dir, fmt.Sprintf("%s-%s-%d%s", captures.FileName(name), time.Now().UTC().Format("20060102T150405Z"), os.Getpid(), capture.Suffix))
		if err := kit.CreateFile(path, write); err != nil {
			return err
		}
		_, err = fmt.Fprintln(e.Stdout, path)
		return err
	}
	return kit.CreateFile(output, write)
}

// A contextReader fails after its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements [io.Reader].
func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
