package bridge

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"mcpwire/jsonrpc"
)

// A fickle carrier loses calls by themselves, as one on HTTP does: the member "lost" has the id.
type fickle struct{ jsonrpc.Framer }

func (f fickle) ReadFrame() ([]byte, error) {
	frame, err := f.Framer.ReadFrame()
	if at := locate(frame, "lost"); err == nil && at.found() {
		id := jsonrpc.ID(at.of(frame)).Clone()
		return nil, &jsonrpc.CallError{ID: id, Fate: jsonrpc.FateLost, Err: errors.New("the stream broke off")}
	}
	return frame, err
}

// TestListenAgain: a subscription whose stream breaks off is made again without the client, which is told that it may have missed something; for ever if it was good in
// between, and not for ever if it was not.
func TestListenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		o := &Options{Near: EraModern, Far: EraModern, HTTP: true}
		b := f.bridge(o)
		b.opts.Connect = func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
			framer, err := f.connect(ctx, w)
			return fickle{framer}, err
		}
		near, _ := client0(t, b)
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		const ack = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"notifications":{"toolsListChanged":true}}}`
		const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`
		listen := `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`
		near.send(listen)
		far := f.next()
		far.wants(listen)
		far.send(ack)
		near.wants(ack)
		id := `"l"`
		lose := func() {
			t.Helper()
			far.send(`{"lost":` + id + `}`)
			next := far.request(`"subscriptions/listen"`, `{"toolsListChanged":true}`, meta)
			if next == id {
				t.Errorf("it was made again as %s", id)
			}
			id = next
		}
		for range 2 * maxEager {
			lose()
			far.send(strings.Replace(ack, `"l"`, id, 1))
			near.wants(changed)
		}
		far.send(strings.Replace(changed, `"l"`, id, 1))
		near.wants(changed)
		for range maxEager {
			lose()
		}
		far.send(`{"lost":` + id + `}`)
		near.reads(`"id":"l","error"`, "the stream broke off")

		near.send(strings.Replace(listen, `"l"`, `"m"`, 1)) // one that was never good fails at once
		far.reads(`"id":"m"`)
		far.send(`{"lost":"m"}`)
		near.reads(`"id":"m","error"`)

		near.send(listen) // one that was made again can be ended
		far.wants(listen)
		far.send(ack)
		near.wants(ack)
		id = `"l"`
		lose()
		near.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}`)
		far.wants(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	})
}

// TestListenUnacknowledged: a server that ends before it has acknowledged a subscription leaves that to the next one.
func TestListenUnacknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		near, _ := client0(t, f.bridge(&Options{Near: EraModern, Far: EraModern}))
		const ack = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"notifications":{"toolsListChanged":true}}}`
		near.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
		far := f.next()
		far.reads(`"id":"l"`)
		far.f.Close()
		far = f.next()
		far.reads(`"id":"l"`)
		far.send(ack)
		near.wants(ack)
	})
}
