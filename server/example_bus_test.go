package server_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	mcpclient "mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
	"mcpwire/server"
)

// Two servers run behind a load balancer. A client that is connected to one of them gets
// notifications of changes at the other.
func ExampleBus() {
	bus := &hub{ready: make(chan struct{}), subs: make(map[*func([]byte)]bool)}
	nodes := make([]*server.Server, 2)
	for i := range nodes {
		nodes[i] = server.MustNew("library", "1.0.0", &server.Options{Bus: bus})
		defer nodes[i].Close(context.Background())
		err := server.AddResource(nodes[i], mcp.Resource{URI: "lib://shelf", Name: "shelf"}, server.Static("Emma"))
		if err != nil {
			log.Fatal(err)
		}
	}
	ctx := context.Background()
	var clients []*mcpclient.Client
	for _, node := range nodes {
		local, remote := mcptest.Pipe()
		go node.Serve(ctx, remote)
		c, err := mcpclient.Dial(ctx, mcpclient.FramerTransport(local), nil)
		if err != nil {
			log.Fatal(err)
		}
		defer c.Close()
		<-bus.ready // only this example waits for it
		clients = append(clients, c)
	}
	sub, err := clients[0].Listen(ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{"lib://shelf"}})
	if err != nil {
		log.Fatal(err)
	}
	nodes[1].ResourceUpdated("lib://shelf")
	for e := range sub.Events(ctx) {
		fmt.Println(e.Kind, e.URI)
		break
	}
	// Output: resource updated lib://shelf
}

// A hub is a minimal Bus. One that uses a message broker moves messages between processes.
type hub struct {
	ready chan struct{}

	mu   sync.Mutex
	subs map[*func([]byte)]bool
}

// Publish implements server.Bus.
func (h *hub) Publish(_ context.Context, message []byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for deliver := range h.subs {
		(*deliver)(message)
	}
	return nil
}

// Subscribe implements server.Bus.
func (h *hub) Subscribe(ctx context.Context, deliver func([]byte)) error {
	h.mu.Lock()
	h.subs[&deliver] = true
	h.mu.Unlock()
	h.ready <- struct{}{}
	<-ctx.Done()
	h.mu.Lock()
	delete(h.subs, &deliver)
	h.mu.Unlock()
	return ctx.Err()
}
