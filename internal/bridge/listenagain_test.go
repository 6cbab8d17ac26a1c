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

// A fickle transport loses calls by themselves, as one on HTTP does: the member "lost" has the id.
type fickle struct{ jsonrpc.Framer }

func (f fickle) ReadFrame() ([]byte, error) {
	frame, err := f.Framer.ReadFrame()
	if at := locate(frame, "lost"); err == nil && at.found() {
		id := jsonrpc.ID(at.slice(frame)).Clone()
		return nil, &jsonrpc.CallError{ID: id, Outcome: jsonrpc.OutcomeUnknown, Err: errors.New("the stream broke off")}
	}
	return frame, err
}

// TestListenAgain: a subscription whose stream breaks off is made again without the client, which is told that it may have missed something; for ever if it was good in
// between, and not for ever if it was not.
func TestListenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		o := &Options{ClientEra: EraModern, ServerEra: EraModern, HTTP: true}
		b := f.bridge(o)
		b.opts.Connect = func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
			framer, err := f.connect(ctx, w)
			return fickle{framer}, err
		}
		client, _ := client0(t, b)
		const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
		const ack = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"notifications":{"toolsListChanged":true}}}`
		const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"}}}`
		listen := `{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},` + meta + `}}`
		client.send(listen)
		srv := f.next()
		srv.wants(listen)
		srv.send(ack)
		client.wants(ack)
		id := `"l"`
		lose := func() {
			t.Helper()
			srv.send(`{"lost":` + id + `}`)
			next := srv.request(`"subscriptions/listen"`, `{"toolsListChanged":true}`, meta)
			if next == id {
				t.Errorf("it was made again as %s", id)
			}
			id = next
		}
		for range 2 * maxEagerFailures {
			lose()
			srv.send(strings.Replace(ack, `"l"`, id, 1))
			client.wants(changed)
		}
		srv.send(strings.Replace(changed, `"l"`, id, 1))
		client.wants(changed)
		for range maxEagerFailures {
			lose()
		}
		srv.send(`{"lost":` + id + `}`)
		client.reads(`"id":"l","error"`, "the stream broke off")

		client.send(strings.Replace(listen, `"l"`, `"m"`, 1)) // one that was never good fails at once
		srv.reads(`"id":"m"`)
		srv.send(`{"lost":"m"}`)
		client.reads(`"id":"m","error"`)

		client.send(listen) // one that was made again can be ended
		srv.wants(listen)
		srv.send(ack)
		client.wants(ack)
		id = `"l"`
		lose()
		client.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"l"}}`)
		srv.wants(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`)
	})
}

// TestListenUnacknowledged: a server that ends before it has acknowledged a subscription leaves that to the next one.
func TestListenUnacknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		client, _ := client0(t, f.bridge(&Options{ClientEra: EraModern, ServerEra: EraModern}))
		const ack = `{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"notifications":{"toolsListChanged":true}}}`
		client.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`)
		srv := f.next()
		srv.reads(`"id":"l"`)
		srv.f.Close()
		srv = f.next()
		srv.reads(`"id":"l"`)
		srv.send(ack)
		client.wants(ack)
	})
}
