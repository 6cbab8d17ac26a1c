package gatewayd

import (
	"context"
	"errors"
	"net"
	"time"

	"mcpwire/cmd/internal/proxy/gateway"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/streamable"
)

// A Node connects a gateway to those of other processes. The functions other than Observe
// and Status must not be nil.
type Node struct {
	// Name is that of the node. The gateway has it too in mcpwire watch, after that of the file.
	Name string
	// Secrets are those of the gateway, unless the configuration has keys.
	Secrets [][]byte
	// Delay is the time after the end of the context in which the gateway serves on.
	Delay time.Duration

	// Share is called with each upstream that is a process.
	Share func(*gateway.Upstream)
	// Status adds which nodes run the processes of upstreams, and returns the names of nodes that
	// have not answered. Nil adds nothing.
	Status func(ctx context.Context, list []gateway.UpstreamStatus) (silent []string)
	// TaskOwners remember who has started a task. Nil means that each node remembers its own.
	TaskOwners gateway.TaskOwners
	// Observe observes the requests. Nil observes nothing.
	Observe gateway.ObserveFunc
	// Options changes the options of the handler.
	Options func(*streamable.Options)
	// Started is called when the gateway serves h at an address. ownSecrets means that it has
	// Secrets and no keys.
	Started func(g *gateway.Gateway, h *streamable.Handler, ownSecrets bool, a net.Addr, path string)
}

// Waits for the end of a process that other nodes start again when this one has lost its lease. In
// all, they are shorter than the time until then.
const (
	nodeStopWait = 300 * time.Millisecond
	nodeTermWait = 500 * time.Millisecond
)

// checkNode returns an error if the gateway is a node and does not serve HTTP.
func (p *process) checkNode() error {
	if _, _, socket := gatewayconfig.SocketAddress(p.address); p.node != nil && (socket || p.address == "stdio") {
		return errors.New("gateway: a node of a cluster serves HTTP: give listen an address such as 127.0.0.1:8080")
	}
	return nil
}
