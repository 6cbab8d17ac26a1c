package schema

import (
	"bytes"
	"errors"
	"fmt"

	"mcpwire/internal/json/decimal"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/clip"
	"mcpwire/internal/text/plural"
)

// An Engine is a complete JSON Schema implementation for what [Compile] does not cover. It compiles
// a schema, which is JSON without white space, to a function that validates JSON texts. It must not
// fetch anything. The function may be called concurrently. If it returns an [*Error], the caller of
// Validate gets that.
type Engine func(schema []byte) (func(instance []byte) error, error)

// Limits bound the work of one Validate.
type Limits struct {
	// MaxSteps limits the steps of a validation. A step checks one value by one schema, passes one
	// member or element, or reads 64 bytes of text, or one byte of a text with a pattern of usual
	// size. A step takes about 20 ns. Zero means 2 million and 8 for each byte of the instance, but
	// at most 200 million.
	MaxSteps int
	// MaxDepth limits how deeply schemas are applied within one another, in levels. Zero means
	// 4096, several for each level of the deepest instance.
	MaxDepth int
}

const (
	defaultMaxSteps     = 2_000_000
	defaultStepsPerByte = 8
	maxDefaultSteps     = 200_000_000
	defaultMaxDepth     = 4096
)

// A Validator is a compiled JSON Schema. It is immutable, and many goroutines may use it at once.
type Validator struct {
	text   []byte
	root   *subschema
	full   func([]byte) error // instead of root
	limits Limits
}

