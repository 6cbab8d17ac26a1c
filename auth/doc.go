// Package auth is the authorization of MCP over HTTP, from both sides: who may get at a server, and how a client gets a token. It implements
// https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization and knows nothing of the rest of MCP, so that it can stand in front of any
// [net/http.Handler], and behind any [net/http.Client].
//
// # Servers
//
// A [Guard] stands in front of a handler. It takes the token of each request, has a [Verifier] judge it, and puts the [Principal] into the request's
// context, or answers the request as https://www.rfc-editor.org/rfc/rfc6750 says:
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
// A streamable.Handler takes the guard as one of its options instead, because what browsers ask before a request has no token.
//
// [NewJWT] verifies signed tokens, [NewIntrospection] asks the issuer, [NewStatic] knows fixed tokens, [AnyOf] combines them. [DPoPOptions] turn on
// proofs of possession.
//
// Below a guard, [PrincipalOf] tells who is asking, and [Require] whether that is enough for an operation. If it is not, [Deny] answers so that a client
// can ask its user for more.
//
// A token is for this server alone. Handlers do not get to see it, so that they cannot send it anywhere. What a server needs upstream it must get by itself.
//
// # Clients
//
// A [Client] gets tokens for servers and keeps them: it finds a server's issuer, registers with it, has the user log in or uses another [Grant], and sends
// each request with a token that is good for it. Its own requests go where strangers say, so they go through [GuardedTransport]. A [Secret] is a text that
// shows up in no log.
//
// # Concurrency
//
// Everything may be used by many goroutines at once, unless it says otherwise. Options are read when they are handed over and not later. Verifiers and
// guards have no goroutines of their own.
//
// # Errors
//
// [ErrInvalidToken] and [ErrUnavailable] tell a token that is not good from one that cannot be judged now; [ScopeError] and [ErrUnauthenticated] say what an
// operation lacks. An [AuthorizationError] says why a client has no token: [ErrConsentRequired], [ErrDenied], [ErrRefused], [ErrUntrusted],
// [ErrUnregistered] or [ErrUnreachable]. What clients are told says only which of these it is; the reason is in the error's text, for logs. No error's text has a token, a
// secret, or anything that was in one.
package auth
