package mock

import (
	"slices"

	"mcpwire/jsonrpc"
)

// A cursor names a list of entries, of which the client has been given some.
type cursor struct {
	first *entry
	loose bool
}

// candidates returns the recorded requests that a request may be, in their order, and the cursor for them.
func (p *peer) candidates(modern bool, m *jsonrpc.Message) ([]*entry, cursor) {
	known := p.srv.tape.methods[methodKey{modern, string(m.Method)}]
	if known == nil {
		return nil, cursor{}
	}
	s := shapeOf(string(m.Method), m.Params, nil)
	list := known.lookup(string(m.Method), m.Params, s)
	loose := false
	if len(list) == 0 && p.srv.opts.Loose {
		list, loose = known.byTarget[lookupKey{round: s.round, target: s.target}], true
	}
	if len(list) == 0 {
		return nil, cursor{}
	}
	if s.round {
		list = prefer(list, func(e *entry) bool { return e.shape.state == s.state })
		list = prefer(list, func(e *entry) bool { return e.shape.inputs == s.inputs })
	}
	list = prefer(list, func(e *entry) bool { return e.shape.meta == s.meta })
	if of := p.bound(modern); of != nil {
		own := prefer(list, func(e *entry) bool { return e.of == of })
		if p.srv.opts.Once && len(own) < len(list) {
			others := slices.DeleteFunc(slices.Clone(list), func(e *entry) bool { return e.of == of })
			own = append(slices.Clone(own), others...)
		}
		list = own
	}
	return list, cursor{list[0], loose}
}

// prefer returns those of a list that are right, or all of it if none is.
func prefer(list []*entry, right func(*entry) bool) []*entry {
	var some []*entry
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
func (p *peer) next(modern bool, m *jsonrpc.Message) *entry {
	list, at := p.candidates(modern, m)
	if len(list) == 0 {
		return nil
	}
	i := p.cursors[at]
	if i >= len(list) {
		if p.srv.opts.Once {
			return nil
		}
		i = len(list) - 1
	}
	p.cursors[at] = i + 1
	return list[i]
}
