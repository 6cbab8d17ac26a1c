package call

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

const sendLong = `Send messages unchanged and unchecked, and print what comes back: payloads on
standard output, directions and times on standard error. Messages are arguments,
@FILE, or - for standard input, which is also read if there are no messages and
it is not a terminal. Text that is one JSON value is one message; otherwise each
line is one. --raw sends all bytes in one piece instead, with nothing before or
after.

By default, send first opens a session in the revision of --protocol, and
reports it. It uses the legacy handshake, unless the first message is modern,
with its revision in _meta, or is initialize itself. Over HTTP, messages get the
matching headers. With --no-init, only the given messages are sent: over HTTP,
only Content-Type and Accept are added, and --header 'NAME:' removes those.

send waits for the responses to all requests. If there are no requests, or the
input is not JSON, it waits until nothing has arrived for --wait. Then it closes
the input of a stdio server, and waits once more. The exit status is 0 whatever
the responses say, and 4 if there is no response or no connection.`

const sendExample = `  mcpwire send '{"jsonrpc":"2.0","id":1,"method":"tools/list"}' -- mcpwire serve
  printf '{"jsonrpc":"2.0","i' | mcpwire send --raw --no-init -- mcpwire serve
  mcpwire send http://127.0.0.1:8080/mcp @a.json --no-init -H 'Mcp-Method: x'
  mcpwire send --batch --no-init @two.ndjson -- mcpwire serve`

// NewSendCommand returns the command send.
func NewSendCommand(e *kit.Env) *cobra.Command {
	v := &sender{e: e}
	f := targets.Flags{AnyHeader: true}
	c := &cobra.Command{
		Use:               "send TARGET [JSON | @FILE | -]... [FLAGS]",
		Short:             "send messages or bytes unchanged, even malformed ones",
		Long:              sendLong + "\n\n" + targets.Help,
		Example:           sendExample,
		ValidArgsFunction: targets.CompleteServers(nil),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, rest, err := targets.Split(cmd, e, args)
			if err != nil {
				return err
			}
			if err := v.parse(rest); err != nil {
				return err
			}
			d, err := targets.NewDialer(e, t, &f)
			if err != nil {
				return err
			}
			return v.send(cmd.Context(), d)
		},
	}
	v.register(c.Flags())
	f.Register(c.Flags())
	return c
}

// A sender sends messages unchanged.
type sender struct {
	e      *kit.Env
	raw    bool
	noInit bool
	batch  bool
	wait   time.Duration
	count  int

	messages [][]byte
	began    time.Time
	// out prints the messages and notes.
	out *session
}

func (v *sender) register(fs *pflag.FlagSet) {
	fs.BoolVar(&v.raw, "raw", false, "send the bytes in one piece, without a line break after them")
	fs.BoolVar(&v.noInit, "no-init", false, "send no handshake and no headers")
	fs.BoolVar(&v.batch, "batch", false, "send all messages as one JSON array")
	fs.DurationVar(&v.wait, "wait", 2*time.Second, "time to wait when nothing arrives")
	fs.IntVarP(&v.count, "number", "n", 0, "stop after this `NUMBER` of messages; 0 waits as described above")
}

func (v *sender) parse(args []string) error {
	if v.raw && v.batch {
		return exit.Usagef("send: --raw and --batch exclude each other")
	}
	if v.wait < 0 || v.count < 0 {
		return exit.Usagef("send: --wait and --number cannot be negative")
	}
	if len(args) == 0 {
		if kit.IsTerminal(v.e.Stdin) {
			return exit.Usagef("send: missing the message: give JSON, @FILE, or - for standard input")
		}
		args = []string{"-"}
	}
	v.messages = nil
	for _, arg := range args {
		text, err := targets.ReadInput(v.e, arg)
		if err != nil {
			return exit.Usagef("send: %w", err)
		}
		v.messages = append(v.messages, text)
	}
	if v.raw {
		v.messages = [][]byte{bytes.Join(v.messages, nil)}
	} else if v.messages = splitMessages(v.messages); v.batch {
		v.messages = [][]byte{append(append([]byte{'['}, bytes.Join(v.messages, []byte{','})...), ']')}
	}
	if len(v.messages) == 0 || v.raw && len(v.messages[0]) == 0 {
		return exit.Usagef("send: nothing to send")
	}
	return nil
}

