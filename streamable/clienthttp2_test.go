package streamable_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"mcpwire/client"
	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

// A bareHTTP2 is a server of HTTP/2 that does what net/http's would not: it answers the first request, and refuses each further one as a test says. It knows so much of HPACK that it can
// say "200".
type bareHTTP2 struct {
	net.Listener
	t      *testing.T
	refuse func(w io.Writer, stream uint32) // nil answers

	mu       sync.Mutex
	requests int // with a whole body
}

const (
	frameData, frameHeaders, frameReset, frameSettings, framePing, frameGoAway = 0, 1, 3, 4, 6, 7

	flagEnd, flagEndHeaders, flagAck = 1, 4, 1
)

func writeFrame(w io.Writer, kind, flags byte, stream uint32, payload []byte) {
	head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[5:], stream)
	w.Write(append(head, payload...))
}

func (s *bareHTTP2) serve() {
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		c, err := s.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer c.Close()
			s.serveConn(c)
		})
	}
}

func (s *bareHTTP2) serveConn(c net.Conn) {
	preface := make([]byte, len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))
	if _, err := io.ReadFull(c, preface); err != nil {
		return
	}
	writeFrame(c, frameSettings, 0, 0, nil)
	var body bytes.Buffer
	for {
		var head [9]byte
		if _, err := io.ReadFull(c, head[:]); err != nil {
			return
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(c, payload); err != nil {
			return
		}
		stream := binary.BigEndian.Uint32(head[5:])
		switch {
		case head[3] == frameSettings && head[4]&flagAck == 0:
			writeFrame(c, frameSettings, flagAck, 0, nil)
		case head[3] == framePing && head[4]&flagAck == 0:
			writeFrame(c, framePing, flagAck, 0, payload)
		case head[3] == frameData:
			body.Write(payload)
			if head[4]&flagEnd != 0 {
				s.request(c, stream, body.String())
				body.Reset()
			}
		}
	}
}

func (s *bareHTTP2) request(w io.Writer, stream uint32, body string) {
	s.mu.Lock()
	s.requests++
	n := s.requests
	s.mu.Unlock()
	if n == 2 && s.refuse != nil {
		s.refuse(w, stream)
		return
	}
	result := done
	if strings.Contains(body, "server/discover") {
		result = discovered
	}
	_, id, _ := strings.Cut(body, `"id":`)
	id, _, _ = strings.Cut(id, ",")
	writeFrame(w, frameHeaders, flagEndHeaders, stream, append([]byte{0x88, 0x0f, 0x10, byte(len(jsonType))}, jsonType...)) // :status 200, content-type
	writeFrame(w, frameData, flagEnd, stream, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":%s}`, id, result))
}

// TestClientHTTP2Repeats: what net/http repeats by itself, and what it must not. A side effect happens once; a request that the server certainly has not looked at is sent again.
func TestClientHTTP2Repeats(t *testing.T) {
	reset := func(code uint32) func(io.Writer, uint32) {
		return func(w io.Writer, stream uint32) {
			writeFrame(w, frameReset, 0, stream, binary.BigEndian.AppendUint32(nil, code))
		}
	}
	for _, test := range []struct {
		name   string
		refuse func(io.Writer, uint32)
		calls  int // that arrive
	}{
		{"nothing", nil, 1},
		{"PROTOCOL_ERROR", reset(1), 1},
		{"INTERNAL_ERROR", reset(2), 1},
		{"CANCEL", reset(8), 1},
		{"REFUSED_STREAM", reset(7), 2},
		{"GOAWAY before it", func(w io.Writer, stream uint32) {
			writeFrame(w, frameGoAway, 0, 0, binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, stream-2), 0))
		}, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			web := httptest.NewTLSServer(nil)
			web.Close()
			l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates, NextProtos: []string{"h2"}})
			if err != nil {
				t.Fatal(err)
			}
			s := &bareHTTP2{Listener: l, t: t, refuse: test.refuse}
			var wg sync.WaitGroup
			wg.Go(s.serve)
			defer wg.Wait()
			defer l.Close()
			roots := x509.NewCertPool()
			roots.AddCert(web.Certificate())
			transport := streamable.Dial("https://"+l.Addr().String(), &streamable.DialOptions{TLS: &tls.Config{RootCAs: roots}})
			c, err := client.Dial(t.Context(), transport, &client.Options{Retry: client.RetryPolicy{MinBackoff: 1, MaxBackoff: 1}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = c.CallTool(t.Context(), "x", nil)
			if lost := test.refuse != nil && test.calls == 1; lost {
				if e, ok := errors.AsType[*jsonrpc.CallError](err); !ok || e.Outcome != jsonrpc.OutcomeUnknown {
					t.Errorf("CallTool: %v, want it lost", err)
				}
			} else if err != nil {
				t.Errorf("CallTool: %v", err)
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if n := s.requests - 1; n != test.calls {
				t.Errorf("the server got %d calls, want %d", n, test.calls)
			}
		})
	}
}
