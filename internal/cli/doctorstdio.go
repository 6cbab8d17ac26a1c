package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"mcpwire/internal/probe"
	"mcpwire/mcp"
)

// process examines a server that is started.
func (doc *doctor) process(ctx context.Context) {
	if !doc.command() {
		return
	}
	s := doc.report.section("Handshakes")
	all := doc.handshakes(ctx, s)
	if ctx.Err() != nil {
		return
	}
	var spoken []mcp.Revision
	for i := range all {
		if all[i].Outcome == probe.Agreed {
			spoken = append(spoken, all[i].Revision)
		}
	}
	doc.startup(s, all)
	doc.output(all)
	doc.stderr(all)
	if len(spoken) == 0 {
		doc.noHandshake(all)
		return
	}
	doc.rules(ctx, spoken)
}

// handshakes tries the revisions, each with a process of its own. Servers that say nothing to two of them say nothing to the others.
func (doc *doctor) handshakes(ctx context.Context, s *doctorSection) []probe.Observation {
	var all []probe.Observation
	mute := 0
	for _, rev := range newestFirst() {
		wait := doc.wait
		if rev.Modern() {
			wait = min(wait, defaultStep/2) // servers of the legacy era need not answer
		}
		o := probe.Observe(ctx, doc.d.probeTarget(), rev, &probe.Options{Timeout: wait, Client: "mcpwire", Version: Version})
		if ctx.Err() != nil {
			return all
		}
		all = append(all, o)
		doc.handshake(s, &o, wait)
		switch o.Outcome {
		case probe.NotStarted:
			return all
		case probe.Silent, probe.Buffered, probe.Ended:
			if mute++; mute > 1 && !slices.ContainsFunc(all, func(o probe.Observation) bool { return o.Outcome == probe.Agreed }) {
				return all
			}
		}
	}
	return all
}

// handshake says what came of one.
func (doc *doctor) handshake(s *doctorSection, o *probe.Observation, wait time.Duration) {
	method := mcp.MethodInitialize
	if o.Revision.Modern() {
		method = mcp.MethodDiscover
	}
	head := fmt.Sprintf("%v  %s", o.Revision, method)
	took := shortTime(o.Took)
	switch o.Outcome {
	case probe.Agreed:
		s.good("%s: agreed, in %s", head, took)
	case probe.OtherVersion:
		if o.Version == "" {
			s.note("%s: answered without a version, in %s", head, took)
			return
		}
		s.note("%s: answered with %s, in %s", head, clip(safeLine(o.Version), 40), took)
	case probe.Refused:
		s.note("%s: error %d %s, in %s", head, int(o.Error.Code), clip(safeLine(o.Error.Message), 100), took)
	case probe.Silent:
		s.note("%s: no answer in %s", head, shortTime(wait))
	case probe.Buffered:
		s.note("%s: no answer in %s, but one when standard input was closed", head, shortTime(wait))
	case probe.Ended:
		s.note("%s: the server has ended: %s", head, exitWords(o))
	case probe.NotStarted:
		s.note("%s: not started: %s", head, clip(safeLine(o.Err.Error()), 200))
	}
}

// exitWords says how a process ended.
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

// noHandshake says why there was none.
func (doc *doctor) noHandshake(all []probe.Observation) {
	doc.report.worse(exitUnreachable)
	s := doc.report.section("No revision is agreed on")
	last := &all[len(all)-1]
	hasStderr := strings.TrimSpace(last.Stderr) != ""
	switch last.Outcome {
	case probe.NotStarted:
		s.bad("the system cannot start it: %s", clip(safeLine(cause(last.Err).Error()), 200)).hint("is it a program for this system?")
	case probe.Ended:
		l := s.bad("it ends before it answers: %s", exitWords(last))
		switch {
		case hasStderr:
			l.hint("what it writes to standard error, below, should say why")
		case last.Exit != nil && last.Exit.Code == 0:
			l.hint("it ends as if all was done: does it need an argument, such as stdio, to serve?")
		default:
			l.hint("it says nothing of the reason: run it by hand, with the variables that it needs")
		}
		doc.report.next("%s", commandLine(doc.d.target.command))
	case probe.Buffered:
		s.bad("its standard output is buffered: the answer comes only when its standard input has ended").hint("flush after each message: print(…, flush=True), PYTHONUNBUFFERED=1, fflush, setvbuf, or stdbuf -oL before the command")
		doc.report.next("mcpwire doctor --env PYTHONUNBUFFERED=1 %s", doc.again)
	case probe.Silent:
		l := s.bad("it starts and stays, and does not answer")
		l.hint("is this a server for stdio? Some need an argument for that, others wait for a login, a lock or the network first")
		doc.report.next("mcpwire tap %s", doc.tapped())
	case probe.Refused:
		s.bad("it refuses all revisions, the last with error %d %s", int(last.Error.Code), clip(safeLine(last.Error.Message), 200))
		doc.report.next("mcpwire info --probe %s", doc.again)
	case probe.OtherVersion:
		s.bad("it answers with a version that does not exist: %q", clip(safeLine(last.Version), 40)).hint("answer initialize with the version that was asked for, or the latest that the server speaks")
		doc.report.next("mcpwire check %s", doc.again)
	}
}

