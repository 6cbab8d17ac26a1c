// Package natscluster is a [cluster.Backend] on NATS JetStream (https://docs.nats.io): on servers
// that are there, or on ones that run inside the nodes.
//
//	backend, err := natscluster.Open(ctx, natscluster.Options{URL: "nats://nats:4222"})
//	node, err := cluster.Join(ctx, backend, &cluster.NodeOptions{Secrets: secrets})
//
// With [Options].Embed, three or five processes, the core nodes, each run a server. Two of three,
// or three of five, must be there; while streams are created, at the first start and perhaps that
// of a new release, three. Further processes connect to them with a URL. A process that is alone
// needs no other, and no listener. The number of core nodes cannot change later.
//
// # Durability
//
// What is not durable is in the memory of three servers, and survives the loss of one. What is
// durable is also in their files. An embedded server syncs these before a write succeeds. Other
// servers need the option sync_interval: always; by default a loss of power costs what was written
// in the last two minutes.
//
// When the server that leads a stream is lost, another one leads it after 4 to 9 seconds. Until
// then an append to a log fails with [cluster.ErrUnavailable], at once if that is known. Calls of a
// bucket wait until NATS announces a leader, or their contexts end. A server that is closed first
// lets other servers lead its streams. The announcements are at
// $JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.>, to which the user of the connection should be allowed
// to subscribe; otherwise calls check four times a second.
//
// # Security
//
// Embedded servers accept each other by certificates; see [Embed].TLS. Others can
// connect only if [Embed].ClientListen is set, and with a token. WebSocket, MQTT, leaf nodes,
// gateways and the monitoring port are off.
//
// # Concurrency
//
// All methods may be called by multiple goroutines at once.
//
// # Errors
//
// Open says which server or which node it does not reach. The errors of a Backend are those of
// package cluster.
package natscluster
