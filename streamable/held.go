package streamable

import (
	"net"
	"strconv"
	"time"
)

// A client that only listens should not cost what one does that asks: a goroutine deep in net/http, another that looks whether it is there, and buffers. So the
// connection of a stream that stands is taken from net/http, where that is possible (HTTP/1), and held by a goroutine that does nothing but wait for
// the client to go.

// hijack takes the connection of the stream that p is, and reports whether it did. p is no longer bound to the request then, and is ended or stopped when
// waitClosed has returned.
func (rs *response) hijack() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if rs.isHTTP2 || rs.rc == nil || !rs.streaming || rs.ended || rs.writeErr != nil {
		return false
	}
	conn, _, err := rs.rc.Hijack()
	if err != nil {
		return false // it goes on as it is
	}
	rs.conn = conn
	rs.w, rs.rc, rs.header, rs.buf, rs.hasDeadline = nil, nil, nil, nil, false
	return true
}

// isHijacked reports whether the connection is not net/http's any more.
func (rs *response) isHijacked() bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.conn != nil
}

// waitClosed waits until the client is gone, or the response has ended. A client has nothing to say on the connection as long as the stream lasts.
func (rs *response) waitClosed() {
	var b [1]byte
	rs.conn.Read(b[:])
}

// writeHijackedLocked writes a message of the stream, with mu held. A client may take its time for each part of it.
func (rs *response) writeHijackedLocked(text []byte) error {
	for len(text) > 0 {
		part := text[:min(len(text), maxWrite)]
		text = text[len(part):]
		if rs.chunked {
			chunk := strconv.AppendInt(make([]byte, 0, len(part)+12), int64(len(part)), 16)
			chunk = append(append(chunk, "\r\n"...), part...)
			part = append(chunk, "\r\n"...)
		}
		rs.conn.SetWriteDeadline(rs.h.clock.now().Add(rs.h.opts.WriteTimeout))
		if _, err := rs.conn.Write(part); err != nil {
			rs.conn.Close() // wakes waitClosed
			return err
		}
	}
	return nil
}

// streamCloseTimeout is how long a client may take to be told that a stream has ended.
const streamCloseTimeout = time.Second

// closeHijackedLocked ends the stream and the connection, with mu held.
func (rs *response) closeHijackedLocked() {
	endBody(rs.conn, rs.chunked && rs.writeErr == nil, streamCloseTimeout)
}

// endBody marks the end of a body that comes in parts (RFC 9112, section 7.1), and closes the connection. A body that does not ends with the connection.
func endBody(conn net.Conn, chunked bool, timeout time.Duration) error {
	if !chunked {
		return conn.Close()
	}
	conn.SetWriteDeadline(time.Now().Add(timeout))
	_, err := conn.Write([]byte("0\r\n\r\n"))
	if closed := conn.Close(); err == nil {
		err = closed
	}
	return err
}