// cause is an error without what is around it.
func cause(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// hostPatience are the times after which well-known hosts give up, the shortest first.
const (
	slowStart = 5 * time.Second
	lateStart = 10 * time.Second
)

// startup says how soon the server answers.
func (doc *doctor) startup(s *doctorSection, all []probe.Observation) {
	var slowest time.Duration
	for i := range all {
		if all[i].Outcome == probe.Agreed {
			slowest = max(slowest, all[i].Took)
		}
	}
	switch {
	case slowest > lateStart:
		s.bad("it takes %s to answer: hosts give up after 10 to 60 s", shortTime(slowest)).hint("install it before (npx and uvx download at each start), and load large things after the handshake")
	case slowest > slowStart:
		s.odd("it takes %s to answer: some hosts give up after 10 s", shortTime(slowest)).hint("install it before (npx and uvx download at each start), and load large things after the handshake")
	}
}

// output says what is on standard output that does not belong there.
func (doc *doctor) output(all []probe.Observation) {
	s := doc.report.section("Standard output")
	answers := 0
	for i := range all {
		o := &all[i]
		if o.Result != nil || o.Error != nil {
			answers++
		}
		if o.Header {
			s.bad("messages come behind a Content-Length header, as in the Language Server Protocol").hint("write one message on each line, without a header")
			doc.report.next("mcpwire send --framing header %s", doc.again)
			return
		}
		if len(o.Stray) == 0 {
			continue
		}
		if o.Multiline {
			s.bad("messages go over several lines").detail(strayLines(o.Stray)...).hint("write each message on one line: JSON without indentation, line breaks in strings as \\n")
			return
		}
		kind := classifyStray(firstText(o.Stray))
		line := s.bad("the first thing on standard output that is no message was probably written by: %s", kind.what)
		line.detail(strayLines(o.Stray)...).hint("%s", kind.hint)
		doc.report.next("mcpwire tap %s", doc.tapped())
		doc.stray = true
		return
	}
	if answers > 0 {
		s.good("nothing but messages")
	}
}

// firstText is the first line with something in it.
func firstText(lines [][]byte) []byte {
	for _, line := range lines {
		if len(bytes.TrimSpace(line)) > 0 {
			return line
		}
	}
	return lines[0]
}

// strayLines shows the first lines, with all that cannot be seen.
func strayLines(stray [][]byte) []string {
	var lines []string
	for _, line := range stray[:min(len(stray), 3)] {
		lines = append(lines, clip(safeLine(string(line)), 120))
	}
	if more := len(stray) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("… and %d more", more))
	}
	return lines
}

// stderr shows the end of what the server said besides.
func (doc *doctor) stderr(all []probe.Observation) {
	last := &all[len(all)-1]
	tail := newTailWriter(nil)
	_, _ = tail.Write([]byte(last.Stderr))
	lines := tail.lines()
	if len(lines) == 0 {
		return
	}
	s := doc.report.section("Standard error")
	l := s.note("it ends with")
	l.detail(lines...)
	if hint := stderrHint(strings.ToLower(last.Stderr)); hint != "" && last.Outcome != probe.Agreed && doc.report.cause == "" {
		l.hint("%s", hint)
	}
}

// stderrHint knows some of what servers die of.
func stderrHint(text string) string {
	for _, h := range []struct{ part, hint string }{
		{"cannot find module", "a package is missing: npm install in the folder of the server, and build it"},
		{"err_module_not_found", "a package is missing: npm install in the folder of the server, and build it"},
		{"modulenotfounderror", "a package is missing in this Python: use the interpreter of the virtual environment, by its whole path"},
		{"no module named", "a package is missing in this Python: use the interpreter of the virtual environment, by its whole path"},
		{"unexpected token", "the file is newer JavaScript than this node understands, or is not built: node --version tells"},
		{"unsupported engine", "another version of Node.js is needed"},
		{"eacces", "the server may not read or write a file"},
		{"permission denied", "the server may not read or write a file"},
		{"eaddrinuse", "the port it wants is taken: another one of it is running"},
		{"address already in use", "the port it wants is taken: another one of it is running"},
		{"api key", "it wants a key: --env NAME=value gives it one, and the env of the configuration does for hosts"},
		{"api_key", "it wants a key: --env NAME=value gives it one, and the env of the configuration does for hosts"},
		{"token", "it wants a token: --env NAME=value gives it one, and the env of the configuration does for hosts"},
		{"enotfound", "it does not reach the network"},
		{"e404", "the registry has no such package"},
		{"usage:", "it wants other arguments"},
		{"docker daemon", "Docker is not running"},
	} {
		if strings.Contains(text, h.part) {
			return h.hint
		}
	}
	return ""
}
