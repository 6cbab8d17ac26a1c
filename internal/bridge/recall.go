package bridge

import "slices"

// maxRecalled is how many things a recall remembers, and maxName how long a thing's name may be, in bytes.
const (
	maxRecalled = 1024
	maxName     = 1 << 10
)

// A recall remembers whose the last things were that the server has given names to. The zero value is ready to use.
type recall[V any] struct {
	of    map[string]V
	order []string // of the names, the oldest first
}

// note remembers a thing, and returns the one that it forgets for that.
func (r *recall[V]) note(name string, v V) (old V, full bool) {
	if len(name) > maxName || name == "" {
		return old, false
	}
	if r.of == nil {
		r.of = map[string]V{}
	}
	if _, known := r.of[name]; !known {
		if full = len(r.order) >= maxRecalled; full {
			old = r.forget(r.order[0])
		}
		r.order = append(r.order, name)
	}
	r.of[name] = v
	return old, full
}

// forget forgets a thing, and returns whose it was.
func (r *recall[V]) forget(name string) V {
	v := r.of[name]
	delete(r.of, name)
	if i := slices.Index(r.order, name); i >= 0 {
		r.order = slices.Delete(r.order, i, i+1)
	}
	return v
}
