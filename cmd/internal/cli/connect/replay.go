package connect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/capture"
	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/sources"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/playback/replay"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/proxy/recording"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/captures"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/proc/inuse"
	"mcpwire/jsonrpc"
)

const replayLong = `Act as the client of a recorded session, and compare the server's responses with
the recorded ones. Messages are sent in their recorded order and with their ids,
each after all responses that preceded it in the recording. Values that a server
chooses anew in each session (cursors, task ids, the state of input requests)
are replaced with those of this session. Requests from the server get the
recorded answers, by method and order; requests that were not recorded are
declined.

FILE is a capture, or the NAME of a server that has one. It is sent only to the
server that you name. The transport may differ from the recorded one. The era
may not, because replay does not translate.

Without --strict, replay does not compare values that differ each time: times,
UUIDs and ULIDs anywhere, _meta, ttlMs, and the values of cursors, states, and
ids of tasks and sessions. A value that is redacted in the recording matches
anything. A message with a redacted value is not sent, unless --set provides the
value.

--update replaces FILE with a recording of this session if every message was
sent and answered; the exit status is then 0. Otherwise the exit status is 6 if
there are differences, and 4 if the server is unreachable or ends.`

const replayExample = `  mcpwire replay session.mcpcap.ndjson -- node build/index.js
  mcpwire replay files https://example.com/mcp -f tool:search --timing keep
  mcpwire replay a.mcpcap.ndjson --update \
    --ignore '/result/content/*/text' -- ./server
  mcpwire replay a.mcpcap.ndjson --set '/params/arguments/key=${KEY}' --same`

type replayFlags struct {
	json, strict, same, update     bool
	timing, filter, output, redact string
	ignore, set                    kit.List
	side                           sources.SideFlag
	session                        int64
	target                         targets.Flags

	dialer *targets.Dialer
	path   string
}

