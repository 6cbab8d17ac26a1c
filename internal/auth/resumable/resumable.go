// Package resumable lets a program of this repository, and no others, continue an authorization of
// package oauth in another process.
package resumable

import "mcpwire/auth"

// A Prompt is an oauth.Prompt that chooses the secrets of its authorization, so that another
// process can repeat the authorization with the same ones, and give it the callback.
type Prompt interface {
	// Secrets returns the state and the PKCE verifier, which are otherwise random. The state must
	// be unguessable, and the verifier has 43 to 128 letters and digits that nobody else knows.
	Secrets() (state, verifier string)
	// ProofKey gets the private key that the tokens will be bound to, as in oauth.Record, and
	// returns the one to use instead. An empty one means that they are not bound.
	ProofKey(key auth.Secret) auth.Secret
}
