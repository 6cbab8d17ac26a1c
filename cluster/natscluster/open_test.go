package natscluster_test

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"mcpwire/cluster"
	"mcpwire/cluster/natscluster"
	"mcpwire/internal/base/coordination"
)

// TestOptions checks that invalid options are rejected with a reason before a server starts.
func TestOptions(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	routes := []string{"a:6222", "b:6222", "c:6222"}
	embed := func(change func(e *natscluster.Embed)) natscluster.Options {
		e := &natscluster.Embed{Dir: dir, Name: "a", Routes: routes, Listen: "127.0.0.1:0"}
		change(e)
		return natscluster.Options{Embed: e}
	}
	for want, o := range map[string]natscluster.Options{
		"either Options.URL or Options.Embed":  {},
		"either Options.URL or Options.Embed ": {URL: "nats://a", Embed: new(natscluster.Embed)},
		"Options.Replicas is 2":                {URL: "nats://a", Replicas: 2},
		"Options.Prefix":                       {URL: "nats://a", Prefix: "A.B"},
		"Embed.Dir is empty":                   {Embed: new(natscluster.Embed)},
		"Embed.Name is empty":                  embed(func(e *natscluster.Embed) { e.Name = "" }),
		"Embed.Routes has 2 addresses":         embed(func(e *natscluster.Embed) { e.Routes = routes[:2] }),
		`"b" is not another host:port`:         embed(func(e *natscluster.Embed) { e.Routes = []string{"a:1", "b", "c:1"} }),
		`"a:1" is not another host:port`:       embed(func(e *natscluster.Embed) { e.Routes = []string{"a:1", "b:1", "a:1"} }),
		"Embed.Listen: \"\"":                   embed(func(e *natscluster.Embed) { e.Listen = "" }),
		"invalid port \"x\"":                   embed(func(e *natscluster.Embed) { e.Listen = "127.0.0.1:x" }),
		"other machines can reach 0.0.0.0:0":   embed(func(e *natscluster.Embed) { e.Listen = "0.0.0.0:0" }),
		"other machines can reach :0":          embed(func(e *natscluster.Embed) { e.Listen = ":0" }),
		"set Certificates, and RootCAs":        embed(func(e *natscluster.Embed) { e.TLS = new(tls.Config) }),
		"Embed.ClientToken has 5 characters":   embed(func(e *natscluster.Embed) { e.ClientListen, e.ClientToken = "127.0.0.1:0", "short" }),
		"other machines can reach 0.0.0.0:1": embed(func(e *natscluster.Embed) {
			e.ClientListen, e.ClientToken = "0.0.0.0:1", strings.Repeat("x", 16)
		}),
	} {
		o.Logger = quiet
		b, err := natscluster.Open(t.Context(), o)
		if err == nil {
			b.Close()
		}
		if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

// TestOpenFails checks that the error names the missing servers.
func TestOpenFails(t *testing.T) {
	t.Parallel()
	open := func(o natscluster.Options) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		o.Logger = quiet
		b, err := natscluster.Open(ctx, o)
		if err == nil {
			b.Close()
			t.Fatal("Open: got no error")
		}
		return err.Error()
	}
	want := func(what, got string, parts ...string) {
		t.Helper()
		for _, p := range parts {
			if !strings.Contains(got, p) {
				t.Errorf("%s: got %s, want %s in it", what, got, p)
			}
		}
	}
	routes := freePorts(t, 3)
	want("no majority", open(core(t, t.TempDir(), routes, 0)), "node n0", "no majority of 3", routes[1], routes[2], "refused", "start it")
	absent := freePorts(t, 1)[0]
	want("no server", open(natscluster.Options{URL: "nats://user:secret@" + absent}), "nats://…@"+absent, "check the address")
	if got := open(natscluster.Options{URL: "nats://user:secret@" + absent}); strings.Contains(got, "secret") {
		t.Errorf("got %s, want no password in it", got)
	}
}

// TestRestart checks that durable records survive the end of all servers, and that records in
// memory do not.
func TestRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	records := func(b *natscluster.Backend, durable bool) cluster.Records {
		t.Helper()
		name := map[bool]string{true: "file", false: "memory"}[durable]
		r, err := b.Records(t.Context(), name, cluster.RecordsOptions{Durable: durable})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := openTest(t, natscluster.Options{Embed: &natscluster.Embed{Dir: dir}})
	rev, err := records(first, true).Put(t.Context(), "key", []byte("value"), 0)
	if err == nil {
		_, err = records(first, false).Put(t.Context(), "key", []byte("value"), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.Records(t.Context(), "file", cluster.RecordsOptions{}); err == nil || !strings.Contains(err.Error(), "it exists with File storage") {
		t.Errorf("a bucket with another storage: %v", err)
	}
	first.Close()
	second := openTest(t, natscluster.Options{Embed: &natscluster.Embed{Dir: dir}})
	if rec, err := records(second, true).Get(t.Context(), "key"); err != nil || string(rec.Value) != "value" || rec.Rev != rev {
		t.Errorf("a durable record: %q, %v", rec.Value, err)
	}
	if _, err := records(second, false).Get(t.Context(), "key"); !errors.Is(err, cluster.ErrNotFound) {
		t.Errorf("a record in memory: %v", err)
	}
}

// TestClient connects a node without a server to one that embeds it.
func TestClient(t *testing.T) {
	t.Parallel()
	address, token := freePorts(t, 1)[0], strings.Repeat("t", 16)
	openTest(t, natscluster.Options{Embed: &natscluster.Embed{Dir: t.TempDir(), ClientListen: address, ClientToken: token}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if b, err := natscluster.Open(ctx, natscluster.Options{URL: "nats://" + address, Logger: quiet}); err == nil {
		b.Close()
		t.Error("connected without the token")
	}
	openTest(t, natscluster.Options{URL: "nats://" + token + "@" + address})
}

// TestClientTLS connects such a node with TLS. The process of the server needs no TLS.
func TestClientTLS(t *testing.T) {
	t.Parallel()
	ca, address, token := newAuthority(t), freePorts(t, 1)[0], strings.Repeat("t", 16)
	openTest(t, natscluster.Options{Embed: &natscluster.Embed{
		Dir: t.TempDir(), ClientListen: address, ClientToken: token, ClientTLS: ca.config(t, ca),
	}})
	secure := nats.Secure(&tls.Config{RootCAs: ca.pool})
	openTest(t, natscluster.Options{URL: "nats://" + token + "@" + address, Connect: []nats.Option{secure}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	b, err := natscluster.Open(ctx, natscluster.Options{URL: "nats://" + token + "@" + address, Connect: []nats.Option{nats.Secure(new(tls.Config))}, Logger: quiet})
	if err == nil {
		b.Close()
		t.Error("connected to a server with an untrusted certificate")
	}
}

// TestNodes joins nodes on real servers, and checks messages, leases and tasks between them.
func TestNodes(t *testing.T) {
	t.Parallel()
	url := external(t)
	var nodes []*cluster.Node
	for range 3 {
		n, err := cluster.Join(t.Context(), openTest(t, natscluster.Options{URL: url}), &cluster.NodeOptions{Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(n.Close)
		nodes = append(nodes, n)
	}
	if list, _ := nodes[2].Members(); len(list) != 3 {
		t.Errorf("members of the last node: got %v", list)
	}
	l, err := coordination.Of(nodes[0]).Acquire(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	next := make(chan coordination.Lease)
	go func() {
		l, err := coordination.Of(nodes[1]).Acquire(t.Context(), "job")
		if err != nil {
			t.Error(err)
		}
		next <- l
	}()
	<-time.After(200 * time.Millisecond)
	if err := nodes[0].Leave(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case got := <-next:
		if got.Epoch() <= l.Epoch() {
			t.Errorf("epoch %d is followed by %d", l.Epoch(), got.Epoch())
		}
	case <-time.After(10 * time.Second):
		t.Error("the other node has not acquired the released lease")
	}
	for {
		list, changed := nodes[1].Members()
		if len(list) == 2 {
			break
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Second):
			t.Fatalf("members after Leave: got %v", list)
		}
	}
	store, err := nodes[1].EventStore(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	other, err := nodes[2].EventStore(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	id, err := store.Append(t.Context(), "session", "stream", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	_, events, err := other.Follow(t.Context(), "session", id)
	if err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", 2<<20)
	if _, err := store.Append(t.Context(), "session", "stream", []byte(large)); err != nil {
		t.Fatal(err)
	}
	for e, err := range events {
		if err != nil || string(e.Data) != large {
			t.Errorf("followed %d bytes, %v", len(e.Data), err)
		}
		break
	}
}
