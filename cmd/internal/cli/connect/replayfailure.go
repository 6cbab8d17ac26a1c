package connect

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/playback/replay"
	"mcpwire/cmd/internal/playback/resend"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/cmd/internal/trace/wireclient"
)

// failure returns the error for a replay that could not go on.
func (f *replayFlags) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	d := f.dialer
	if hidden, ok := errors.AsType[*resend.RedactedError](err); ok {
		var places []string
		for _, p := range hidden.Pointers {
			places = append(places, safe.Line(p))
		}
		return exit.Fail(exit.Unexpected, "redacted", "--set POINTER=TEXT sets the redacted value, in "+strings.Join(places, " "), hidden)
	}
	if e, ok := errors.AsType[*replay.EraError](err); ok {
		return exit.Fail(exit.Unreachable, "other_era", "mcpwire bridge translates: put it in front of the server", e)
	}
	if e, ok := errors.AsType[*resend.HandshakeError](err); ok {
		return exit.Fail(exit.Unreachable, "handshake_refused", "mcpwire info --probe shows which revisions the server speaks", errors.New(safe.Line(e.Error())))
	}
	if e, ok := errors.AsType[*wireclient.StatusError](err); ok {
		return f.refused(e)
	}
	if errors.Is(err, resend.ErrTimeout) {
		return exit.Fail(exit.Unreachable, "timeout", d.LateHint(), err)
	}
	if e, ok := errors.AsType[*wireclient.EndedError](err); ok {
		ready, ok := errors.AsType[*exit.Failure](d.Failure(e.Err))
		if ok && (ready.Code != "unreachable" || ready.Hint != "") {
			return ready
		}
		return exit.Fail(exit.Unreachable, "connection_lost", "", e)
	}
	return d.Failure(err)
}

// refused returns the error for an HTTP status instead of an answer.
func (f *replayFlags) refused(e *wireclient.StatusError) error {
	out := &exit.Failure{Status: exit.Unreachable, Code: "http_status", Err: e, HTTPStatus: e.Status, URL: targets.SafeURL(f.dialer.Target.URL)}
	out.Hint = "check the URL of the server's endpoint: many use /mcp, older ones /sse"
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden {
		out.Status, out.Code = exit.Auth, "auth_required"
		out.Hint = "give a token with --header 'Authorization: Bearer ${TOKEN}', or log in by running this on a terminal"
	}
	return out
}
