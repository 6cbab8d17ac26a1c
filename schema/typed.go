package schema

import (
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"mcpwire/internal/json/jsonwire"
)

// Options are the options of [Of]. Nil means the zero value.
type Options struct {
	// AllowUnknown ignores members without a struct field. By default they are rejected, so that a
	// misspelled argument is noticed.
	AllowUnknown bool
	// AllowQuoted accepts a number or a boolean as the text of a string, such as "2" for 2, because
	// some models send that. The schema does not mention it.
	AllowQuoted bool
	// UseNumber decodes each number in an any as a json.Number. By default it becomes a float64,
	// except integers beyond 2^53 and numbers too large for a float64, which become a json.Number.
	UseNumber bool
	// MaxDepth limits how deeply values nest, in both directions, in levels. Zero means 512.
	MaxDepth int
	// Engine compiles the schemas of JSONSchema methods with keywords that [Compile] does not
	// cover. Nil means that they are errors.
	Engine Engine
	// Types has JSON Schemas for types without a method JSONSchema, such as those of other
	// packages. They apply as that of a [Schemer] does, and in place of it.
	Types map[reflect.Type]json.RawMessage
}

// A Typed is a Go type, compiled to decode, to encode and to make its schema. It is immutable, and
// many goroutines may use it at once.
type Typed[T any] struct {
	plan *plan
}

// plan is Typed without its type parameter, so that the code exists once.
type plan struct {
	opts Options
	root *node
	json []byte

	dynamic sync.Map // reflect.Type to *node or error, for values in an any
}

// Of compiles T, which takes tens of microseconds. Do it once, at registration.
//
// The error says which field of which type cannot be used, and why: a kind without a JSON form
// (chan, func, complex), or an invalid tag.
func Of[T any](opts *Options) (*Typed[T], error) {
	p, err := newPlan(reflect.TypeFor[T](), opts)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	return &Typed[T]{plan: p}, nil
}

// JSON returns the JSON Schema (2020-12) of T in one line. The caller must not change it.
func (t *Typed[T]) JSON() []byte { return t.plan.json }

// IsObject reports whether every value is a JSON object, as the arguments of a tool must be.
func (t *Typed[T]) IsObject() bool {
	return string(jsonwire.Lookup(t.plan.json, "type")) == `"object"`
}

// Decode validates text by the schema and decodes it into *v, which it clears first. text must be
// valid JSON; Decode does not keep it. If a member is absent, its field has its default or is zero.
//
// The error is an [*Error] with up to eight problems. Do not use *v after an error.
func (t *Typed[T]) Decode(text []byte, v *T) error {
	var zero T
	*v = zero
	d := decoder{cursor: cursor{b: text}, plan: t.plan}
	d.value(t.plan.root, addressOf(v))
	if len(d.found) == 0 {
		return nil
	}
	return newError(text, d.found, d.limit)
}

// Append appends *v to dst as JSON on one line. It checks the constraints that Decode checks.
//
// A nil slice becomes [] and a nil map {}. Invalid UTF-8 becomes U+FFFD. The error is an [*Error]
// whose Root is "result" if the value breaks a constraint, is NaN, infinite or too deep. Other
// errors wrap those of methods such as MarshalJSON. After an error the returned slice equals dst.
func (t *Typed[T]) Append(dst []byte, v *T) ([]byte, error) {
	e := encoder{dst: dst, start: len(dst), plan: t.plan}
	e.value(t.plan.root, addressOf(v))
	if e.err == nil && len(e.found) == 0 {
		return e.dst, nil
	}
	return dst, e.toError()
}

func newPlan(t reflect.Type, opts *Options) (*plan, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.MaxDepth <= 0 {
		o.MaxDepth = jsonwire.DefaultMaxDepth
	}
	return newBuilder(o).plan(t)
}

// plan compiles a root type.
func (b *builder) plan(t reflect.Type) (*plan, error) {
	p := &plan{opts: b.opts}
	root, err := b.node(t)
	if err != nil {
		return nil, err
	}
	if err := b.finish(); err != nil {
		return nil, err
	}
	p.root = root.notNull()
	if p.json, err = generate(p.root); err != nil {
		return nil, err
	}
	return p, p.checkDefaults(b.structs)
}

// notNull returns the node for the root: there a pointer may not be null, since
// a missing value is for the caller to notice.
func (n *node) notNull() *node {
	if n.dec != opPointer {
		return n
	}
	c := *n
	c.elem = n.elem.notNull()
	c.required = true
	return &c
}

// checkDefaults makes sure that filling in a default cannot fail later.
func (p *plan) checkDefaults(structs []*structPlan) error {
	for _, s := range structs {
		for i := range s.fields {
			f := &s.fields[i]
			if f.defaultValue == nil {
				continue
			}
			d := decoder{cursor: cursor{b: f.defaultValue}, plan: p}
			d.value(f.node, newAddress(f.node.typ))
			if len(d.found) > 0 {
				err := newError(f.defaultValue, d.found, false)
				err.Root = "default of " + f.name
				return err
			}
		}
	}
	return nil
}

// node returns the node for a type found only in a value.
func (p *plan) node(t reflect.Type) (*node, error) {
	if n, ok := p.dynamic.Load(t); ok {
		if err, failed := n.(error); failed {
			return nil, err
		}
		return n.(*node), nil
	}
	b := newBuilder(p.opts)
	n, err := b.node(t)
	if err == nil {
		err = b.finish()
	}
	if err != nil {
		p.dynamic.Store(t, err)
		return nil, err
	}
	p.dynamic.Store(t, n)
	return n, nil
}
