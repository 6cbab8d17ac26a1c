package bridge

import (
	"strings"
	"testing"
)

// TestNoTranslation checks that a client of an era that the server lacks gets the error that the
// server would send, and can use the other era on the connection of the detection.
func TestNoTranslation(t *testing.T) {
	f := newFakeServer(t)
	b := f.bridge(with(Options{}, func(o *Options) { o.Shared, o.NoTranslation = true, true }))
	a, _ := dialPipe(t, b)
	discover := `{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{}}`
	a.send(discover)
	srv := f.next()
	id := srv.request(`"server/discover"`)
	srv.send(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"method not found"}}`)
	a.reads(`"id":"d"`, `-32601`)
	a.send(initialize)
	id = srv.request(`"initialize"`)
	srv.send(resultFor(id, `{"protocolVersion":"2025-11-25","capabilities":{}}`))
	a.wants(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
	second, _ := dialPipe(t, b)
	second.send(strings.Replace(discover, `"d"`, `"e"`, 1)) // not forwarded to the server
	second.reads(`"id":"e"`, `-32601`)
}
