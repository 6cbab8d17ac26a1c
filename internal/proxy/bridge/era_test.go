package bridge

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/internal/proxy/translate"
	"mcpwire/jsonrpc"
)

const discover = `{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
	`"io.modelcontextprotocol/clientCapabilities":{}}}}`

// TestSilentLegacy shows that a server that answers only pings before a handshake is a legacy one.
func TestSilentLegacy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		client, _ := client0(t, f.bridge(nil))
		client.send(discover)
		srv := f.next()
		srv.request("server/discover")
		srv.send(answering(srv.request(`"ping"`), "{}"))
		srv.reads(`"method":"initialize"`)
	})
}

// TestModernNamesLegacy shows that a server is a legacy one if it answers in the modern era and
// names only legacy revisions.
func TestModernNamesLegacy(t *testing.T) {
	for _, answer := range []string{
		`"error":{"code":-32022,"message":"no","data":{"requested":"2026-07-28","supported":["2025-11-25","2025-06-18"]}}`,
		`"result":{"resultType":"complete","supportedVersions":["2025-11-25"],"capabilities":{},"ttlMs":0,"cacheScope":"private"}`,
	} {
		f := newFarm(t)
		client, _ := client0(t, f.bridge(nil))
		client.send(discover)
		srv := f.next()
		srv.send(`{"jsonrpc":"2.0","id":` + srv.request("server/discover") + `,` + answer + `}`)
		srv.reads(`"method":"initialize"`)
	}
}

// TestSlowModern shows that a server that takes long to start is not taken for a legacy one.
func TestSlowModern(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(nil)
		client, _ := client0(t, b)
		client.send(discover)
		srv := f.next()
		id := srv.request("server/discover")
		srv.reads(`"ping"`)
		<-time.After(10 * time.Second)
		srv.send(answering(id, `{"supportedVersions":["2026-07-28"]}`))
		srv.wants(discover)
		if legacy, modern := b.eras.get(); legacy == supportYes || modern != supportYes {
			t.Errorf("known = %v, %v", legacy, modern)
		}
	})
}

// TestReadyTimeout shows that the timeout of a caller does not count against the server.
func TestReadyTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		b := f.bridge(&Options{ServerEra: EraModern})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		asked := make(chan error, 1)
		go func() { asked <- b.Ready(ctx) }()
		srv := f.next()
		id := srv.request("server/discover")
		if err := <-asked; !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Ready = %v, want that it took too long", err)
		}
		srv.send(answering(id, `{"supportedVersions":["2026-07-28"]}`))
		synctest.Wait()
		if err := b.Ready(t.Context()); err != nil {
			t.Errorf("Ready = %v, want nil", err)
		}
	})
}

// TestTranslatedTimeout checks that a translated request also has a deadline, after which the
// bridge cancels it at the server.
func TestTranslatedTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFarm(t)
		client, _ := client0(t, f.bridge(&Options{ServerEra: EraModern, CallTimeout: time.Minute}))
		client.send(hello)
		srv := f.next()
		srv.send(answering(srv.request("server/discover"), `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private"}`))
		client.reads(`"protocolVersion":"2025-11-25"`)
		client.send(confirmed, `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t"}}`)
		id := srv.request(`"tools/call"`)
		began := time.Now()
		client.reads(`"id":7,"error"`, "has not responded to tools/call for 1m0s")
		if d := time.Since(began); d != time.Minute {
			t.Errorf("it took %v", d)
		}
		srv.reads("notifications/cancelled", `"requestId":`+id)
	})
}

// TestWithdraw checks that the bridge sends neither a request that is canceled before it was sent,
// nor its cancellation.
func TestWithdraw(t *testing.T) {
	l := &upstream{b: &Bridge{opts: Options{MaxQueue: 100, Logger: slog.New(slog.DiscardHandler)}}, queue: sendQueue{limit: 100, notify: make(chan struct{}, 1), sent: map[string]queuedMessage{"5": {}}}, ctx: context.Background()}
	for _, id := range []string{"3", "4"} {
		if err := l.trySend(queuedMessage{frame: []byte(id), id: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
	if !l.queue.withdraw([]byte("3")) || l.queue.withdraw([]byte("5")) || l.queue.withdraw([]byte("3")) {
		t.Error("only what waits is withdrawn")
	}
	if q := &l.queue; len(q.waiting) != 1 || q.waitingBytes != 1 || len(q.sent) != 0 {
		t.Errorf("left: %v, %d bytes, %v", q.waiting, q.waitingBytes, q.sent)
	}
	for range 1000 {
		l.sendUrgent(queuedMessage{frame: []byte("0123456789")})
	}
	if n := len(l.queue.urgent); n != 10 {
		t.Errorf("%d urgent messages wait, want 10", n)
	}
}

// TestUrgentFull shows that a message that does not fit in the urgent queue fails at once and is
// logged.
func TestUrgentFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		b := &Bridge{opts: Options{MaxQueue: 100, ConnectTimeout: time.Minute, Logger: slog.New(slog.NewTextHandler(&log, nil)), HTTP: true}}
		full := func() *upstream {
			return &upstream{b: b, queue: sendQueue{limit: 100, notify: make(chan struct{}, 1), urgentBytes: 99}, ctx: t.Context()}
		}
		up := full()
		pass := &passthrough{b: b, upstream: up}
		request := func(id jsonrpc.ID) []byte { return jsonrpc.AppendRequest(nil, id, "ping", nil) }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, tt := range []struct {
			name string
			send func() error
		}{
			{"request", func() error { _, err := up.roundTrip(ctx, request); return err }},
			{"request repeated after a restart", func() error { return up.replay(request(jsonrpc.IntID(1))) }},
			{"notification", func() error { return up.sendOwn([]byte("{}")) }},
			{"initialize over HTTP", func() error {
				return pass.enqueueLocked(&call{method: "initialize"}, queuedMessage{frame: []byte("{}")})
			}},
			{"ping", func() error { return up.ping(ctx) }},
			{"request of a detection", func() error { _, err := up.askFrame(ctx, request(jsonrpc.IntID(1))); return err }},
			{"discovery", func() error { _, err := b.discover(ctx, up, discoverRequest()); return err }},
		} {
			log.Reset()
			if err := tt.send(); !errors.Is(err, errUrgentFull) {
				t.Errorf("%s: error %v, want %v", tt.name, err, errUrgentFull)
			}
			if !strings.Contains(log.String(), "level=WARN") {
				t.Errorf("%s: the log has no warning: %q", tt.name, log.String())
			}
		}
		if len(up.own.pending) != 0 {
			t.Error("answers are waited for that cannot come")
		}
	})
}

