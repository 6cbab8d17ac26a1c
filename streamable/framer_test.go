package streamable_test

import (
	"io"
	"net/http"
	"testing"

	"mcpwire/internal/rpc"
	"mcpwire/streamable"
)

// TestPostAgain checks that a request can be canceled that was sent with the id of another one
// before that one's end.
func TestPostAgain(t *testing.T) {
	const call = `{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"t","_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	calls := 0
	began, gone := make(chan struct{}), make(chan struct{})
	f := newFakeServer(t, map[string]http.HandlerFunc{"tools/call": func(w http.ResponseWriter, r *http.Request) {
		if calls++; calls == 2 {
			close(began)
			<-r.Context().Done()
			close(gone)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, `{"jsonrpc":"2.0","id":"a","result":{"resultType":"complete"}}`)
	}})
	conn, err := streamable.NewTransport(f.URL, nil).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	write := func(frame string) {
		if err := conn.WriteFrame([]byte(frame)); err != nil {
			t.Error(err)
		}
	}
	conn.(rpc.MessageTransport).OnResponse(func([]byte) error { // the first request has not ended
		write(call)
		return nil
	})
	write(call)
	<-began
	write(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}`)
	<-gone
}
