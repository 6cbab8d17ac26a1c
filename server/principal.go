package server

import "context"

// A Principal is on whose behalf a request comes, as far as the carrier has made sure of it: by a verified token, by the credentials of a socket's peer.
// What a client says of itself is never part of it. The zero Principal is nobody in particular, as on standard input and output.
type Principal struct {
	ID     string   // unique among all principals, an issuer and a subject say
	Scopes []string // what it was granted
	Claims any      // what else is known of it
}

type principalKey struct{}

// WithPrincipal returns a context for [Server.Serve] whose requests come on behalf of p.
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

var nobody = &Principal{}

// principalOf returns the principal of ctx.
func principalOf(ctx context.Context) *Principal {
	if p, _ := ctx.Value(principalKey{}).(*Principal); p != nil {
		return p
	}
	return nobody
}
