package cluster_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"

	"mcpwire/cluster"
	"mcpwire/cluster/clustertest"
	"mcpwire/server"
	"mcpwire/streamable"
)

// Two nodes share a backend in memory. In production, each node is a process, and the backend is that
// of mcpwire/cluster/natscluster.
func ExampleJoin() {
	ctx := context.Background()
	backend := clustertest.NewMemory()
	secret := make([]byte, 32) // in production from a file that all nodes have
	rand.Read(secret)
	var handlers []*streamable.Handler
	var nodes []*cluster.Node
	for _, name := range []string{"a", "b"} {
		node, err := cluster.Join(ctx, backend, &cluster.NodeOptions{Name: name, Secrets: [][]byte{secret}})
		if err != nil {
			log.Fatal(err)
		}
		defer node.Leave(ctx)
		nodes = append(nodes, node)
		so, ho := new(server.Options), new(streamable.Options)
		if err := node.Share(ctx, "files", so, ho); err != nil {
			log.Fatal(err)
		}
		srv, err := server.New("files", "1.0.0", so)
		if err != nil {
			log.Fatal(err)
		}
		defer srv.Close(ctx)
		h, err := streamable.NewHandler(srv, ho)
		if err != nil {
			log.Fatal(err)
		}
		defer h.Shutdown(ctx)
		handlers = append(handlers, h)
	}
	members, _ := nodes[1].Members()
	fmt.Println(len(handlers), "handlers,", len(members), "members")
	// Output: 2 handlers, 2 members
}
