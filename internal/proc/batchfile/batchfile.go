// Package batchfile starts Windows batch files with their arguments unchanged.
//
// Windows runs .bat and .cmd files, such as npx.cmd and all that npm installs, with cmd.exe, which
// expands variables in the arguments and treats & and | as the end of a command. Package os/exec
// quotes arguments for programs only; unquoted parts run as commands (see CVE-2024-24576).
// [Prepare] changes an [exec.Cmd] so that it starts cmd.exe with arguments quoted for it.
//
// # Concurrency
//
// Functions are safe for concurrent use. A Cmd belongs to one goroutine.
//
// # Errors
//
// Arguments that cmd.exe cannot pass on cause an error that matches [ErrArguments].
package batchfile

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf16"
)

const (
	// maxCommandLine is the longest command line that cmd.exe accepts, in UTF-16 units
	// (https://learn.microsoft.com/troubleshoot/windows-client/shell-experience/command-line-string-limitation).
	maxCommandLine = 8191
	// maxShim is the largest batch file that may count as a shim, in bytes. npx.cmd has 700.
	maxShim = 16 << 10
)

// ErrArguments matches errors about arguments that cannot be passed to a batch file.
var ErrArguments = errors.New("cannot be passed to a batch file")

// argumentError returns an error that says what cannot be passed on, and why.
func argumentError(subject, reason string) error {
	return fmt.Errorf("%s %w: %s", subject, ErrArguments, reason)
}

// Is reports whether Windows runs a file with this name by cmd.exe. Windows ignores dots and spaces
// at the end of a name.
func Is(path string) bool {
	path = strings.ToLower(strings.TrimRight(path, ". "))
	return strings.HasSuffix(path, ".bat") || strings.HasSuffix(path, ".cmd")
}

// commandLine returns the command line with which shell, the path of cmd.exe, runs the batch file
// at path. A program to which the batch file passes its arguments gets exactly args, and nothing in
// them is expanded or run as a command. shim means that [isShim] returned true for the batch file.
// Errors do not show arguments, which may contain secrets.
//
// Arguments are quoted. Quoted text means the same to cmd.exe on this line, on the line of the
// batch file with %* or %1, and to the program. The exception is a quote: cmd.exe does not know \"
// and treats it as the end of the quoted text. There are two ways around that.
//
//   - In a shim, cmd.exe parses arguments exactly twice. Carets before each special character
//     for each time, as in cross-spawn of npm, make it arrive in any program.
//   - Other batch files may use arguments in any way, so the quotes must be balanced wherever
//     the text appears. As in the standard libraries of Rust and Zig, a quote is doubled.
//     Programs with a C library from before 2008, and Go programs, parse two quotes
//     differently, but no command is run.
func commandLine(shell, path string, shim bool, args []string) (string, error) {
	if strings.ContainsAny(path, "\"\x00\r\n") {
		return "", argumentError("the name of the program", "it contains a quote, a NUL or a line break")
	}
	var b strings.Builder
	// /d disables commands from the registry, /e:on enables %cd:~,% (see writeText), /v:off leaves
	// ! alone, and /s removes only the first and last quote of the text after /c.
	b.WriteString(`"` + shell + `" /d /e:on /v:off /s /c ""`)
	writeText(&b, path, `""`)
	b.WriteByte('"')
	for i, arg := range args {
		if strings.ContainsAny(arg, "\x00\r\n") {
			return "", argumentError(fmt.Sprintf("argument %d", i+1), "it contains a line break or a NUL")
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
		return "", argumentError("too much", fmt.Sprintf("the command line has %d characters, but cmd.exe accepts only %d", n, maxCommandLine))
	}
	return b.String(), nil
}

// caretEscaper escapes text that cmd.exe parses twice. writeText handles percent signs, which are
// expanded before carets and only the first time.
var caretEscaper = strings.NewReplacer(
	`^`, `^^^^`, `"`, `^^^"`, `&`, `^^^&`, `|`, `^^^|`, `<`, `^^^<`, `>`, `^^^>`, `(`, `^^^(`, `)`, `^^^)`, `!`, `^^^!`,
)

// writeArgument writes an argument in quotes. quote replaces a quote in it.
func writeArgument(b *strings.Builder, arg, quote string) {
	b.WriteByte('"')
	writeText(b, arg, quote)
	b.WriteByte('"')
}

// writeText writes the text between quotes. It doubles backslashes before a quote, where programs
// treat them as escapes. %cd:~,% is an empty part of the current directory's name: a percent sign
// after it does not begin the name of a variable.
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
	// forwardLine matches the line of a shim that starts the program: words, quoted or without
	// quotes, which it captures, then all arguments, at the end.
	forwardLine = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(?:.*[&(@])?[ \t]*((?:(?:"[^"]*"|[^\s"&|<>^()@*]+)[ \t]+)+)%\*[ \t]*$`)
	})
	// rereadWords are words that make cmd.exe parse the line, or parts of it, again.
	rereadWords = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)\b(?:call|set|start|cmd|comspec|for)\b|\.(?:bat|cmd)\b`)
	})
	// unsafeUse matches uses of single arguments, and syntax that parses carets more often.
	unsafeUse = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)%~?[a-z$:]*[1-9]|\bshift\b|delayedexpansion|(?:^|[^|])\|(?:[^|]|$)`)
	})
)

// isShim reports whether a batch file only passes all its arguments to a program, as the files that
// npm, pnpm, yarn and corepack install do.
func isShim(script []byte) bool {
	if len(script) > maxShim || unsafeUse().Match(script) {
		return false
	}
	found := false
	for line := range strings.Lines(string(script)) {
		if !strings.Contains(line, "%*") {
			continue
		}
		m := forwardLine().FindStringSubmatch(strings.TrimRight(line, "\r\n"))
		if m == nil || rereadWords().MatchString(m[1]) {
			return false
		}
		found = true
	}
	return found
}
