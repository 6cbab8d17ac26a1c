package mcptest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// GoldenOptions are the options of [Golden]. The zero value is ready to use, and what nil means.
type GoldenOptions struct {
	// Bubble plays each session in a bubble of testing/synctest: the clock begins at 2000-01-01T00:00:00Z and goes on only when everything waits,
	// so that times can be compared and waiting costs nothing. It is for servers that do no real I/O and leave no goroutine behind.
	Bubble bool

	Timeout time.Duration // of each wait; 0 is DefaultTimeout
}

// Golden plays recorded sessions with a server and compares what it answers. files is a pattern of package filepath, "testdata/*.txtar" say; each
// file holds sessions, one behind the other, in the format of txtar, and each is a subtest, with a server and a connection of its own:
//
//	What stands in front of the first session is for the reader.
//
//	-- echo --
//	# A comment.
//	> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":"$modern","name":"echo","arguments":{"text":"hi"}}}
//	< {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"hi"}],"$any":"$any"}}
//	-- ping --
//	@handshake 2025-11-25
//	> {"jsonrpc":"2.0","id":1,"method":"ping"}
//	< {"jsonrpc":"2.0","id":1,"result":{}}
//
// A line begins with a word:
//
//	>           sends the message behind it
//	>raw        sends a frame as it is, even if it is not JSON
//	<           the message that must come before the next one is sent
//	@handshake  begins the session with a handshake, in the revision behind it; the answer is not looked at
//	@unordered  the messages between two that are sent may come in any order
//	@eof        ends the input; what is still answered stands behind it. Each session ends so anyway
//	#           a comment
//
// Messages are patterns, with variables, as those of [Peer] are. A message that no line expects fails the test.
//
// # Updating
//
// If the environment has MCPTEST_UPDATE=1, or the test binary has a flag -update and it is set, what comes is written into the files instead of
// being compared. A session that has nothing but messages to send is a good beginning. A message that matches its line leaves it as it is; in
// others, the variables that still stand for something stay. To tell which message came in answer to which, Golden waits until a request is
// answered, at most two seconds, and then until nothing has come for a tenth of a second. Read the difference before you commit it.
//
// Golden does not declare the flag, because a test package that declares it too would not start. To have it, declare it:
//
//	var _ = flag.Bool("update", false, "write what the server answers into testdata")
func Golden[S Server](t *testing.T, files string, newServer func(t testing.TB) S, opts *GoldenOptions) {
	t.Helper()
	names, err := filepath.Glob(files)
	if err != nil || len(names) == 0 {
		t.Fatalf("no file matches %q in the folder of the test (%v)", files, err)
	}
	g := &goldenRunner{update: updateRequested(), newServer: func(t testing.TB) Server { return newServer(t) }}
	if opts != nil {
		g.opts = *opts
	}
	if g.opts.Timeout <= 0 {
		g.opts.Timeout = DefaultTimeout
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar"), func(t *testing.T) {
			t.Helper()
			g.runFile(t, name)
		})
	}
}

// updateRequested reports whether files are to be written.
func updateRequested() bool {
	if os.Getenv("MCPTEST_UPDATE") == "1" {
		return true
	}
	f := flag.Lookup("update")
	if f == nil {
		return false
	}
	v, ok := f.Value.(flag.Getter)
	return ok && v.Get() == true
}

type goldenRunner struct {
	opts      GoldenOptions
	update    bool
	newServer func(t testing.TB) Server
}

