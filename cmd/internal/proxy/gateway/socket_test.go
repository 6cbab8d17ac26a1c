package gateway

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
)

// TestInvalidFirst checks that messages after a frame that is no message are not handled on a
// socket, because a browser may have sent them, and are on standard input.
func TestInvalidFirst(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":7,"method":"ping"}` + "\n"
	const pong = `"id":7,"result":{}`
	for _, tt := range []struct{ name, before string }{
		{"a request of a browser", "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: text/plain\r\n\r\n"},
		{"a request of a browser with a length", fmt.Sprintf("POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n", len(ping))},
		{"a line of a form", "a=b\n"},
		{"an object", "{}\n"},
	} {
		for _, socket := range []bool{true, false} {
			t.Run(fmt.Sprint(tt.name, ", socket: ", socket), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := newGateway(t, &Options{})
					defer g.Close()
					ours, theirs := net.Pipe()
					serve := g.Serve
					if socket {
						serve = g.ServeSocket
					}
					ended := make(chan error, 1)
					go func() {
						ended <- serve(context.Background(), jsonrpc.NewFramer(theirs, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingAuto}))
					}()
					go io.WriteString(ours, tt.before+ping) // fails if nobody reads it
					time.AfterFunc(time.Second, func() { ours.SetReadDeadline(time.Now()) })
					got, _ := io.ReadAll(ours) // to the end or the deadline
					ours.Close()
					<-ended
					if answered := strings.Contains(string(got), pong); answered == socket {
						t.Errorf("the message was answered: %t, got %s", answered, got)
					}
				})
			})
		}
	}
}
