package targets

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"mcpwire/client"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/cause"
	"mcpwire/internal/proc/batchfile"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/oauth"
	"mcpwire/stdio"
	"mcpwire/streamable"
)

// EnvNames returns the names of variables that have a value.
func EnvNames(env []string) (names []string) {
	for _, v := range env {
		if name, value, _ := strings.Cut(v, "="); value != "" {
			names = append(names, name)
		}
	}
	return names
}

// Failure converts an error of a client to an [exit.Failure] with an exit status, a code for
// scripts and a hint.
func (d *Dialer) Failure(err error) error {
	var ready *exit.Failure
	if err == nil || errors.As(err, &ready) || errors.Is(err, context.Canceled) {
		return err
	}
	f := d.classify(err)
	if f.URL == "" && !d.Target.IsStdio() {
		f.URL = SafeURL(d.Target.URL)
	}
	return f
}

// classify converts other errors than [exit.Failure]. The order matters: later cases may be
// consequences of earlier ones.
func (d *Dialer) classify(err error) *exit.Failure {
	if f := d.denied(err); f != nil {
		return f
	}
	if e, ok := errors.AsType[*client.IncompatibleError](err); ok {
		return &exit.Failure{Status: exit.Unreachable, Code: "no_common_revision", Hint: "--protocol auto allows all revisions; mcpwire info --probe shows which revisions the server speaks", Err: e}
	}
	if e, ok := errors.AsType[*client.InputError](err); ok {
		return &exit.Failure{Status: exit.Answer, Code: "input_refused", Hint: "--elicit and --sampling set how to respond to the server", Err: e}
	}
	if e, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return RPCFailure(e, d.Trace.RequestMethod(e))
	}
	if e, ok := errors.AsType[*stdio.ExitError](err); ok {
		short := *e
		// The arguments may contain secrets.
		short.Name = d.Target.Name
		err := d.withInvalid(ExitText(&short))
		return &exit.Failure{Status: exit.Unreachable, Code: "server_exited", Hint: d.causeHint(cause.Ended, strings.Split(e.Stderr, "\n"), "mcpwire doctor looks for the cause"), Err: err}
	}
	if f := unreachable(err); f != nil {
		if status, ok := errors.AsType[*streamable.StatusError](err); ok {
			f.Hint = hintOf(d.statusCause(err, status))
		}
		return f
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &exit.Failure{Status: exit.Unreachable, Code: "timeout", Hint: d.LateHint(), Err: d.WithTail(lateText(err))}
	}
	if e, ok := errors.AsType[*client.ProtocolError](err); ok {
		return &exit.Failure{Status: exit.Unreachable, Code: "protocol_error", Hint: "mcpwire check finds what is wrong with the server", Err: d.WithTail(e)}
	}
	if _, ok := errors.AsType[*jsonrpc.TooLargeError](err); ok {
		return &exit.Failure{Status: exit.Unreachable, Code: "answer_too_large", Err: d.WithTail(err)}
	}
	if errors.Is(err, jsonrpc.ErrMalformed) {
		return &exit.Failure{Status: exit.Unreachable, Code: "protocol_error", Hint: "the server's response is not MCP: check the URL of its endpoint", Err: d.WithTail(err)}
	}
	if errors.Is(err, jsonrpc.ErrClosed) {
		return &exit.Failure{Status: exit.Unreachable, Code: "connection_lost", Err: d.WithTail(err)}
	}
	return &exit.Failure{Status: exit.Unreachable, Code: "unreachable", Err: d.WithTail(err)}
}

