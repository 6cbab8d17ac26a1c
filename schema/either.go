package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
)

// An Either is a value of type A or of type B, as in "a name or a list of names". Its schema is the
// anyOf of theirs, in which no type may contain itself, and no large type occur twice. One of A and
// B is set: a value that is valid for both becomes an A. Both nil cannot be encoded. For three
// types, use Either[A, Either[B, C]].
type Either[A, B any] struct {
	A *A
	B *B
}

// MarshalJSON encodes A or B with package encoding/json.
func (e Either[A, B]) MarshalJSON() ([]byte, error) {
	if e.A != nil {
		return json.Marshal(e.A)
	}
	return json.Marshal(e.B)
}

// self tells an Either from a struct that embeds one.
func (Either[A, B]) self() reflect.Type { return reflect.TypeFor[Either[A, B]]() }

func isEither(t reflect.Type) bool {
	e, ok := reflect.Zero(t).Interface().(interface{ self() reflect.Type })
	return ok && e.self() == t
}

// either fills n for an Either.
func (b *builder) either(n *node) error {
	if slices.Contains(b.eithers, n.typ) {
		return fmt.Errorf("type %s contains itself", n.typ)
	}
	text := []byte(`{"anyOf":[`)
	for i := range 2 {
		inner := newBuilder(b.opts)
		inner.eithers = append(slices.Clip(b.eithers), n.typ)
		alternative, err := inner.plan(n.typ.Field(i).Type.Elem())
		if err != nil {
			return fmt.Errorf("type %s: %w", n.typ, err)
		}
		// A reference would mean another place in the whole schema.
		if reference(alternative.json) != "" {
			return fmt.Errorf("type %s: the schema of %s needs $ref: no type in an Either may contain itself, or be large and occur twice", n.typ, n.typ.Field(i).Type.Elem())
		}
		n.alternatives = append(n.alternatives, alternative.root)
		text = append(append(text, alternative.json...), ',')
	}
	text = append(text[:len(text)-1], "]}"...)
	custom, err := Compile(text, b.opts.Engine)
	if err != nil {
		return fmt.Errorf("type %s: %w", n.typ, err)
	}
	n.set("", opEither)
	n.custom, n.name = custom, ""
	return nil
}

// either decodes into the first alternative for which the value is valid.
func (d *decoder) either(n *node, a address) {
	var inner decoder
	for i, alternative := range n.alternatives {
		inner = decoder{cursor: d.cursor, plan: d.plan, depth: d.depth}
		p := newAddress(alternative.typ)
		if inner.value(alternative, p); len(inner.found) == 0 {
			a.field(n.typ.Field(i).Offset).store(p)
			d.cursor = inner.cursor
			return
		}
	}
	for _, f := range inner.found {
		d.fail(f.at, f.msg)
	}
	d.cursor, d.limit = inner.cursor, d.limit || inner.limit
}

// either appends the alternative that is set.
func (e *encoder) either(n *node, a address) {
	for i, alternative := range n.alternatives {
		if p, ok := a.field(n.typ.Field(i).Offset).load(); ok {
			e.value(alternative, p)
			return
		}
	}
	e.abort(n, "value", errors.New("both A and B are nil"))
}
