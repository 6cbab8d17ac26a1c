package streamable

import (
	"net"
	"strconv"
	"time"
)

// A client that only listens should not cost what one does that asks: a goroutine deep in net/http, another that looks whether it is there, and buffers. So the
// connection of a stream that stands is taken from net/http, where that is possible (HTTP/1), and held by a goroutine that does nothing but wait for
// the client to go.

// hold takes the connection of the stream that p is, and reports whether it did. p is no longer bound to the request then, and is ended or stopped when
// untilGone has returned.
func (p *response) hold() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.h2 || p.rc == nil || !p.streaming || p.ended || p.broken != nil {
		return false
	}
	conn, _, err := p.rc.Hijack()
	if err != nil {
		return false // it goes on as it is
	}
	p.conn = conn
	p.w, p.rc, p.header, p.buf, p.bounded = nil, nil, nil, nil, false
	return true
}

// isHeld reports whether the connection is not net/http's any more.
func (p *response) isHeld() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.conn != nil
}

// untilGone waits until the client is gone, or the response has ended. A client has nothing to say on the connection as long as the stream lasts.
func (p *response) untilGone() {
	var b [1]byte
	p.conn.Read(b[:])
}

// writeHeld writes a message of the stream, with mu held. A client may take its time for each part of it.
func (p *response) writeHeld(text []byte) error {
	for len(text) > 0 {
		part := text[:min(len(text), maxWrite)]
		text = text[len(part):]
		if p.chunked {
			chunk := strconv.AppendInt(make([]byte, 0, len(part)+12), int64(len(part)), 16)
			chunk = append(append(chunk, "\r\n"...), part...)
			part = append(chunk, "\r\n"...)
		}
		p.conn.SetWriteDeadline(p.h.clock.now().Add(p.h.opts.WriteTimeout))
		if _, err := p.conn.Write(part); err != nil {
			p.conn.Close() // wakes untilGone
			return err
		}
	}
	return nil
}

// farewell is how long a client may take to be told that a stream has ended.
const farewell = time.Second

// closeHeld ends the stream and the connection, with mu held.
func (p *response) closeHeld() {
	endBody(p.conn, p.chunked && p.broken == nil, farewell)
}

// endBody marks the end of a body that comes in parts (RFC 9112, section 7.1), and closes the connection. A body that does not ends with the connection.
func endBody(conn net.Conn, parts bool, timeout time.Duration) error {
	if !parts {
		return conn.Close()
	}
	conn.SetWriteDeadline(time.Now().Add(timeout))
	_, err := conn.Write([]byte("0\r\n\r\n"))
	if closed := conn.Close(); err == nil {
		err = closed
	}
	return err
}