// splitMessages returns one message for each text that is JSON, and one for each line of the
// others.
func splitMessages(texts [][]byte) (list [][]byte) {
	for _, text := range texts {
		if trimmed := bytes.TrimSpace(text); jsonwire.Valid(trimmed, 0) == nil {
			list = append(list, jsonwire.OneLine(trimmed))
			continue
		}
		for line := range bytes.Lines(text) {
			if line = bytes.TrimRight(line, "\r\n"); len(line) > 0 {
				list = append(list, line)
			}
		}
	}
	return list
}

// An envelope holds what can be read of a message, even an invalid one.
type envelope struct {
	// id is that of a request or an answer, or nil.
	id     jsonrpc.ID
	method string
	// version is the protocol version in _meta, which modern requests have.
	version string
	answer  bool
	isError bool
	json    bool
}

// envelopes returns the envelope of a message, or of each one in a batch.
func envelopes(message []byte) []envelope {
	message = bytes.TrimSpace(message)
	if jsonwire.Valid(message, 0) != nil {
		return []envelope{{}}
	}
	var list []envelope
	for _, one := range wireclient.Split(message) {
		list = append(list, newEnvelope(one))
	}
	return list
}

func newEnvelope(message []byte) envelope {
	// Members of another type stay empty; the rest is read.
	v := envelope{
		json: true, id: jsonrpc.ID(jsonwire.Lookup(message, "id")), method: jsonwire.Text(jsonwire.Lookup(message, "method")),
		version: jsonwire.Text(jsonwire.Lookup(message, "params", "_meta", mcp.MetaProtocolVersion)),
	}
	if v.id.IsNull() {
		v.id = nil
	}
	v.isError = v.method == "" && jsonwire.Lookup(message, "error") != nil
	v.answer = v.isError || v.method == "" && jsonwire.Lookup(message, "result") != nil
	return v
}

// describe describes a message in a few words.
func describe(message []byte) string {
	list := envelopes(message)
	if len(list) != 1 {
		return "batch of " + strconv.Itoa(len(list))
	}
	v := list[0]
	id := safe.Clip(v.id.String(), 60)
	method := safe.Clip(v.method, 100)
	switch {
	case !v.json:
		return "no JSON"
	case v.method != "" && v.id != nil:
		return "request " + id + " " + method
	case v.method != "":
		return "notification " + method
	case v.isError:
		return "error " + id
	case v.answer:
		return "response " + id
	}
	return "not a message"
}

// init returns the revision of the handshake that opens the session, or RevisionNone for no
// handshake.
func (v *sender) init(d *targets.Dialer) (r mcp.Revision, why string, err error) {
	var first envelope
	if list := envelopes(v.messages[0]); len(list) > 0 {
		first = list[0]
	}
	wanted, err := d.Flags.Revisions()
	switch {
	case err != nil:
		return mcp.RevisionNone, "", err
	case v.noInit:
		return mcp.RevisionNone, "", nil
	case wanted != nil && wanted[len(wanted)-1].Modern():
		return mcp.RevisionNone, "no handshake: modern revisions have none", nil
	case wanted != nil:
		return wanted[len(wanted)-1], "", nil
	case first.version != "":
		return mcp.RevisionNone, "no handshake: the message is modern, with revision " + safe.Clip(first.version, 40), nil
	case first.method == mcp.MethodInitialize:
		return mcp.RevisionNone, "no handshake except yours", nil
	}
	return mcp.LatestLegacyRevision, "", nil
}