// runFile plays the sessions of a file.
func (g *goldenRunner) runFile(t *testing.T, name string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	archive := txtar.Parse(text)
	if len(archive.Files) == 0 {
		t.Fatalf("%s: no sessions: each begins with a line such as -- name --", name)
	}
	for i := range archive.Files {
		section := &archive.Files[i]
		gc, err := parseCase(name, sectionLine(archive, i), section)
		if err != nil {
			t.Fatal(err)
		}
		run := func(t *testing.T) {
			t.Helper()
			if g.runCase(t, gc); g.update && !t.Failed() {
				section.Data = gc.format()
			}
		}
		t.Run(section.Name, func(t *testing.T) {
			t.Helper()
			if g.opts.Bubble {
				synctest.Test(t, run)
				return
			}
			run(t)
		})
	}
	if written := txtar.Format(archive); g.update && string(written) != string(text) {
		if err := os.WriteFile(name, written, 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// runCase plays one session, and leaves what came in its steps.
func (g *goldenRunner) runCase(t testing.TB, gc *goldenCase) {
	t.Helper()
	p := NewPeer(t, Serve(t, g.newServer(t)))
	p.Timeout = g.opts.Timeout
	if !g.update {
		p.hint = "If that is as it should be, MCPTEST_UPDATE=1 writes it into the file."
	}
	if gc.handshake != mcp.RevisionNone {
		p.location = gc.location(gc.handshakeLine)
		p.Send(Initialize(gc.handshake))
		p.Expect(Result(0, `"$any"`))
		p.Send(Initialized)
	}
	for i := range gc.steps {
		st := &gc.steps[i]
		p.location = gc.location(st.line)
		st.send(p)
		if g.update {
			gc.recordStep(p, st)
		} else {
			st.check(p, gc)
		}
	}
	if g.update {
		gc.recordEnd(p)
	}
	p.location = gc.location(0)
}

// A session is one section of a golden file; [Golden] says what stands in it.
type goldenCase struct {
	file, name string
	firstLine  int // the number of its first line in the file
	lines      []string

	handshake     mcp.Revision // RevisionNone without one
	handshakeLine int
	unordered     bool
	steps         []step
}

// A step is something that is sent, and what comes then.
type step struct {
	kind stepKind
	text string
	line int // index in session.lines
	want []expected
	got  []string // patterns of what came, for an update
}

type stepKind uint8

const (
	stepSend stepKind = iota
	stepRaw
	stepEOF
)

// An expected message is a pattern and the line where it stands.
type expected struct {
	pattern string
	line    int
}

// sectionLine returns the number of the line with which the data of a section begins in its file.
func sectionLine(archive *txtar.Archive, i int) int {
	before := &txtar.Archive{Comment: archive.Comment, Files: archive.Files[:i]}
	return bytes.Count(txtar.Format(before), []byte("\n")) + 2
}

func parseCase(file string, first int, section *txtar.File) (*goldenCase, error) {
	text := strings.TrimSuffix(string(section.Data), "\n")
	gc := &goldenCase{file: file, name: section.Name, firstLine: first, lines: strings.Split(text, "\n")}
	for i, line := range gc.lines {
		if err := gc.parseLine(i, line); err != nil {
			return nil, fmt.Errorf("%s%w", gc.location(i), err)
		}
	}
	if len(gc.steps) == 0 {
		return nil, fmt.Errorf("%sthe session sends nothing", gc.location(0))
	}
	return gc, nil
}

func (gc *goldenCase) parseLine(i int, line string) error {
	word, rest, _ := strings.Cut(line, " ")
	sends := word == ">" || word == ">raw" || word == "@eof"
	switch {
	case sends && len(gc.steps) > 0 && gc.steps[len(gc.steps)-1].kind == stepEOF:
		return fmt.Errorf("nothing can be sent behind @eof")
	case word == "" || word[0] == '#':
	case word == ">":
		gc.steps = append(gc.steps, step{kind: stepSend, text: rest, line: i})
	case word == ">raw":
		gc.steps = append(gc.steps, step{kind: stepRaw, text: rest, line: i})
	case word == "@eof":
		gc.steps = append(gc.steps, step{kind: stepEOF, line: i})
	case word == "<":
		if len(gc.steps) == 0 {
			return fmt.Errorf("no message can be expected before the first that is sent")
		}
		last := &gc.steps[len(gc.steps)-1]
		last.want = append(last.want, expected{rest, i})
	case word == "@unordered":
		gc.unordered = true
	case word == "@handshake":
		r, ok := mcp.ParseRevision(strings.TrimSpace(rest))
		if !ok || len(gc.steps) > 0 {
			return fmt.Errorf("%q: a handshake comes first and names one of %v", line, mcp.Revisions())
		}
		gc.handshake, gc.handshakeLine = r, i
	default:
		return fmt.Errorf("%q begins with none of > >raw < @handshake @unordered @eof #", clip(line, maxLineBytes))
	}
	return nil
}

// location names a line, by its index, in front of a message.
func (gc *goldenCase) location(i int) string {
	return fmt.Sprintf("%s:%d: session %q: ", gc.file, gc.firstLine+i, gc.name)
}

func (st *step) send(p *Peer) {
	p.t.Helper()
	switch st.kind {
	case stepSend:
		p.Send(st.text)
	case stepRaw:
		p.SendRaw(st.text)
	case stepEOF:
		p.CloseWrite()
	}
}

// check sees that what comes after a step is what should.
func (st *step) check(p *Peer, gc *goldenCase) {
	p.t.Helper()
	if gc.unordered {
		var patterns []string
		for _, e := range st.want {
			patterns = append(patterns, e.pattern)
		}
		p.ExpectUnordered(patterns...)
		return
	}
	for _, e := range st.want {
		p.location = gc.location(e.line)
		p.Expect(e.pattern)
	}
}

// How long an update waits: for the answer to a request, and for what else may come.
const (
	answerWait = 2 * time.Second
	quietWait  = 100 * time.Millisecond
)

// recordStep takes what comes after a step instead of comparing it.
func (gc *goldenCase) recordStep(p *Peer, st *step) {
	p.t.Helper()
	if st.kind == stepEOF {
		gc.mergeStep(p, st, p.mustReadRest())
		return
	}
	text := st.text
	if st.kind == stepSend {
		text, _ = p.vars.expand(text) // it was sent
	}
	gc.mergeStep(p, st, p.readReplies(text))
}

// recordEnd ends the input. If something still comes then, that gets a step of its own.
func (gc *goldenCase) recordEnd(p *Peer) {
	p.t.Helper()
	if gc.steps[len(gc.steps)-1].kind == stepEOF {
		return
	}
	p.CloseWrite()
	if got := p.mustReadRest(); len(got) > 0 {
		gc.lines = append(gc.lines, "@eof")
		gc.steps = append(gc.steps, step{kind: stepEOF, line: len(gc.lines) - 1})
		gc.mergeStep(p, &gc.steps[len(gc.steps)-1], got)
	}
}

// mustReadRest returns what comes until the other side hangs up, which it must.
func (p *Peer) mustReadRest() []string {
	p.t.Helper()
	got, err := p.readRest()
	if err != nil {
		p.fatalf("%v", err)
	}
	return got
}

// readReplies returns what comes after a message was sent: its answer, if it wants one, and what follows within quietWait. It ends after the peer's
// Timeout in any case.
func (p *Peer) readReplies(sent string) []string {
	var request jsonrpc.Message
	waiting := jsonrpc.Parse([]byte(sent), &request, maxDepth) == nil && request.Kind == jsonrpc.KindRequest
	var got []string
	for end := time.Now().Add(p.Timeout); time.Now().Before(end); {
		wait := quietWait
		if waiting {
			wait = answerWait
		}
		a, ok := p.next(wait)
		if !ok || a.err != nil {
			break
		}
		got = append(got, a.text)
		var m jsonrpc.Message
		if jsonrpc.Parse([]byte(a.text), &m, maxDepth) == nil && m.Kind >= jsonrpc.KindResponse && m.ID.Equal(request.ID) {
			waiting = false
		}
	}
	return got
}

// mergeStep makes patterns of what came after a step, out of those that were expected.
func (gc *goldenCase) mergeStep(p *Peer, st *step, replies []string) {
	p.t.Helper()
	if gc.unordered {
		replies = st.orderByPattern(p, replies)
	}
	for i, text := range replies {
		got := p.parseMessage("update", text)
		m := &match{vars: p.vars}
		if i >= len(st.want) {
			st.got = append(st.got, string(m.merge(nil, nil, got)))
			continue
		}
		pattern := st.want[i].pattern
		want := p.parsePattern("update", pattern)
		if fits := compare(want, got, p.vars); len(fits.diffs) == 0 {
			p.vars = fits.vars
		} else {
			pattern = string(m.merge(nil, &want, got))
		}
		st.got = append(st.got, pattern)
	}
}

// orderByPattern puts what came in the order of the patterns that it matches. What matches none fills the gaps, and stands behind.
func (st *step) orderByPattern(p *Peer, got []string) []string {
	p.t.Helper()
	rest := slices.Clone(got)
	places := make([]string, len(st.want))
	for i, e := range st.want {
		want := p.parsePattern("update", e.pattern)
		j := slices.IndexFunc(rest, func(text string) bool {
			return len(compare(want, p.parseMessage("update", text), p.vars).diffs) == 0
		})
		if j >= 0 {
			places[i] = rest[j]
			rest = slices.Delete(rest, j, j+1)
		}
	}
	for i, text := range places {
		if text == "" && len(rest) > 0 {
			places[i], rest = rest[0], rest[1:]
		}
	}
	places = slices.DeleteFunc(places, func(text string) bool { return text == "" })
	return append(places, rest...)
}

// format is the session with what came in the place of what was expected. Comments stay where they are.
func (gc *goldenCase) format() []byte {
	replaced := map[int]string{} // of the expected messages, by line; "" is nothing
	added := map[int][]string{}
	for _, st := range gc.steps {
		at := st.line
		for i, e := range st.want {
			if replaced[e.line] = ""; i < len(st.got) {
				replaced[e.line], at = "< "+st.got[i], e.line
			}
		}
		for _, text := range st.got[min(len(st.want), len(st.got)):] {
			added[at] = append(added[at], "< "+text)
		}
	}
	var lines []string
	for i, line := range gc.lines {
		switch text, expected := replaced[i]; {
		case !expected:
			lines = append(lines, line)
		case text != "":
			lines = append(lines, text)
		}
		lines = append(lines, added[i]...)
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}
