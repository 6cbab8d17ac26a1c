package bridge

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"mcpwire/jsonrpc"
	"mcpwire/streamable"
)

// A staged transport says on whose stream a frame came, as one on HTTP does: the member "on" has it.
type staged struct{ jsonrpc.Framer }

func (s staged) OnResponse(func([]byte) error) {}

func (s staged) Post(_ context.Context, frame []byte) error { return s.WriteFrame(frame) }

func (s staged) Receive() ([]byte, context.Context, error) {
	frame, err := s.ReadFrame()
	ctx := context.Background()
	if at := locate(frame, "on"); at.found() {
		ctx = context.WithValue(ctx, postKey{}, &postedMessage{queuedMessage: queuedMessage{id: jsonrpc.ID(at.slice(frame))}})
	}
	return frame, ctx, err
}

// streaming has a farm's connections be staged.
func (f *farm) streaming(o *Options) *Options {
	o.Connect = func(ctx context.Context, w io.Writer) (jsonrpc.Framer, error) {
		framer, err := f.connect(ctx, w)
		return staged{framer}, err
	}
	return o
}

// TestOnStream: what a server sends on the stream of a request is for who made it, whatever else is under way.
func TestOnStream(t *testing.T) {
	f := newFarm(t)
	b := newBridge(t, f.streaming(with(legacy, nil)))
	cl := b.newClient(newOutbox(), "", false)
	defer cl.close()
	outs := [2]*outbox{newOutbox(), newOutbox()}
	for i, id := range []string{"1", "2"} {
		frame := []byte(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"t"}}`)
		m := new(jsonrpc.Message)
		if err := jsonrpc.Parse(frame, m, 0); err != nil {
			t.Fatal(err)
		}
		cl.request(t.Context(), frame, m, outs[i], func([]byte) {})
	}
	srv := f.next()
	srv.reads(`"id":1`)
	srv.reads(`"id":2`)
	ask, log := `{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{},"on":1}`, `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1},"on":1}`
	srv.send(ask, log)
	var got []string
	await(t, "both to come", func() bool {
		for _, message := range outs[0].take(false) {
			got = append(got, string(message))
		}
		return len(got) == 2
	})
	if got[0] != ask || got[1] != log {
		t.Errorf("got %q", got)
	}
	if other := outs[1].take(false); len(other) > 0 {
		t.Errorf("the other request got %q", other)
	}
}

// TestCarrierStreams: the transport on HTTP tells what came in the response to which request.
func TestCarrierStreams(t *testing.T) {
	const event = `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`
	ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: "+event+"\n\ndata: "+answering(`"a"`, "{}")+"\n\n")
	}))
	defer ts.Close()
	f, err := streamable.Dial(ts.URL, nil).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	l := &upstream{ctx: t.Context()}
	if err := l.transmit(f, queuedMessage{frame: []byte(`{"jsonrpc":"2.0","id":"a","method":"x"}`), id: jsonrpc.ID(`"a"`)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{event, answering(`"a"`, "{}")} {
		if frame, from, err := l.receive(f); string(frame) != want || string(from.callID) != `"a"` || err != nil {
			t.Errorf("got %s on %s, %v, want %s", frame, from.callID, err, want)
		}
	}
}
