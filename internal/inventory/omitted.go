package inventory

import (
	"mcpwire/internal/jsonwire"
)

// An Omission is something that two inventories cannot be compared in, because one of them has not
// asked for it.
type Omission struct {
	// Kind is one of Kinds, or "capabilities".
	Kind string `json:"kind"`
	// Missing is the inventory that does not have it: "a" or "b".
	Missing string `json:"missing"`
}

// Omitted returns what [Compare] passes over although one of the inventories has it: kinds of
// things that the server of the other may have too, and which were not listed to the end there.
func Omitted(a, b *Inventory) []Omission {
	var list []Omission
	add := func(kind string, inA, inB bool) {
		switch {
		case inA && !inB:
			list = append(list, Omission{kind, "b"})
		case inB && !inA:
			list = append(list, Omission{kind, "a"})
		}
	}
	add("capabilities", a.Capabilities != nil, b.Capabilities != nil)
	for _, kind := range Kinds() {
		add(kind, a.Listed[kind] || a.lacks(kind), b.Listed[kind] || b.lacks(kind))
	}
	return list
}

// lacks reports whether the server has said that it has no things of a kind.
func (iv *Inventory) lacks(kind string) bool {
	if kind == Templates {
		kind = Resources
	}
	return iv.Capabilities != nil && jsonwire.Lookup(iv.Capabilities, kind) == nil
}
