package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"

	"mcpwire/cluster"
	"mcpwire/cluster/natscluster"
	"mcpwire/cmd/internal/gatewayd"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/cmd/internal/proxy/gateway/nodes"
	"mcpwire/health"
	"mcpwire/streamable"
)

// gatewayEndpoint names the endpoint of gateways in the cluster.
const gatewayEndpoint = "gateway"

// gatewaySecrets are the secrets of all gateways of the cluster. The node replaces them.
type gatewaySecrets struct {
	mu      sync.Mutex
	current [][]byte
	// gateway is nil until it has started, and if its configuration has keys.
	gateway *gateway.Gateway
}

// replace is called by the node with new secrets.
func (s *gatewaySecrets) replace(secrets ...[]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = secrets
	if s.gateway == nil {
		return nil
	}
	return s.gateway.ReplaceSecrets(secrets...)
}

// serveGateway serves the gateway until ctx ends.
func (f *nodeFlags) serveGateway(ctx context.Context, node *cluster.Node, backend *natscluster.Backend, m *metrics, probes *health.Probes, stderr io.Writer, log *slog.Logger) error {
	secrets := new(gatewaySecrets)
	if err := node.Keys(ctx, gatewayEndpoint, nil, secrets.replace); err != nil {
		return err
	}
	sessions, err := node.SessionStore(ctx, 0)
	if err != nil {
		return err
	}
	events, err := node.EventStore(ctx, nil)
	if err != nil {
		return err
	}
	children, err := nodes.New(ctx, node, log)
	if err != nil {
		return err
	}
	defer children.Close()
	owners, err := nodes.NewTaskOwners(ctx, node)
	if err != nil {
		return err
	}
	catchUp(ctx, backend, log)
	secrets.mu.Lock()
	current := secrets.current
	secrets.mu.Unlock()
	n := &gatewayd.Node{
		Name: f.name, Delay: f.drainDelay, Secrets: current, Share: children.Share, Status: children.Status, TaskOwners: owners,
		Observe: observeGateway(m.telemetry),
		Options: func(o *streamable.Options) {
			o.Hosts = append(o.Hosts, f.hosts...)
			o.Sessions, o.Events, o.Nodes = sessions, events, node.HandlerNodes(gatewayEndpoint)
		},
		Started: func(g *gateway.Gateway, h *streamable.Handler, ownSecrets bool, a net.Addr, path string) {
			if ownSecrets {
				secrets.mu.Lock()
				secrets.gateway = g
				err := g.ReplaceSecrets(secrets.current...) // they may have changed
				secrets.mu.Unlock()
				if err != nil {
					log.Error("the gateway has no secrets of the cluster", "error", err)
				}
			}
			m.observe(node, h)
			probes.Start()
			fmt.Fprintf(stderr, listening+"%s%s\n", a, path)
		},
	}
	o := &gatewayd.Options{Stdin: os.Stdin, Stdout: io.Discard, Stderr: stderr, Logger: log, Node: n}
	if f.given["listen"] {
		o.Listen = f.listen
	}
	return gatewayd.Serve(ctx, f.gateway, o)
}
