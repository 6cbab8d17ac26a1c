package cluster

import (
	"context"
	"fmt"
	"time"

	"mcpwire/internal/base/defaults"
	"mcpwire/server"
	"mcpwire/streamable"
)

// Share fills in what a server and its handler need to be one server with those of the other nodes:
// the options that are nil, of StateKeys, Bus, Tasks.Store, Input.UsedStates and Callers.Processes,
// and of Sessions, Events and Nodes. Tasks stay off if so.Tasks is nil. endpoint is the name of the
// handler's endpoint, in lower-case letters, digits and hyphens; another handler of this process
// needs another one. Close the server and shut the handler down before the node leaves. If Share
// fails, it has not changed the options.
func (n *Node) Share(ctx context.Context, endpoint string, so *server.Options, ho *streamable.Options) error {
	s, h := *so, *ho
	if err := n.share(ctx, endpoint, &s, &h); err != nil {
		return fmt.Errorf("share the state of a server: %w", err)
	}
	*so, *ho = s, h
	return nil
}

func (n *Node) share(ctx context.Context, endpoint string, so *server.Options, ho *streamable.Options) (err error) {
	if so.StateKeys == nil {
		if so.StateKeys, err = n.StateKeys(ctx, nil); err != nil {
			return err
		}
	}
	if so.Bus == nil {
		so.Bus = n.Bus()
	}
	if so.Tasks != nil && so.Tasks.Store == nil {
		tasks := *so.Tasks
		if tasks.Store, err = n.TaskStore(ctx, max(tasks.TTL, 0)); err != nil {
			return err
		}
		so.Tasks = &tasks
	}
	if so.Input.SingleUseState && so.Input.UsedStates == nil {
		ttl := so.Input.StateTTL
		defaults.IfNotPositive(&ttl, 10*time.Minute) // that of server
		if so.Input.UsedStates, err = n.ReplayCache(ctx, "states-"+endpoint, ttl); err != nil {
			return err
		}
	}
	if so.Callers.Processes == nil {
		so.Callers.Processes = n.members.count
	}
	if ho.Sessions == nil {
		maxAge := max(ho.Timeouts.Lifetime+time.Hour, defaultSessionAge)
		if ho.Sessions, err = n.SessionStore(ctx, maxAge); err != nil {
			return err
		}
	}
	if ho.Events == nil {
		if ho.Events, err = n.EventStore(ctx, nil); err != nil {
			return err
		}
	}
	if ho.Nodes == nil {
		ho.Nodes = n.HandlerNodes(endpoint)
	}
	return nil
}
