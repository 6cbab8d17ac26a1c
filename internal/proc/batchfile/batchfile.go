// Package batchfile starts batch files of Windows with their arguments unchanged.
//
// Windows runs .bat and .cmd files, among them npx.cmd and all that npm installs, by cmd.exe, which
// expands variables in the arguments and takes & and | as the end of a command. Package os/exec
// quotes arguments for programs only; what it leaves in the open runs as a command (CVE-2024-24576
// describes it). [Prepare] changes an [exec.Cmd] so that cmd.exe is started with arguments quoted for it.
//
// # Concurrency
//
// Functions may be called concurrently. A Cmd belongs to one goroutine.
//
// # Errors
//
// What cmd.exe cannot pass on is refused with an error that is [ErrArguments].
package batchfile

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf16"
)

const (
	// maxCommandLine is the longest command line that cmd.exe accepts, in UTF-16 units
	// (https://learn.microsoft.com/troubleshoot/windows-client/shell-experience/command-line-string-limitation).
	maxCommandLine = 8191
	// maxShim is the largest batch file that may count as a shim, in bytes. npx.cmd has 700.
	maxShim = 16 << 10
)

// ErrArguments is what errors are that are about arguments that cannot be passed to a batch file.
var ErrArguments = errors.New("cannot be passed to a batch file")

// A refusal says what cannot be passed on, and why.
type argumentError struct{ subject, reason string }

func (e argumentError) Error() string {
	return fmt.Sprintf("%s %v: %s", e.subject, ErrArguments, e.reason)
}
func (e argumentError) Is(target error) bool { return target == ErrArguments }

// Is reports whether Windows runs a file of this name by cmd.exe. Windows ignores dots and spaces at
// the end of a name.
func Is(path string) bool {
	path = strings.ToLower(strings.TrimRight(path, ". "))
	return strings.HasSuffix(path, ".bat") || strings.HasSuffix(path, ".cmd")
}

// commandLine returns the command line with which shell, the path of cmd.exe, runs the batch file at
// path. A program to which the batch file passes its arguments gets exactly args, and nothing in
// them is expanded or run as a command. shim says that the batch file is one for which [isShim]
// returned true. Errors do not show arguments, which may hold secrets.
//
// Arguments are put in quotes. Text in quotes means the same to cmd.exe on this line, on the line
// of the batch file that has %* or %1 in it, and to the program in the end. Only a quote itself does not:
// cmd.exe does not know \" and takes it as the end of the quotes. There are two ways around.
//
//   - On the way through a shim, arguments are read by cmd.exe exactly twice. A caret before each special
//     character for each time, as cross-spawn of npm writes them, makes them arrive in any program.
//   - Other batch files do what they like with arguments, so the quotes must be balanced for cmd.exe
//     wherever the text comes to stand. As the standard libraries of Rust and Zig do it, a quote is
//     doubled. Programs whose C library is of before 2008, and those written in Go, read
//     two quotes in a way of their own, but no command is run.
func commandLine(shell, path string, shim bool, args []string) (string, error) {
	if strings.ContainsAny(path, "\"\x00\r\n") {
		return "", argumentError{"the name of the program", "it has a quote, a NUL or a line break"}
	}
	var b strings.Builder
	// /d runs no commands of the registry, /e:on knows %cd:~,% (see writeText), /v:off leaves ! alone, and /s
	// has the first and the last quote removed of what follows /c, and no others.
	b.WriteString(`"` + shell + `" /d /e:on /v:off /s /c ""`)
	writeText(&b, path, `""`)
	b.WriteByte('"')
	for i, arg := range args {
		if strings.ContainsAny(arg, "\x00\r\n") {
			return "", argumentError{fmt.Sprintf("argument %d", i+1), "it has a line break or a NUL"}
		}
		b.WriteByte(' ')
		if shim && strings.Contains(arg, `"`) {
			var quoted strings.Builder
			writeArgument(&quoted, arg, `\"`)
			b.WriteString(caretEscaper.Replace(quoted.String()))
		} else {
			writeArgument(&b, arg, `""`)
		}
	}
	b.WriteByte('"')
	if n := len(utf16.Encode([]rune(b.String()))); n > maxCommandLine {
		return "", argumentError{"so much", fmt.Sprintf("the command line has %d characters, and cmd.exe takes %d", n, maxCommandLine)}
	}
	return b.String(), nil
}

// caretEscaper escapes what cmd.exe reads twice. Percent signs are left to writeText: they are expanded before
// carets are read, and the first time only.
var caretEscaper = strings.NewReplacer(
	`^`, `^^^^`, `"`, `^^^"`, `&`, `^^^&`, `|`, `^^^|`, `<`, `^^^<`, `>`, `^^^>`, `(`, `^^^(`, `)`, `^^^)`, `!`, `^^^!`,
)

// writeArgument writes an argument in quotes. quote is what a quote in it becomes.
func writeArgument(b *strings.Builder, arg, quote string) {
	b.WriteByte('"')
	writeText(b, arg, quote)
	b.WriteByte('"')
}

// writeText writes what is between quotes. Programs take backslashes before a quote as escapes, so
// they are doubled there. %cd:~,% is an empty part of the name of the current directory: after it,
// a percent sign does not begin the name of a variable.
func writeText(b *strings.Builder, text, quote string) {
	backslashes := 0
	for i := range len(text) {
		switch c := text[i]; c {
		case '\\':
			backslashes++
			b.WriteByte(c)
			continue
		case '"':
			b.WriteString(strings.Repeat(`\`, backslashes))
			b.WriteString(quote)
		case '%':
			b.WriteString(`%%cd:~,%`)
		default:
			b.WriteByte(c)
		}
		backslashes = 0
	}
	b.WriteString(strings.Repeat(`\`, backslashes))
}

var (
	// forwardLine is the line of a shim that starts the program: words in quotes or without any, then all
	// arguments, at the end. The words are captured.
	forwardLine = regexp.MustCompile(`^(?:.*[&(@])?[ \t]*((?:(?:"[^"]*"|[^\s"&|<>^()@*]+)[ \t]+)+)%\*[ \t]*$`)
	// rereadWords are words that have cmd.exe read the line, or parts of it, once more.
	rereadWords = regexp.MustCompile(`(?i)\b(?:call|set|start|cmd|comspec|for)\b|\.(?:bat|cmd)\b`)
	// unsafeUse matches the use of single arguments, and what reads carets more often than else.
	unsafeUse = regexp.MustCompile(`(?i)%~?[a-z$:]*[1-9]|\bshift\b|delayedexpansion|(?:^|[^|])\|(?:[^|]|$)`)
)

// isShim reports whether a batch file does nothing with its arguments but pass all of them on to a
// program, as the files do that npm, pnpm, yarn and corepack install.
func isShim(script []byte) bool {
	if len(script) > maxShim || unsafeUse.Match(script) {
		return false
	}
	found := false
	for line := range strings.Lines(string(script)) {
		if !strings.Contains(line, "%*") {
			continue
		}
		m := forwardLine.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil || rereadWords.MatchString(m[1]) {
			return false
		}
		found = true
	}
	return found
}
