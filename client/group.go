package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"mcpwire/internal/base/defaults"
	"mcpwire/internal/base/wait"
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
	// DialTimeout limits each attempt of [Group.Dial] to connect, including the time of a user who
	// logs in. Zero means 1 min.
	DialTimeout time.Duration
	// MaxDials limits the attempts of [Group.Dial] in a row. Zero means 100; negative means no
	// limit.
	MaxDials int
	// OnDialError is called with each failed attempt of [Group.Dial]. If it returns false, the
	// Group does not try again: an attempt may bother the user if the error is that of a login. It
	// may be called concurrently.
	OnDialError func(member string, err error) (retry bool)
	// OnToolsChanged is called when the result of [Group.Tools] may have changed: a member's server
	// says so, or a member connected or ended for good. It is not called for changes by Add and
	// Remove. Calls come one at a time, on a goroutine of the Group. [Group.Close] waits for them,
	// so it must not call Close.
	OnToolsChanged func()
}

// A Group holds the clients of one agent under names, lists their tools together and calls tools by
// name. Create one with [NewGroup]. Multiple goroutines may call its methods at once.
//
// The group's name for a tool is the member's name, the separator and the tool's own name:
// "files__read". [Group.Add] rejects ambiguous member names, so each name identifies one member.
type Group struct {
	opts GroupOptions
	// goroutines watch and dial the members.
	goroutines wait.Group
	// announcing is held while OnToolsChanged runs.
	announcing sync.Mutex

	mu      sync.Mutex
	members map[string]*member
	closed  bool
}

// A member is one server of a Group.
type member struct {
	// stop ends the goroutine of the member.
	stop context.CancelFunc

	// The Group's mu guards the following fields.

	// client is nil until Group.Dial has connected.
	client *Client
	// err is the last error of Group.Dial while client is nil.
	err error
}

// errRemoved is the error of Dial for a member that was removed before it was connected.
var errRemoved = errors.New("the member was removed")

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
	g := &Group{members: make(map[string]*member)}
	if opts != nil {
		g.opts = *opts
	}
	g.opts.Separator = cmp.Or(g.opts.Separator, "__")
	defaults.IfNotPositive(&g.opts.Parallel, 8)
	defaults.IfNotPositive(&g.opts.ListTimeout, 30*time.Second)
	defaults.IfNotPositive(&g.opts.DialTimeout, time.Minute)
	g.opts.MaxDials = cmp.Or(g.opts.MaxDials, 100)
	return g
}

// Add makes a client a member. [Group.Close] closes it. The name must not be empty or taken, must
// not contain the separator, and must not end with the beginning of one: with "__", "my__server"
// and "server_" are errors. After Close, Add fails with [jsonrpc.ErrClosed]. On error the caller
// still owns the client.
func (g *Group) Add(name string, c *Client) error {
	m := &member{client: c}
	watch := func(ctx context.Context) {
		if g.watch(ctx, c); ctx.Err() == nil {
			g.announce()
		}
	}
	if err := g.add(context.Background(), name, m, watch); err != nil {
		return fmt.Errorf("add %q: %w", name, err)
	}
	return nil
}

// add adds a member and starts run, with a context that ends when the member is removed.
func (g *Group) add(ctx context.Context, name string, m *member, run func(context.Context)) error {
	if name == "" || strings.Index(name+g.opts.Separator, g.opts.Separator) != len(name) {
		return fmt.Errorf("a member's name must not be empty or contain the separator %q", g.opts.Separator)
	}
	ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return fmt.Errorf("group: %w", jsonrpc.ErrClosed)
	}
	if g.members[name] != nil {
		return errors.New("the group has a member of that name")
	}
	g.members[name] = m
	g.goroutines.Start(func() { run(ctx) })
	return nil
}

// Waits between the attempts of Group.Dial, which double with each failure.
const (
	minRedial = time.Second
	maxRedial = 30 * time.Second
)

// Dial connects to a server, as the function [Dial] does, and makes the client a member with a
// valid name for [Group.Add]. If that fails, the error is a *[MemberError], and the Group tries
// again in the background: a server that is down now joins later. The Group also connects again
// when the Client ends, except by its own Close.
//
// Attempts end with [Group.Remove] and [Group.Close], after [GroupOptions.MaxDials] failures in a
// row, and with an error that rules out others: an *[IncompatibleError] or [ErrNoReconnect]. The
// name stays taken until Remove, and lists and calls return the last error for it. ctx limits the
// wait of Dial only: if it ends first, the attempt goes on.
func (g *Group) Dial(ctx context.Context, name string, transport Transport, opts *Options) error {
	m := &member{err: errors.New("not connected yet")}
	first := make(chan error, 1)
	err := g.add(ctx, name, m, func(ctx context.Context) { g.keep(ctx, name, m, transport, opts, first) })
	if err != nil {
		return &MemberError{name, fmt.Errorf("dial: %w", err)}
	}
	select {
	case err = <-first:
	case <-ctx.Done():
		err = fmt.Errorf("dial: %w", context.Cause(ctx))
	}
	if err != nil {
		return &MemberError{name, err}
	}
	return nil
}

