package mcptest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

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
