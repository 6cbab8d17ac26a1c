package connect

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/demo"
	"mcpwire/cmd/internal/proxy/endpoint"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
)

const serveLong = `Run the demo server on standard input and output until the input ends, or over
HTTP until it is stopped. It speaks every revision of MCP, with and without
handshake, and offers the tools echo, word_count, add, slow, fail and crash, the
resource demo://about, the resource template demo:///squares/{n} and the prompt
explain. Messages go to stdout, the log to stderr.

To use it from a host such as Claude Desktop or Cursor, add this to the host's
configuration (VS Code calls the outer member "servers"):

  {
    "mcpServers": {
      "mcpwire-demo": {
        "command": "mcpwire",
        "args": ["serve"]
      }
    }
  }

Give the command's full path if mcpwire is not in the host's PATH.

Over HTTP, only this machine can connect, and no web page. For other machines,
require a token with --token-env or --issuer, and name the --host they use.`

const serveExample = `  echo '{"jsonrpc":"2.0","id":1,"method":"ping"}' | mcpwire serve

  # over HTTP, for clients that are given http://127.0.0.1:8080/mcp
  mcpwire serve --http 127.0.0.1:8080

  # for other machines
  mcpwire serve --http 0.0.0.0:8443 --host mcp.example.com --token-env TOKEN \
      --tls-cert cert.pem --tls-key key.pem`

type serveFlags struct {
	framing   jsonrpc.Framing
	level     slog.Level
	json      bool
	trace     bool
	lenient   bool
	revisions []mcp.Revision
	maxFrame  int
	http      httpFlags
}

func (f *serveFlags) register(fs *pflag.FlagSet) {
	fs.Func("framing", "message framing: `KIND` is line, header, or auto, which follows the client (default auto)", kit.FramingFlag(&f.framing, true))
	fs.Func("log-level", "lowest `LEVEL` to log: trace, debug, info, warn or error (default info)", f.setLevel)
	fs.BoolVar(&f.json, "log-json", false, "log in JSON, one object per line")
	fs.BoolVar(&f.trace, "trace", false, "log each message in a [TRACE] line; same as --log-level trace")
	fs.Func("revision", "speak only this revision of MCP, a `DATE` that mcpwire version lists; may be repeated (default all)", f.addRevision)
	fs.BoolVar(&f.lenient, "lenient", false, "accept requests before the handshake is complete")
	f.http.register(fs)
	fs.Func("max-frame", "largest message to read, in bytes: a `SIZE` such as 65536, 64K or 16M; a larger one is skipped and gets an error (default 64M, over HTTP 4M)", sizeFlag(&f.maxFrame))
}

func (f *serveFlags) setLevel(s string) error {
	if s == "trace" {
		f.level = stdio.LevelTrace
		return nil
	}
	if err := f.level.UnmarshalText([]byte(s)); err != nil {
		return fmt.Errorf("want trace, debug, info, warn or error")
	}
	return nil
}

func (f *serveFlags) addRevision(s string) error {
	var r mcp.Revision
	if err := r.UnmarshalText([]byte(s)); err != nil {
		return err
	}
	f.revisions = append(f.revisions, r)
	return nil
}

// sizeFlag returns the setter of a flag for a number of bytes.
func sizeFlag(to *int) func(string) error {
	return func(s string) error {
		s = strings.ToUpper(s)
		digits := strings.TrimRight(s, "KMG")
		n, err := strconv.ParseInt(digits, 10, 32)
		by, ok := map[string]uint{"": 0, "K": 10, "M": 20, "G": 30}[s[len(digits):]]
		if err != nil || !ok || n <= 0 || n<<by > 1<<31-1 {
			return fmt.Errorf("want a number of bytes up to 2147483647, such as 65536, 64K or 16M")
		}
		*to = int(n << by)
		return nil
	}
}

// NewServeCommand returns the command serve.
func NewServeCommand(e *kit.Env) *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:         "serve [FLAGS]",
		Short:       "run the demo server on standard input and output, or over HTTP",
		Long:        serveLong,
		Example:     serveExample,
		Annotations: map[string]string{kit.OwnSignals: "true"},
		Args:        kit.FlagsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.http.check(cmd.Flags().Changed); err != nil {
				return err
			}
			return runServe(cmd.Context(), e, &f)
		},
	}
	f.register(c.Flags())
	return c
}

func runServe(ctx context.Context, e *kit.Env, f *serveFlags) error {
	handler := f.logHandler(e.Stderr)
	defer handler.Close()
	log := slog.New(handler)
	srv, err := newDemoServer(f, log)
	if err != nil {
		return err
	}
	if f.http.addr != "" {
		return f.http.serve(ctx, srv, f.maxFrame, log)
	}
	if kit.IsTerminal(e.Stdin) {
		log.Info("reading from the terminal, one message per line; Ctrl-D ends the session")
	}
	return endpoint.ServeStdio(ctx, e.Stdin, e.Stdout, srv, stdio.Config{Framing: f.framing, MaxFrame: f.maxFrame, Logger: log})
}

func (f *serveFlags) logHandler(w io.Writer) *stdio.LogHandler {
	level := f.level
	if f.trace {
		level = min(level, stdio.LevelTrace)
	}
	return stdio.NewLogHandler(w, &stdio.LogOptions{Level: level, JSON: f.json})
}

// newDemoServer returns the server that serve runs.
func newDemoServer(f *serveFlags, log *slog.Logger) (*server.Server, error) {
	opts := &server.Options{Revisions: f.revisions, Lenient: f.lenient, Logger: log}
	if f.trace || f.level <= stdio.LevelTrace {
		opts.Trace = func(dir jsonrpc.Direction, message []byte) {
			arrow := "→ "
			if dir == jsonrpc.Outgoing {
				arrow = "← "
			}
			log.Log(context.Background(), stdio.LevelTrace, arrow+string(message))
		}
	}
	return demo.New(build.Version(), opts)
}
