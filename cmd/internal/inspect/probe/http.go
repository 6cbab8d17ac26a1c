package probe

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An httpConn is a conn over HTTP.
type httpConn struct {
	*wireclient.HTTP
	r *run
}

func newHTTPConn(r *run, j *job, modern bool) *httpConn {
	c := &wireclient.HTTP{
		Transport: r.transport, UserAgent: "mcpwire/" + r.opts.Version, MaxMessage: maxFrame, MaxStream: maxVisit,
		Record: r.recorder.record, Session: r.nextSession(j), NextExchange: func() uint64 { return r.exchanges.Add(1) },
	}
	if modern {
		c.HeaderMirror = &wireclient.HeaderMirror{Version: mcp.LatestRevision.String()}
	}
	return &httpConn{c, r}
}

// alive implements conn. HTTP exchanges are independent.
func (hc *httpConn) alive() bool { return true }

// close implements conn. It deletes the session, if there is one.
func (hc *httpConn) close() {
	hc.EndSession(wireclient.Request{URL: hc.r.target.URL, Edit: func(r *http.Request) { hc.edit(r, &outgoing{}) }})
}

// send implements conn.
func (hc *httpConn) send(ctx context.Context, q outgoing) reply {
	a := reply{state: answered, dir: capture.ToServer}
	x, err := hc.NewExchange(ctx, &wireclient.Request{
		Method: q.method, URL: hc.r.target.URL, Body: q.body, Edit: func(r *http.Request) { hc.edit(r, &q) },
	})
	if err != nil {
		a.state, a.err = disconnected, err
		return a
	}
	start := time.Now()
	x.Limit(hc.r.replyTimeout(q), errTimedOut)
	ctx = x.Request.Context()
	a.exchange, a.requestEvent, a.event = x.N, x.At, x.At
	err = x.Do()
	if err == nil {
		a.event, a.dir = x.At, capture.ToClient
		a.status, a.header = x.Status(), x.Response.Header
		if x.IsStream() {
			err = hc.readStream(ctx, x, &a, &q)
		} else {
			err = hc.readBody(ctx, x, &a, &q)
		}
	} else if ctx.Err() != nil {
		a.state, err = timedOut, errTimedOut
	} else {
		a.state, a.err = disconnected, err
	}
	x.End(err)
	a.took = time.Since(start)
	return a
}

// edit adds the user's headers, which replace none of the probe's, and those of the message.
func (hc *httpConn) edit(r *http.Request, q *outgoing) {
	for name, values := range hc.r.target.Header {
		if strings.EqualFold(name, "Host") && len(values) > 0 {
			r.Host = values[0]
		} else if len(r.Header.Values(name)) == 0 {
			r.Header[name] = slices.Clone(values)
		}
	}
	if q.header != nil {
		q.header(r.Header)
	}
	if q.host != "" {
		r.Host = q.host
	}
}

var (
	errTimedOut = errors.New("nothing came in time")
	// errStopped ends an exchange whose stream the probe does not read to its end.
	errStopped = wireclient.ErrClientClosed
)

// readBody reads the body of the response, and returns the reason if it broke off.
func (hc *httpConn) readBody(ctx context.Context, x *wireclient.Exchange, a *reply, q *outgoing) (why error) {
	in, err := x.Next()
	switch {
	case err == nil, err == io.EOF:
	case ctx.Err() != nil && !errors.Is(err, wireclient.ErrTooLarge):
		a.state, why = timedOut, errTimedOut
	default:
		a.err, why = err, err
	}
	if in == nil {
		return why
	}
	if a.body = in.Data; in.Kind == capture.KindMessage {
		hc.take(ctx, a, q, in)
	}
	return why
}

func (hc *httpConn) take(ctx context.Context, a *reply, q *outgoing, in *wireclient.Received) (done bool) {
	return a.take(q, in.Data, in.N, func(m *jsonrpc.Message) {
		if hc.HeaderMirror == nil { // modern servers send none
			hc.send(ctx, outgoing{body: clientResponse(m)})
		}
	})
}

// readStream reads an event stream until the response, a timeout or its end. It returns a reason if
// the probe ended the stream.
func (hc *httpConn) readStream(ctx context.Context, x *wireclient.Exchange, a *reply, q *outgoing) error {
	// Such a stream may stay open forever.
	if q.id == "" && !q.anyID && q.stopAt == nil {
		a.state = sentOnly
		return errStopped
	}
	for {
		in, err := x.Next()
		if err != nil && ctx.Err() != nil {
			a.state = timedOut
			return errStopped
		}
		if err != nil {
			a.state, a.err = disconnected, err
			return nil
		}
		if !hc.take(ctx, a, q, in) {
			continue
		}
		if a.state == stoppedEarly {
			hc.r.recorder.waive(in.N)
			return errStopped
		}
		// Some servers take an immediate disconnect for a cancellation.
		for x.Limit(drainTimeout, errStopped); err == nil; {
			_, err = x.Next()
		}
		return nil
	}
}

// drainTimeout limits the wait for what a server still sends after its response.
const drainTimeout = 500 * time.Millisecond
