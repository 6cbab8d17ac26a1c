package cli

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"mcpwire/cmd/internal/exit"
)

var update = flag.Bool("u", false, "write what the scripts' commands print, and the import picture, where they are expected")

// victims are the roles in which the environment can start this program, see the tests of the
// bridge.
var victims = map[string]func() int{}

// TestMain puts this program's commands into the PATH of the tests, each in its own process.
func TestMain(m *testing.M) {
	if run := victims[os.Getenv("MCPWIRE_VICTIM")]; run != nil {
		os.Exit(run())
	}
	// The scripts mostly wait, so more of them run at once than there are processors.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	testscript.Main(m, map[string]func(){
		"mcpwire": func() {
			os.Exit(Run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
		},
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 filepath.Join("testdata", "script"),
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       *update,
		Setup: func(env *testscript.Env) error {
			// otherwise each process sleeps for a second at its exit
			env.Setenv("GORACE", "atexit_sleep_ms=1")
			env.Setenv(exit.FormatVariable, "json") // shows the code; usage.txtar shows the text
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"exits":       cmdExits,
			"serving":     cmdServing,
			"posts":       cmdPosts,
			"stops":       cmdStops,
			"tapping":     cmdTapping,
			"untap":       cmdUntap,
			"decides":     cmdDecides,
			"mocking":     cmdMocking,
			"unmock":      cmdUnmock,
			"bridging":    cmdBridging,
			"unbridge":    cmdUnbridge,
			"gatewaying":  cmdGatewaying,
			"ungateway":   cmdUngateway,
			"certificate": cmdCertificate,
			"bytes":       cmdBytes,
			"shown":       cmdShown,
			"mask":        cmdMask,
			"narrow":      cmdNarrow,
		},
	})
}

// cmdExits runs a program that must exit with a status: exits STATUS PROGRAM ARGS...
func cmdExits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits STATUS PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

// cmdBytes makes a file of bytes that a text cannot show: bytes SRC DST. In SRC, \r and \n stand
// for the characters, and line breaks for nothing.
func cmdBytes(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: bytes SRC DST")
	}
	text := strings.NewReplacer("\n", "", `\r`, "\r", `\n`, "\n").Replace(ts.ReadFile(args[0]))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o666))
}

// cmdShown is the reverse of bytes: shown SRC DST. Each line break, and the end, begins a new line.
func cmdShown(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: shown SRC DST")
	}
	text := strings.NewReplacer("\r", `\r`, "\n", "\\n\n").Replace(ts.ReadFile(args[0]))
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o666))
}

// cmdMask replaces what differs from run to run: mask PATTERN REPLACEMENT SRC DST.
func cmdMask(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 4 {
		ts.Fatalf("usage: mask PATTERN REPLACEMENT SRC DST")
	}
	re, err := regexp.Compile(args[0])
	ts.Check(err)
	text := re.ReplaceAllString(ts.ReadFile(args[2]), args[1])
	ts.Check(os.WriteFile(ts.MkAbs(args[3]), []byte(text), 0o666))
}

var escapes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// cmdNarrow checks that no line of a file is wider than so many columns: narrow COLUMNS FILE.
func cmdNarrow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: narrow COLUMNS FILE")
	}
	limit, err := strconv.Atoi(args[0])
	ts.Check(err)
	text := strings.ReplaceAll(ts.ReadFile(args[1]), "\r", "")
	for line := range strings.Lines(escapes.ReplaceAllString(text, "")) {
		line = strings.TrimSuffix(line, "\n")
		if n := len([]rune(line)); n > limit {
			ts.Fatalf("%d columns, limit %d: %q", n, limit, line)
		}
	}
}
