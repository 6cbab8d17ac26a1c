// Package clustertest tests implementations of [mcpwire/cluster.Backend].
//
//	func TestBackend(t *testing.T) {
//		clustertest.Run(t, func(t *testing.T) (a, b cluster.Backend) { … })
//	}
//
// It takes about ten seconds, most of which it waits for records to expire.
package clustertest