// denied returns the failure if a server or a proxy requires authorization. It returns nil for
// other errors.
func (d *Dialer) denied(err error) *exit.Failure {
	f := &exit.Failure{Status: exit.Auth, Code: "auth_required", Err: err}
	login, isLogin := errors.AsType[*oauth.AuthorizationError](err)
	status, isStatus := errors.AsType[*streamable.StatusError](err)
	switch {
	case isLogin:
		f.Err, f.Hint = login, loginHint(login)
		if d.HTTP != nil {
			f.HTTPStatus = int(d.HTTP.Refused.Load())
		}
	case errors.Is(err, oauth.ErrNotReplayable):
		f.Hint = "try again: the token is now available"
	case isStatus && (status.StatusCode == http.StatusUnauthorized || status.StatusCode == http.StatusForbidden || status.StatusCode == http.StatusProxyAuthRequired):
		f.Err, f.HTTPStatus = status, status.StatusCode
		f.Hint = "give a token with --header 'Authorization: Bearer ${TOKEN}', or log in by running this on a terminal"
		if d.Target.Header.Get("Authorization") != "" {
			f.Hint = "the server rejects the given token"
		}
		switch {
		case strings.HasPrefix(status.Text, "insufficient_scope"):
			f.Code, f.Hint = "forbidden", "the token lacks a scope that this request needs: log in again, or give a token that has it"
		case status.StatusCode == http.StatusForbidden:
			f.Code, f.Hint = "forbidden", "the server does not allow this user, or this Host or Origin (see mcpwire doctor)"
			if c := d.statusCause(err, status); c.Specific {
				f.Hint = hintOf(c)
			}
		}
		if status.StatusCode == http.StatusProxyAuthRequired {
			f.Hint = "the proxy set in the environment requires a user name"
		}
	default:
		return nil
	}
	return f
}

// loginHint returns a hint for a failure to get a token.
func loginHint(e *oauth.AuthorizationError) string {
	switch {
	case errors.Is(e, oauth.ErrConsentRequired):
		return "run this once on a terminal to log in, or give a token with --header 'Authorization: Bearer ${TOKEN}'"
	case errors.Is(e, oauth.ErrUnregistered):
		return "register a client with the authorization server and give its --client-id"
	case errors.Is(e, oauth.ErrDenied):
		return "the user or the authorization server denied access"
	}
	return "give a token with --header 'Authorization: Bearer ${TOKEN}', or --no-oauth to see the server's own response"
}

// BatchHint is the hint for arguments that Windows cannot pass to a batch file.
const BatchHint = "start the program that the batch file starts, with its arguments, such as node.exe"

// unreachable returns the failure of a connection that could not be made. It returns nil for other
// errors.
func unreachable(err error) *exit.Failure {
	f := &exit.Failure{Status: exit.Unreachable, Code: "unreachable", Err: err}
	var dns *net.DNSError
	var op *net.OpError
	var verify *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	var program *exec.Error
	var path *fs.PathError
	status, isStatus := errors.AsType[*streamable.StatusError](err)
	switch {
	case isStatus:
		f.Code, f.HTTPStatus, f.Err = "http_status", status.StatusCode, status
	case errors.Is(err, batchfile.ErrArguments):
		f.Code, f.Hint = "cannot_start", BatchHint
	case errors.As(err, &program):
		f.Code, f.Err, f.Hint = "cannot_start", fmt.Errorf("cannot start %s: %w", safe.Line(program.Name), program.Err), StartHint(err, "check that it is installed and in the PATH; mcpwire runs it without a shell (mcpwire doctor shows more)")
	case errors.As(err, &path):
		f.Code, f.Err, f.Hint = "cannot_start", fmt.Errorf("cannot start %s: %w", safe.Line(path.Path), path.Err), StartHint(err, "check that the file exists and is executable")
	case errors.As(err, &verify), errors.As(err, &unknown):
		f.Code, f.Hint = "tls_failed", "--cacert names a certificate to trust, --insecure trusts anyone"
	case errors.As(err, &record):
		f.Code, f.Hint = "tls_failed", "the server does not speak TLS at this port: try http://"
	case errors.As(err, &dns):
		f.Err, f.Hint = dns, "unknown host name"
	case errors.As(err, &op) && op.Op == "dial":
		f.Err, f.Hint = op, "check that the server runs, and at this address"
	default:
		return nil
	}
	return f
}

// StartHint returns the hint for a program that the system does not start. otherwise is the one if
// the program is missing.
func StartHint(err error, otherwise string) string {
	if _, ok := errors.AsType[syscall.Errno](err); ok && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return cause.Find(cause.Ended, []string{err.Error()}, nil).Fix
	}
	return otherwise
}

