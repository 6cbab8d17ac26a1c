// Package kit has what all commands share: their environment, output for terminals, prompts, and
// flags.
package kit

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/exit"
	"mcpwire/internal/text/plural"
)

// WriteJSON writes v as JSON and a line break.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// WriteIndentedJSON is WriteJSON with two spaces for each level.
func WriteIndentedJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// CompleteFlag adds completion of a flag's values.
func CompleteFlag(c *cobra.Command, name string, values func() []string) {
	// It fails only for an unknown flag.
	_ = c.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return values(), cobra.ShellCompDirectiveNoFileComp
	})
}

// Innermost returns the innermost wrapped error.
func Innermost(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}

// HelpWidth is the width of the help, in columns.
const HelpWidth = 80

// OfTarget is the annotation of the flags, shared by many commands, that say how to reach a server.
const OfTarget = "target"

// SizeText formats a number of bytes for people.
func SizeText(n int) string {
	switch {
	case n < 1000:
		return strconv.Itoa(n) + " B"
	case n < 1000*1000:
		return strconv.FormatFloat(float64(n)/1000, 'f', 1, 64) + " kB"
	}
	return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + " MB"
}

// ShortTime formats a duration for people.
func ShortTime(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond).String()
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// An Env is the environment that a command runs in.
type Env struct {
	Stdin          *os.File
	Stdout, Stderr io.Writer
	// Prompter asks the user on stdin and stderr. All commands share it, so that input it has
	// buffered is not lost.
	Prompter *Prompter
	// Errors is the format of errors.
	Errors exit.Format
	// JSON reports whether the command line has --json.
	JSON bool
}

// CanAsk reports whether a user at a terminal can answer questions.
func (e *Env) CanAsk() bool {
	return IsTerminal(e.Stdin) && WriterIsTerminal(e.Stderr) && os.Getenv("CI") == ""
}

// FlagsOnly returns an error if there are arguments.
func FlagsOnly(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exit.UsageHintf(cmd.CommandPath()+" --help lists the flags", "%s: unexpected argument %q: it takes flags only", cmd.Name(), args[0])
	}
	return nil
}

// OwnSignals is the annotation of commands that handle signals themselves, such as servers and
// taps.
const OwnSignals = "signals"

// A List is a flag that may be repeated.
type List []string

func (l *List) Type() string       { return "" }
func (l *List) String() string     { return strings.Join(*l, ",") }
func (l *List) Set(s string) error { *l = append(*l, s); return nil }

// OrDash returns s, or "-" if it is empty.
func OrDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// NoteGaps says on standard error that captures are incomplete.
func (e *Env) NoteGaps(gaps int) {
	if gaps > 0 {
		fmt.Fprintf(e.Stderr, "%s in what was recorded, so counts are too low: mcpwire show --filter kind:gap\n", plural.Of(gaps, "gap"))
	}
}

// StatusLine returns the status line of a command. It is nil if standard error is not a terminal
// that can erase lines, in CI, and with --json.
func (e *Env) StatusLine() *StatusLine {
	if e.JSON || os.Getenv("CI") != "" || !WriterIsTerminal(e.Stderr) || os.Getenv("TERM") == "dumb" || runtime.GOOS == "windows" {
		return nil
	}
	return &StatusLine{W: e.Stderr}
}

// FlagText returns the value of a flag, or "" if the command has no such flag.
func FlagText(cmd *cobra.Command, name string) string {
	if f := cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// CreateFile creates a file that must not exist, and calls write with it. It removes the file if
// that fails.
func CreateFile(path string, write func(io.Writer) error) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return exit.Fail(exit.Unexpected, "output", "use a file that does not exist yet, in an existing folder", err)
	}
	err = write(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(path)
	}
	return err
}

// OwnPath returns the path of this program that survives upgrades: the path that the shell finds,
// which may link into the folder of one version.
func OwnPath() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", err
	}
	for _, name := range []string{filepath.Base(os.Args[0]), os.Args[0]} {
		if found, err := exec.LookPath(name); err == nil && SameFile(found, exe) {
			return filepath.Abs(found)
		}
	}
	return exe, nil
}

// SameFile reports whether two paths lead to one file.
func SameFile(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}
