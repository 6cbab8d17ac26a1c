package schema

import (
	"bytes"
	"fmt"

	"mcpwire/internal/jsonwire"
)

// unknownEnd is where a value ends if nobody has gone there.
const unknownEnd = -1

// run is one validation. Its methods hold the value that starts at an offset
// against a schema and report whether it is valid. Problems are noted only while
// quiet is 0: within anyOf and the like a failure decides something else. dead
// ends everything, because there are problems enough or a limit was hit; what
// methods report then counts for nothing.
type run struct {
	b        []byte
	steps    int
	maxSteps int
	depth    int
	maxDepth int
	quiet    int
	found    []finding
	dead     bool
	limit    bool
}

// fail notes a problem and returns false.
func (r *run) fail(at int, msg string) bool {
	if r.quiet == 0 && !r.dead {
		r.found = append(r.found, finding{at, msg})
		r.dead = len(r.found) >= maxProblems
	}
	return false
}

// spend counts steps. It reports false when there are none left.
func (r *run) spend(n int) bool {
	if r.steps += n; r.steps > r.maxSteps {
		r.exceed(fmt.Sprintf("checking this value would take more than %d steps", r.maxSteps))
	}
	return !r.dead
}

// exceed ends the run because of a limit. That is always a problem, even where a
// failure would not be.
func (r *run) exceed(msg string) {
	if r.dead {
		return
	}
	r.found = append(r.found, finding{0, msg})
	r.dead, r.limit = true, true
}

// skip returns the end of the value at an offset.
func (r *run) skip(at int) int {
	end := jsonwire.SkipValue(r.b, at)
	r.spend((end - at) / 64)
	return end
}

// eval holds the value at an offset, which is not white space, against a
// schema. end is the index behind it, or unknownEnd.
func (r *run) eval(s *subschema, at int) (end int, ok bool) {
	end, ok = unknownEnd, true
	if !r.spend(1) {
		return end, false
	}
	if s.never {
		return end, r.fail(at, "no value is allowed here")
	}
	c := cursor{b: r.b, i: at}
	t := typeOf(c.space())
	if s.types != 0 && s.types&t == 0 && !(t == typeFloat && s.types&typeInteger != 0 && isInteger(c.number())) {
		return end, r.wrongType(s, at)
	}
	switch {
	case t == typeObject && s.obj != nil:
		end, ok = r.object(s.obj, at)
	case t == typeArray && s.arr != nil:
		end, ok = r.array(s.arr, at)
	case t == typeString && s.str != nil:
		ok = r.string(s, at)
	case t == typeFloat && s.num != nil:
		ok = r.number(s.num, at)
	}
	if s.enum != nil || s.constant != nil {
		ok = r.constants(s, at) && ok
	}
	if s.place != nil && (ok || r.quiet == 0) {
		ok = r.inPlace(s.place, at) && ok
	}
	return end, ok
}

// nested is eval one level deeper, for schemas that are reached from others.
func (r *run) nested(s *subschema, at int) (end int, ok bool) {
	if r.depth++; r.depth > r.maxDepth {
		r.exceed(tooDeep(r.maxDepth))
		return unknownEnd, false
	}
	end, ok = r.eval(s, at)
	r.depth--
	return end, ok
}

// isInteger reports whether a number has no fraction.
func isInteger(tok []byte) bool {
	return !bytes.ContainsAny(tok, ".eE") || parseDecimal(tok).isInteger()
}

func (r *run) wrongType(s *subschema, at int) bool {
	if r.quiet > 0 || r.dead {
		return false
	}
	return r.fail(at, expected(s.types.String(), r.b, at))
}

func (r *run) number(n *numberRule, at int) bool {
	c := cursor{b: r.b, i: at}
	tok := c.number()
	if !r.spend(len(tok) / 64) {
		return false
	}
	if msg := n.check(tok, r.quiet > 0); msg != "" {
		return r.fail(at, msg)
	}
	return true
}

func (r *run) string(s *subschema, at int) bool {
	c := cursor{b: r.b, i: at}
	raw, escaped := c.str()
	cost := len(raw) / 64
	if s.str.pattern != nil {
		cost = (len(raw) + 1) * s.strCost
	}
	if !r.spend(cost) {
		return false
	}
	if msg := s.str.checkRaw(raw, escaped, r.quiet > 0); msg != "" {
		return r.fail(at, msg)
	}
	return true
}

// constants checks enum and const.
func (r *run) constants(s *subschema, at int) bool {
	text := r.b[at:r.skip(at)]
	if !r.spend(len(text) / 16) {
		return false
	}
	for _, e := range [...]*enumRule{s.enum, s.constant} {
		if e == nil || e.has(text) {
			continue
		}
		if r.quiet > 0 {
			return false
		}
		return r.fail(at, e.message(r.b, at))
	}
	return true
}

// try holds a value against a schema without noting problems.
func (r *run) try(s *subschema, at int) bool {
	r.quiet++
	_, ok := r.nested(s, at)
	r.quiet--
	return ok && !r.dead
}

// inPlace applies the schemas that are about the same value.
func (r *run) inPlace(p *inPlace, at int) bool {
	ok := true
	apply := func(s *subschema) bool {
		_, valid := r.nested(s, at)
		ok = ok && valid
		return !r.dead && (ok || r.quiet == 0)
	}
	if p.ref != nil && !apply(p.ref) {
		return false
	}
	for _, s := range p.all {
		if !apply(s) {
			return false
		}
	}
	if p.cond != nil {
		branch := p.els
		if r.try(p.cond, at) {
			branch = p.then
		}
		if r.dead || branch != nil && !apply(branch) {
			return false
		}
	}
	if p.not != nil && r.try(p.not, at) {
		ok = r.fail(at, "matches a schema that it must not match, got "+gotAt(r.b, at))
	}
	if p.any != nil && !r.anyOf(p.any, at) {
		ok = false
	}
	if p.one != nil && !r.oneOf(p.one, at) {
		ok = false
	}
	return ok
}

func (r *run) anyOf(list []*subschema, at int) bool {
	for _, s := range list {
		if r.try(s, at) {
			return true
		}
		if r.dead {
			return false
		}
	}
	return r.noneMatches(list, at)
}

func (r *run) oneOf(list []*subschema, at int) bool {
	first := -1
	for i, s := range list {
		if r.try(s, at) {
			if first >= 0 {
				return r.quiet == 0 && r.fail(at, fmt.Sprintf("matches alternatives %d and %d of %d, but may match only one", first+1, i+1, len(list)))
			}
			first = i
		}
		if r.dead {
			return false
		}
	}
	return first >= 0 || r.noneMatches(list, at)
}

// noneMatches says why no alternative matches, in the order they stand. It asks
// them once more, aloud.
func (r *run) noneMatches(list []*subschema, at int) bool {
	if r.quiet > 0 || r.dead {
		return false
	}
	const shown = 4
	outer := r.found
	msg := "matches none of the alternatives"
	for i, s := range list {
		if i == shown {
			msg += fmt.Sprintf("; and %d more", len(list)-shown)
			break
		}
		r.found = nil
		r.nested(s, at)
		if r.limit {
			r.found = append(outer, r.found[len(r.found)-1])
			return false
		}
		r.dead = false
		if len(r.found) > 0 {
			f := r.found[0]
			msg += fmt.Sprintf("; %d: ", i+1)
			if path := appendPath(nil, pointerAt(r.b[at:], f.at-at)); len(path) > 0 {
				msg += string(path) + ": "
			}
			msg += f.msg
		}
	}
	r.found = outer
	return r.fail(at, msg)
}
