package jsonrpc

// An Outstanding is what a [Handler] may return as the error of a request that goes on for as long as the peer listens, if [Request.MayStand] allows it: the
// request has no answer yet, its context goes on, and no goroutine waits. The carrier that delivered it ends it with [Outstanding.Finish].
type Outstanding struct {
	// End gives up what belongs to the request, and appends the result to dst. It is called once.
	End func(dst []byte) []byte

	conn *Conn
	id   ID
	ctx  *Context
}

func (*Outstanding) Error() string { return "the request stands" }

// stand takes over from r what outlasts Deliver.
func (s *Outstanding) stand(r *Request) {
	s.conn, s.id, s.ctx = r.conn, r.ID.Clone(), r.ctx.Load()
}

// Finish ends the request and appends the response to dst, for a peer that is still there. It must be called once. When it has returned, nothing is sent
// by the request's outlet any more.
func (s *Outstanding) Finish(dst []byte) []byte {
	start := len(dst)
	dst = append(s.End(appendResultHead(dst, s.id)), '}')
	if s.ctx != nil {
		s.ctx.dismiss()
	}
	return s.conn.traced(dst, start)
}

// MayStand reports whether the handler may return an [Outstanding].
func (r *Request) MayStand() bool { return r.stand }

// dismiss ends the context, once what is on its way has been sent.
func (c *Context) dismiss() {
	c.end()
	c.sending.Lock()
	c.outlet = nil
	c.sending.Unlock()
}
