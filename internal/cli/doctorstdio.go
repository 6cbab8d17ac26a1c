package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mcpwire/internal/inspect/probe"
	"mcpwire/internal/proc/batchfile"
	"mcpwire/internal/text/lazyregexp"
	"mcpwire/mcp"
)

// process examines a server that runs as a command.
func (doc *doctor) process(ctx context.Context) {
	if !doc.command() {
		return
	}
	x := &processExam{doc: doc, handshakes: doc.report.section("Handshakes"), mute: true}
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(time.Hour, func() { cancel(context.DeadlineExceeded) })
	late.Stop()
	defer late.Stop()
	report, err := probe.Run(limited, doc.d.probeTarget(), &probe.Options{
		Timeout: doc.wait, Connect: doc.connect, Client: "mcpwire", Version: Version,
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
	if x.rules != nil {
		doc.judge(x.rules, report, cmp.Or(context.Cause(limited), err))
	}
}

// A processExam collects the results of a probe while it runs.
type processExam struct {
	doc        *doctor
	handshakes *doctorSection
	// rules is nil if the rules are not checked.
	rules *doctorSection
	all   []probe.Observation
	// spoken are the negotiated revisions.
	spoken []mcp.Revision
	// mute reports that the server has responded to no handshake.
	mute bool
}

func (x *processExam) progress(step probe.Step) {
	if x.rules == nil {
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
			x.doc.report.speaks = fmt.Sprintf("%v in %s", o.Revision, shortTime(o.Took))
		}
		x.spoken = append(x.spoken, o.Revision)
		x.mute = false
	case probe.Refused, probe.OtherVersion:
		x.mute = false
	case probe.Silent, probe.Buffered:
		x.mute = x.mute && !o.Alive
	}
	x.doc.report.flush()
	return !x.mute || len(x.all) < 2
}

// opened reports what the processes wrote, and begins with the rules.
func (x *processExam) opened() {
	x.describe()
	if !x.doc.quick && len(x.spoken) > 0 {
		x.rules = x.doc.report.section("Rules")
	}
}

// describe reports how the server started, and what it wrote.
func (x *processExam) describe() {
	x.doc.startup(x.handshakes, x.all)
	x.doc.output(x.all)
	x.doc.stderr(x.all)
}

// handshake reports the outcome of one handshake.
func (doc *doctor) handshake(s *doctorSection, o *probe.Observation) {
	method := mcp.MethodInitialize
	if o.Revision.Modern() {
		method = mcp.MethodDiscover
	}
	head := fmt.Sprintf("%v  %s", o.Revision, method)
	took := shortTime(o.Took)
	switch o.Outcome {
	case probe.Negotiated:
		s.good("%s: negotiated, in %s", head, took)
	case probe.OtherVersion:
		if o.Version == "" {
			s.note("%s: responded without a version, in %s", head, took)
			return
		}
		s.note("%s: responded with %s, in %s", head, clipLine(o.Version, 40), took)
	case probe.Refused:
		s.note("%s: error %d %s, in %s", head, int(o.Error.Code), clipLine(o.Error.Message, 100), took)
	case probe.Silent:
		if o.Alive {
			s.note("%s: no response, except to initialize, in %s", head, took)
			return
		}
		s.note("%s: no response in %s", head, took)
	case probe.Buffered:
		s.note("%s: no response in %s, except after standard input was closed", head, took)
	case probe.Ended:
		s.note("%s: the server has exited: %s", head, exitWords(o))
	case probe.NotStarted:
		s.note("%s: not started: %s", head, clipLine(o.Err.Error(), 200))
	}
}

// exitWords describes how a process ended.
func exitWords(o *probe.Observation) string {
	e := o.Exit
	switch {
	case e == nil:
		return "it closed its standard output after " + shortTime(o.Took)
	case e.Signal != nil:
		return fmt.Sprintf("signal %v after %s", e.Signal, shortTime(e.After))
	}
	return fmt.Sprintf("exit status %d after %s", e.Code, shortTime(e.After))
}

// noHandshake reports why no handshake succeeded.
func (doc *doctor) noHandshake(all []probe.Observation) {
	doc.report.worse(exitUnreachable)
	s := doc.report.section("No revision could be negotiated")
	last := &all[len(all)-1]
	hasStderr := strings.TrimSpace(last.Stderr()) != ""
	switch last.Outcome {
	case probe.NotStarted:
		hint := "check that it is a program for this system"
		if errors.Is(last.Err, batchfile.ErrArguments) {
			hint = batchHint
		}
		s.bad("the system cannot start the program: %s", clipLine(cause(last.Err).Error(), 200)).hint("%s", hint)
	case probe.Ended:
		text := "it exits before it responds: " + exitWords(last)
		switch {
		case doc.why.variable != "":
			text = doc.why.what + ": " + text
		case doc.why.what != "":
			text += ": " + doc.why.what
		}
		l := s.bad("%s", text)
		switch {
		case doc.why.hint != "":
			l.hint("%s", doc.why.hint)
		case hasStderr:
			l.hint("its standard error output, above, should give the cause")
		case last.Exit != nil && last.Exit.Code == 0:
			l.hint("it exits as if finished: it may need an argument, such as stdio, to serve")
		case doc.stray:
			l.hint("its standard output, above, should give the cause")
		default:
			l.hint("it gives no cause: run it by hand, with the variables that it needs")
		}
		if doc.why.variable != "" {
			doc.report.nextOnce("with its value", doc.mcpwire("doctor", "--env", doc.why.variable+"=value")...)
		}
		doc.report.next(doc.names.args(doc.d.target.command...)...)
	case probe.Buffered:
		s.bad("its standard output is buffered: the response arrives only when its standard input ends").hint("flush after each message: print(…, flush=True), PYTHONUNBUFFERED=1, fflush, setvbuf, or stdbuf -oL before the command")
		doc.report.next(doc.mcpwire("doctor", "--env", "PYTHONUNBUFFERED=1")...)
	case probe.Silent:
		doc.report.noAnswer = true
		if url := localURL(last); url != "" {
			s.bad("it serves HTTP, and does not respond on standard input").
				hint("start it by hand, and configure its URL, %s; or look for an argument or a variable that selects stdio", url)
			doc.report.nextOnce("while it runs", plainArgs("mcpwire", "doctor", url)...)
			return
		}
		s.bad("it starts, but does not respond within %s", shortTime(doc.connect)).
			hint("if it is slow, set a longer --connect-timeout. Check that it is a server for stdio: some need an argument for that, others first wait for a login, a lock or the network")
		if slices.ContainsFunc(doc.flags, func(a shellArg) bool { return a.text() == "--connect-timeout" }) {
			doc.report.next(doc.names.args(doc.d.target.command...)...) // waiting did not help
		} else {
			doc.report.next(doc.mcpwire("doctor", "--connect-timeout", "2m")...)
		}
	case probe.Refused:
		s.bad("it rejects all revisions, the last with error %d %s", int(last.Error.Code), clipLine(last.Error.Message, 200))
		doc.report.next(doc.mcpwire("info", "--probe")...)
	case probe.OtherVersion:
		s.bad("it responds with an unknown version: %q", clipLine(last.Version, 40)).hint("respond to initialize with the requested version, or the latest that the server speaks")
		doc.report.next(doc.mcpwire("check")...)
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

// cause returns the innermost wrapped error.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// Hosts give up on slow servers: a doctor warns above slowStart, and reports a problem above
// lateStart.
const (
	slowStart = 5 * time.Second
	lateStart = 60 * time.Second
)

// startup reports how soon the server answers: the time of the first process, which starts alone,
// or else the shortest time of the others.
func (doc *doctor) startup(s *doctorSection, all []probe.Observation) {
	var soonest time.Duration
	for i := range all {
		o := &all[i]
		if answered := o.Outcome == probe.Negotiated || o.Outcome == probe.Refused || o.Outcome == probe.OtherVersion || o.Alive; !answered {
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
	doc.report.slow = fmt.Sprintf("it is slow: it takes %s to respond", shortTime(soonest))
	line, when := s.odd, "some hosts time out after 10 s"
	if soonest > lateStart {
		line, when = s.bad, "hosts time out after 10 to 60 s"
	}
	line("%s; %s", doc.report.slow, when).hint("install it in advance (npx and uvx download at each start), and load large data after the handshake")
}

// output reports output that does not belong on standard output.
func (doc *doctor) output(all []probe.Observation) {
	s := doc.report.section("Standard output")
	answers := 0
	for i := range all {
		o := &all[i]
		if o.Result != nil || o.Error != nil {
			answers++
		}
		if o.Header {
			s.bad("messages follow a Content-Length header, as in the Language Server Protocol").hint("write one message on each line, without a header")
			doc.report.next(doc.mcpwire("send", "--framing", "header")...)
			return
		}
		if len(o.Stray) == 0 {
			continue
		}
		if o.Multiline {
			s.bad("messages span several lines").detail(strayLines(o.Stray)...).hint("write each message on one line: JSON without indentation, line breaks in strings as \\n")
			return
		}
		kind := classifyStray(firstText(o.Stray))
		doc.stray = true
		if last := &all[len(all)-1]; last.Outcome == probe.Ended && strings.TrimSpace(last.Stderr()) == "" {
			// It says here, and not on standard error, why it ended.
			s.odd("it writes text instead of messages, and exits").detail(strayLines(o.Stray)...)
			var lines []string
			for _, line := range o.Stray {
				lines = append(lines, withoutColors(string(line)))
			}
			doc.why = stderrReason(lines)
			return
		}
		if last := &all[len(all)-1]; last.Outcome == probe.Silent && localURL(last) != "" {
			// noHandshake explains it.
			s.odd("it writes text instead of messages").detail(strayLines(o.Stray)...)
			return
		}
		line := s.bad("the first output that is not a message was probably written by: %s", kind.what)
		line.detail(strayLines(o.Stray)...).hint("%s", kind.hint)
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

// strayLines returns the first lines with invisible characters escaped.
func strayLines(stray [][]byte) []string {
	var lines []string
	for _, line := range stray[:min(len(stray), 3)] {
		lines = append(lines, clipLine(string(line), 120))
	}
	if more := len(stray) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", more))
	}
	return lines
}

// stderr reports the server's standard error and keeps the reason that it gives.
func (doc *doctor) stderr(all []probe.Observation) {
	last := &all[len(all)-1]
	tail := newTailWriter(nil)
	_, _ = tail.Write([]byte(last.Stderr()))
	lines, everything := tail.lines(), tail.all()
	if len(lines) == 0 {
		return
	}
	s := doc.report.section("Standard error")
	if doc.d.flags.verbose {
		lines = nil
		for _, line := range everything {
			lines = append(lines, clipLine(line, maxErrorLine))
		}
	}
	title := "last lines"
	if len(lines) < len(everything) {
		title = "last lines (-v shows all)"
	}
	l := s.note("%s", title).detail(lines...)
	if last.Outcome == probe.Negotiated || doc.report.cause != "" {
		return
	}
	doc.why = stderrReason(everything)
	if doc.why.hint != "" {
		l.hint("%s", doc.why.hint)
	}
}

const maxErrorLine = 2000 // in characters, with -v

// A reason is why a server ended, according to its standard error.
type reason struct {
	// what is for the verdict.
	what string
	hint string
	// variable is the missing environment variable. It may be empty.
	variable string
}

var (
	// variableName matches names of environment variables in messages.
	variableName = lazyregexp.New(`\b[A-Z][A-Z0-9]{1,40}(?:_[A-Z0-9]{1,40}){1,6}\b`)
	// usageBegins matches the line where a program's usage text begins.
	usageBegins = lazyregexp.New(`^\s*(-{1,2}[A-Za-z]|([Uu]sage|[Oo]ptions|[Ff]lags|[Ee]xamples?|[Aa]rguments|[Cc]ommands)\b)`)
	// readsVariable matches the name of a variable that a line of source code reads.
	readsVariable = lazyregexp.New(`(?:process\.env\.|process\.env\[["']|environ\[["']|[gG]etenv\(["'])([A-Z][A-Z0-9_]{2,60})`)
	// noValue matches errors about a missing value.
	noValue = lazyregexp.New(`^[A-Za-z.]*(Error|Exception)\b.*(undefined|null|None)|^KeyError\b`)
	// exception matches the line that names an exception.
	exception  = lazyregexp.New(`^(Uncaught )?[A-Za-z.]*(Error|Exception)\b.*:`)
	wantsValue = lazyregexp.New(`(?i)KeyError|required|missing|not set|unset|must be set|must set|undefined|not defined|not provided|provide|environment variable`)
)

// stderrReason returns the reason in the lines that a server wrote. It ignores usage texts.
func stderrReason(lines []string) reason {
	if first := strings.TrimSpace(lines[0]); strings.HasPrefix(strings.ToLower(first), "usage") {
		// The program printed its usage, and maybe an error, as Python's argparse does.
		for _, line := range lines {
			if strings.Contains(line, ": error: ") {
				first = strings.TrimSpace(line)
			}
		}
		return reason{what: clipLine(first, 160), hint: "it expects other arguments"}
	}
	var telling []string
	before, read, usage := "", "", ""
	for _, line := range lines {
		if usageBegins().MatchString(line) {
			if _, arguments, ok := strings.Cut(line, "sage: "); ok {
				usage = strings.TrimSpace(arguments)
			}
			break
		}
		wants := wantsValue().MatchString(line) || wantsValue().MatchString(before) && isErrorLine(before)
		if v := variableName().FindString(line); v != "" && wants && !usageLine().MatchString(line) && !strings.HasPrefix(v, "ERR_") {
			return missingVariable(v)
		}
		if m := readsVariable().FindStringSubmatch(line); m != nil && read == "" {
			read = m[1]
		}
		if read != "" && noValue().MatchString(line) {
			return missingVariable(read)
		}
		if isErrorLine(line) {
			telling = append(telling, line)
		}
		before = line
	}
	r := reason{hint: stderrHint(strings.ToLower(strings.Join(telling, "\n")))}
	if r.hint == "" && usage != "" && len(telling) > 0 {
		r.hint = "its usage is: " + clipLine(usage, 160)
	}
	// The exception says more than the source code above it.
	slices.SortStableFunc(telling, func(a, b string) int { return cmp.Compare(rankLine(a), rankLine(b)) })
	for _, line := range telling {
		if r.what = clipLine(strings.TrimSpace(line), 160); r.what != "" {
			break
		}
	}
	return r
}

func rankLine(line string) int {
	if exception().MatchString(line) {
		return 0
	}
	return 1
}

// missingVariable returns the reason that an environment variable is missing.
func missingVariable(name string) reason {
	return reason{name + " is missing", "it needs the environment variable " + name + ": --env " + name + "=value sets it here; for hosts, set it in env of the configuration", name}
}

// stderrHint returns a hint for some common causes of failure. text is in lower case.
func stderrHint(text string) string {
	const (
		inOldSDK = "install mcp<2 too, with uvx --with 'mcp<2', or pip install 'mcp<2'"
		oldSDK   = "it needs version 1 of the Python SDK, and version 2 is installed: " + inOldSDK
	)
	for _, h := range []struct{ part, hint string }{
		{".node'", "a native addon is missing or was not built: npm rebuild in the folder of the server, without --ignore-scripts"},
		{"node_module_version", "its native addons were built for another version of Node.js: npm rebuild in the folder of the server"},
		{"cannot find module", "a package is missing: npm install in the folder of the server, and build it"},
		{"err_module_not_found", "a package is missing: npm install in the folder of the server, and build it"},
		{"this is mcp 2.x", oldSDK},
		{"no module named 'mcp.server.fastmcp'", oldSDK},
		{"attributeerror: 'server' object has no attribute", "it may need version 1 of the Python SDK, and version 2 is installed: " + inOldSDK},
		{"modulenotfounderror", "a package is missing in this Python: use the full path of the virtual environment's interpreter"},
		{"no module named", "a package is missing in this Python: use the full path of the virtual environment's interpreter"},
		{"is not valid json", "something that it reads is not valid JSON"},
		{"in json at position", "something that it reads is not valid JSON"},
		{"unexpected token", "the file needs a newer node, or was not built: check node --version"},
		{"unsupported engine", "it needs another version of Node.js"},
		{"eacces", "the server is not allowed to read or write a file"},
		{"permission denied", "the server is not allowed to read or write a file"},
		{"eaddrinuse", "its port is in use: another instance may be running"},
		{"address already in use", "its port is in use: another instance may be running"},
		{"api key", "it needs a key: --env NAME=value sets it here; for hosts, set it in env of the configuration"},
		{"api_key", "it needs a key: --env NAME=value sets it here; for hosts, set it in env of the configuration"},
		{"token", "it needs a token: --env NAME=value sets it here; for hosts, set it in env of the configuration"},
		{"enotfound", "it cannot reach the network"},
		{"econnrefused", "it cannot connect to something that it needs, such as a database: check that this runs"},
		{"filenotfounderror", "a file or a program that it needs does not exist, or is not in the PATH"},
		{"enoent", "a file or a program that it needs does not exist, or is not in the PATH"},
		{"e404", "the registry does not have this package"},
		{"docker daemon", "Docker is not running"},
	} {
		if containsWord(text, h.part) {
			return h.hint
		}
	}
	return ""
}

// containsWord reports whether text contains part with no letter before it: FileNotFoundError does
// not contain ENOTFOUND.
func containsWord(text, part string) bool {
	for i := 0; ; i++ {
		at := strings.Index(text[i:], part)
		if at < 0 {
			return false
		}
		i += at
		if i == 0 || part[0] < 'a' || part[0] > 'z' || text[i-1] < 'a' || text[i-1] > 'z' {
			return true
		}
	}
}
