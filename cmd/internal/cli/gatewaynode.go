package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"mcpwire/cmd/internal/proxy/gateway"
	gatewayconfig "mcpwire/cmd/internal/proxy/gateway/config"
	"mcpwire/streamable"
)

// A GatewayNode connects a gateway to those of other processes. The functions other than Observe
// and Status must not be nil.
type GatewayNode struct {
	// Listen is the address for clients. Empty means that of the configuration.
	Listen string
	// Name is that of the gateway in mcpwire watch. Empty means that of the configuration's file.
	Name string
	// Secrets are those of the gateway, unless the configuration has keys.
	Secrets [][]byte
	// Delay is the time after the end of the context in which the gateway serves on.
	Delay time.Duration
	// Logger receives the log.
	Logger *slog.Logger

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

// ServeGateway serves the gateway of a configuration over HTTP until ctx ends or a signal comes. It
// closes the gateway before it returns.
func ServeGateway(ctx context.Context, file string, n *GatewayNode, stderr io.Writer) error {
	e := &env{stdin: os.Stdin, stdout: io.Discard, stderr: stderr}
	e.prompter = &linePrompter{in: e.stdin, out: stderr}
	name := n.Name
	if name != "" {
		name = strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)) + "-" + name
	}
	p := &gatewayProcess{e: e, flags: &gatewayFlags{listen: n.Listen, name: name, redact: "default"}, path: file, log: n.Logger, node: n}
	return p.serve(ctx)
}

// Waits for the end of a process that other nodes start again when this one has lost its lease. In
// all, they are shorter than the time until then.
const (
	nodeStopWait = 300 * time.Millisecond
	nodeTermWait = 500 * time.Millisecond
)

// checkNode returns an error if the gateway is a node and does not serve HTTP.
func (p *gatewayProcess) checkNode() error {
	if _, _, socket := gatewayconfig.SocketAddress(p.address); p.node != nil && (socket || p.address == "stdio") {
		return errors.New("gateway: a node of a cluster serves HTTP: give listen an address such as 127.0.0.1:8080")
	}
	return nil
}
