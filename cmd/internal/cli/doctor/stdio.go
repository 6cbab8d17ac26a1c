package doctor

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/probe"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/cause"
	"mcpwire/internal/proc/batchfile"
	"mcpwire/internal/text/lazyregexp"
	"mcpwire/internal/text/plural"
	"mcpwire/mcp"
	"mcpwire/stdio"
)

// process examines a server that runs as a command.
func (doc *doctor) process(ctx context.Context) {
	if !doc.command() {
		return
	}
	doc.program(ctx)
}

// program examines a server that can be started.
func (doc *doctor) program(ctx context.Context) {
	x := &processExam{doc: doc, handshakes: doc.report.section(sectionHandshakes), silent: true}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(time.Hour, func() { cancel(context.DeadlineExceeded) })
	late.Stop()
	defer late.Stop()
	report, err := probe.Run(limited, doc.d.ProbeTarget(), &probe.Options{
		Timeout: doc.wait, Connect: doc.connect, Version: build.Version(),
		Progress: x.progress, Handshake: x.handshake, HandshakesOnly: doc.quick,
		Opened: func() {
			x.opened()
			// Handshakes have their own limits.
			late.Reset(maxRules)
		},
	})
	if ctx.Err() != nil {
		return
	}
	if len(x.spoken) == 0 {
		x.describe()
		doc.noHandshake(x.all)
		return
	}
	doc.judge(report, cmp.Or(context.Cause(limited), err))
}

// A processExam collects the results of a probe while it runs.
type processExam struct {
	doc        *doctor
	handshakes *doctorSection
	// afterwards reports that the handshakes are done.
	afterwards bool
	all        []probe.Observation
	// spoken are the negotiated revisions.
	spoken []mcp.Revision
	// silent reports that the server has responded to no handshake.
	silent bool
}

func (x *processExam) progress(step probe.Step) {
	if !x.afterwards {
		x.doc.report.status("%s", step.Text)
		return
	}
	x.doc.report.status("checking the rules: %v", step)
}

// handshake reports a handshake. It returns false if no other one makes sense: the newest revision
// of each era got no response.
func (x *processExam) handshake(o *probe.Observation) bool {
	x.all = append(x.all, *o)
	x.doc.handshake(x.handshakes, o)
	switch o.Outcome {
	case probe.Negotiated:
		if len(x.spoken) == 0 {
			x.doc.report.speaks = fmt.Sprintf("%v in %s", o.Revision, kit.ShortTime(o.Took))
		}
		x.spoken = append(x.spoken, o.Revision)
		x.silent = false
	case probe.Refused, probe.OtherVersion:
		x.silent = false
	case probe.Silent, probe.Buffered:
		x.silent = x.silent && !o.Alive
	}
	x.doc.report.flush()
	return !x.silent || len(x.all) < 2
}

// opened reports what the processes wrote.
func (x *processExam) opened() {
	x.describe()
	x.afterwards = true
}

// describe reports how the server started, and what it wrote.
func (x *processExam) describe() {
	if x.afterwards {
		return
	}
	x.doc.startup(x.handshakes, x.all)
	x.doc.output(x.all)
	x.doc.stderr(x.all)
}

// handshake reports the outcome of one handshake.
func (doc *doctor) handshake(s *doctorSection, o *probe.Observation) {
	head := fmt.Sprintf("%v  %s", o.Revision, targets.HandshakeMethod(o.Revision))
	took := kit.ShortTime(o.Took)
	switch o.Outcome {
	case probe.Negotiated:
		s.good("%s: negotiated, in %s", head, took)
		s.lacks(o.Revision, o.Result)
	case probe.OtherVersion:
		if o.Version == "" {
			s.note("%s: responded without a version, in %s", head, took)
			return
		}
		s.note("%s: responded with %s, in %s", head, safe.Clip(o.Version, 40), took)
	case probe.Refused:
		s.note("%s: error %d %s, in %s", head, int(o.Error.Code), safe.Clip(o.Error.Message, 100), took)
	case probe.Silent:
		if o.Alive {
			s.note("%s: no response, except to initialize, in %s", head, took)
			return
		}
		if o.Disturbed {
			s.odd("%s: no response, and none to initialize after it, in %s", head, took).hint("answer it with error -32601: clients that send it first must start the server again")
			return
		}
		s.note("%s: no response in %s", head, took)
	case probe.Buffered:
		s.note("%s: no response in %s, except after standard input was closed", head, took)
	case probe.Ended:
		if o.Exit == nil {
			s.note("%s: it closed its standard output after %s", head, took)
			return
		}
		s.note("%s: the server has exited: %s", head, targets.ExitWords(o.Exit))
	case probe.NotStarted:
		s.note("%s: not started: %s", head, safe.Clip(o.Err.Error(), 200))
	}
}

