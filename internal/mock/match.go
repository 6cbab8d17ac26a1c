package mock

import (
	"slices"

	"mcpwire/jsonrpc"
)

// A cursor names a list of entries, of which the client has been given some.
type cursor struct {
	first *exchange
	loose bool
}

// candidates returns the recorded requests that a request may be, in their order, and the cursor for them.
func (c *conn) candidates(modern bool, m *jsonrpc.Message) ([]*exchange, cursor) {
	known := c.srv.recording.methods[methodKey{modern, string(m.Method)}]
	if known == nil {
		return nil, cursor{}
	}
	s := matchKeyOf(string(m.Method), m.Params, nil)
	list := known.lookup(string(m.Method), m.Params, s)
	loose := false
	if len(list) == 0 && c.srv.opts.Loose {
		list, loose = known.byTarget[lookupKey{isInputRound: s.isInputRound, target: s.target}], true
	}
	if len(list) == 0 {
		return nil, cursor{}
	}
	if s.isInputRound {
		list = preferred(list, func(e *exchange) bool { return e.matchKey.state == s.state })
		list = preferred(list, func(e *exchange) bool { return e.matchKey.inputs == s.inputs })
	}
	list = preferred(list, func(e *exchange) bool { return e.matchKey.meta == s.meta })
	if of := c.preferredSession(modern); of != nil {
		own := preferred(list, func(e *exchange) bool { return e.session == of })
		if c.srv.opts.Once && len(own) < len(list) {
			others := slices.DeleteFunc(slices.Clone(list), func(e *exchange) bool { return e.session == of })
			own = append(slices.Clone(own), others...)
		}
		list = own
	}
	return list, cursor{list[0], loose}
}

// preferred returns those of a list that are right, or all of it if none is.
func preferred(list []*exchange, right func(*exchange) bool) []*exchange {
	var some []*exchange
	for _, e := range list {
		if right(e) {
			some = append(some, e)
		}
	}
	if len(some) == 0 {
		return list
	}
	return some
}

// next returns the entry whose turn it is; nil if there is none, or no more.
func (c *conn) next(modern bool, m *jsonrpc.Message) *exchange {
	list, at := c.candidates(modern, m)
	if len(list) == 0 {
		return nil
	}
	i := c.cursors[at]
	if i >= len(list) {
		if c.srv.opts.Once {
			return nil
		}
		i = len(list) - 1
	}
	c.cursors[at] = i + 1
	return list[i]
}
