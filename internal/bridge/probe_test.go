package bridge

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/translate"
)

const discover = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientCapabilities":{}}}}`

// TestSilentLegacy: a server that answers nothing before a handshake, but for pings, is a legacy one.
func TestSilentLegacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		near, _ := client0(t, f.bridge(nil))
		near.send(discover)
		far := f.next()
		far.request("server/discover")
		far.send(answering(far.request(`"ping"`), "{}"))
		far.reads(`"method":"initialize"`)
	})
}

// TestModernNamesLegacy: a server that answers in the modern era, and names nothing but legacy revisions, is a legacy one.
func TestModernNamesLegacy(t *testing.T) {
	for _, answer := range []string{
		`"error":{"code":-32022,"message":"no","data":{"requested":"2026-07-28","supported":["2025-11-25","2025-06-18"]}}`,
		`"result":{"resultType":"complete","supportedVersions":["2025-11-25"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`,
	} {
		f := newFarm(t)
		near, _ := client0(t, f.bridge(nil))
		near.send(discover)
		far := f.next()
		far.send(`{"jsonrpc":"2.0","id":` + far.request("server/discover") + `,` + answer + `}`)
		far.reads(`"method":"initialize"`)
	}
}

// TestSlowModern: a server that takes long to start is not taken for a legacy one.
func TestSlowModern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(nil)
		near, _ := client0(t, b)
		near.send(discover)
		far := f.next()
		id := far.request("server/discover")
		far.reads(`"ping"`)
		<-time.After(10 * time.Second)
		far.send(answering(id, `{"supportedVersions":["2026-07-28"]}`))
		far.wants(discover)
		if legacy, modern := b.known.get(); legacy == yes || modern != yes {
			t.Errorf("known = %v, %v", legacy, modern)
		}
	})
}

// TestReadyPatience: that who asks has lost patience says nothing of the server.
func TestReadyPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(&Options{Far: EraModern})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		asked := make(chan error, 1)
		go func() { asked <- b.Ready(ctx) }()
		far := f.next()
		id := far.request("server/discover")
		if err := <-asked; !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Ready = %v, want that it took too long", err)
		}
		far.send(answering(id, `{"supportedVersions":["2026-07-28"]}`))
		synctest.Wait()
		if err := b.Ready(t.Context()); err != nil {
			t.Errorf("Ready = %v, want nil", err)
		}
	})
}

