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

// Exit statuses, the same for all commands. tap exits with its child's status.
const (
	exitOK          = 0
	exitUnexpected  = 1
	exitUsage       = 2   // invalid command line
	exitAuth        = 3   // the server requires authorization
	exitUnreachable = 4   // no connection, or no response in time
	exitAnswer      = 5   // a tool failed, or the server sent an error
	exitFindings    = 6   // a check has findings, or a comparison has differences
	exitHungUp      = 129 // by SIGHUP, as shells have it
	exitInterrupted = 130 // by SIGINT
	exitTerminated  = 143 // by SIGTERM
)

// statusHelp describes the exit statuses in the help.
const statusHelp = `Exit status: 0 success, 1 failure, 2 usage error, 3 authorization required,
4 server unreachable, 5 error from server or tool, 6 findings or differences.`

// A failure is an error with an exit status, a code for scripts and a hint for people.
type failure struct {
	status int
	// code is for scripts, such as "auth_required".
	code string
	// hint says how to fix the problem. It may be empty.
	hint string
	err  error

	// httpStatus is the status of the server's response. Zero means that it is not the problem.
	httpStatus int
	// url is the server's URL without secrets. It may be empty.
	url string
	// rpc is the error that the server sent. It may be nil.
	rpc *rpcLine
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// fail returns an error with an exit status, a code for scripts and a hint for people.
func fail(status int, code, hint string, err error) error {
	return &failure{status: status, code: code, hint: hint, err: err}
}

// usagef returns the error for an invalid command line. The message says how to fix it.
func usagef(format string, args ...any) error {
	return &failure{status: exitUsage, code: "usage", err: fmt.Errorf(format, args...)}
}

// usageHintf is like usagef, with a separate hint.
func usageHintf(hint, format string, args ...any) error {
	return &failure{status: exitUsage, code: "usage", hint: hint, err: fmt.Errorf(format, args...)}
}

// An exitStatus ends the program with a status and without a message.
type exitStatus struct{ status int }

func (e *exitStatus) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// An errorFormat is the format of errors on standard error.
type errorFormat int

const (
	errorsAsText errorFormat = iota // for people
	errorsAsJSON                    // one line per error, for scripts
)

// errorsVariable is the environment variable that sets the format for all commands.
const errorsVariable = "MCPWIRE_ERRORS"

// errorsHelp describes the formats in the help.
const errorsHelp = `Errors are text. With --json, --errors json or MCPWIRE_ERRORS=json, each error
is one line of JSON: {"error":{"code":…,"message":…,"hint":…}}.`

// An errorsFlag checks the value of --errors. errorFormatOf reads the value beforehand.
type errorsFlag struct{}

func (*errorsFlag) String() string { return "" }
func (*errorsFlag) Type() string   { return "format" }

func (*errorsFlag) Set(s string) error {
	if s != "text" && s != "json" {
		return errors.New("want text or json")
	}
	return nil
}

// errorFormatOf returns the error format that a command line, without the program's name, or else
// the environment asks for. It reads the arguments itself because a command line that cannot be
// parsed needs a format too.
func errorFormatOf(args []string) errorFormat {
	format := errorsAsText
	if os.Getenv(errorsVariable) == "json" {
		format = errorsAsJSON
	}
	for i, arg := range args {
		switch value, isErrors := strings.CutPrefix(arg, "--errors="); {
		case arg == "--":
			return format
		case arg == "--json":
			format = errorsAsJSON
		case isErrors && value == "json", arg == "--errors" && slices.Equal(args[i+1:min(i+2, len(args))], []string{"json"}):
			return errorsAsJSON
		case isErrors && value == "text", arg == "--errors" && slices.Equal(args[i+1:min(i+2, len(args))], []string{"text"}):
			return errorsAsText
		}
	}
	return format
}

// asksForJSON reports whether a command line, without the program's name, has the flag --json.
func asksForJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json")
}

// reportError writes err and returns the exit status. signalled is the status of the signal that
// ended the command, or 0.
func reportError(stderr io.Writer, format errorFormat, err error, signalled int) int {
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
	// Nothing else can report that this failed.
	_, _ = io.WriteString(stderr, text)
	return f.status
}

// plainError returns an error for people: a line with the message, and lines with data and a hint
// if there are any.
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

// An rpcLine is the error object that the server sent.
type rpcLine struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// json returns the failure as an errorLine in JSON.
func (f *failure) json(message string) string {
	var line errorLine
	line.Error.Code, line.Error.Message, line.Error.Hint = f.code, message, f.hint
	line.Error.Status, line.Error.URL, line.Error.RPC = f.httpStatus, f.url, f.rpc
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	// The server's data is not JSON.
	if enc.Encode(line) != nil {
		line.Error.RPC = nil
		text.Reset()
		_ = enc.Encode(line)
	}
	return string(safeJSON(text.Bytes()))
}

// unread reports whether a write to standard output failed because its reader is gone, as with
// "mcpwire list server | head". On Unix, SIGPIPE ends the process silently instead; Windows has no
// such signal.
func unread(err error) bool {
	var e *fs.PathError
	return errors.As(err, &e) && e.Op == "write" && e.Path == os.Stdout.Name() && isBroken(e.Err)
}
