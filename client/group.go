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

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// GroupOptions are the options of [NewGroup]. The zero value is ready to use, and what nil means.
type GroupOptions struct {
	Separator   string        // between the name of a member and that of its tool; "" is "__"
	Parallel    int           // members that are asked or closed at once; 0 is 8
	ListTimeout time.Duration // for the whole list of one member; 0 is 30 s
}

// A Group is one agent's many servers: clients under names, whose tools are listed together and called by name. Make one with [NewGroup]. Its methods
// may be called by many goroutines at once.
//
// A tool is called by the member's name, the separator and its own name: "files__read". Which member is meant is always clear, whatever tools
// are called, since [Group.Add] refuses names in which the separator could be seen too early.
type Group struct {
	opts GroupOptions

	mu      sync.Mutex
	members map[string]*Client
	closed  bool
}

var (
	// ErrMemberName is wrapped by the error of [Group.Add] for a name that is taken or cannot be told from a tool's.
	ErrMemberName = errors.New("name cannot be used for a member of the group")
	// ErrNoMember is wrapped by the error for a tool whose name begins with that of no member.
	ErrNoMember = errors.New("no such member of the group")
)

// A MemberError is what went wrong with one member of a [Group].
type MemberError struct {
	Member string
	Err    error
}

func (e *MemberError) Error() string { return fmt.Sprintf("%s: %v", e.Member, e.Err) }

// Unwrap returns Err.
func (e *MemberError) Unwrap() error { return e.Err }

// NewGroup returns a group without members. opts may be nil; it is copied.
func NewGroup(opts *GroupOptions) *Group {
	g := &Group{members: make(map[string]*Client)}
	if opts != nil {
		g.opts = *opts
	}
	if g.opts.Separator == "" {
		g.opts.Separator = "__"
	}
	if g.opts.Parallel <= 0 {
		g.opts.Parallel = 8
	}
	if g.opts.ListTimeout <= 0 {
		g.opts.ListTimeout = 30 * time.Second
	}
	return g
}

// Add makes a client a member, which the group closes in the end. The name must not be taken, not be empty, and not have the separator in it, nor end so
// that one begins there: with "__" between, "my__server" and "server_" are refused with [ErrMemberName]. After [Group.Close] it fails with
// [jsonrpc.ErrClosed]. A client that was not added remains the caller's to close.
func (g *Group) Add(name string, c *Client) error {
	if name == "" || strings.Index(name+g.opts.Separator, g.opts.Separator) != len(name) {
		return fmt.Errorf("add %q: %w: it must not be empty nor hold the separator %q", name, ErrMemberName, g.opts.Separator)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return fmt.Errorf("add %q: group: %w", name, jsonrpc.ErrClosed)
	}
	if g.members[name] != nil {
		return fmt.Errorf("add %q: %w: it is taken", name, ErrMemberName)
	}
	g.members[name] = c
	return nil
}

// Remove takes a member out and returns it, for the caller to close; nil if there is none of that name. Calls under way go on.
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

// Members returns the names of the members, sorted.
func (g *Group) Members() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.members))
}

// Tools lists the tools of all members, under the names by which [Group.CallTool] calls them: by member, and in the order of each server. What a server
// lists twice is there once.
//
// Members that fail do not keep the others' tools back: the error joins a *[MemberError] for each of them.
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

// maxGroupTools bounds the tools of one member, in bytes. No model takes as many.
const maxGroupTools = 64 << 20

// list returns the tools of one member, prefixed, or none.
func (g *Group) list(ctx context.Context, member string, c *Client) ([]mcp.Tool, error) {
	var tools []mcp.Tool
	seen := make(map[string]bool)
	size, text := 0, []byte(nil)
	for tool, err := range c.Tools(ctx) {
		if c.ServerCapabilities().Tools == nil && isMethodNotFound(err) {
			return nil, nil // a server need not have tools
		}
		if err != nil {
			return nil, err
		}
		text = mcp.Append(text[:0], &tool, mcp.RevisionNone)
		if size += len(text); size > maxGroupTools {
			return nil, fmt.Errorf("its tools take more than %d bytes", maxGroupTools)
		}
		if !seen[tool.Name] {
			seen[tool.Name] = true
			tool.Name = member + g.opts.Separator + tool.Name
			tools = append(tools, tool)
		}
	}
	return tools, nil
}

// each does something with all members at once, a bounded number at a time, and joins what goes wrong in the order of the names.
func (g *Group) each(names []string, do func(i int, c *Client) error) error {
	failed := make([]error, len(names))
	turns := make(chan struct{}, g.opts.Parallel)
	var wg sync.WaitGroup
	for i, name := range names {
		c := g.Member(name)
		if c == nil {
			continue // it was removed meanwhile
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

// Route splits the name under which the group knows a tool into the member and the tool's own name, for calls with [CallTool]:
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

// CallTool calls a tool by the name under which the group lists it, see [Client.CallTool]. An error of the member's is a *[MemberError].
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

// Close closes all members and waits for them. The error joins a *[MemberError] for each that failed. It may be called more than once.
func (g *Group) Close() error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	return g.each(g.Members(), func(_ int, c *Client) error { return c.Close() })
}
