// Package exit has the exit statuses of our programs, and errors that have one. It reports an error
// to people, or as JSON to scripts.
package exit

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

	"mcpwire/cmd/internal/text/safe"
)

// Exit statuses, the same for all commands. tap exits with its child's status.
const (
	OK          = 0
	Unexpected  = 1
	Usage       = 2   // invalid command line
	Auth        = 3   // the server requires authorization
	Unreachable = 4   // no connection, or no response in time
	Answer      = 5   // a tool failed, or the server sent an error
	Findings    = 6   // a check has findings, or a comparison has differences
	HungUp      = 129 // by SIGHUP, as shells have it
	Interrupted = 130 // by SIGINT
	Terminated  = 143 // by SIGTERM
)

// StatusHelp describes the exit statuses in the help.
const StatusHelp = `Exit status: 0 success, 1 failure, 2 usage error, 3 authorization required,
4 server unreachable, 5 error from server or tool, 6 findings or differences.`

// A Failure is an error with an exit status, a code for scripts and a hint for people.
type Failure struct {
	Status int
	// Code is for scripts, such as "auth_required".
	Code string
	// Hint says how to fix the problem. It may be empty.
	Hint string
	Err  error

	// HTTPStatus is the status of the server's response. Zero means that it is not the problem.
	HTTPStatus int
	// URL is the server's URL without secrets. It may be empty.
	URL string
	// RPC is the error that the server sent. It may be nil.
	RPC *RPC
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Fail returns an error with an exit status, a code for scripts and a hint for people.
func Fail(status int, code, hint string, err error) error {
	return &Failure{Status: status, Code: code, Hint: hint, Err: err}
}

// Usagef returns the error for an invalid command line. The message says how to fix it.
func Usagef(format string, args ...any) error {
	return &Failure{Status: Usage, Code: "usage", Err: fmt.Errorf(format, args...)}
}

// UsageHintf is like [Usagef], with a separate hint.
func UsageHintf(hint, format string, args ...any) error {
	return &Failure{Status: Usage, Code: "usage", Hint: hint, Err: fmt.Errorf(format, args...)}
}

// A Status ends the program with a status and without a message.
type Status struct{ Code int }

func (e *Status) Error() string { return fmt.Sprintf("exit status %d", e.Code) }

// A Format is the format of errors on standard error.
type Format int

const (
	AsText Format = iota // for people
	AsJSON               // one line per error, for scripts
)

// FormatVariable is the environment variable that sets the format for all commands.
const FormatVariable = "MCPWIRE_ERRORS"

// FormatHelp describes the formats in the help.
const FormatHelp = `Errors are text. With --json, --errors json or MCPWIRE_ERRORS=json, each error
is one line of JSON: {"error":{"code":…,"message":…,"hint":…}}.`

// A FormatFlag checks the value of --errors. FormatOf reads the value beforehand.
type FormatFlag struct{}

func (*FormatFlag) String() string { return "" }
func (*FormatFlag) Type() string   { return "format" }

func (*FormatFlag) Set(s string) error {
	if s != "text" && s != "json" {
		return errors.New("want text or json")
	}
	return nil
}

// FormatOf returns the error format that a command line, without the program's name, or else
// the environment asks for. It reads the arguments itself because a command line that cannot be
// parsed needs a format too.
func FormatOf(args []string) Format {
	format := AsText
	if os.Getenv(FormatVariable) == "json" {
		format = AsJSON
	}
	for i, arg := range args {
		switch value, isErrors := strings.CutPrefix(arg, "--errors="); {
		case arg == "--":
			return format
		case arg == "--json":
			format = AsJSON
		case isErrors && value == "json", arg == "--errors" && slices.Equal(args[i+1:min(i+2, len(args))], []string{"json"}):
			return AsJSON
		case isErrors && value == "text", arg == "--errors" && slices.Equal(args[i+1:min(i+2, len(args))], []string{"text"}):
			return AsText
		}
	}
	return format
}

// AsksForJSON reports whether a command line, without the program's name, has the flag --json.
func AsksForJSON(args []string) bool {
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	return slices.Contains(args, "--json")
}

// Report writes err and returns the exit status. signalled is the status of the signal that
// ended the command, or 0.
func Report(stderr io.Writer, format Format, err error, signalled int) int {
	var status *Status
	var f *Failure
	switch {
	case err == nil:
		return OK
	case errors.As(err, &status):
		return status.Code
	case signalled != 0 && errors.Is(err, context.Canceled):
		return signalled
	case isUnread(err):
		return Unexpected
	case !errors.As(err, &f):
		f = &Failure{Status: Unexpected, Code: "failed"}
	}
	text := Text(err)
	if format == AsJSON {
		text = f.json(err.Error())
	}
	// Nothing else can report that this failed.
	_, _ = io.WriteString(stderr, text)
	return f.Status
}

// Text returns an error for people: a line with the message, and lines with data and a hint
// if there are any.
func Text(err error) string {
	text := "error: " + safe.Clip(err.Error(), 2000) + "\n"
	if f, ok := errors.AsType[*Failure](err); ok {
		if f.RPC != nil && len(f.RPC.Data) > 0 {
			text += "data: " + safe.Clip(string(f.RPC.Data), 2000) + "\n"
		}
		if f.Hint != "" {
			text += "hint: " + safe.Clip(f.Hint, 2000) + "\n"
		}
	}
	return text
}

// An ErrorLine is an error as a line of JSON.
type ErrorLine struct {
	Error struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Status  int    `json:"status,omitempty"`
		URL     string `json:"url,omitempty"`
		RPC     *RPC   `json:"rpc,omitempty"`
		Hint    string `json:"hint,omitempty"`
	} `json:"error"`
}

// An RPC is the error object that the server sent.
type RPC struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// json returns the failure as an ErrorLine in JSON.
func (f *Failure) json(message string) string {
	var line ErrorLine
	line.Error.Code, line.Error.Message, line.Error.Hint = f.Code, message, f.Hint
	line.Error.Status, line.Error.URL, line.Error.RPC = f.HTTPStatus, f.URL, f.RPC
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	// The server's data is not JSON.
	if enc.Encode(line) != nil {
		line.Error.RPC = nil
		text.Reset()
		_ = enc.Encode(line)
	}
	return string(safe.JSON(text.Bytes()))
}

// isUnread reports whether a write to standard output failed because its reader is gone, as with
// "mcpwire list server | head". On Unix, SIGPIPE ends the process silently instead; Windows has no
// such signal.
func isUnread(err error) bool {
	var e *fs.PathError
	return errors.As(err, &e) && e.Op == "write" && e.Path == os.Stdout.Name() && isBroken(e.Err)
}