// noHandshake reports why no handshake succeeded.
func (doc *doctor) noHandshake(all []probe.Observation) {
	doc.report.worse(exit.Unreachable)
	s := doc.report.section(sectionRefused)
	last := &all[len(all)-1]
	// A process that ends early may leave output that nobody has read.
	stderr, invalid := last.Stderr(), last.Stray
	for _, o := range slices.Backward(all) {
		if strings.TrimSpace(stderr) == "" {
			stderr = o.Stderr()
		}
		if len(invalid) == 0 {
			invalid = o.Stray
		}
	}
	seen := strings.TrimSpace(stderr) != "" || len(invalid) > 0
	switch last.Outcome {
	case probe.NotStarted:
		hint := targets.StartHint(last.Err, "check that it is a program for this system")
		if errors.Is(last.Err, batchfile.ErrArguments) {
			hint = targets.BatchHint
		}
		s.bad("the system cannot start the program: %s", safe.Clip(kit.Innermost(last.Err).Error(), 200)).hint("%s", hint)
	case probe.Ended:
		text := "it exits before it responds: it closed its standard output after " + kit.ShortTime(last.Took)
		if last.Exit != nil {
			text = "it exits before it responds: " + targets.ExitWords(last.Exit)
		}
		doc.explain(s, text, doc.because(cause.Ended, stderr, invalid, last.Exit), seen)
	case probe.Buffered:
		s.bad("its standard output is buffered: the response arrives only when its standard input ends").hint("flush after each message: print(…, flush=True), PYTHONUNBUFFERED=1, fflush, setvbuf, or stdbuf -oL before the command")
		doc.report.next(doc.mcpwire("doctor", "--env", "PYTHONUNBUFFERED=1")...)
	case probe.Silent:
		doc.report.noAnswer = true
		if id := last.OtherID; id != nil {
			s.bad("it responds to initialize with the id %s, which is not that of the request: clients wait in vain", safe.Clip(string(id), 60)).hint(sameID)
			return
		}
		if url := localURL(last); url != "" {
			s.bad("it serves HTTP, and does not respond on standard input").
				hint("start it by hand, and configure its URL, %s; or look for an argument or a variable that selects stdio", url)
			doc.report.nextOnce("while it runs", kit.PlainArgs("mcpwire", "doctor", url)...)
			return
		}
		c := doc.because(cause.Silent, stderr, invalid, nil)
		if c.Fix == "" {
			c.Fix = "mcpwire does not know why. If it is slow, set a longer --connect-timeout. Check that it is a server for stdio: some need an argument for that, others first wait for a login, a lock or the network"
		}
		doc.explain(s, "it starts, but does not respond within "+kit.ShortTime(doc.connect), c, seen)
		if !slices.ContainsFunc(doc.flags, func(a kit.Arg) bool { return a.Text() == "--connect-timeout" }) {
			doc.report.next(doc.mcpwire("doctor", "--connect-timeout", "2m")...)
		}
	case probe.Refused:
		s.bad("it rejects all revisions, the last with error %d %s", int(last.Error.Code), safe.Clip(last.Error.Message, 200))
		doc.report.next(doc.mcpwire("info", "--probe")...)
	case probe.OtherVersion:
		what := "it responds with an unknown version: " + strconv.Quote(safe.Clip(last.Version, 40))
		if last.Version == "" {
			what = "its response to initialize has no protocolVersion"
		}
		s.bad("%s", what).hint("respond to initialize with the requested version, or the latest that the server speaks, in protocolVersion, with capabilities and serverInfo")
		doc.report.next(doc.mcpwire("check")...)
	}
}

const (
	sameID      = "a response must have the id of its request, with the same JSON type"
	oneLineEach = "write each message on one line: JSON without indentation, line breaks in strings as \\n"
)

// lacking returns the member of a result of initialize that is missing or no object, or "".
func lacking(result []byte) string {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(result, &members) // an object, as its version was read
	for _, name := range []string{"capabilities", "serverInfo"} {
		if !bytes.HasPrefix(members[name], []byte("{")) {
			return name
		}
	}
	return ""
}

// lacks reports a result of initialize that lacks a member.
func (s *doctorSection) lacks(rev mcp.Revision, result []byte) {
	if name := lacking(result); !rev.Modern() && name != "" {
		s.bad("the result of initialize lacks %s: hosts reject it", name).hint("%s must be an object, which may be empty except for the name and version in serverInfo", name)
	}
}

