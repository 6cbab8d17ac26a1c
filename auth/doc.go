// Package auth protects an HTTP server with access tokens, as a resource server of MCP's
// authorization (https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization).
//
// It does not depend on the rest of MCP: it works in front of any [net/http.Handler]. Package
// oauth gets the tokens that clients send.
//
// A [Guard] protects a handler. It passes the token of each request to a [Verifier], and
// puts the [Principal] into the request's context or answers the request as in
// https://www.rfc-editor.org/rfc/rfc6750:
//
//	const resource = "https://api.example.com/mcp"
//	verifier, err := auth.NewJWT(&auth.JWTOptions{
//		Issuer:    "https://login.example.com",
//		Audiences: []string{resource},
//	})
//	…
//	guard, err := auth.NewGuard(&auth.GuardOptions{
//		Resource:             resource,
//		Verifier:             verifier,
//		AuthorizationServers: []string{"https://login.example.com"},
//	})
//	…
//	http.ListenAndServe(address, guard.Handler(handler))
//
// A streamable.Handler takes the guard as an option instead, because a browser's
// preflight requests have no token. Other paths of its server, such as metrics, are
// protected by the handler's Protect, which also checks host and origin.
//
// [NewJWT] verifies signed tokens, [NewIntrospection] asks the issuer, [NewStatic] knows
// fixed tokens, and [AnyOf] combines verifiers. [DPoPOptions] enable proofs of possession.
// A [Secret] is a text that appears in no log.
//
// Behind a guard, [PrincipalOf] returns the caller, and [Require] checks the scopes of an
// operation. If they are insufficient, [Deny] answers so that a client can ask its user
// for more. streamable.Handler calls it if a handler returns the error of [Require] before
// the response has begun.
//
// A token is for this server alone. Handlers do not see it, so they cannot send it
// elsewhere. A server must get its own tokens for upstream servers, for example in exchange
// for that of its caller: see [TokenOf].
//
// # Concurrency
//
// Many goroutines may use every type at once, unless noted. Options are read once, when
// they are passed. Verifiers and guards start no goroutines.
//
// # Errors
//
// [ErrInvalidToken] means that a token is invalid, [ErrUnavailable] that it cannot be
// verified now. [ScopeError] and [ErrUnauthenticated] say what an operation lacks. Clients
// only learn which of these it is; the reason is in the error's text, for logs. The text
// of an error never contains a token, a secret, or any part of one.
package auth
