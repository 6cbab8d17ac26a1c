package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"mcpwire/mcp"
)

var errLegacyLost = errors.New("the connection was made anew")

// unsubscribePatience is how long the end of a subscription waits for a legacy server to say that it has heard.
const unsubscribePatience = 5 * time.Second

// serveLegacy does for a legacy server what subscriptions/listen does for a modern one: it subscribes to the resources, one by one, and leaves it to noticed
// to pick out the notifications. It returns when the connection is lost.
func (s *Subscription) serveLegacy(ctx context.Context, lost <-chan struct{}) error {
	l := &s.c.subs
	l.mu.Lock()
	if l.legacy == nil {
		l.legacy = make(map[*Subscription]struct{})
	}
	l.legacy[s] = struct{}{}
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.legacy, s)
		l.mu.Unlock()
	}()
	honoured := s.legacyLists()
	honoured.TaskIDs = s.asked.TaskIDs // it may tell of them, or not
	var uris []string
	if caps := s.c.ServerCapabilities(); caps.Resources != nil && caps.Resources.Subscribe {
		uris = s.asked.ResourceSubscriptions
	}
	for _, uri := range uris {
		err := s.c.subscribe(ctx, uri)
		switch {
		case err == nil:
			honoured.ResourceSubscriptions = append(honoured.ResourceSubscriptions, uri)
		case !IsPeer(err):
			s.c.unsubscribe(honoured.ResourceSubscriptions)
			return err
		default:
			s.c.log.Info("server does not let a resource be subscribed to", "uri", uri, "error", err)
		}
	}
	s.acknowledge(honoured)
	select {
	case <-lost:
		s.c.subs.lose(honoured.ResourceSubscriptions)
		return errLegacyLost
	case <-ctx.Done():
		s.c.unsubscribe(honoured.ResourceSubscriptions)
		return nil
	case <-s.c.Done():
		return s.c.whyEnded()
	}
}

// legacyLists returns what the server tells everybody of its lists.
func (s *Subscription) legacyLists() mcp.SubscriptionFilter {
	caps := s.c.ServerCapabilities()
	return bothFilters(&s.asked, &mcp.SubscriptionFilter{
		ToolsListChanged:     caps.Tools != nil && caps.Tools.ListChanged,
		PromptsListChanged:   caps.Prompts != nil && caps.Prompts.ListChanged,
		ResourcesListChanged: caps.Resources != nil && caps.Resources.ListChanged,
	})
}

// tellLegacy is tell for what the server tells everybody.
func (s *Subscription) tellLegacy(e Event) {
	if e.Kind == ResourceUpdated && !slices.ContainsFunc(s.asked.ResourceSubscriptions, func(uri string) bool { return within(e.URI, uri) }) {
		return
	}
	s.tell(e)
}

// takeTurn waits until nobody else changes what a legacy server is subscribed to: of a subscription and the end of another to the same resource
// only one order is right.
func (l *subscriptions) takeTurn(ctx context.Context) (release func(), err error) {
	l.mu.Lock()
	if l.turn == nil {
		l.turn = make(chan struct{}, 1)
	}
	turn := l.turn
	l.mu.Unlock()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// count changes how many subscriptions a resource has by n and returns how many it has then.
func (l *subscriptions) count(uri string, n int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.uris == nil {
		l.uris = make(map[string]int)
	}
	l.uris[uri] += n
	left := l.uris[uri]
	if left == 0 {
		delete(l.uris, uri)
	}
	return left
}

// lose forgets subscriptions of a connection that is gone.
func (l *subscriptions) lose(uris []string) {
	for _, uri := range uris {
		l.count(uri, -1)
	}
}

func (c *Client) subscribe(ctx context.Context, uri string) error {
	release, err := c.subs.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer release()
	if _, err := c.roundTrip(ctx, &request{method: mcp.MethodResourcesSubscribe, params: uriParams(uri), repeatable: true, upkeep: true}); err != nil {
		return fmt.Errorf("subscribe to %q: %w", uri, err)
	}
	c.subs.count(uri, 1)
	return nil
}

// unsubscribe ends the subscriptions to resources that nobody else wants to hear of.
func (c *Client) unsubscribe(uris []string) {
	ctx, cancel := context.WithTimeout(context.Background(), unsubscribePatience)
	defer cancel()
	for _, uri := range uris {
		release, err := c.subs.takeTurn(ctx)
		if err == nil {
			if c.subs.count(uri, -1) == 0 {
				_, err = c.roundTrip(ctx, &request{method: mcp.MethodResourcesUnsubscribe, params: uriParams(uri), upkeep: true})
			}
			release()
		} else {
			c.subs.count(uri, -1)
		}
		if err != nil {
			c.log.Debug("not unsubscribed", "uri", uri, "error", err)
		}
	}
}