// servedURL matches a URL on this machine, as servers print it.
var servedURL = lazyregexp.New(`https?://(localhost|127\.0\.0\.1|0\.0\.0\.0|\[::1?\]):\d{1,5}(/[\w./-]*\w)?`)

// localURL returns the URL at which a server says that it serves MCP. It is empty if there is none.
func localURL(o *probe.Observation) string {
	text := string(bytes.Join(o.Stray, []byte{'\n'})) + "\n" + o.Stderr()
	first := ""
	for _, url := range servedURL().FindAllString(text, -1) {
		url = strings.Replace(url, "0.0.0.0", "127.0.0.1", 1)
		if strings.HasSuffix(url, "/mcp") || strings.HasSuffix(url, "/sse") {
			return url
		}
		if first == "" {
			first = url
		}
	}
	return first
}

// Hosts give up on slow servers: a doctor warns above slowStart, and reports a problem above
// lateStart.
const (
	slowStart = 5 * time.Second
	lateStart = 60 * time.Second
)

const hostTimeouts = "hosts time out after 10 to 60 s"

// startup reports how soon the server answers: the time of the first process, which starts alone,
// or else the shortest time of the others.
func (doc *doctor) startup(s *doctorSection, all []probe.Observation) {
	var soonest time.Duration
	for i := range all {
		o := &all[i]
		if !answered(o) {
			continue
		}
		if soonest == 0 || o.Took < soonest {
			soonest = o.Took
		}
		if i == 0 {
			break
		}
	}
	if soonest <= slowStart {
		return
	}
	doc.report.slow = fmt.Sprintf("it is slow: it takes %s to respond", kit.ShortTime(soonest))
	line := s.odd
	if soonest > lateStart {
		line = s.bad
	}
	line("%s; %s", doc.report.slow, hostTimeouts).hint("install it in advance (npx and uvx download at each start), and load large data after the handshake")
}

// output reports output that does not belong on standard output.
func (doc *doctor) output(all []probe.Observation) {
	s := doc.report.section(sectionOutput)
	answers := 0
	for i := range all {
		o := &all[i]
		if o.Result != nil || o.Error != nil {
			answers++
		}
		if o.Header {
			s.rank = rankHandshake
			s.bad("messages follow a Content-Length header, as in the Language Server Protocol").hint("write one message on each line, without a header")
			doc.report.next(doc.mcpwire("send", "--framing", "header")...)
			return
		}
		if len(o.Stray) == 0 {
			continue
		}
		if o.Multiline {
			s.rank = rankHandshake
			s.bad("messages span several lines").detail(outputLines(o.Stray)...).hint(oneLineEach)
			return
		}
		kind := classifyOutput(firstText(o.Stray))
		doc.invalidOutput = true
		if last := &all[len(all)-1]; last.Outcome == probe.Ended {
			// noHandshake explains it: the text may say why it ended.
			s.odd("it writes text instead of messages, and exits").detail(outputLines(o.Stray)...)
			return
		}
		if last := &all[len(all)-1]; last.Outcome == probe.Silent && localURL(last) != "" {
			// noHandshake explains it.
			s.odd("it writes text instead of messages").detail(outputLines(o.Stray)...)
			return
		}
		if kind.garbles {
			s.rank = rankHandshake
		}
		line := s.bad("its standard output has a line that is not a message, %q, probably written by: %s", safe.Clip(strings.TrimSpace(string(firstText(o.Stray))), 160), kind.what)
		line.detail(outputLines(o.Stray)...).hint("%s", kind.hint)
		doc.report.nextOnce("after fixing that", doc.mcpwire("doctor")...)
		return
	}
	if answers > 0 {
		s.good("only messages, up to the response to the handshake")
	}
}

// firstText returns the first line that is not blank.
func firstText(lines [][]byte) []byte {
	for _, line := range lines {
		if len(bytes.TrimSpace(line)) > 0 {
			return line
		}
	}
	return lines[0]
}

// outputLines returns the first lines with invisible characters escaped.
func outputLines(invalid [][]byte) []string {
	var lines []string
	for _, line := range invalid[:min(len(invalid), 3)] {
		lines = append(lines, safe.Clip(string(line), 120))
	}
	if more := len(invalid) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", more))
	}
	return lines
}

