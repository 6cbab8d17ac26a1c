package mock

import (
	"context"
	"slices"
	"time"

	"mcpwire/internal/base/wait"
	"mcpwire/internal/era"
	"mcpwire/internal/rpc"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A responder answers one request of a client.
type responder struct {
	conn *conn
	id   jsonrpc.ID
	// swappedID is the id that a fault set.
	swappedID jsonrpc.ID
	method    string
	modern    bool
	// token is the progress token. nil means no progress.
	token []byte
	// level is the log level of a modern request.
	level mcp.LoggingLevel

	// The response is from one of these three.
	exchange *exchange
	err      *jsonrpc.Error
	// result is the text of a result.
	result []byte

	unmatched bool
	faults    []*Fault

	ctx    context.Context
	cancel context.CancelFunc
	// out sends the messages before the response.
	out rpc.Sender
	// noPreceding reports that other messages need another stream.
	noPreceding bool
	// faultWriter is the HTTP response if faults may change it, or nil.
	faultWriter *faultWriter
	requestIDs  map[string]jsonrpc.ID
}

// end removes the request. The caller must call it once.
func (r *responder) end() {
	r.cancel()
	r.conn.mu.Lock()
	delete(r.conn.responders, r)
	r.conn.mu.Unlock()
}

// isImmediate reports whether the response needs no waiting.
func (r *responder) isImmediate() bool {
	if slices.ContainsFunc(r.faults, (*Fault).hasDelay) {
		return false
	}
	if r.exchange == nil {
		return true
	}
	o := &r.conn.srv.opts
	if o.Latency.Keep || o.Latency.Fixed > 0 || !r.exchange.hasResponse && r.exchange.status == 0 || r.exchange.isSubscription() {
		return false
	}
	return !slices.ContainsFunc(r.exchange.steps, isRequest)
}

func isRequest(s *step) bool { return s.isRequest }

// run sends the preceding messages and returns the response, or an error to send nothing.
func (r *responder) run() ([]byte, error) {
	if r.refuseHTTP() {
		return nil, errEnded
	}
	if e := r.faultError(); e != nil {
		r.exchange, r.err, r.result = nil, e, nil
	}
	if r.exchange != nil {
		if err := r.sendPreceding(); err != nil {
			return nil, err
		}
	}
	answer, err := r.response()
	if err != nil {
		return nil, err
	}
	if answer, err = r.injectFaults(answer); err != nil {
		return nil, err
	}
	if r.unmatched && r.conn.srv.opts.Strict {
		r.conn.srv.cancel(ErrMissed)
	}
	return answer, nil
}

// sendPreceding sends the messages before the response and applies the latency.
func (r *responder) sendPreceding() error {
	keep := r.conn.srv.opts.Latency
	for _, s := range r.exchange.steps {
		if keep.Keep {
			if err := r.wait(s.delay); err != nil {
				return err
			}
		}
		to := r.out
		if s.outOfBand {
			to = r.conn.out
		}
		if err := r.runStep(s, to); err != nil {
			return err
		}
	}
	if keep.Keep {
		return r.wait(r.exchange.delay)
	}
	return r.wait(keep.Fixed)
}

// response returns the text of the response. Without one, it waits until the request ends.
func (r *responder) response() ([]byte, error) {
	id := r.id
	switch {
	case r.err != nil:
		return jsonrpc.AppendError(nil, id, r.err, false), nil
	case r.result != nil:
		return jsonrpc.AppendResult(nil, id, r.result), nil
	case r.exchange.isSubscription():
		r.waitDone() // answered only when the server ends
		if r.exchange.hasResponse && r.ctx.Err() == nil {
			return withSubscription(r.exchange.response.append(nil, id), id), nil
		}
		return nil, errEnded
	case r.exchange.hasResponse:
		return r.exchange.response.append(nil, id), nil
	case r.exchange.status != 0:
		e := jsonrpc.Errorf(jsonrpc.CodeInternalError, "when recorded, this request was rejected with HTTP status %d and no response", r.exchange.status)
		return jsonrpc.AppendError(nil, id, e, false), nil
	}
	r.conn.srv.opts.Logger.Info("the capture has no response to this request, so none is sent", "n", r.exchange.n, "method", clip.String(r.method, 128))
	r.waitDone()
	return nil, errEnded
}

// waitDone waits until no one needs a response anymore.
func (r *responder) waitDone() {
	select {
	case <-r.ctx.Done():
	case <-r.conn.waitCtx.Done():
	}
}

// wait waits for d, or returns an error when the request ends.
func (r *responder) wait(d time.Duration) error {
	if r.ctx.Err() != nil || d > 0 && !wait.Sleep(r.ctx, d) {
		return errEnded
	}
	return nil
}

// runStep sends one recorded message. After an input request it waits for the response. An error
// means that the request has ended.
func (r *responder) runStep(s *step, to rpc.Sender) error {
	if s.isRequest {
		return r.sendRequest(s, to)
	}
	text := r.notificationText(s)
	if text == nil {
		return nil
	}
	if err := to.Send(text); err != nil && r.ctx.Err() != nil {
		return errEnded
	}
	return nil
}

// notificationText returns the text of a notification, or nil if this client must not get it.
func (r *responder) notificationText(s *step) []byte {
	text := s.text.append(nil, nil)
	switch s.method {
	case mcp.NotificationProgress:
		token := r.token
		if s.progressOf != nil && s.progressOf != r.exchange {
			r.conn.mu.Lock()
			token = r.conn.tokens[s.progressOf]
			r.conn.mu.Unlock()
		}
		if token == nil {
			return nil
		}
		return withMember(text, token, "params", mcp.MetaProgressToken)
	case mcp.NotificationMessage:
		level, _ := mcp.ParseLoggingLevel(era.LookupString(text, "params", "level"))
		if r.modern && (r.level == mcp.LevelNone || level < r.level) || !r.modern && !r.conn.wantsLog(level) {
			return nil
		}
	case mcp.NotificationCancelled:
		if s.cancels == "" {
			return text
		}
		id := r.requestIDs[s.cancels]
		if id == nil {
			return nil
		}
		return withMember(text, id, "params", "requestId")
	}
	if r.exchange != nil && r.exchange.isSubscription() {
		return withSubscription(text, r.id)
	}
	return text
}

// sendRequest sends a recorded input request to the client.
func (r *responder) sendRequest(s *step, to rpc.Sender) error {
	log, p := r.conn.srv.opts.Logger, r.conn
	text := s.text.append(nil, jsonrpc.ID("0"))
	if name := p.missingCapability(s.method, era.Lookup(text, "params")); name != "" {
		log.Warn("input request omitted: the client did not declare the capability", "n", s.n, "method", s.method, "capability", name)
		return nil
	}
	answer, id, err := p.sendRequest(to, &s.text)
	defer p.forget(id)
	if err != nil {
		log.Debug("input request not sent", "n", s.n, "error", err)
		return nil
	}
	if r.requestIDs == nil {
		r.requestIDs = map[string]jsonrpc.ID{}
	}
	r.requestIDs[s.requestID] = id
	if !s.responded {
		return nil // the recorded client did not answer
	}
	t := time.NewTimer(p.srv.opts.ClientTimeout)
	defer t.Stop()
	select {
	case m := <-answer:
		if m.Kind == jsonrpc.KindError {
			log.Warn("the client responded with an error to a recorded input request; the recorded response is sent anyway", "n", s.n, "method", s.method, "error", clip.String(m.Err().Message, 256))
		}
	case <-t.C:
		log.Warn("the client did not respond to a recorded input request; the recorded response is sent anyway", "n", s.n, "method", s.method)
	case <-r.ctx.Done():
		return errEnded
	case <-p.waitCtx.Done():
		return errEnded
	}
	return nil
}

// sendTrailing sends the recorded messages after a response, once for each client. Those after the
// handshake wait for the initialized notification.
func (c *conn) sendTrailing(r *responder) {
	if r.exchange == nil || len(r.exchange.trailing) == 0 || r.method == mcp.MethodInitialize {
		return
	}
	c.playTrailing(r)
}

// onInitialized sends the messages after the handshake.
func (c *conn) onInitialized() {
	c.mu.Lock()
	of := c.legacy
	c.mu.Unlock()
	if of != nil && of.initialize != nil && len(of.initialize.trailing) > 0 {
		c.playTrailing(&responder{conn: c, exchange: of.initialize, method: mcp.MethodInitialize})
	}
}

// playTrailing sends the messages after a response, on a goroutine if that takes time.
func (c *conn) playTrailing(r *responder) {
	c.mu.Lock()
	done := c.sentTrailing[r.exchange]
	c.sentTrailing[r.exchange] = true
	c.mu.Unlock()
	if done {
		return
	}
	b := &responder{conn: c, exchange: r.exchange, method: r.method, modern: r.modern, token: r.token, level: r.level, ctx: c.ctx}
	if !b.hasDelay() {
		b.sendTrailing()
		return
	}
	b.ctx = c.waitCtx
	if !c.srv.activity.begin() {
		return
	}
	go func() {
		defer c.srv.activity.done()
		b.sendTrailing()
	}()
}

// hasDelay reports whether sending the messages after the response takes time.
func (r *responder) hasDelay() bool {
	return r.conn.srv.opts.Latency.Keep || slices.ContainsFunc(r.exchange.trailing, isRequest)
}

func (r *responder) sendTrailing() {
	for _, s := range r.exchange.trailing {
		if r.conn.srv.opts.Latency.Keep && r.wait(s.delay) != nil {
			return
		}
		if r.runStep(s, r.conn.out) != nil {
			return
		}
	}
}
