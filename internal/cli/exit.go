package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Exit statuses, the same for all commands. tap ends with its child's.
const (
	exitOK          = 0
	exitUnexpected  = 1
	exitUsage       = 2   // the command line cannot be meant
	exitAuth        = 3   // the server wants to know who is asking
	exitUnreachable = 4   // no connection, or no answer in time
	exitAnswer      = 5   // a tool failed, or the server answered an error
	exitFindings    = 6   // a check found something, a comparison found differences
	exitHungUp      = 129 // by SIGHUP, as shells have it
	exitInterrupted = 130 // by SIGINT
	exitTerminated  = 143 // by SIGTERM
)

// statusHelp is what the help says of them.
const statusHelp = `Exit status: 0 done, 1 failed, 2 wrong command line, 3 authorization needed,
4 server unreachable, 5 error from server or tool, 6 findings or differences.`

// A failure is an error with its exit status, and what the line on standard error says of it besides the message.
type failure struct {
	status int
	code   string // for scripts, such as "auth_required"
	hint   string // how to mend it; may be empty
	err    error

	httpStatus int      // that the server answered; 0 if that is not what went wrong
	url        string   // of the server, without secrets; may be empty
	rpc        *rpcLine // the error that the server answered; may be nil
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// fail makes an error with an exit status, a code for scripts and a hint for people.
func fail(status int, code, hint string, err error) error {
	return &failure{status: status, code: code, hint: hint, err: err}
}

// usagef makes the error for a command line that cannot be meant. The message says how to mend it.
func usagef(format string, args ...any) error {
	return &failure{status: exitUsage, code: "usage", err: fmt.Errorf(format, args...)}
}

// usageHintf is usagef with a hint of its own.
func usageHintf(hint, format string, args ...any) error {
	return &failure{status: exitUsage, code: "usage", hint: hint, err: fmt.Errorf(format, args...)}
}

// An exitStatus ends the program with a status, and nothing more is said.
type exitStatus struct{ status int }

func (e *exitStatus) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// An errorFormat is how errors are written on standard error.
type errorFormat int

const (
	errorsAsText errorFormat = iota // for people
	errorsAsJSON                    // one line for each, for scripts
)

// errorsVariable is the environment variable that chooses the format for all commands.
const errorsVariable = "MCPWIRE_ERRORS"

// errorsHelp is what the help says of the formats.
const errorsHelp = `Errors are text. With --json, --errors json or MCPWIRE_ERRORS=json each is one
line of JSON: {"error":{"code":…,"message":…,"hint":…}}.`

// An errorsFlag checks the value of --errors, which errorFormatOf has read before.
type errorsFlag struct{}

func (*errorsFlag) String() string { return "" }
func (*errorsFlag) Type() string   { return "format" }

func (*errorsFlag) Set(s string) error {
	if s != formatText && s != formatJSON {
		return errors.New("want text or json")
	}
	return nil
}

// errorFormatOf returns the format that a command line asks for, without the program's name, or
// else the environment. It reads the arguments itself: a command line that cannot be parsed has a
// format too.
func errorFormatOf(args []string) errorFormat {
	format := errorsAsText
	if os.Getenv(errorsVariable) == formatJSON {
		format = errorsAsJSON
	}
	for i, arg := range args {
		switch value, isErrors := strings.CutPrefix(arg, "--errors="); {
		case arg == "--":
			return format
		case arg == "--json":
			format = errorsAsJSON
		case isErrors && value == formatJSON, arg == "--errors" && slices.Equal(args[i+1:min(i+2, len(args))], []string{formatJSON}):
			return errorsAsJSON
		case isErrors && value == formatText, arg == "--errors" && slices.Equal(args[i+1:min(i+2, len(args))], []string{formatText}):
			return errorsAsText
		}
	}
	return format
}

// report writes what went wrong and returns the exit status. signalled is that for the signal which
// ended the command, 0 if none did.
func report(stderr io.Writer, format errorFormat, err error, signalled int) int {
	var status *exitStatus
	var f *failure
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return status.status
	case signalled != 0 && errors.Is(err, context.Canceled):
		return signalled
	case unread(err):
		return exitUnexpected
	case !errors.As(err, &f):
		f = &failure{status: exitUnexpected, code: "failed"}
	}
	text := plainError(err)
	if format == errorsAsJSON {
		text = f.json(err.Error())
	}
	_, _ = io.WriteString(stderr, text) // there is nowhere else to say that this failed
	return f.status
}

// plainError returns an error for people: a line that says what went wrong, and one that says what
// to do if that is known.
func plainError(err error) string {
	text := "error: " + clipLine(err.Error(), 2000) + "\n"
	if f, ok := errors.AsType[*failure](err); ok {
		if f.rpc != nil && len(f.rpc.Data) > 0 {
			text += "data: " + clipLine(string(f.rpc.Data), 2000) + "\n"
		}
		if f.hint != "" {
			text += "hint: " + clipLine(f.hint, 2000) + "\n"
		}
	}
	return text
}

// An errorLine is an error as a line of JSON.
type errorLine struct {
	Error struct {
		Code    string   `json:"code"`
		Message string   `json:"message"`
		Status  int      `json:"status,omitempty"`
		URL     string   `json:"url,omitempty"`
		RPC     *rpcLine `json:"rpc,omitempty"`
		Hint    string   `json:"hint,omitempty"`
	} `json:"error"`
}

// An rpcLine is the error object that a server answered.
type rpcLine struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// json returns the line of JSON, which is an errorLine.
func (f *failure) json(message string) string {
	var line errorLine
	line.Error.Code, line.Error.Message, line.Error.Hint = f.code, message, f.hint
	line.Error.Status, line.Error.URL, line.Error.RPC = f.httpStatus, f.url, f.rpc
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if enc.Encode(line) != nil { // the server's data is not JSON
		line.Error.RPC = nil
		text.Reset()
		_ = enc.Encode(line)
	}
	return string(safeJSON(text.Bytes()))
}

// unread reports whether standard output could not be written because nobody reads it now, as with
// "mcpwire list server | head". On Unix SIGPIPE ends the process then, without a word; Windows has no such
// signal.
func unread(err error) bool {
	var e *fs.PathError
	return errors.As(err, &e) && e.Op == "write" && e.Path == os.Stdout.Name() && isBroken(e.Err)
}
