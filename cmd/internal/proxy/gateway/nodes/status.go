package nodes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"mcpwire/cluster"
	"mcpwire/cmd/internal/proxy/gateway"
	"mcpwire/internal/base/coordination"
	"mcpwire/internal/text/clip"
)

const (
	// maxAsked limits the nodes that are asked at the same time.
	maxAsked = 32
	// maxLastError limits the bytes of NodeStatus.LastError in a message.
	maxLastError = 2 << 10
)

// Status adds the nodes that run processes of the upstreams, with the state of these processes. It
// asks the other nodes, and returns the names of those that have not answered.
func (c *Children) Status(ctx context.Context, list []gateway.UpstreamStatus) (silent []string) {
	members, _ := c.members()
	var mu sync.Mutex
	var asking sync.WaitGroup
	places := make(chan struct{}, maxAsked)
	add := func(node string, own map[string]gateway.NodeStatus) {
		mu.Lock()
		defer mu.Unlock()
		for i := range list {
			if s, ok := own[list[i].Name]; ok {
				s.Node = node
				list[i].Nodes = append(list[i].Nodes, s)
			}
		}
	}
	for _, m := range members {
		if m.ID == c.node.ID() {
			add(m.Name, c.status())
			continue
		}
		places <- struct{}{}
		asking.Go(func() {
			defer func() { <-places }()
			own, err := c.statusOf(ctx, m.ID)
			if errors.Is(err, cluster.ErrNoNode) {
				return // it is no gateway, or has ended
			}
			if err != nil {
				c.log.Debug("a node has not sent the state of its processes", "node", m.Name, "error", err)
				mu.Lock()
				silent = append(silent, m.Name)
				mu.Unlock()
				return
			}
			add(m.Name, own)
		})
	}
	asking.Wait()
	for i := range list {
		slices.SortFunc(list[i].Nodes, func(a, b gateway.NodeStatus) int { return strings.Compare(a.Node, b.Node) })
	}
	slices.Sort(silent)
	return silent
}

// statusOf asks another node for the state of its processes.
func (c *Children) statusOf(ctx context.Context, node string) (own map[string]gateway.NodeStatus, err error) {
	reply, err := c.node.Request(ctx, node, topic, []byte{messageStatus})
	if err == nil {
		err = json.Unmarshal(reply, &own)
	}
	return own, err
}

// status returns the state of the processes of this node by the name of the upstream. An upstream
// has several if principals do not share one, or nodes have different configurations.
func (c *Children) status() map[string]gateway.NodeStatus {
	c.mu.Lock()
	children := slices.Collect(maps.Values(c.children))
	c.mu.Unlock()
	own := map[string]gateway.NodeStatus{}
	for _, ch := range children {
		b := ch.bridge.Status()
		s := own[ch.name]
		s.State = cmp.Or(s.State, "idle")
		s.Processes += b.Connections
		s.InFlight += b.InFlight
		s.Subscriptions += b.Subscriptions
		s.Restarts += b.Restarts
		switch {
		case b.Err != nil:
			s.State, s.LastError = "down", clip.String(b.Err.Error(), maxLastError)
		case b.Up && s.State == "idle":
			s.State = "up"
		}
		own[ch.name] = s
	}
	return own
}

// statusMessage returns the message with the state of the processes of this node. If it is too
// large, the errors are left out.
func (c *Children) statusMessage() ([]byte, error) {
	own := c.status()
	text, err := json.Marshal(own)
	if len(text) > coordination.MaxValue/2 {
		for name, s := range own {
			s.LastError = ""
			own[name] = s
		}
		text, err = json.Marshal(own)
	}
	return text, err
}
