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
		Transport: r.transport, UserAgent: r.opts.Client + "/" + r.opts.Version, MaxMessage: maxFrame, MaxStream: maxVisit,
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
	if hc.SessionHeader(wireclient.HeaderSession) == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	hc.send(ctx, outgoing{method: http.MethodDelete})
}

// An exchange is a request with its response.
type exchange struct {
	*wireclient.Exchange
	conn *httpConn
	// late cancels the exchange.
	late *time.Timer
}

// send implements conn.
func (hc *httpConn) send(ctx context.Context, q outgoing) reply {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a := reply{state: answered, dir: capture.ToServer}
	request, err := hc.NewExchange(ctx, &wireclient.Request{
		Method: q.method, URL: hc.r.target.URL, Body: q.body, Edit: func(h *http.Request) { hc.edit(h, &q) },
	})
	if err != nil {
		a.state, a.err = disconnected, err
		return a
	}
	start := time.Now()
	x := &exchange{request, hc, time.AfterFunc(hc.r.replyTimeout(q), cancel)}
	defer x.late.Stop()
	a.exchange, a.requestEvent, a.event = x.N, x.At, x.At
	var why error
	if err := x.Do(); err != nil {
		why = x.fail(ctx, &a, err)
	} else {
		a.event, a.dir = x.At, capture.ToClient
		a.status, a.header = x.Status(), x.Response.Header
		if x.IsStream() {
			why = x.readStream(ctx, &a, &q)
		} else {
			why = x.readBody(ctx, &a, &q)
		}
	}
	x.End(why)
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

// fail sets the state of an exchange without a response, and returns why it ended.
func (x *exchange) fail(ctx context.Context, a *reply, err error) error {
	if ctx.Err() != nil {
		a.state = timedOut
		return errTimedOut
	}
	a.state, a.err = disconnected, err
	return err
}

// readBody reads the body of the response, and returns the reason if it broke off.
func (x *exchange) readBody(ctx context.Context, a *reply, q *outgoing) (why error) {
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
		x.take(ctx, a, q, in)
	}
	return why
}

func (x *exchange) take(ctx context.Context, a *reply, q *outgoing, in *wireclient.Received) (done bool) {
	return a.take(q, in.Data, in.N, func(m *jsonrpc.Message) {
		if x.conn.HeaderMirror == nil { // modern servers send none
			x.conn.send(ctx, outgoing{body: clientResponse(m)})
		}
	})
}

// readStream reads an event stream until the response, a timeout or its end. It returns a reason if
// the probe ended the stream.
func (x *exchange) readStream(ctx context.Context, a *reply, q *outgoing) error {
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
		if x.take(ctx, a, q, in) {
			if a.state == stoppedEarly {
				x.conn.r.recorder.waive(in.N)
				return errStopped
			}
			x.drain()
			return nil
		}
	}
}

// drain waits briefly for the end of the stream after the response. Some servers take an immediate
// disconnect for a cancellation.
func (x *exchange) drain() {
	x.late.Reset(drainTimeout)
	for {
		if _, err := x.Next(); err != nil {
			return
		}
	}
}

const (
	drainTimeout = 500 * time.Millisecond
	// deleteTimeout limits the deletion of the session.
	deleteTimeout = 2 * time.Second
)
