package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mcpwire/mcp"
)

var errReconnected = errors.New("the connection was made anew")

// unsubscribeTimeout is how long the end of a subscription waits for a legacy server to say that it has heard.
const unsubscribeTimeout = 5 * time.Second

// serveLegacy does for a legacy server what subscriptions/listen does for a modern one: it subscribes to the resources, one by one, and leaves it to noticed
// to pick out the notifications. It returns when the connection is lost.
func (s *Subscription) serveLegacy(ctx context.Context, reconnected <-chan struct{}) error {
	subs := &s.c.subs
	subs.mu.Lock()
	if subs.legacy == nil {
		subs.legacy = make(map[*Subscription]struct{})
	}
	subs.legacy[s] = struct{}{}
	subs.mu.Unlock()
	defer func() {
		subs.mu.Lock()
		delete(subs.legacy, s)
		subs.mu.Unlock()
	}()
	accepted := s.acceptedLists()
	accepted.TaskIDs = s.requested.TaskIDs // it may tell of them, or not
	var uris []string
	if caps := s.c.ServerCapabilities(); caps.Resources != nil && caps.Resources.Subscribe {
		uris = s.requested.ResourceSubscriptions
	}
	for _, uri := range uris {
		err := s.c.subscribe(ctx, uri)
		switch {
		case err == nil:
			accepted.ResourceSubscriptions = append(accepted.ResourceSubscriptions, uri)
		case !IsPeer(err):
			s.c.unsubscribe(accepted.ResourceSubscriptions)
			return err
		default:
			s.c.log.Info("server does not let a resource be subscribed to", "uri", uri, "error", err)
		}
	}
	s.acknowledge(accepted)
	select {
	case <-reconnected:
		s.c.subs.dropURIs(accepted.ResourceSubscriptions)
		return errReconnected
	case <-ctx.Done():
		s.c.unsubscribe(accepted.ResourceSubscriptions)
		return nil
	case <-s.c.Done():
		return s.c.endError()
	}
}

// acceptedLists returns what the server tells everybody of its lists.
func (s *Subscription) acceptedLists() mcp.SubscriptionFilter {
	caps := s.c.ServerCapabilities()
	return intersectFilters(&s.requested, &mcp.SubscriptionFilter{
		ToolsListChanged:     caps.Tools != nil && caps.Tools.ListChanged,
		PromptsListChanged:   caps.Prompts != nil && caps.Prompts.ListChanged,
		ResourcesListChanged: caps.Resources != nil && caps.Resources.ListChanged,
	})
}

// enqueueLegacy is tell for what the server tells everybody.
func (s *Subscription) enqueueLegacy(e Event) {
	if e.Kind == ResourceUpdated && !slices.ContainsFunc(s.requested.ResourceSubscriptions, func(uri string) bool { return isPartOf(e.URI, uri) }) {
		return
	}
	s.enqueue(e)
}

// lockLegacy waits until nobody else changes what a legacy server is subscribed to: of a subscription and the end of another to the same resource
// only one order is right.
func (ss *subscriptions) lockLegacy(ctx context.Context) (release func(), err error) {
	ss.mu.Lock()
	if ss.legacySlot == nil {
		ss.legacySlot = make(chan struct{}, 1)
	}
	slot := ss.legacySlot
	ss.mu.Unlock()
	select {
	case slot <- struct{}{}:
		return func() { <-slot }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// adjustCount changes how many subscriptions a resource has by n and returns how many it has then.
func (ss *subscriptions) adjustCount(uri string, n int) int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.uriCounts == nil {
		ss.uriCounts = make(map[string]int)
	}
	ss.uriCounts[uri] += n
	remaining := ss.uriCounts[uri]
	if remaining == 0 {
		delete(ss.uriCounts, uri)
	}
	return remaining
}

// dropURIs forgets subscriptions of a connection that is gone.
func (ss *subscriptions) dropURIs(uris []string) {
	for _, uri := range uris {
		ss.adjustCount(uri, -1)
	}
}

func (c *Client) subscribe(ctx context.Context, uri string) error {
	release, err := c.subs.lockLegacy(ctx)
	if err != nil {
		return err
	}
	defer release()
	if _, err := c.roundTrip(ctx, &request{method: mcp.MethodResourcesSubscribe, params: uriParams(uri), repeatable: true, internal: true}); err != nil {
		return fmt.Errorf("subscribe to %q: %w", uri, err)
	}
	c.subs.adjustCount(uri, 1)
	return nil
}

// unsubscribe ends the subscriptions to resources that nobody else wants to hear of.
func (c *Client) unsubscribe(uris []string) {
	ctx, cancel := context.WithTimeout(context.Background(), unsubscribeTimeout)
	defer cancel()
	for _, uri := range uris {
		release, err := c.subs.lockLegacy(ctx)
		if err == nil {
			if c.subs.adjustCount(uri, -1) == 0 {
				_, err = c.roundTrip(ctx, &request{method: mcp.MethodResourcesUnsubscribe, params: uriParams(uri), internal: true})
			}
			release()
		} else {
			c.subs.adjustCount(uri, -1)
		}
		if err != nil {
			c.log.Debug("not unsubscribed", "uri", uri, "error", err)
		}
	}
}
