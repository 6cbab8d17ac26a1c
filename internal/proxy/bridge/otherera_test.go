package bridge

import (
	"strings"
	"testing"
)

// TestNoTranslation shows that a client of an era that the server lacks gets the error that the
// server would send, and can go on in the other era, on the connection that the detection has made.
func TestNoTranslation(t *testing.T) {
	f := newFarm(t)
	b := f.bridge(with(Options{}, func(o *Options) { o.Shared, o.NoTranslation = true, true }))
	a, _ := client0(t, b)
	discover := `{"jsonrpc":"2.0","id":"d","method":"server/discover","params":{}}`
	a.send(discover)
	srv := f.next()
	id := srv.request(`"server/discover"`)
	srv.send(`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32601,"message":"method not found"}}`)
	a.reads(`"id":"d"`, `-32601`)
	a.send(hello)
	id = srv.request(`"initialize"`)
	srv.send(answering(id, `{"protocolVersion":"2025-11-25","capabilities":{}}`))
	a.wants(`{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
	second, _ := client0(t, b)
	second.send(strings.Replace(discover, `"d"`, `"e"`, 1)) // the server does not hear of it
	second.reads(`"id":"e"`, `-32601`)
}