// stderr reports the server's standard error. A server that ended, or does not respond, has written
// the cause there, if anywhere, so more of it is shown.
func (doc *doctor) stderr(all []probe.Observation) {
	last := &all[len(all)-1]
	lines, everything := targets.NewLines(last.Stderr())
	if len(everything) == 0 {
		return
	}
	title := "all lines"
	switch {
	case doc.d.Flags.Verbose:
		lines = clipped(everything, maxErrorLine)
	case !answered(last):
		lines = whole(everything)
	}
	if len(lines) < len(everything) {
		title = "some lines (-v shows all)"
	}
	s := doc.report.section("Standard error")
	s.note("%s", title).detail(lines...)
	if !answered(last) {
		return
	}
	concerns := cause.Concerns(everything)
	for _, c := range concerns[:min(len(concerns), maxConcerns)] {
		what := safe.Clip(cmp.Or(c.What, c.Line), 240)
		s.odd("%s", what).detail(safe.Clip(c.Line, 240)).hint("%s", safe.Line(c.Fix))
		doc.report.concern = cmp.Or(doc.report.concern, what)
	}
}

// maxConcerns limits the lines of a server that works that are shown as warnings.
const maxConcerns = 3

// clipped returns the lines, escaped, with at most width characters of each.
func clipped(lines []string, width int) (list []string) {
	for _, line := range lines {
		list = append(list, safe.Clip(line, width))
	}
	return list
}

// whole returns up to maxWhole lines: of more, the beginning and the end.
func whole(lines []string) []string {
	if cut := len(lines) - maxWhole; cut > 0 {
		head, tail := clipped(lines[:maxWhole/2], maxErrorLine), clipped(lines[len(lines)-maxWhole/2+1:], maxErrorLine)
		return slices.Concat(head, []string{fmt.Sprintf("… (%s)", plural.Of(cut+1, "line"))}, tail)
	}
	return clipped(lines, maxErrorLine)
}

const (
	maxErrorLine = 2000 // characters
	maxWhole     = 40   // lines
)

// answered reports whether the server responded to a handshake.
func answered(o *probe.Observation) bool {
	return o.Outcome == probe.Negotiated || o.Outcome == probe.Refused || o.Outcome == probe.OtherVersion
}

// because returns the cause of a failure according to standard error, or else to standard output,
// or else to the exit.
func (doc *doctor) because(state cause.State, stderr string, invalid [][]byte, exit *stdio.ExitError) cause.Cause {
	p := cause.Process{
		State: state, Stderr: strings.Split(stderr, "\n"), Stdout: strings.Split(string(bytes.Join(invalid, []byte{'\n'})), "\n"),
		Set: targets.EnvNames(doc.d.Target.Env), Command: doc.d.Target.Command, Absent: absentPaths(doc.d.Target.Command),
	}
	if exit != nil {
		p.Exited, p.Code = true, exit.Code
		if exit.Signal != nil {
			p.Signal = exit.Signal.String()
		}
	}
	return p.Find()
}

// absentPaths returns the arguments that are absolute paths of no file.
func absentPaths(command []string) (list []string) {
	for _, arg := range command[min(1, len(command)):] {
		if _, value, ok := strings.Cut(arg, "="); ok && strings.HasPrefix(arg, "-") {
			arg = value
		}
		if _, err := os.Stat(arg); filepath.IsAbs(arg) && errors.Is(err, fs.ErrNotExist) {
			list = append(list, arg)
		}
	}
	return list
}

// maxSaid limits the characters of what a server says, if that is all that is known.
const maxSaid = 400

// explain completes a sentence about a failure with its cause, and adds the remedy. seen reports
// that the report shows the server's output.
func (doc *doctor) explain(s *doctorSection, what string, c cause.Cause, seen bool) {
	said := safe.Clip(c.Said, 240)
	if c.Known {
		what = safe.Clip(c.What, 240) + ": " + what
	} else {
		said = safe.Clip(c.What, maxSaid)
	}
	if said != "" && !strings.HasPrefix(what, said) {
		what += ": " + said
	}
	l := s.bad("%s", what)
	switch {
	case c.Fix != "" && (c.Known || strings.Contains(c.Fix, "does not know")):
		l.hint("%s", safe.Line(c.Fix))
	case c.Fix != "":
		l.hint("mcpwire does not know the cause for certain: %s", safe.Line(c.Fix))
	case seen:
		l.hint("mcpwire does not know the remedy: the server's output, above, should give the cause")
	default:
		l.hint("it gives no cause, so mcpwire does not know it: run it by hand, with the variables that it needs")
	}
	switch {
	case c.Variable != "":
		doc.report.nextOnce("with its value", doc.mcpwire("doctor", "--env", c.Variable+"=value")...)
	case c.Arguments:
		doc.report.next(doc.names.Args(helpCommand(doc.d.Target.Command)...)...)
	case c.Known:
		doc.report.nextOnce("after fixing that", doc.mcpwire("doctor")...)
	}
}

