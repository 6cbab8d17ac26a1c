package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

const demoLong = `Start "mcpwire serve" as a child process, as a host would, run a short session
over its pipes, and print each line with its meaning. → marks a line to the
server's standard input, and ← a line from its standard output.

On a terminal, lines are folded to 80 columns, or to COLUMNS, and colored unless
NO_COLOR is set. Elsewhere, as in mcpwire demo | cat, each message is one line.`

func newDemoCommand(e *kit.Env) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "show a real session, explained line by line",
		Long:  demoLong,
		Example: `  mcpwire demo
  mcpwire demo | cat`,
		Args: kit.FlagsOnly,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDemo(cmd.Context(), e) },
	}
}

// demoTimeout limits the whole demo, which takes a fraction of a second.
const demoTimeout = 20 * time.Second

// A demoStep is one line to the server and the lines that it answers.
type demoStep struct {
	title   string
	send    string
	meaning string
	answers []demoAnswer
}

// A demoAnswer is a line that the server must send. Its id identifies it, or its method if it is a
// notification.
type demoAnswer struct {
	id, method string
	meaning    string
}

func demoSteps() []demoStep {
	modern := `"_meta":{"` + mcp.MetaProtocolVersion + `":"` + mcp.LatestRevision.String() + `","` + mcp.MetaClientCapabilities + `":{}}`
	return []demoStep{
		{"The handshake", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + mcp.LatestLegacyRevision.String() + `","capabilities":{},"clientInfo":{"name":"demo-host","version":"1.0.0"}}}`,
			"a request: it has an id, so it needs a response; the client names the revision it speaks",
			[]demoAnswer{{"1", "", "the response has the same id: the server accepts the revision and lists its capabilities"}}},
		{"", `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			"a notification: no id, no response; from now on tools may be called", nil},
		{"A tool call", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"word_count","arguments":{"text":"every byte on the wire"}}}`,
			"the model chose the tool and its arguments; the host sends them",
			[]demoAnswer{{"2", "", "content is what the model reads"}}},
		{"Progress before the response", `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"slow","arguments":{"steps":2,"delay_ms":120},"_meta":{"progressToken":"p"}}}`,
			"a slow tool; the token requests progress",
			[]demoAnswer{
				{"", mcp.NotificationProgress, "a notification that belongs to the request with that token"},
				{"", mcp.NotificationProgress, "progress always increases"},
				{"3", "", "the response comes last"},
			}},
		{"A tool that fails", `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"fail","arguments":{"message":"disk full"}}}`,
			"the call itself is valid",
			[]demoAnswer{{"4", "", "so this is a result, with isError: the model can read it and try something else"}}},
		{"Invalid arguments", `{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":"two"}}}`,
			"b is not an integer",
			[]demoAnswer{{"5", "", "also a result: it names the wrong argument and the expected type"}}},
		{"A protocol error", `{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"name":"no_such_tool"}}`,
			"here the request itself is invalid",
			[]demoAnswer{{"6", "", "an error instead of a result: -32602, invalid params"}}},
		{"A broken line", `{"jsonrpc":"2.0","id":7,"method":`,
			"this is not JSON",
			[]demoAnswer{{"", "", "-32700, and no id, because the line has none that can be trusted; the stream continues with the next line"}}},
		{"The other era, on the same pipe", `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"add","arguments":{"a":9007199254740993,"b":1},` + modern + `}}`,
			"a stateless request of revision " + mcp.LatestRevision.String() + ": it needs no handshake, its metadata is in _meta",
			[]demoAnswer{{"8", "", "resultType, the server's identity, structured content; large integers keep every digit"}}},
	}
}

func runDemo(ctx context.Context, e *kit.Env) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("demo: find this program: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	child, err := stdio.Command(exe, "serve", "--log-level", "error").Start(ctx)
	if err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	defer child.Close()
	stop := context.AfterFunc(ctx, func() { child.Close() })
	defer stop()
	d := &demoSession{Screen: kit.NewScreen(e.Stdout), child: child, framer: jsonrpc.NewFramer(child, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine})}
	if err := d.play(); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	return nil
}

// A demoSession runs the steps and prints them.
type demoSession struct {
	*kit.Screen
	child  *stdio.Process
	framer jsonrpc.Framer
}

func (s *demoSession) play() error {
	s.Line(fmt.Sprintf("mcpwire serve runs as process %d; each line is one JSON text, in both directions.", s.child.Pid()))
	for _, step := range demoSteps() {
		if step.title != "" {
			s.Title(step.title)
		}
		s.print(kit.Cyan, "→", step.send, step.meaning)
		if _, err := io.WriteString(s.child, step.send+"\n"); err != nil {
			return err
		}
		for _, want := range step.answers {
			if err := s.answer(want); err != nil {
				return err
			}
		}
	}
	return s.shutdown()
}

// answer reads one line and checks that it is the expected one.
func (s *demoSession) answer(want demoAnswer) error {
	line, err := s.framer.ReadFrame()
	if err != nil {
		return err
	}
	var m jsonrpc.Message
	if err := jsonrpc.Parse(line, &m, 0); err != nil {
		return fmt.Errorf("the server sent %q: %w", line, err)
	}
	id := m.ID.String()
	if m.ID.IsNull() {
		id = ""
	}
	if id != want.id || string(m.Method) != want.method {
		return fmt.Errorf("the server sent %s", line)
	}
	s.print(answerColor(&m), "←", string(line), want.meaning)
	return nil
}

func answerColor(m *jsonrpc.Message) string {
	switch m.Kind {
	case jsonrpc.KindError:
		return kit.Red
	case jsonrpc.KindNotification:
		return kit.Yellow
	}
	members := jsonwire.ObjectMembers(m.Result)
	for members.Next() {
		if members.KeyIs("isError") && string(members.Value()) == "true" {
			return kit.Red
		}
	}
	return kit.Green
}

func (s *demoSession) print(style, arrow, line, meaning string) {
	s.Message(style, arrow, line)
	s.Note(meaning)
}

// shutdown ends the session as the specification requires: it closes the server's standard input
// and waits.
func (s *demoSession) shutdown() error {
	s.Title("The end")
	if err := s.child.CloseWrite(); err != nil {
		return err
	}
	s.print(kit.Cyan, "→", "(end of input)", "the host closes the pipe; the protocol has no closing message")
	if line, err := s.framer.ReadFrame(); err != io.EOF {
		return fmt.Errorf("after the end of input came %q, %v", line, err)
	}
	if err := s.child.Wait(); err != nil {
		return err
	}
	s.print(kit.Green, "←", "(end of output, exit status 0)", "the server finished accepted requests and exited")
	s.Printf("\n")
	s.Line("mcpwire serve --help shows how a host starts this server.")
	return s.Err
}
