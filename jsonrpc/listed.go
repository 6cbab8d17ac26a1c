package jsonrpc

import "iter"

// A listing holds requests by their ids. Most connections have one at a time, which takes no further memory.
type listing struct {
	one  *Request            // with a short id; nil if there is none
	more map[string]*Request // the others, by canonical id; nil until there was one
	n    int                 // bytes of id
	id   [24]byte            // canonical, of one
}

// get returns the request with that id; nil if there is none.
func (l *listing) get(id ID) *Request {
	key := id.canonical()
	if l.one != nil && string(l.id[:l.n]) == string(key) {
		return l.one
	}
	return l.more[string(key)]
}

// add lists a request.
func (l *listing) add(r *Request) {
	key := r.ID.canonical()
	if l.one == nil && len(key) <= len(l.id) {
		l.one, l.n = r, copy(l.id[:], key)
		return
	}
	if l.more == nil {
		l.more = make(map[string]*Request)
	}
	r.key = string(key)
	l.more[r.key] = r
}

// remove takes a request out, and reports whether it was listed. Its id may be another's by now.
func (l *listing) remove(r *Request) bool {
	switch r {
	case l.one:
		l.one = nil
	case l.more[r.key]:
		delete(l.more, r.key)
	default:
		return false
	}
	return true
}

func (l *listing) len() int {
	if l.one == nil {
		return len(l.more)
	}
	return len(l.more) + 1
}

// all ranges over the requests, in no order.
func (l *listing) all() iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		if l.one != nil && !yield(l.one) {
			return
		}
		for _, r := range l.more {
			if !yield(r) {
				return
			}
		}
	}
}