// helpCommand returns the command that prints the usage of a program: its own words without
// arguments, and --help.
func helpCommand(command []string) []string {
	n := 1
	for n < len(command) && !strings.HasPrefix(command[n], "-") && n < 3 && slices.Contains(launchers, strings.TrimSuffix(filepath.Base(command[0]), ".exe")) {
		n++
	}
	if len(command) > 2 && command[1] == "-m" || len(command) > 2 && command[1] == "-y" {
		n = 3
	}
	return append(slices.Clone(command[:n]), "--help")
}

// launchers are programs whose arguments name another program.
var launchers = []string{"node", "npx", "uvx", "uv", "python", "python3", "bun", "bunx", "deno", "java"}

// failures reports the requests that failed after the handshake, and why.
func (doc *doctor) failures(list []*probe.Failure) {
	seen := map[string]bool{}
	for _, f := range list {
		if !f.Usual || seen[f.About] || len(seen) == maxFailures {
			continue
		}
		if len(seen) == 0 {
			doc.report.section(sectionLater)
		}
		seen[f.About] = true
		s := doc.report.Sections[len(doc.report.Sections)-1]
		_, lines := targets.NewLines(f.Stderr())
		if len(lines) > 0 {
			s.note("%s: standard error of that process", f.About).detail(whole(lines)...)
		}
		switch {
		case f.Ended && doc.d.Target.IsStdio():
			doc.reported.ended = true
			end := "it closes its standard output"
			if f.Exit != nil {
				end = targets.ExitWords(f.Exit)
			}
			doc.explain(s, "it exits at "+f.About+", after the handshake: "+end, doc.because(cause.Ended, f.Stderr(), nil, f.Exit), len(lines) > 0)
		case f.Ended:
			doc.reported.ended = true
			s.bad("%s: the connection was closed without a response", f.About).hint("the server, or a proxy in front of it, ends the request: see its log")
		case f.List != "":
			s.bad("the result of %s is malformed: %s: hosts show nothing, or reject the server", f.About, safe.Clip(f.List, 100)).
				hint("the server must send a list, which may be empty: []. In Go, a nil slice becomes null: make it with make, or as []T{}")
		case f.Empty:
			s.odd("the list of tools is empty: hosts show no tools").
				hint("it lists no tools: some servers do that only with credentials, or with arguments that select them: see its standard error and its documentation")
		case f.Item != "":
			s.bad("hosts reject the result of %s, or leave out what is malformed: %s", f.About, safe.Clip(f.Item, 200)).
				hint("correct it in the server's code: mcpwire check shows where")
		case f.Status >= 400:
			doc.reported.refused = true
			doc.laterStatus(s, f)
		case f.Error != nil:
			doc.reported.refused = true
			c := cause.Find(cause.Ended, strings.Split(f.Error.Message, "\n"), targets.EnvNames(doc.d.Target.Env))
			what := fmt.Sprintf("%s gets error %d", f.About, int(f.Error.Code))
			if !c.Known {
				what, c.What = what+": "+safe.Clip(f.Error.Message, 240), ""
			}
			doc.explain(s, what, c, true)
		case f.OtherID != nil:
			doc.reported.unanswered = true
			s.bad("the response to %s has the id %s, which is not that of the request: clients wait in vain", f.About, safe.Clip(string(f.OtherID), 60)).hint(sameID)
		case f.Multiline:
			doc.reported.unanswered = true
			s.bad("the response to %s spans several lines", f.About).hint(oneLineEach)
		default:
			doc.reported.unanswered = true
			doc.explain(s, fmt.Sprintf("no response to %s within %s, although the handshake works", f.About, kit.ShortTime(doc.wait)), doc.because(cause.Silent, f.Stderr(), nil, nil), len(lines) > 0)
		}
	}
	if doc.quick && len(seen) == 0 {
		doc.report.section(sectionLater).good("it responds to the first request")
	}
}

// maxFailures limits the requests whose failure is reported.
const maxFailures = 3

// laterStatus reports an HTTP status of a request after the handshake.
func (doc *doctor) laterStatus(s *doctorSection, f *probe.Failure) {
	body := string(f.Body)
	if f.Error != nil {
		body = f.Error.Message
	}
	r := cause.Response{Status: f.Status, Host: doc.host(), Body: body, Later: true}
	what := fmt.Sprintf("%s gets HTTP %d after the handshake", f.About, f.Status)
	if body = safe.Clip(strings.TrimSpace(body), 120); body != "" {
		what += ": " + body
	}
	doc.explain(s, what, r.Find(), true)
}
