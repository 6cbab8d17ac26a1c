package jsonrpc

import "iter"

// A listing holds requests by their ids. Most connections have one at a time, which takes no further memory.
type requestSet struct {
	single *Request            // with a short id; nil if there is none
	rest   map[string]*Request // the others, by canonical id; nil until there was one
	idLen  int                 // bytes of id
	id     [24]byte            // canonical, of one
}

// get returns the request with that id; nil if there is none.
func (s *requestSet) get(id ID) *Request {
	key := id.canonical()
	if s.single != nil && string(s.id[:s.idLen]) == string(key) {
		return s.single
	}
	return s.rest[string(key)]
}

// add lists a request.
func (s *requestSet) add(r *Request) {
	key := r.ID.canonical()
	if s.single == nil && len(key) <= len(s.id) {
		s.single, s.idLen = r, copy(s.id[:], key)
		return
	}
	if s.rest == nil {
		s.rest = make(map[string]*Request)
	}
	r.key = string(key)
	s.rest[r.key] = r
}

// remove takes a request out, and reports whether it was listed. Its id may be another's by now.
func (s *requestSet) remove(r *Request) bool {
	switch r {
	case s.single:
		s.single = nil
	case s.rest[r.key]:
		delete(s.rest, r.key)
	default:
		return false
	}
	return true
}

func (s *requestSet) len() int {
	if s.single == nil {
		return len(s.rest)
	}
	return len(s.rest) + 1
}

// all ranges over the requests, in no order.
func (s *requestSet) all() iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		if s.single != nil && !yield(s.single) {
			return
		}
		for _, r := range s.rest {
			if !yield(r) {
				return
			}
		}
	}
}
