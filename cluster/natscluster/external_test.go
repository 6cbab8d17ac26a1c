package natscluster_test

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"mcpwire/cluster"
	"mcpwire/cluster/natscluster"
	"mcpwire/internal/base/coordination"
)

// An externalServer is a NATS server that does not belong to a backend.
type externalServer struct {
	opts *server.Options
	srv  *server.Server
}

// external starts a NATS server, and returns its URL.
func external(t testing.TB) string {
	t.Helper()
	return newExternal(t).srv.ClientURL()
}

func newExternal(t testing.TB) *externalServer {
	t.Helper()
	s := &externalServer{opts: &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}}
	s.start(t)
	t.Cleanup(s.stop)
	return s
}

// start starts the server, at the same address as before.
func (s *externalServer) start(t testing.TB) {
	t.Helper()
	var err error
	if s.srv, err = server.NewServer(s.opts); err != nil {
		t.Fatal(err)
	}
	s.srv.Start()
	if !s.srv.ReadyForConnections(10 * time.Second) {
		t.Fatal("the server does not start")
	}
	at, err := url.Parse(s.srv.ClientURL())
	if err == nil {
		s.opts.Port, err = strconv.Atoi(at.Port())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (s *externalServer) stop() {
	s.srv.Shutdown()
	s.srv.WaitForShutdown()
}

// deleteStreams deletes all streams.
func (s *externalServer) deleteStreams(t testing.TB) {
	t.Helper()
	nc, err := nats.Connect(s.srv.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		if err := js.DeleteStream(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if names.Err() != nil {
		t.Fatal(names.Err())
	}
}

// TestStreamsGone checks that nodes work again after a server without replicas has been restarted,
// which loses what was in its memory, and after somebody has deleted all streams.
func TestStreamsGone(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(t *testing.T, s *externalServer){
		"restart": func(t *testing.T, s *externalServer) {
			s.stop()
			s.start(t)
		},
		"deleted": func(t *testing.T, s *externalServer) { s.deleteStreams(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s := newExternal(t)
			var nodes []*cluster.Node
			for range 2 {
				n, err := cluster.Join(ctx, openTest(t, natscluster.Options{URL: s.srv.ClientURL()}), &cluster.NodeOptions{Logger: quiet})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(n.Close)
				nodes = append(nodes, n)
			}
			// eventually calls try until it succeeds.
			eventually := func(what string, try func() error) {
				t.Helper()
				for {
					err := try()
					if err == nil {
						return
					}
					select {
					case <-time.After(100 * time.Millisecond):
					case <-ctx.Done():
						t.Fatalf("%s: %v", what, err)
					}
				}
			}
			used, err := nodes[0].ReplayCache(ctx, "test", time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			store, err := nodes[0].EventStore(ctx, nil)
			if err != nil {
				t.Fatal(err)
			}
			before, err := store.Append(ctx, "session", "stream", []byte("before"))
			if err != nil {
				t.Fatal(err)
			}
			lease, err := coordination.Of(nodes[0]).Acquire(ctx, "lease")
			if err != nil {
				t.Fatal(err)
			}
			lose(t, s)
			eventually("a key is used", func() error { _, err := used.Once(ctx, "", "key", time.Minute); return err })
			eventually("an event is stored", func() error { _, err := store.Append(ctx, "session", "stream", []byte("after")); return err })
			if _, _, err := store.After(ctx, "session", before); err == nil {
				t.Error("an event that is gone was found")
			}
			if name == "deleted" {
				select {
				case <-lease.Lost():
				case <-ctx.Done():
					t.Fatal("a lease whose record was deleted is held")
				}
			}
			if err := lease.Release(ctx); err != nil {
				t.Error(err)
			}
			next, err := coordination.Of(nodes[1]).Acquire(ctx, "lease")
			if err != nil {
				t.Fatal(err)
			}
			if next.Epoch() <= lease.Epoch() {
				t.Errorf("epoch %d is followed by %d", lease.Epoch(), next.Epoch())
			}
			eventually("the nodes see each other", func() error {
				for i, n := range nodes {
					if !coordination.Of(n).HasMember(nodes[1-i].ID()) || n.Check(ctx) != nil {
						return errors.New("they do not")
					}
				}
				return nil
			})
		})
	}
}

// TestAuthorizationFails checks that a node connects again after a server has rejected its
// credentials several times, as one does that has not loaded its users yet.
func TestAuthorizationFails(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := newExternal(t)
	s.stop()
	s.opts.Authorization = "right"
	s.start(t)
	b := openTest(t, natscluster.Options{URL: s.srv.ClientURL(), Connect: []nats.Option{nats.Token("right")}})
	r, err := b.Records(ctx, "test", cluster.RecordsOptions{Durable: true})
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	s.opts.Authorization = "wrong"
	s.start(t)
	if n := s.rejected(ctx, 4); n < 4 {
		t.Fatalf("the node has given up after %d attempts", n)
	}
	s.stop()
	s.opts.Authorization = "right"
	s.start(t)
	for rev := uint64(0); ; {
		if rev, err = r.Put(ctx, "key", []byte("value"), rev); err == nil {
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}

// rejected waits until the server has closed a number of connections, for a while, and returns how
// many it has.
func (s *externalServer) rejected(ctx context.Context, want int) (n int) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for n < want {
		z, err := s.srv.Connz(&server.ConnzOptions{State: server.ConnClosed})
		if err == nil {
			n = len(z.Conns)
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return n
		}
	}
	return n
}
