package schema

import (
	"bytes"
	"fmt"

	"mcpwire/internal/jsonwire"
)

// endUnknown is where a value ends if nobody has gone there.
const endUnknown = -1

// validation is one validation. Its methods hold the value that starts at an offset
// against a schema and report whether it is valid. Problems are noted only while
// quiet is 0: within anyOf and the like a failure decides something else. dead
// ends everything, because there are problems enough or a limit was hit; what
// methods report then counts for nothing.
type validation struct {
	b        []byte
	steps    int
	maxSteps int
	depth    int
	maxDepth int
	muted    int
	found    []finding
	stopped  bool
	limit    bool
}

// fail notes a problem and returns false.
func (v *validation) fail(at int, msg string) bool {
	if v.muted == 0 && !v.stopped {
		v.found = append(v.found, finding{at, msg})
		v.stopped = len(v.found) >= maxProblems
	}
	return false
}

// spend counts steps. It reports false when there are none left.
func (v *validation) spend(n int) bool {
	if v.steps += n; v.steps > v.maxSteps {
		v.exceed(fmt.Sprintf("checking this value would take more than %d steps", v.maxSteps))
	}
	return !v.stopped
}

// exceed ends the run because of a limit. That is always a problem, even where a
// failure would not be.
func (v *validation) exceed(msg string) {
	if v.stopped {
		return
	}
	v.found = append(v.found, finding{0, msg})
	v.stopped, v.limit = true, true
}

// skip returns the end of the value at an offset.
func (v *validation) skip(at int) int {
	end := jsonwire.SkipValue(v.b, at)
	v.spend((end - at) / 64)
	return end
}

// eval holds the value at an offset, which is not white space, against a
// schema. end is the index behind it, or endUnknown.
func (v *validation) eval(s *subschema, at int) (end int, ok bool) {
	end, ok = endUnknown, true
	if !v.spend(1) {
		return end, false
	}
	if s.never {
		return end, v.fail(at, "no value is allowed here")
	}
	c := cursor{b: v.b, i: at}
	t := typeOf(c.space())
	if s.types != 0 && s.types&t == 0 && !(t == typeFloat && s.types&typeInteger != 0 && isInteger(c.number())) {
		return end, v.wrongType(s, at)
	}
	switch {
	case t == typeObject && s.obj != nil:
		end, ok = v.object(s.obj, at)
	case t == typeArray && s.arr != nil:
		end, ok = v.array(s.arr, at)
	case t == typeString && s.str != nil:
		ok = v.string(s, at)
	case t == typeFloat && s.num != nil:
		ok = v.number(s.num, at)
	}
	if s.enum != nil || s.constant != nil {
		ok = v.constants(s, at) && ok
	}
	if s.applicators != nil && (ok || v.muted == 0) {
		ok = v.applicators(s.applicators, at) && ok
	}
	return end, ok
}

// evalNested is eval one level deeper, for schemas that are reached from others.
func (v *validation) evalNested(s *subschema, at int) (end int, ok bool) {
	if v.depth++; v.depth > v.maxDepth {
		v.exceed(tooDeep(v.maxDepth))
		return endUnknown, false
	}
	end, ok = v.eval(s, at)
	v.depth--
	return end, ok
}

// isInteger reports whether a number has no fraction.
func isInteger(tok []byte) bool {
	return !bytes.ContainsAny(tok, ".eE") || parseDecimal(tok).isInteger()
}

func (v *validation) wrongType(s *subschema, at int) bool {
	if v.muted > 0 || v.stopped {
		return false
	}
	return v.fail(at, expected(s.types.String(), v.b, at))
}

func (v *validation) number(n *numberRule, at int) bool {
	c := cursor{b: v.b, i: at}
	tok := c.number()
	if !v.spend(len(tok) / 64) {
		return false
	}
	if msg := n.check(tok, v.muted > 0); msg != "" {
		return v.fail(at, msg)
	}
	return true
}

func (v *validation) string(s *subschema, at int) bool {
	c := cursor{b: v.b, i: at}
	raw, escaped := c.str()
	cost := len(raw) / 64
	if s.str.pattern != nil {
		cost = (len(raw) + 1) * s.strCost
	}
	if !v.spend(cost) {
		return false
	}
	if msg := s.str.checkRaw(raw, escaped, v.muted > 0); msg != "" {
		return v.fail(at, msg)
	}
	return true
}

// constants checks enum and const.
func (v *validation) constants(s *subschema, at int) bool {
	text := v.b[at:v.skip(at)]
	if !v.spend(len(text) / 16) {
		return false
	}
	for _, e := range [...]*enumRule{s.enum, s.constant} {
		if e == nil || e.has(text) {
			continue
		}
		if v.muted > 0 {
			return false
		}
		return v.fail(at, e.message(v.b, at))
	}
	return true
}

// matches holds a value against a schema without noting problems.
func (v *validation) matches(s *subschema, at int) bool {
	v.muted++
	_, ok := v.evalNested(s, at)
	v.muted--
	return ok && !v.stopped
}

// applicators applies the schemas that are about the same value.
func (v *validation) applicators(p *applicators, at int) bool {
	ok := true
	apply := func(s *subschema) bool {
		_, valid := v.evalNested(s, at)
		ok = ok && valid
		return !v.stopped && (ok || v.muted == 0)
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
		if v.matches(p.cond, at) {
			branch = p.then
		}
		if v.stopped || branch != nil && !apply(branch) {
			return false
		}
	}
	if p.not != nil && v.matches(p.not, at) {
		ok = v.fail(at, "matches a schema that it must not match, got "+gotAt(v.b, at))
	}
	if p.any != nil && !v.anyOf(p.any, at) {
		ok = false
	}
	if p.one != nil && !v.oneOf(p.one, at) {
		ok = false
	}
	return ok
}

func (v *validation) anyOf(list []*subschema, at int) bool {
	for _, s := range list {
		if v.matches(s, at) {
			return true
		}
		if v.stopped {
			return false
		}
	}
	return v.noneMatches(list, at)
}

func (v *validation) oneOf(list []*subschema, at int) bool {
	first := -1
	for i, s := range list {
		if v.matches(s, at) {
			if first >= 0 {
				return v.muted == 0 && v.fail(at, fmt.Sprintf("matches alternatives %d and %d of %d, but may match only one", first+1, i+1, len(list)))
			}
			first = i
		}
		if v.stopped {
			return false
		}
	}
	return first >= 0 || v.noneMatches(list, at)
}

// noneMatches says why no alternative matches, in the order they stand. It asks
// them once more, aloud.
func (v *validation) noneMatches(list []*subschema, at int) bool {
	if v.muted > 0 || v.stopped {
		return false
	}
	const shown = 4
	outer := v.found
	msg := "matches none of the alternatives"
	for i, s := range list {
		if i == shown {
			msg += fmt.Sprintf("; and %d more", len(list)-shown)
			break
		}
		v.found = nil
		v.evalNested(s, at)
		if v.limit {
			v.found = append(outer, v.found[len(v.found)-1])
			return false
		}
		v.stopped = false
		if len(v.found) > 0 {
			f := v.found[0]
			msg += fmt.Sprintf("; %d: ", i+1)
			if path := appendPath(nil, pointerAt(v.b[at:], f.at-at)); len(path) > 0 {
				msg += string(path) + ": "
			}
			msg += f.msg
		}
	}
	v.found = outer
	return v.fail(at, msg)
}
