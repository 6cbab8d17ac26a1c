package streamable

import "context"

// A lasting context has the values of a request, and ends with the session.
type sessionContext struct {
	context.Context
	values context.Context
}

func (c *sessionContext) Value(key any) any {
	if v := c.values.Value(key); v != nil {
		return v
	}
	return c.Context.Value(key)
}
