package jsonrpc

// An Deferred is what a [Handler] may return as the error of a request that goes on for as long as the peer listens, if [Request.MayDefer] allows it: the
// request has no answer yet, its context goes on, and no goroutine waits. The transport that delivered it ends it with [Deferred.Finish].
type Deferred struct {
	// Result gives up what belongs to the request, and appends the result to dst. It is called once.
	Result func(dst []byte) []byte

	conn *Conn
	id   ID
	ctx  *Context
}

func (*Deferred) Error() string { return "the request stands" }

// bind takes over from r what outlasts Deliver.
func (d *Deferred) bind(r *Request) {
	d.conn, d.id, d.ctx = r.conn, r.ID.Clone(), r.ctx.Load()
}

// Finish ends the request and appends the response to dst, for a peer that is still there. It must be called once. When it has returned, nothing is sent
// by the request's outlet any more.
func (d *Deferred) Finish(dst []byte) []byte {
	start := len(dst)
	dst = append(d.Result(appendResultHead(dst, d.id)), '}')
	if d.ctx != nil {
		d.ctx.close()
	}
	return d.conn.traceOutgoing(dst, start)
}

// MayDefer reports whether the handler may return an [Deferred].
func (r *Request) MayDefer() bool { return r.mayDefer }

// close ends the context, once what is on its way has been sent.
func (c *Context) close() {
	c.end()
	c.sending.Lock()
	c.sender = nil
	c.sending.Unlock()
}
