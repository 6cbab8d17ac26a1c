// Package nodes lets the gateways of a cluster share the processes of their upstreams. For each
// upstream and principal, one node runs the process: the one that holds a lease. The other nodes
// forward the messages of their clients to it.
//
// [Children.Share] replaces the function that connects to an upstream. A gateway and its bridges
// need not know where the process is.
//
// # Failures
//
// If the node of a process is lost, the connections of other nodes to it fail with an error that
// says so. Requests that were sent to it fail, and may have had effects. The bridges of these nodes
// connect again; the first one whose node gets the lease starts the process there. A node that has
// lost its lease ends the process at once, before another node can have the lease. So there is one
// process at a time, unless a node is suspended and wakes up later.
//
// # Concurrency
//
// The methods of Children may be called by many goroutines at once. [Children.Close] waits for all
// goroutines and processes.
package nodes