// causeHint returns the cause in the lines that the server wrote, with its remedy. otherwise is for
// lines that give none.
func (d *Dialer) causeHint(state cause.State, lines []string, otherwise string) string {
	c := cause.Find(state, lines, EnvNames(d.Target.Env))
	if c.Fix == "" {
		return otherwise
	}
	return hintOf(c)
}

func hintOf(c cause.Cause) string {
	if !c.Known {
		return safe.Clip(c.Fix, 400)
	}
	return safe.Clip(c.What+": "+c.Fix, 400)
}

// statusCause returns the cause that an HTTP status and its body give.
func (d *Dialer) statusCause(err error, e *streamable.StatusError) cause.Cause {
	r := cause.Response{Status: e.StatusCode, Body: e.Text}
	if errors.Is(err, jsonrpc.ErrClosed) { // the session is lost, which only err says
		r.Later, r.Body = true, err.Error()
	}
	if u, err := url.Parse(d.Target.URL); err == nil {
		r.Host = u.Host
	}
	if d.HTTP != nil {
		if to := d.HTTP.location.Load(); to != nil {
			r.Header = http.Header{"Location": {*to}}.Get
		}
	}
	return r.Find()
}

// RPCFailure returns the failure for an error response to a request for method. method is empty if
// unknown.
func RPCFailure(e *jsonrpc.Error, method string) *exit.Failure {
	what := fmt.Sprintf("error %d: %s", int(e.Code), clip.Characters(e.Message, maxPeerText))
	f := &exit.Failure{Status: exit.Answer, Code: "rpc_error", Err: errors.New("the server responds with " + what)}
	if method != "" {
		f.Err = fmt.Errorf("the server responds to %s with %s", safe.Clip(method, 100), what)
	}
	f.RPC = &exit.RPC{Code: int(e.Code), Message: clip.Characters(e.Message, maxPeerText)}
	if len(e.Data) > 0 && len(e.Data) <= maxPeerData && json.Valid(e.Data) {
		f.RPC.Data = bytes.Clone(e.Data)
	}
	return f
}

// Limits on the shown parts of a server's error.
const (
	maxPeerText = 2000     // characters
	maxPeerData = 16 << 10 // bytes; larger data is omitted
)

// ExitText describes how a process ended, with the end of its standard error.
func ExitText(e *stdio.ExitError) error {
	short := *e
	short.Stderr = ""
	tail := kit.NewTailWriter(nil)
	_, _ = tail.Write([]byte(e.Stderr))
	return withLines(&short, tail.Lines())
}

func withLines(err error, lines []string) error {
	if len(lines) == 0 {
		return err
	}
	verb := "ends with"
	if slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, "… (") }) {
		verb = "says" // the lines are an excerpt
	}
	return fmt.Errorf("%w; its standard error %s: %s", err, verb, strings.Join(lines, " ⏎ "))
}

// WithTail adds the end of the server's standard error, and its output that was not a message.
func (d *Dialer) WithTail(err error) error {
	return withLines(d.withInvalid(err), d.Tail.Lines())
}

func (d *Dialer) withInvalid(err error) error {
	if text := d.Trace.invalidText(); text != "" && d.Target.IsStdio() {
		return fmt.Errorf("%w; it wrote to standard output what is not a message: %s", err, text)
	}
	return err
}

// lateText describes a timeout in terms of the command line.
func lateText(err error) error {
	if e, ok := errors.AsType[*client.TimeoutError](err); ok {
		return fmt.Errorf("no response to %s within %v", e.Method, e.After)
	}
	if e, ok := errors.AsType[*lateError](err); ok {
		return e
	}
	if os.IsTimeout(err) {
		return err
	}
	return errors.New("no response in time")
}

// LateHint returns the hint for a server that does not respond in time.
func (d *Dialer) LateHint() string {
	if d.Target.IsStdio() {
		return d.causeHint(cause.Silent, d.Tail.All(), "--timeout and --connect-timeout allow more time; mcpwire doctor looks for the cause")
	}
	return "--timeout and --connect-timeout allow more time"
}