// send sends the messages and prints the answers.
func (v *sender) send(ctx context.Context, d *targets.Dialer) error {
	v.out = &session{e: v.e, d: d, notes: d.Notes}
	v.began = time.Now()
	r, why, err := v.init(d)
	if err != nil {
		return err
	}
	if why != "" {
		d.Notes.Linef("%s", why)
	}
	if d.Target.IsStdio() {
		err = v.sendStdio(ctx, d, r)
	} else {
		err = v.sendHTTP(ctx, d, r)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return d.Failure(err)
}

// sent prints a note about a message that was sent.
func (v *sender) sent(message []byte, how string) {
	v.out.notes.Linef("→ %9s  %s%s (%s)", v.clock(), how, describe(message), kit.SizeText(len(message)))
}

// received prints a message that was received.
func (v *sender) received(message []byte, how string) error {
	v.out.notes.Linef("← %9s  %s%s (%s)", v.clock(), how, describe(message), kit.SizeText(len(message)))
	if kit.WriterIsTerminal(v.e.Stdout) {
		return v.out.write(safe.Text(string(message)) + "\n")
	}
	return v.out.write(string(message) + "\n")
}

func (v *sender) clock() string { return kit.ShortTime(time.Since(v.began)) }

// outstanding tracks the requests that wait for an answer.
type outstanding struct {
	ids map[string]bool
	// any is true if there were requests.
	any bool
	// blind is true if something was sent that isn't a valid message, to which the answer can't be
	// matched.
	blind bool
	// counted is the number of messages received.
	counted int
	// ended is true after the end of the stream.
	ended bool
}

func newOutstanding(messages [][]byte) *outstanding {
	o := &outstanding{ids: map[string]bool{}}
	for _, m := range messages {
		for _, v := range envelopes(m) {
			switch {
			case v.id != nil && v.method != "":
				o.ids[string(v.id)], o.any = true, true
			case !v.json || v.method == "" && !v.answer:
				o.blind = true
			}
		}
	}
	return o
}

// take records a received message and reports whether there is nothing more to wait for.
func (o *outstanding) take(message []byte, count int) (done bool) {
	o.counted++
	for _, v := range envelopes(message) {
		if v.method == "" {
			delete(o.ids, string(v.id))
		}
	}
	if count > 0 {
		return o.counted >= count
	}
	return o.answered()
}

func (o *outstanding) answered() bool { return o.any && len(o.ids) == 0 && !o.blind }

// missing returns the error for requests without an answer, or nil.
func (o *outstanding) missing(v *sender, d *targets.Dialer) error {
	if len(o.ids) == 0 || v.count > 0 && o.counted >= v.count || o.blind && o.counted > 0 {
		return nil
	}
	var id string
	for id = range o.ids {
		break
	}
	what := "request " + safe.Clip(id, 60)
	if len(o.ids) > 1 {
		what = strconv.Itoa(len(o.ids)) + " requests"
	}
	if o.ended {
		return exit.Fail(exit.Unreachable, "no_answer", "", d.WithTail(errors.New("no response to "+what+", and none can arrive")))
	}
	return exit.Fail(exit.Unreachable, "timeout", "--wait allows more time", d.WithTail(fmt.Errorf("no response to %s, and nothing else for %v", what, v.wait)))
}

// initialized ends a handshake.
var initialized = jsonrpc.AppendNotification(nil, mcp.NotificationInitialized, nil)

// readHandshake reads and notes the answer to initialize, and returns the revision that the server
// selected.
func (v *sender) readHandshake(answer []byte) (string, error) {
	var m jsonrpc.Message
	if err := jsonrpc.Parse(answer, &m, 0); err != nil {
		return "", errors.New("the response to initialize is not a message (--no-init skips the handshake): " + safe.Clip(string(answer), 300))
	}
	if m.Kind == jsonrpc.KindError {
		f := targets.RPCFailure(m.Err(), mcp.MethodInitialize)
		f.Hint = "--protocol modern or --no-init skip the handshake"
		return "", f
	}
	var r mcp.InitializeResult
	if err := r.UnmarshalJSON(m.Result); err != nil {
		return "", fmt.Errorf("the response to initialize is invalid (--no-init skips the handshake): %w", err)
	}
	v.out.notes.Linef("handshake: legacy, revision %s, with %s %s", safe.Clip(r.ProtocolVersion, 40), safe.Clip(r.ServerInfo.Name, 100), safe.Clip(r.ServerInfo.Version, 40))
	return r.ProtocolVersion, nil
}