// NewReplayCommand returns the command replay.
func NewReplayCommand(e *kit.Env) *cobra.Command {
	var f replayFlags
	c := &cobra.Command{
		Use:               "replay FILE TARGET [FLAGS] | replay FILE [FLAGS] -- COMMAND",
		Short:             "act as the recorded client, and compare the responses",
		Long:              replayLong + "\n\n" + targets.Help,
		Example:           replayExample,
		ValidArgsFunction: sources.CompleteCaptures,
		RunE:              func(cmd *cobra.Command, args []string) error { return f.run(cmd, e, args) },
	}
	fs := c.Flags()
	fs.BoolVar(&f.json, "json", false, "print one object per line for each request")
	fs.BoolVar(&f.strict, "strict", false, "compare everything, including the number of notifications")
	fs.BoolVar(&f.same, "same", false, "use the recorded server: its command or its URL")
	fs.BoolVar(&f.update, "update", false, "replace FILE with a recording of this session")
	fs.StringVar(&f.timing, "timing", string(replay.Fast), "`SPEED` of requests: fast, or keep for the client's recorded pauses")
	fs.StringVarP(&f.filter, "filter", "f", "", "send only the handshake and requests that match `FILTER`, see mcpwire show --help")
	_ = c.RegisterFlagCompletionFunc("filter", sources.CompleteFilter) // the flag exists
	fs.StringVarP(&f.output, "output", "o", "", "record this session to `FILE`, which must not exist")
	fs.StringVar(&f.redact, "redact", "default", "what to redact in the recording: `WHAT` is default, or off for nothing")
	fs.Var(&f.ignore, "ignore", "do not compare this place in responses: a JSON `POINTER`, with * for any name or index, and the name or recorded index for an element of a list; may be repeated")
	fs.Var(&f.set, "set", "value for a redacted place in a message: `POINTER=TEXT`, or POINTER:=JSON; ${VARIABLE} is replaced from the environment")
	f.side.RegisterOne(fs, capture.Upstream)
	fs.Int64Var(&f.session, "session", -1, "replay only the session with this `NUMBER`; -1 is all, one after the other")
	f.target.Register(fs)
	_ = c.RegisterFlagCompletionFunc("timing", cobra.FixedCompletions([]string{string(replay.Fast), string(replay.Keep)}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func (f *replayFlags) run(cmd *cobra.Command, e *kit.Env, args []string) error {
	opts, err := f.options()
	if err != nil {
		return err
	}
	t, err := f.splitArgs(cmd, e, args)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	src := sources.Source{Env: e, Paths: []string{f.path}, Side: f.side.Side}
	if src.Stdin() && (f.update || f.same || f.filter != "") {
		return exit.Usagef("replay: --update, --same and --filter need a file, not standard input")
	}
	if opts.Select, err = f.chosen(ctx, src); err != nil {
		return err
	}
	recordings, err := replay.Read(ctx, src.Events(ctx), f.readOptions())
	if err != nil {
		return exit.Fail(exit.Unexpected, "unreadable", "mcpwire show prints a capture", err)
	}
	to := new(resend.Origin)
	if f.same {
		if to, err = f.recorded(ctx, e, src, recordings[0]); err != nil {
			return err
		}
		t = targets.Spec{Name: to.Target(), Command: to.Command, Dir: to.Dir, URL: to.URL}
	}
	if f.dialer, err = targets.NewDialer(e, t, &f.target); err != nil {
		return err
	}
	f.reach(to, opts)
	return f.play(ctx, e, recordings, to, opts)
}

// options checks the flags and returns the options of the replay.
func (f *replayFlags) options() (*replay.Options, error) {
	opts := &replay.Options{Timing: replay.Timing(f.timing), Ignore: f.ignore, Strict: f.strict, Set: map[string][]byte{}}
	switch {
	case opts.Timing != replay.Fast && opts.Timing != replay.Keep:
		return nil, exit.Usagef("replay: invalid value %q for flag --timing: want fast or keep", f.timing)
	case f.update && (f.output != "" || f.filter != "" || f.session >= 0):
		return nil, exit.Usagef("replay: --update replaces the whole recording: it cannot be combined with --output, --filter or --session")
	}
	for _, name := range []string{"protocol", "elicit", "sampling", "root"} {
		if f.target.Given(name) {
			return nil, exit.Usagef("replay: --%s does not apply: the recording sets it", name)
		}
	}
	for _, p := range f.ignore {
		if !strings.HasPrefix(p, "/") {
			return nil, exit.Usagef("replay: --ignore %s: want a JSON pointer, such as /result/content", safe.Clip(p, 60))
		}
	}
	for _, s := range f.set {
		pointer, value, err := parseSet(s)
		if err != nil {
			return nil, err
		}
		opts.Set[pointer] = value
	}
	return opts, nil
}

// parseSet parses POINTER=TEXT or POINTER:=JSON. Errors don't contain the value.
func parseSet(s string) (pointer string, value []byte, err error) {
	pointer, text, ok := strings.Cut(s, "=")
	pointer, isJSON := strings.CutSuffix(pointer, ":")
	if !ok || !strings.HasPrefix(pointer, "/") {
		return "", nil, exit.Usagef("replay: --set: want POINTER=TEXT, such as /params/arguments/key=${KEY}")
	}
	if text, err = targets.ExpandVariables(text); err != nil {
		return "", nil, exit.Usagef("replay: --set %s: %w", safe.Line(pointer), err)
	}
	if !isJSON {
		return pointer, jsonwire.AppendQuote(nil, text), nil
	}
	if value = []byte(strings.TrimSpace(text)); jsonwire.Valid(value, 0) != nil {
		return "", nil, exit.Usagef("replay: --set %s:= is not JSON", safe.Line(pointer))
	}
	return pointer, value, nil
}

// splitArgs separates the capture from the server's arguments.
func (f *replayFlags) splitArgs(cmd *cobra.Command, e *kit.Env, args []string) (t targets.Spec, err error) {
	dash := cmd.ArgsLenAtDash()
	file := args
	if dash >= 0 {
		file = args[:dash]
	}
	if len(file) == 0 {
		return t, exit.Usagef("replay: missing the recording: give a capture and a server (mcpwire replay --help)")
	}
	paths, err := sources.Args(e, "replay", file[:1])
	if err != nil {
		return t, err
	}
	f.path = paths[0]
	rest := file[1:]
	switch {
	case f.same && (dash >= 0 || len(rest) > 0 || f.target.Config != ""):
		return t, exit.Usagef("replay: --same uses the recorded server: give no other")
	case f.same:
		return t, nil
	case dash >= 0 && f.target.Config == "":
		if len(rest) > 0 || len(args) == dash || args[dash] == "" {
			return t, exit.Usagef("replay: want one capture before --, and the server's command after it")
		}
		return targets.Spec{Name: targets.CommandName(args[dash:]), Command: args[dash:]}, nil
	case len(rest) == 0 && f.target.Config == "":
		return t, exit.Usagef("replay: missing the server: give a URL, a name from a host's configuration, or -- and a command; --same uses the recorded server")
	}
	if t, rest, err = targets.Split(cmd, e, rest); err == nil && len(rest) > 0 {
		err = exit.Usagef("replay: unexpected argument %q: it takes one capture and one server", safe.Clip(rest[0], 60))
	}
	return t, err
}

func (f *replayFlags) readOptions() *replay.ReadOptions {
	opts := new(replay.ReadOptions)
	if f.session >= 0 {
		n := uint64(f.session)
		opts.Session = &n
	}
	return opts
}

// chosen returns a function that reports whether the filter matches a request, or nil if there is
// no filter.
func (f *replayFlags) chosen(ctx context.Context, src sources.Source) (func(string, uint64) bool, error) {
	parsed, err := sources.ParseFilter("replay", f.filter)
	if err != nil || f.filter == "" {
		return nil, err
	}
	type key struct {
		capture string
		n       uint64
	}
	set := map[key]bool{}
	err = sources.Walk(ctx, src, sources.NewWalkModel(ctx, parsed), func(r *trace.Row) error {
		if r.Parent != nil || !parsed.MatchScanned(r, r.Hits) {
			return nil
		}
		for x := range r.All() {
			id := ""
			if x.Capture != nil {
				id = x.Capture.ID
			}
			set[key{id, x.N}] = true
		}
		return nil
	})
	return func(id string, n uint64) bool { return set[key{id, n}] }, err
}

// recorded returns the server of the recording.
func (f *replayFlags) recorded(ctx context.Context, e *kit.Env, src sources.Source, r *replay.Recording) (*resend.Origin, error) {
	o, _, err := resend.Find(ctx, src.Events(ctx), r.Session, r.First)
	if err == nil && len(o.Command) == 0 && o.URL == "" {
		err = fmt.Errorf("%w", resend.ErrNoServer)
	}
	if err != nil {
		return nil, exit.Fail(exit.Unexpected, "no_server", "give the server: a URL, or a command after --", err)
	}
	fmt.Fprintf(e.Stderr, "replaying to %s\n", o.Target())
	return o, nil
}

// reach sets how to reach the server.
func (f *replayFlags) reach(to *resend.Origin, opts *replay.Options) {
	t := &f.dialer.Target
	opts.Timeout = targets.OrForever(f.target.Timeout)
	opts.Resend = &resend.Options{Tool: "mcpwire " + build.Version(), Env: t.Env, Headers: t.Header}
	to.Name, to.Command, to.Dir, to.URL = t.Name, t.Command, t.Dir, t.URL
	to.HeaderFraming = to.HeaderFraming && f.same || f.target.Framing == jsonrpc.FramingHeader
	switch {
	case t.IsStdio():
		to.Transport = capture.TransportStdio
	case t.Transport == targets.TransportSSE || f.same && to.Transport == capture.TransportSSE:
		to.Transport = capture.TransportSSE
	default:
		to.Transport = capture.TransportHTTP
	}
	if f.dialer.HTTP != nil {
		opts.Resend.Transport = f.dialer.HTTP
	}
}

// play replays the recordings one after the other.
func (f *replayFlags) play(ctx context.Context, e *kit.Env, recordings []*replay.Recording, to *resend.Origin, opts *replay.Options) error {
	out := &replayPrinter{e: e, json: f.json, paint: kit.NewScreen(e.Stdout).Paint, status: f.dialer.Notes.Status}
	rec, err := newReplayRecorder(f, to)
	if err != nil {
		return err
	}
	defer rec.abandon()
	opts.Report = out.result
	var sum replay.Summary
	recordings = slices.DeleteFunc(recordings, func(r *replay.Recording) bool { return !r.Has(opts.Select) })
	if len(recordings) == 0 {
		return exit.Fail(exit.Unexpected, "nothing_chosen", "mcpwire show --filter shows what a filter matches", errors.New("the filter matches no request of the recording"))
	}
	for _, r := range recordings {
		out.requests += r.Requests()
	}
	defer out.flush()
	out.step()
	for i, r := range recordings {
		if r.Synthetic {
			f.dialer.Notes.Linef("the recording lacks the beginning of session %d: replay sends its own handshake", r.Session)
		}
		if len(recordings) > 1 {
			out.session(r)
		}
		one, err := f.one(ctx, rec, r, to, opts)
		sum.Add(one)
		for _, later := range recordings[i+1:] {
			if err != nil {
				sum.Unsent += later.Requests()
				sum.Requests += later.Requests()
			}
		}
		if err == nil {
			err = out.err
		}
		if err != nil {
			out.summary(&sum)
			return f.failure(ctx, err)
		}
	}
	updated, err := rec.finish(&sum)
	if err != nil {
		return err
	}
	out.summary(&sum)
	switch {
	case out.err != nil:
		return out.err
	case updated:
		fmt.Fprintf(e.Stderr, "%s has the server's current responses\n", safe.Line(f.path))
	case f.update:
		return exit.Fail(exit.Findings, "not_updated", "see the requests above", errors.New("the recording is unchanged: some messages were not sent or got no response"))
	case !sum.OK():
		return &exit.Status{Code: exit.Findings}
	}
	return nil
}

// one replays one recording.
func (f *replayFlags) one(ctx context.Context, rec *replayRecorder, r *replay.Recording, to *resend.Origin, opts *replay.Options) (*replay.Summary, error) {
	w, done, err := rec.next(r)
	if err != nil {
		return new(replay.Summary), err
	}
	sum, err := replay.Run(ctx, r, to, w, opts)
	if closed := done(); err == nil && closed != nil {
		err = exit.Fail(exit.Unexpected, "capture", "", fmt.Errorf("recording: %w", closed))
	}
	return sum, err
}

// A replayRecorder records the replay for --output or --update, or discards it.
type replayRecorder struct {
	f  *replayFlags
	to *resend.Origin
	// path is the file to write. "" discards the recording.
	path string
	// final is the file that --update replaces. "" replaces none.
	final string
	mode  os.FileMode
	count int
}

func newReplayRecorder(f *replayFlags, to *resend.Origin) (*replayRecorder, error) {
	r := &replayRecorder{f: f, to: to, path: f.output}
	if f.output != "" {
		if _, err := os.Lstat(f.output); err == nil {
			return nil, exit.Fail(exit.Unexpected, "capture", "--output needs a file that does not exist yet", fmt.Errorf("%s exists", safe.Line(f.output)))
		}
	}
	if !f.update {
		return r, nil
	}
	final, err := filepath.EvalSymlinks(f.path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(final)
	if err != nil {
		return nil, err
	}
	if c, err := captures.Stat(final); err == nil && c.State == captures.Writing {
		return nil, exit.Fail(exit.Unexpected, "capture", "", fmt.Errorf("%s is still being written", safe.Line(final)))
	}
	r.final, r.mode = final, info.Mode().Perm()
	// Same directory, so that a rename can replace the file; same extension, which decides the
	// compression.
	dir, base := filepath.Split(final)
	r.path = filepath.Join(dir, ".replay-"+strconv.Itoa(os.Getpid())+"-"+base)
	return r, nil
}

// next returns the writer for the next session and a function that closes it.
func (r *replayRecorder) next(rec *replay.Recording) (*capture.Writer, func() error, error) {
	r.count++
	opts := &capture.Options{
		Tool: "mcpwire " + build.Version(), Transport: r.to.Transport, Name: rec.Name, URL: r.to.URL, Redact: recording.Redaction(r.f.redact), Append: r.count > 1,
	}
	if r.path == "" {
		w := capture.NewWriter(io.Discard, opts)
		return w, w.Close, nil
	}
	if opts.Append && (strings.HasSuffix(r.path, ".gz") || strings.HasSuffix(r.path, ".zst")) {
		return nil, nil, exit.Fail(exit.Usage, "usage", "select one with --session, or record to an uncompressed file", errors.New("several sessions cannot be recorded in a compressed file"))
	}
	file, err := capture.Create(r.path, opts)
	if err != nil {
		return nil, nil, exit.Fail(exit.Unexpected, "capture", "", err)
	}
	return file.Writer, file.Close, nil
}

// finish replaces the recording if --update is set and every request was sent and answered. It
// reports whether it did.
func (r *replayRecorder) finish(sum *replay.Summary) (bool, error) {
	if r.final == "" || !sum.Completed() {
		return false, nil
	}
	if err := os.Chmod(r.path, r.mode); err != nil {
		return false, err
	}
	if err := inuse.Rename(r.path, r.final); err != nil {
		return false, err
	}
	r.path = ""
	return true, nil
}

// abandon removes the temporary file unless it has replaced the recording.
func (r *replayRecorder) abandon() {
	if r.final != "" && r.path != "" {
		_ = os.Remove(r.path) // it may not exist
	}
}

// failure returns the error for a replay that could not go on.
func (f *replayFlags) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d := f.dialer
	if hidden, ok := errors.AsType[*resend.RedactedError](err); ok {
		var places []string
		for _, p := range hidden.Pointers {
			places = append(places, safe.Line(p))
		}
		return exit.Fail(exit.Unexpected, "redacted", "--set POINTER=TEXT sets the redacted value, in "+strings.Join(places, " "), hidden)
	}
	if e, ok := errors.AsType[*replay.EraError](err); ok {
		return exit.Fail(exit.Unreachable, "other_era", "mcpwire bridge translates: put it in front of the server", e)
	}
	if e, ok := errors.AsType[*resend.HandshakeError](err); ok {
		return exit.Fail(exit.Unreachable, "handshake_refused", "mcpwire info --probe shows which revisions the server speaks", errors.New(safe.Line(e.Error())))
	}
	if e, ok := errors.AsType[*wireclient.StatusError](err); ok {
		return f.refused(e)
	}
	if errors.Is(err, resend.ErrTimeout) {
		return exit.Fail(exit.Unreachable, "timeout", d.LateHint(), err)
	}
	if e, ok := errors.AsType[*wireclient.EndedError](err); ok {
		ready, ok := errors.AsType[*exit.Failure](d.Failure(e.Err))
		if ok && (ready.Code != "unreachable" || ready.Hint != "") {
			return ready
		}
		return exit.Fail(exit.Unreachable, "connection_lost", "", e)
	}
	return d.Failure(err)
}

// refused returns the error for an HTTP status instead of an answer.
func (f *replayFlags) refused(e *wireclient.StatusError) error {
	out := &exit.Failure{Status: exit.Unreachable, Code: "http_status", Err: e, HTTPStatus: e.Status, URL: targets.SafeURL(f.dialer.Target.URL)}
	out.Hint = "check the URL of the server's endpoint: many use /mcp, older ones /sse"
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden {
		out.Status, out.Code = exit.Auth, "auth_required"
		out.Hint = "give a token with --header 'Authorization: Bearer ${TOKEN}', or log in by running this on a terminal"
	}
	return out
}
