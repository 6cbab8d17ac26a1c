package cli

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"mcpwire/cmd/internal/playback/replay"
	"mcpwire/cmd/internal/playback/resend"
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
			places = append(places, safeLine(p))
		}
		return fail(exitUnexpected, "redacted", "--set POINTER=TEXT sets the redacted value, in "+strings.Join(places, " "), hidden)
	}
	if e, ok := errors.AsType[*replay.EraError](err); ok {
		return fail(exitUnreachable, "other_era", "mcpwire bridge translates: put it in front of the server", e)
	}
	if e, ok := errors.AsType[*resend.HandshakeError](err); ok {
		return fail(exitUnreachable, "handshake_refused", "mcpwire info --probe shows which revisions the server speaks", errors.New(safeLine(e.Error())))
	}
	if e, ok := errors.AsType[*wireclient.StatusError](err); ok {
		return f.refused(e)
	}
	if errors.Is(err, resend.ErrTimeout) {
		return fail(exitUnreachable, "timeout", d.lateHint(), err)
	}
	if e, ok := errors.AsType[*wireclient.EndedError](err); ok {
		ready, ok := errors.AsType[*failure](d.failure(e.Err))
		if ok && (ready.code != "unreachable" || ready.hint != "") {
			return ready
		}
		return fail(exitUnreachable, "connection_lost", "", e)
	}
	return d.failure(err)
}

// refused returns the error for an HTTP status instead of an answer.
func (f *replayFlags) refused(e *wireclient.StatusError) error {
	out := &failure{status: exitUnreachable, code: "http_status", err: e, httpStatus: e.Status, url: safeURL(f.dialer.target.url)}
	out.hint = "check the URL of the server's endpoint: many use /mcp, older ones /sse"
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden {
		out.status, out.code = exitAuth, "auth_required"
		out.hint = "give a token with --header 'Authorization: Bearer ${TOKEN}', or log in by running this on a terminal"
	}
	return out
}
