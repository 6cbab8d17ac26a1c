package bridge

import "slices"

// maxOwners is how many things a recall remembers, and maxNameBytes how long a thing's name may be, in bytes.
const (
	maxOwners    = 1024
	maxNameBytes = 1 << 10
)

// A recall remembers whose the last things were that the server has given names to. The zero value is ready to use.
type ownerMap[V any] struct {
	byName map[string]V
	names  []string // of the names, the oldest first
}

// put remembers a thing, and returns the one that it forgets for that.
func (m *ownerMap[V]) put(name string, v V) (old V, full bool) {
	if len(name) > maxNameBytes || name == "" {
		return old, false
	}
	if m.byName == nil {
		m.byName = map[string]V{}
	}
	if _, known := m.byName[name]; !known {
		if full = len(m.names) >= maxOwners; full {
			old = m.remove(m.names[0])
		}
		m.names = append(m.names, name)
	}
	m.byName[name] = v
	return old, full
}

// remove forgets a thing, and returns whose it was.
func (m *ownerMap[V]) remove(name string) V {
	v := m.byName[name]
	delete(m.byName, name)
	if i := slices.Index(m.names, name); i >= 0 {
		m.names = slices.Delete(m.names, i, i+1)
	}
	return v
}
