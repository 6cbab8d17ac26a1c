package mcp

import (
	"mcpwire/internal/jsonwire"
)

// An object appends the members of a JSON object.
type object struct {
	dst  []byte
	more bool
}

func beginObject(dst []byte) object { return object{dst: append(dst, '{')} }

func (o *object) end() []byte { return append(o.dst, '}') }

func (o *object) key(name string) {
	if o.more {
		o.dst = append(o.dst, ',')
	}
	o.more = true
	o.dst = append(jsonwire.AppendQuote(o.dst, name), ':')
}

// must appends a string even if it is empty.
func (o *object) must(name, value string) {
	o.key(name)
	o.dst = jsonwire.AppendQuote(o.dst, value)
}

// text appends a string unless it is empty.
func (o *object) text(name, value string) {
	if value != "" {
		o.must(name, value)
	}
}

// raw appends JSON text, on one line, unless it is nil.
func (o *object) raw(name string, value []byte) {
	if value != nil {
		o.key(name)
		o.dst = jsonwire.AppendCompact(o.dst, value)
	}
}

func (o *object) flag(name string, value *bool) {
	if value == nil {
		return
	}
	o.key(name)
	if *value {
		o.dst = append(o.dst, "true"...)
	} else {
		o.dst = append(o.dst, "false"...)
	}
}
