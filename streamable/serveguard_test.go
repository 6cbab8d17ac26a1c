package streamable

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"mcpwire/server"
)

// h2Frame returns a frame of HTTP/2 (RFC 9113, section 4.1).
func h2Frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// Frames that the tests know of.
const (
	h2Headers  = 1
	h2Reset    = 3
	h2Settings = 4
)

// An HTTP/2 client that makes no room for the end of an answer does not keep its stream, whoever has answered.
func TestServeNoWindow(t *testing.T) {
	for name, h := range map[string]http.Handler{
		"any handler": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") }),
		"a refusal":   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { writeError(w, http.StatusNotAcceptable, 0, "no") }),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, h, &ServeOptions{H2C: true}, func(t *testing.T, l *pipeListener, stop func() error) {
				c, r := l.dial(t, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
				get := append([]byte{0x82, 0x86, 0x84, 0x41, 9}, "localhost"...) // GET, http, /, and the authority, by RFC 7541
				noWindow := h2Frame(h2Settings, 0, 0, []byte{0, 4, 0, 0, 0, 0})  // SETTINGS_INITIAL_WINDOW_SIZE
				go c.Write(append(noWindow, h2Frame(h2Headers, 5, 1, get)...))   // with all of the header, and no body
				if got := elapsed(func() { untilReset(t, c, r) }); got != 10*time.Second {
					t.Errorf("the client is waited for %v", got)
				}
				c.Close()
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// untilReset reads frames until the server gives a stream up.
func untilReset(t *testing.T, c net.Conn, r *bufio.Reader) {
	t.Helper()
	for {
		head := make([]byte, 9)
		if _, err := io.ReadFull(r, head); err != nil {
			t.Error("the connection has ended:", err)
			return
		}
		io.CopyN(io.Discard, r, int64(head[0])<<16|int64(head[1])<<8|int64(head[2]))
		switch kind, flags := head[3], head[4]; {
		case kind == h2Settings && flags == 0:
			go c.Write(h2Frame(h2Settings, 1, 0, nil)) // is acknowledged
		case kind == h2Reset:
			return
		}
	}
}

// A body that somebody has put in the place of the real one, and that ends before it, does not have the server wait for the rest.
func TestServeBodyReplaced(t *testing.T) {
	inner := NewHandler(server.New("test", "1", nil), nil)
	outer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = io.NopCloser(io.LimitReader(r.Body, 40))
		r.ContentLength = 40
		inner.ServeHTTP(w, r)
	})
	inBubble(t, outer, nil, func(t *testing.T, l *pipeListener, stop func() error) {
		const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
		_, r := l.dial(t, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"+ping)
		got := elapsed(func() {
			readAnswer(t, r)
			checkEOF(t, r)
		})
		if got > 6*time.Second {
			t.Errorf("the rest is waited for %v", got)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}