// TestWithdrawTranslated is TestWithdraw for a translator, which says itself what is given up.
func TestWithdrawTranslated(t *testing.T) {
	l := &upstream{b: &Bridge{opts: Options{MaxQueue: 100}}, queue: sendQueue{limit: 100, notify: make(chan struct{}, 1), space: make(chan struct{}, 1), sent: map[string]queuedMessage{"3": {}}}, ctx: context.Background()}
	p := &translator{upstream: l}
	for _, o := range []*translate.Out{{Call: 4}, {Call: 5}, {Call: 4, Cancel: true}, {Call: 3, Cancel: true}} {
		o.Message = []byte(strconv.FormatInt(o.Call, 10))
		p.toServerLocked(o, provenance{})
	}
	if q := l.queue.waiting; len(q) != 1 || string(q[0].id) != "5" {
		t.Errorf("waiting: %v", q)
	}
	if q := l.queue.urgent; len(q) != 1 || string(q[0].frame) != "3" {
		t.Errorf("waiting before: %v", q)
	}
}

// TestSharedEnd shows that queued messages are sent before the end of a client that shares a
// connection.
func TestSharedEnd(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			b := newFarm(t).bridge(&Options{Shared: true, ClientEra: EraLegacy})
			var got []string
			out := senderFunc(func(m []byte) error {
				got = append(got, string(m))
				return nil
			})
			cl := b.newClient(out, "", false)
			cl.out.Send([]byte("a"))
			cl.out.Send([]byte("b"))
			cl.close()
			cl.outbox.wait()
			if strings.Join(got, "") != "ab" {
				t.Errorf("got %q", got)
			}
		})
	}
}

type senderFunc func([]byte) error

func (f senderFunc) Send(m []byte) error { return f(m) }

// TestProbeKeeps shows that what a server sends on its own during the probe reaches the client, in
// order and after the answer.
func TestProbeKeeps(t *testing.T) {
	f := newFarm(t)
	client, _ := client0(t, f.bridge(nil))
	client.send(hello)
	srv := f.next()
	srv.wants(hello)
	early := []string{
		`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}`, `{"jsonrpc":"2.0","id":"p","method":"ping"}`,
	}
	late := `{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":2}}`
	srv.send(append(early, welcome, late)...)
	client.wants(append([]string{welcome}, append(early, late)...)...)
	client.send(`{"jsonrpc":"2.0","id":"p","result":{}}`)
	srv.wants(`{"jsonrpc":"2.0","id":"p","result":{}}`)
}

// TestProbeKeepsLittle shows that the messages of a server before its answer are kept only up to a
// limit.
func TestProbeKeepsLittle(t *testing.T) {
	u := &upstream{}
	frame, m := parsed(t, `{"jsonrpc":"2.0","method":"n","params":{"x":"`+strings.Repeat("x", 2*maxUnclaimedBytes)+`"}}`)
	for range 3 {
		u.route(frame, m, nil, 0)
	}
	if len(u.unclaimed) != 1 {
		t.Errorf("%d large messages are kept, want the first", len(u.unclaimed))
	}
}

// TestLoginTakesTime shows that every timeout starts again after a login, so that the era of the
// server is not mistaken.
func TestLoginTakesTime(t *testing.T) {
	for _, first := range []string{discover, hello} {
		synctest.Test(t, func(t *testing.T) {
			f := newFarm(t)
			const login = 10*time.Minute - time.Second // most times have just begun anew then
			client, _ := client0(t, f.bridge(&Options{LastLogin: loginUntil(time.Now().Add(login))}))
			client.send(first)
			srv := f.next()
			id := srv.request(`"method":`)
			<-time.After(login + 4*time.Second) // the shortest time is 5 s
			if first == discover {
				srv.send(answering(id, `{"supportedVersions":["2026-07-28"]}`))
				srv.wants(discover)
				return
			}
			srv.send(answering(id, `{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}`))
			client.reads(`"serverInfo"`)
		})
	}
}

// TestRefusedEra shows that a client that speaks both eras may first try the one that the bridge
// refuses, and then the other one on the same connection.
func TestRefusedEra(t *testing.T) {
	t.Run("legacy", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFarm(t)
			client, _ := client0(t, f.bridge(&Options{ClientEra: EraLegacy, ServerEra: EraLegacy}))
			client.send(discover)
			client.reads(`"code":-32601`)
			client.send(hello)
			handshake(client, f.next())
		})
	})
	t.Run("modern", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f := newFarm(t)
			client, _ := client0(t, f.bridge(&Options{ClientEra: EraModern, ServerEra: EraModern}))
			client.send(hello, confirmed)
			client.reads(`"code":-32022`)
			client.send(discover)
			f.next().wants(discover)
		})
	})
}
