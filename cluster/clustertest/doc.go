// Package clustertest is for tests of clusters. [NewMemory] is a backend in memory, for nodes in
// one process. [Run] tests implementations of [mcpwire/cluster.Backend]:
//
//	func TestBackend(t *testing.T) {
//		clustertest.Run(t, func(t *testing.T) (a, b cluster.Backend) { … })
//	}
//
// Run takes about ten seconds, most of which it waits for records to expire.
package clustertest