// Compile compiles a hand-written JSON Schema of draft 2020-12
// (https://json-schema.org/draft/2020-12/json-schema-core) to a validator that reads the bytes of a
// value. text may be any JSON text; Compile keeps a copy.
//
// The engine compiles the whole schema if it uses something that Compile does not cover: the
// keywords unevaluatedItems, unevaluatedProperties, $dynamicRef, $vocabulary and dependencies, an
// $id below the root, a $ref to another document, another draft in $schema, or a pattern that Go's
// regexp does not support. If engine is nil, such a schema is an error, which names the keyword and
// its place. Nothing is ever fetched. format and the content keywords are not checked.
func Compile(text []byte, engine Engine) (*Validator, error) {
	if err := jsonwire.Valid(text, 0); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	v := &Validator{text: jsonwire.AppendCompact(nil, text)}
	c := cursor{b: v.text}
	if found := c.duplicates(1); len(found) > 0 {
		return nil, fmt.Errorf("schema: #%s: %s", pointerAt(v.text, found[0].at), found[0].msg)
	}
	var err error
	v.root, err = compileSchema(v.text)
	var lacking *unsupportedError
	if errors.As(err, &lacking) && engine != nil {
		v.root = nil
		if v.full, err = engine(v.text); err != nil {
			err = fmt.Errorf("schema: engine: %w", err)
		}
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// JSON returns the schema in one line. The caller must not change it.
func (v *Validator) JSON() []byte { return v.text }

// WithLimits returns a validator of the same schema with other limits. They do not apply to an
// engine.
func (v *Validator) WithLimits(l Limits) *Validator {
	c := *v
	c.limits = l
	return &c
}

// Validate validates text, which must be valid JSON, and does not keep it. The error is an [*Error]
// with up to eight problems. A duplicate member name is also an error, though JSON Schema has no
// rule for it.
func (v *Validator) Validate(text []byte) error {
	c := cursor{b: text}
	if ch := c.space(); ch == '{' || ch == '[' {
		if found := c.duplicates(maxProblems); len(found) > 0 {
			return newError(text, found, false)
		}
	}
	if v.full != nil {
		return v.runEngine(text)
	}
	found, limit := v.findings(text, 0)
	if len(found) == 0 {
		return nil
	}
	return newError(text, found, limit)
}

// engineFindings turns what an engine says about the value at an offset into
// findings there: an engine knows paths, not offsets.
func engineFindings(err error, at int) (found []finding) {
	var e *Error
	errors.As(err, &e)
	for _, p := range e.Problems {
		msg := p.Message
		if path := appendPath(nil, p.Pointer); len(path) > 0 {
			msg = string(path) + ": " + msg
		}
		found = append(found, finding{at, msg})
	}
	return found
}

// runEngine makes sure that what comes back is an *Error.
func (v *Validator) runEngine(text []byte) error {
	err := v.full(text)
	var e *Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return &Error{Problems: []Problem{{Message: clip.String(err.Error(), maxErrorText)}}}
}

// findings validates the value at or after text[at].
func (v *Validator) findings(text []byte, at int) (found []finding, limit bool) {
	c := cursor{b: text, i: at}
	c.space()
	if v.full != nil {
		at := c.i
		err := v.runEngine(c.value())
		if err == nil {
			return nil, false
		}
		return engineFindings(err, at), errors.Is(err, ErrLimit)
	}
	r := validation{b: text, maxSteps: v.limits.MaxSteps, maxDepth: v.limits.MaxDepth}
	if r.maxSteps <= 0 {
		r.maxSteps = min(defaultMaxSteps+defaultStepsPerByte*(len(text)-at), maxDefaultSteps)
	}
	if r.maxDepth <= 0 {
		r.maxDepth = defaultMaxDepth
	}
	r.eval(v.root, c.i)
	return r.found, r.limit
}

// endUnknown stands for the end of a value that was not read to its end.
const endUnknown = -1

// validation is one validation. Its methods check the value that starts at an offset against a
// schema and report whether it is valid. Problems are noted only while quiet is 0: within anyOf and
// the like a failure decides something else. dead ends everything, because there are problems
// enough or a limit was hit; what methods report then counts for nothing.
type validation struct {
	b          []byte
	steps      int
	maxSteps   int
	depth      int
	maxDepth   int
	discarding int
	found      []finding
	stopped    bool
	limit      bool
}

// fail notes a problem and returns false.
func (v *validation) fail(at int, msg string) bool {
	if v.discarding == 0 && !v.stopped {
		v.found = append(v.found, finding{at, msg})
		v.stopped = len(v.found) >= maxProblems
	}
	return false
}

// check notes the problem msg unless it is "", and reports whether it is.
func (v *validation) check(at int, msg string) bool { return msg == "" || v.fail(at, msg) }

// failure returns the first problem of a value with a schema that it does not match, or nil.
// It reports false if a limit ended the check.
func (v *validation) failure(s *subschema, at int) (f *finding, ok bool) {
	outer := v.found
	v.found = nil
	v.evalNested(s, at)
	if v.limit {
		v.found = append(outer, v.found[len(v.found)-1])
		return nil, false
	}
	if len(v.found) > 0 {
		f = &v.found[0]
	}
	v.found, v.stopped = outer, false
	return f, true
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
	if s.applicators != nil && (ok || v.discarding == 0) {
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
	return !bytes.ContainsAny(tok, ".eE") || decimal.Parse(tok).IsInteger()
}

func (v *validation) wrongType(s *subschema, at int) bool {
	if v.discarding > 0 || v.stopped {
		return false
	}
	return v.fail(at, expected(s.types.String(), v.b, at))
}

func (v *validation) number(n *numberRule, at int) bool {
	c := cursor{b: v.b, i: at}
	tok := c.number()
	return v.spend(len(tok)/64) && v.check(at, n.check(tok, v.discarding > 0))
}

func (v *validation) string(s *subschema, at int) bool {
	c := cursor{b: v.b, i: at}
	raw, escaped := c.str()
	cost := len(raw) / 64
	if s.str.pattern != nil {
		cost = (len(raw) + 1) * s.strCost
	}
	return v.spend(cost) && v.check(at, s.str.checkRaw(raw, escaped, v.discarding > 0))
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
		if v.discarding > 0 {
			return false
		}
		return v.fail(at, e.message(v.b, at))
	}
	return true
}

// matches holds a value against a schema without noting problems.
func (v *validation) matches(s *subschema, at int) bool {
	v.discarding++
	_, ok := v.evalNested(s, at)
	v.discarding--
	return ok && !v.stopped
}

// applicators applies the schemas that are about the same value.
func (v *validation) applicators(p *applicators, at int) bool {
	ok := true
	apply := func(s *subschema) bool {
		_, valid := v.evalNested(s, at)
		ok = ok && valid
		return !v.stopped && (ok || v.discarding == 0)
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
				return v.discarding == 0 && v.fail(at, fmt.Sprintf("matches alternatives %d and %d of %d, but may match only one", first+1, i+1, len(list)))
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
	if v.discarding > 0 || v.stopped {
		return false
	}
	const shown = 4
	msg := "matches none of the alternatives"
	for i, s := range list {
		if i == shown {
			msg += fmt.Sprintf("; and %d more", len(list)-shown)
			break
		}
		f, ok := v.failure(s, at)
		if !ok {
			return false
		}
		if f != nil {
			msg += fmt.Sprintf("; %d: ", i+1)
			if path := appendPath(nil, pointerAt(v.b[at:], f.at-at)); len(path) > 0 {
				msg += string(path) + ": "
			}
			msg += f.msg
		}
	}
	return v.fail(at, msg)
}

// object checks the members of the object at an offset, each once.
func (v *validation) object(o *objectRule, at int) (end int, ok bool) {
	var small [4]uint64
	seen := small[:]
	if len(o.members) > 64*len(small) {
		seen = make([]uint64, (len(o.members)+63)/64)
	}
	ok = true
	count := 0
	c := cursor{b: v.b, i: at}
	for more := c.open(); more; more = c.more() {
		count++
		nameAt := c.i
		raw, escaped := c.name()
		known := -1
		if len(o.members) > 0 || len(o.patterns) > 0 {
			if known = o.member(unquoted(raw, escaped)); known >= 0 {
				seen[known/64] |= 1 << (known % 64)
			}
		}
		if o.propName != nil && !v.propertyName(o.propName, nameAt, raw) {
			ok = false
		}
		valueEnd, valid := v.memberValue(o, known, nameAt, c.i)
		ok = ok && valid
		if !v.spend(1) || !ok && v.discarding > 0 {
			return endUnknown, false
		}
		if valueEnd == endUnknown {
			valueEnd = v.skip(c.i)
		}
		c.i = max(valueEnd, c.i)
	}
	if o.count != nil {
		ok = v.check(at, o.count.check(count, "property", v.discarding > 0)) && ok
	}
	return c.i, v.presence(o, seen, at) && ok
}

// propertyName holds a member's name against propertyNames. A name in its quotes
// is a JSON string like any other.
func (v *validation) propertyName(s *subschema, nameAt int, raw []byte) bool {
	if v.matches(s, nameAt) {
		return true
	}
	if v.discarding > 0 || v.stopped {
		return false
	}
	f, ok := v.failure(s, nameAt)
	if !ok {
		return false
	}
	msg := "property name " + quoteRaw(raw)
	if f != nil {
		msg += ": " + f.msg
	}
	return v.fail(nameAt, msg)
}

// memberValue holds a member's value against the schemas its name selects.
func (v *validation) memberValue(o *objectRule, known, nameAt, at int) (end int, ok bool) {
	end, ok = endUnknown, true
	selected := false
	if known >= 0 && o.members[known].schema != nil {
		selected = true
		end, ok = v.evalNested(o.members[known].schema, at)
	}
	if len(o.patterns) > 0 {
		c := cursor{b: v.b, i: nameAt}
		name := unquoted(c.str())
		for _, p := range o.patterns {
			if !v.spend((len(name) + 1) * p.cost) {
				return end, false
			}
			if p.re.Match(name) {
				selected = true
				e, valid := v.evalNested(p.schema, at)
				end, ok = max(end, e), ok && valid
			}
		}
	}
	if selected || o.additional == nil {
		return end, ok
	}
	if o.additional.never {
		if v.discarding > 0 || v.stopped {
			return end, false
		}
		c := cursor{b: v.b, i: nameAt}
		raw, _ := c.str()
		return end, v.fail(nameAt, unknownProperty(raw, o.names))
	}
	return v.evalNested(o.additional, at)
}

// presence checks what depends on which members there are.
func (v *validation) presence(o *objectRule, seen []uint64, at int) bool {
	ok := true
	has := func(k int) bool { return seen[k/64]>>(k%64)&1 != 0 }
	for _, k := range o.required {
		if has(k) {
			continue
		}
		if v.discarding > 0 {
			return false
		}
		ok = v.fail(at, missingProperty(o.members[k].name))
	}
	for _, d := range o.dependencies {
		if !has(d.name) {
			continue
		}
		for _, k := range d.required {
			if !has(k) {
				if v.discarding > 0 {
					return false
				}
				ok = v.fail(at, missingProperty(o.members[k].name)+", which "+quote(o.members[d.name].name)+" requires")
			}
		}
		if d.schema != nil {
			_, valid := v.evalNested(d.schema, at)
			if ok = ok && valid; !ok && v.discarding > 0 {
				return false
			}
		}
	}
	return ok
}

// array checks the elements of the array at an offset.
func (v *validation) array(a *arrayRule, at int) (end int, ok bool) {
	ok = true
	count, matching := 0, 0
	c := cursor{b: v.b, i: at}
	for more := c.open(); more; more = c.more() {
		var s *subschema
		switch {
		case count < len(a.prefix):
			s = a.prefix[count]
		case a.items != nil && a.items.never:
			return endUnknown, v.tooManyItems(a, c.i)
		default:
			s = a.items
		}
		itemEnd := endUnknown
		if s != nil {
			var valid bool
			itemEnd, valid = v.evalNested(s, c.i)
			ok = ok && valid
		}
		if a.contains != nil && v.matches(a.contains, c.i) {
			matching++
		}
		count++
		if !v.spend(1) || !ok && v.discarding > 0 {
			return endUnknown, false
		}
		if itemEnd == endUnknown {
			itemEnd = v.skip(c.i)
		}
		c.i = max(itemEnd, c.i)
	}
	if a.count != nil {
		ok = v.check(at, a.count.check(count, "item", v.discarding > 0)) && ok
	}
	if a.contains != nil {
		if msg := a.matches.check(matching, "item", v.discarding > 0); msg != "" {
			ok = v.fail(at, msg+" matching the schema of contains")
		}
	}
	if a.unique && !v.unique(at, c.i) {
		ok = false
	}
	return c.i, ok
}

func (v *validation) tooManyItems(a *arrayRule, at int) bool {
	if len(a.prefix) == 0 {
		return v.fail(at, "no items are allowed here")
	}
	return v.fail(at, fmt.Sprintf("expected at most %s", plural.Of(len(a.prefix), "item")))
}

func (v *validation) unique(at, end int) bool {
	msg := equalItems(v.b[at:end], func(bytes int) bool { return v.spend(1 + bytes/8) })
	return !v.stopped && v.check(at, msg)
}
