// Package cluster lets several processes, its nodes, serve the same clients of MCP.
//
// A [Backend] is the storage and the messages that the nodes share: package
// mcpwire/cluster/natscluster has one for NATS, and mcpwire/cluster/clustertest one for nodes in
// one process. [Join] makes a process a [Node] of the cluster:
//
//	node, err := cluster.Join(ctx, backend, &cluster.NodeOptions{Name: "a", Secrets: secrets})
//	err = node.Share(ctx, "files", serverOptions, handlerOptions)
//	srv, err := server.New("files", "1.0.0", serverOptions)
//	h, err := streamable.NewHandler(srv, handlerOptions)
//
// [Node.Share] fills in what servers and handlers share. Its parts are [Node.TaskStore], [Node.Bus]
// and [Node.StateKeys] for package server, and [Node.EventStore], [Node.SessionStore] and
// [Node.HandlerNodes] for package streamable. [Node.ReplayCache] is for package auth.
//
// # Consistency
//
// Every decision is a write that succeeds only if nobody else has written meanwhile. A read may be
// old. Messages may be lost, so whatever waits for one also reads from time to time. Clocks of
// different nodes are compared only where an error of a minute does no harm: a node or the holder
// of a lease counts as gone when it has missed several beats while others were there.
//
// # Versions
//
// Everything that nodes store or send begins with a version. Each release reads what the release
// before it and the one after it write, so nodes can be replaced one by one by the next release.
//
// # Security
//
// The backend must authenticate its clients, and connections between machines need TLS: whoever can
// write to it can take over sessions, and whoever can read it learns results, principals and keys.
// [NodeOptions].Secrets encrypts keys. The names of records and topics are hashes; they
// contain no text of users.
//
// # Concurrency
//
// All methods may be called by multiple goroutines at once.
//
// # Errors
//
// A call of the backend fails after two seconds with an error that wraps [ErrUnavailable]; a
// write may have been carried out then. [ErrConflict], [ErrNotFound], [ErrGone], [ErrTooLarge] and
// [ErrNoNode] say what a caller can react to.
package cluster
