package streamable

import "context"

// A lasting context has the values of a request, and ends with the session.
type lasting struct {
	context.Context
	values context.Context
}

func (l *lasting) Value(key any) any {
	if v := l.values.Value(key); v != nil {
		return v
	}
	return l.Context.Value(key)
}
