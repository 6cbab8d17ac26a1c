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

// An exitStatus ends the program with a status, and nothing more is said.
type exitStatus struct{ status int }

func (e *exitStatus) Error() string { return fmt.Sprintf("exit status %d", e.status) }

// An errorLine is what standard error gets: one line of JSON, so that scripts can read it.
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

// report says what went wrong and returns the exit status. signalled is that for the signal which
// ended the command, 0 if none did.
func report(stderr io.Writer, err error, signalled int) int {
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
	var line errorLine
	line.Error.Code, line.Error.Message, line.Error.Hint = f.code, err.Error(), f.hint
	line.Error.Status, line.Error.URL, line.Error.RPC = f.httpStatus, f.url, f.rpc
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if enc.Encode(line) != nil {
		line.Error.RPC = nil
		text.Reset()
		_ = enc.Encode(line)
	}
	_, _ = stderr.Write(safeJSON(text.Bytes())) // there is nowhere else to say that this failed
	return f.status
}

// unread reports whether standard output could not be written because nobody reads it now, as with
// "mcpwire list server | head". On Unix SIGPIPE ends the process then, without a word; Windows has no such
// signal.
func unread(err error) bool {
	var e *fs.PathError
	return errors.As(err, &e) && e.Op == "write" && e.Path == os.Stdout.Name() && isBroken(e.Err)
}