// keep keeps a member connected. first receives the result of the first attempt.
func (g *Group) keep(ctx context.Context, name string, m *member, transport Transport, opts *Options, first chan<- error) {
	for failures := 1; ; failures++ {
		dialCtx, cancel := context.WithTimeout(ctx, g.opts.DialTimeout)
		c, err := Dial(dialCtx, transport, opts)
		cancel()
		current := g.set(ctx, m, c, err)
		result := err
		if !current {
			result = cmp.Or(err, errRemoved)
		}
		select {
		case first <- result:
		default: // it has the first
		}
		switch _, incompatible := errors.AsType[*IncompatibleError](err); {
		case !current:
			if c != nil {
				c.Close()
			}
			return
		case err == nil:
			g.announce()
			g.watch(ctx, c)
			closed := c.Err() == nil // by its Close; it stays a member
			if !closed {
				g.set(ctx, m, nil, c.Err())
			}
			if ctx.Err() == nil {
				g.announce()
			}
			if closed || ctx.Err() != nil {
				return
			}
			failures = 0
		case g.opts.OnDialError != nil && !g.opts.OnDialError(name, err),
			incompatible || errors.Is(err, ErrNoReconnect) || failures == g.opts.MaxDials:
			return
		}
		if !wait.Sleep(ctx, wait.Backoff(minRedial, maxRedial, failures, rand.Float64())) {
			return
		}
	}
}

// set sets the client of a member, or the reason why there is none. It returns false if the member
// was removed.
func (g *Group) set(ctx context.Context, m *member, c *Client, err error) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ctx.Err() == nil {
		m.client, m.err = c, err
	}
	return ctx.Err() == nil
}

// watch announces changes of the tools of c, and returns when c or ctx has ended.
func (g *Group) watch(ctx context.Context, c *Client) {
	if tools := c.Profile().Capabilities.Tools; g.opts.OnToolsChanged != nil && tools != nil && tools.ListChanged {
		if s := c.subs.open(ctx, mcp.SubscriptionFilter{ToolsListChanged: true}); s != nil {
			defer s.Close()
			for e, err := range s.Events(ctx) {
				if err == nil && e.Kind != Resubscribed {
					g.announce()
				}
			}
		}
	}
	select {
	case <-ctx.Done():
	case <-c.Done():
	}
}

// announce calls OnToolsChanged.
func (g *Group) announce() {
	if g.opts.OnToolsChanged != nil {
		g.announcing.Lock()
		defer g.announcing.Unlock()
		g.opts.OnToolsChanged()
	}
}

// Remove removes a member and returns its client, which the caller must close. It returns nil if
// the name is unknown or the member is not connected. Calls in flight go on.
func (g *Group) Remove(name string) *Client {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.members[name]
	if m == nil {
		return nil
	}
	delete(g.members, name)
	m.stop()
	return m.client
}

// Member returns the client of the member of that name. It is nil if the name is unknown or the
// member is not connected.
func (g *Group) Member(name string) *Client {
	c, _ := g.member(name)
	return c
}

// member returns the client of a member, or the reason why there is none.
func (g *Group) member(name string) (*Client, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch m := g.members[name]; {
	case m == nil:
		return nil, ErrNoMember
	case m.client == nil:
		return nil, m.err
	default:
		return m.client, nil
	}
}

// Members returns the sorted names of the members, also of those that are not connected.
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
	err := g.each(names, func(i int) error {
		c, err := g.member(names[i])
		if c == nil {
			if err == ErrNoMember {
				err = nil // removed meanwhile
			}
			return err
		}
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
func (g *Group) each(names []string, do func(i int) error) error {
	failed := make([]error, len(names))
	turns := make(chan struct{}, g.opts.Parallel)
	var wg sync.WaitGroup
	for i, name := range names {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			if err := do(i); err != nil {
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
// The error wraps [ErrNoMember], or is a *[MemberError] if the member is not connected.
func (g *Group) Route(name string) (c *Client, tool string, err error) {
	member, tool, found := strings.Cut(name, g.opts.Separator)
	if found {
		c, err = g.member(member)
	}
	switch {
	case c != nil:
		return c, tool, nil
	case err != nil && err != ErrNoMember:
		return nil, "", &MemberError{member, err}
	default:
		return nil, "", fmt.Errorf("tool %q: %w: names begin with one of %q and %q", name, ErrNoMember, g.Members(), g.opts.Separator)
	}
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

// Close closes all members and waits for them, and for the goroutines of the Group. The error joins
// a *[MemberError] for each failure. Close may be called more than once.
func (g *Group) Close() error {
	g.mu.Lock()
	g.closed = true
	for _, m := range g.members {
		m.stop()
	}
	g.mu.Unlock()
	names := g.Members()
	err := g.each(names, func(i int) error {
		if c := g.Member(names[i]); c != nil {
			return c.Close()
		}
		return nil
	})
	g.goroutines.Wait()
	return err
}