// TestTranslatedTimeout: what is translated has to be answered in time too, and the server is told that it is not wanted any more.
func TestTranslatedTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		near, _ := client0(t, f.bridge(&Options{Far: EraModern, CallTimeout: time.Minute}))
		near.send(hello)
		far := f.next()
		far.send(answering(far.request("server/discover"), `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`))
		near.reads(`"protocolVersion":"2025-11-25"`)
		near.send(confirmed, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`)
		id := far.request(`"tools/call"`)
		began := time.Now()
		near.reads(`"id":7,"error"`, "has not answered tools/call for 1m0s")
		if d := time.Since(began); d != time.Minute {
			t.Errorf("it took %v", d)
		}
		far.reads("notifications/cancelled", `"requestId":`+id)
	})
}

// TestWithdraw: a request that is given up before it was sent is not sent any more, and no cancellation either.
func TestWithdraw(t *testing.T) {
	l := &line{b: &Bridge{opts: Options{MaxQueue: 100}}, wake: make(chan struct{}, 1), sent: map[string]item{"5": {}}, ctx: context.Background()}
	for _, id := range []string{"3", "4"} {
		if err := l.offer(item{frame: []byte(id), id: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
	if !l.withdraw([]byte("3")) || l.withdraw([]byte("5")) || l.withdraw([]byte("3")) {
		t.Error("only what waits is withdrawn")
	}
	if len(l.queue) != 1 || l.bytes != 1 || len(l.sent) != 0 {
		t.Errorf("left: %v, %d bytes, %v", l.queue, l.bytes, l.sent)
	}
	for range 1000 {
		l.sendFirst(item{frame: []byte("0123456789")})
	}
	if len(l.urgent) != 10 {
		t.Errorf("%d urgent messages wait, want 10", len(l.urgent))
	}
}

// TestWithdrawTranslated: the same where a translator says what is given up.
func TestWithdrawTranslated(t *testing.T) {
	l := &line{b: &Bridge{opts: Options{MaxQueue: 100}}, wake: make(chan struct{}, 1), space: make(chan struct{}, 1), sent: map[string]item{"3": {}}, ctx: context.Background()}
	p := &translated{line: l}
	for _, o := range []*translate.Out{{Call: 4}, {Call: 5}, {Call: 4, Cancel: true}, {Call: 3, Cancel: true}} {
		o.Message = []byte(strconv.FormatInt(o.Call, 10))
		p.toFarLocked(o, made{})
	}
	if len(l.queue) != 1 || string(l.queue[0].id) != "5" {
		t.Errorf("waiting: %v", l.queue)
	}
	if len(l.urgent) != 1 || string(l.urgent[0].frame) != "3" {
		t.Errorf("waiting before: %v", l.urgent)
	}
}

// TestSharedEnd: what was answered is sent before the end of a client that shares a connection.
func TestSharedEnd(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			b := newFarm(t).bridge(&Options{Shared: true, Near: EraLegacy})
			var got []string
			out := outletFunc(func(m []byte) error {
				got = append(got, string(m))
				return nil
			})
			cl := b.newClient(out, "", false)
			cl.news.Send([]byte("a"))
			cl.news.Send([]byte("b"))
			cl.close()
			<-cl.flushed
			if strings.Join(got, "") != "ab" {
				t.Errorf("got %q", got)
			}
		})
	}
}

type outletFunc func([]byte) error

func (f outletFunc) Send(m []byte) error { return f(m) }

// TestProbeKeeps: what a server sends of itself while it is found out what it is reaches the client, in order and after the answer.
func TestProbeKeeps(t *testing.T) {
	f := newFarm(t)
	near, _ := client0(t, f.bridge(nil))
	near.send(hello)
	far := f.next()
	far.wants(hello)
	early := []string{
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`, `{"jsonrpc":"2.0","id":"p","method":"ping"}`,
	}
	late := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":2}}`
	far.send(append(early, welcome, late)...)
	near.wants(append([]string{welcome}, append(early, late)...)...)
	near.send(`{"jsonrpc":"2.0","id":"p","result":{}}`)
	far.wants(`{"jsonrpc":"2.0","id":"p","result":{}}`)
}

// TestProbeKeepsLittle: a server that says much before it answers does not take memory for it.
func TestProbeKeepsLittle(t *testing.T) {
	u := &prober{}
	frame, m := parsed(t, `{"jsonrpc":"2.0","method":"n","params":{"x":"`+strings.Repeat("x", 2*maxKeptBytes)+`"}}`)
	for range 3 {
		u.received(frame, m, origin{})
	}
	if len(u.kept) != 1 {
		t.Errorf("%d large messages are kept, want the first", len(u.kept))
	}
}

// TestLoginTakesTime: who has logged in finds that each has its whole time afterwards, so that no server is taken for what it is not.
func TestLoginTakesTime(t *testing.T) {
	for _, first := range []string{discover, hello} {
		synctest.Test(t, func(t *testing.T) {
			f := newFarm(t)
			const login = 10*time.Minute - time.Second // most times have just begun anew then
			near, _ := client0(t, f.bridge(&Options{Login: loginUntil(time.Now().Add(login))}))
			near.send(first)
			far := f.next()
			id := far.request(`"method":`)
			<-time.After(login + 4*time.Second) // the shortest time is 5 s
			if first == discover {
				far.send(answering(id, `{"supportedVersions":["2026-07-28"]}`))
				far.wants(discover)
				return
			}
			far.send(answering(id, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`))
			near.reads(`"serverInfo"`)
		})
	}
}
