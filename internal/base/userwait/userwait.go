// Package userwait tells a client how long a request of its connection waits for a user, such as
// one who logs in. A server's time to answer does not run meanwhile.
package userwait

import "context"

type key struct{}

// With returns a context for a connection whose requests call begin when they start to wait for a
// user, and end when they continue.
func With(ctx context.Context, begin func() (end func())) context.Context {
	return context.WithValue(ctx, key{}, begin)
}

// Copy returns ctx with what from got by [With].
func Copy(ctx, from context.Context) context.Context {
	if begin, ok := from.Value(key{}).(func() func()); ok {
		return With(ctx, begin)
	}
	return ctx
}

// Begin reports that a request with the values of ctx waits for a user until end is called.
func Begin(ctx context.Context) (end func()) {
	if begin, ok := ctx.Value(key{}).(func() func()); ok {
		return begin()
	}
	return func() {}
}
