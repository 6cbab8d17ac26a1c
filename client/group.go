package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/base/defaults"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// GroupOptions are the options of [NewGroup]. The zero value is ready to use, and nil means the
// zero value.
type GroupOptions struct {
	// Separator separates the names of member and tool. "" means "__".
	Separator string
	// Parallel limits how many members are listed or closed at once. Zero means 8.
	Parallel int
	// ListTimeout limits the listing of one member's tools. Zero means 30 s.
	ListTimeout time.Duration
}

// A Group holds the clients of one agent under names, lists their tools together and calls tools by
// name. Create one with [NewGroup]. Multiple goroutines may call its methods at once.
//
// The group's name for a tool is the member's name, the separator and the tool's own name:
// "files__read". [Group.Add] rejects ambiguous member names, so each name identifies one member.
type Group struct {
	opts GroupOptions

	mu      sync.Mutex
	members map[string]*Client
	closed  bool
}

// ErrNoMember is wrapped by the error for a tool name that does not begin with a member's name.
var ErrNoMember = errors.New("no such group member")

// A MemberError is the error of one member of a [Group].
type MemberError struct {
	// Member is the name of the member.
	Member string
	// Err is the member's error. It is never nil.
	Err error
}

func (e *MemberError) Error() string { return fmt.Sprintf("%s: %v", e.Member, e.Err) }

// Unwrap returns Err.
func (e *MemberError) Unwrap() error { return e.Err }

// NewGroup returns an empty group. opts may be nil; NewGroup copies it.
func NewGroup(opts *GroupOptions) *Group {
	g := &Group{members: make(map[string]*Client)}
	if opts != nil {
		g.opts = *opts
	}
	if g.opts.Separator == "" {
		g.opts.Separator = "__"
	}
	defaults.IfNotPositive(&g.opts.Parallel, 8)
	defaults.IfNotPositive(&g.opts.ListTimeout, 30*time.Second)
	return g
}

// Add makes a client a member. [Group.Close] closes it. The name must not be empty or taken, must
// not contain the separator, and must not end with the beginning of one: with "__", "my__server"
// and "server_" are errors. After Close, Add fails with [jsonrpc.ErrClosed]. On error the caller
// still owns the client.
func (g *Group) Add(name string, c *Client) error {
	if name == "" || strings.Index(name+g.opts.Separator, g.opts.Separator) != len(name) {
		return fmt.Errorf("add %q: a member's name must not be empty or contain the separator %q", name, g.opts.Separator)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return fmt.Errorf("add %q: group: %w", name, jsonrpc.ErrClosed)
	}
	if g.members[name] != nil {
		return fmt.Errorf("add %q: the group has a member of that name", name)
	}
	g.members[name] = c
	return nil
}

// Remove removes a member and returns it, or nil if the name is unknown. The caller must close
// it. Calls in flight go on.
func (g *Group) Remove(name string) *Client {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.members[name]
	delete(g.members, name)
	return c
}

// Member returns the member of that name, or nil.
func (g *Group) Member(name string) *Client {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.members[name]
}

// Members returns the sorted names of the members.
func (g *Group) Members() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.members))
}

// Tools lists the tools of all members under the names that [Group.CallTool] takes, sorted by
// member and then in the server's order. It drops duplicates of one server.
//
// Tools returns the tools of the other members even if some fail. The error joins a *[MemberError]
// for each failure.
func (g *Group) Tools(ctx context.Context) ([]mcp.Tool, error) {
	names := g.Members()
	lists := make([][]mcp.Tool, len(names))
	err := g.each(names, func(i int, c *Client) (err error) {
		ctx, cancel := context.WithTimeout(ctx, g.opts.ListTimeout)
		defer cancel()
		lists[i], err = g.list(ctx, names[i], c)
		return err
	})
	return slices.Concat(lists...), err
}

// maxGroupTools limits the tools of one member, in bytes. No model takes as many.
const maxGroupTools = 64 << 20

// list returns the tools of one member with prefixed names.
func (g *Group) list(ctx context.Context, member string, c *Client) ([]mcp.Tool, error) {
	var tools []mcp.Tool
	size, text := 0, []byte(nil)
	for tool, err := range c.Tools(ctx) {
		if c.Profile().Capabilities.Tools == nil && isMethodNotFound(err) {
			return nil, nil // servers without tools are valid
		}
		if err != nil {
			return nil, err
		}
		text = mcp.Append(text[:0], &tool, mcp.RevisionNone)
		if size += len(text); size > maxGroupTools {
			return nil, fmt.Errorf("its tools take more than %d bytes", maxGroupTools)
		}
		tool.Name = member + g.opts.Separator + tool.Name
		tools = append(tools, tool)
	}
	return tools, nil
}

// each calls do for all members, at most opts.Parallel at once, and joins the errors in the order
// of names.
func (g *Group) each(names []string, do func(i int, c *Client) error) error {
	failed := make([]error, len(names))
	turns := make(chan struct{}, g.opts.Parallel)
	var wg sync.WaitGroup
	for i, name := range names {
		c := g.Member(name)
		if c == nil {
			continue // removed meanwhile
		}
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			if err := do(i, c); err != nil {
				failed[i] = &MemberError{name, err}
			}
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// Route splits the group's name for a tool into the member and the tool's own name, for calls with
// the function [CallTool]:
//
//	c, tool, err := g.Route("library__count")
//	n, err := client.CallTool[int](ctx, c, tool, args)
//
// The error wraps [ErrNoMember].
func (g *Group) Route(name string) (c *Client, tool string, err error) {
	member, tool, found := strings.Cut(name, g.opts.Separator)
	if found {
		c = g.Member(member)
	}
	if c == nil {
		return nil, "", fmt.Errorf("tool %q: %w: names begin with one of %q and %q", name, ErrNoMember, g.Members(), g.opts.Separator)
	}
	return c, tool, nil
}

// CallTool calls a tool by the group's name for it, as [Client.CallTool] does. An error of the
// member is a *[MemberError].
func (g *Group) CallTool(ctx context.Context, name string, args any, opts ...CallOption) (*mcp.CallToolResult, error) {
	c, tool, err := g.Route(name)
	if err != nil {
		return nil, err
	}
	result, err := c.CallTool(ctx, tool, args, opts...)
	if err != nil {
		member, _, _ := strings.Cut(name, g.opts.Separator)
		return result, &MemberError{member, err}
	}
	return result, nil
}

// Close closes all members and waits for them. The error joins a *[MemberError] for each failure.
// Close may be called more than once.
func (g *Group) Close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	return g.each(g.Members(), func(_ int, c *Client) error { return c.Close() })
}
