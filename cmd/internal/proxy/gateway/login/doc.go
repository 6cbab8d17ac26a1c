// Package login lets each caller of a gateway log in to upstreams whose authorization servers want
// that. The gateway is the OAuth client (authorization code with PKCE); a caller's own token never
// reaches an upstream.
//
// [Logins] serves the pages, below [Path] of the gateway's public URL. An [Upstream] is the
// gateway.Login of one upstream, and its Transport sends requests with the token of the caller.
//
// # Whose login it is
//
// A page belongs to the caller whose request made it. If somebody else logged in there, the caller
// would get the token of that person: an attacker only had to send the link to a victim
// (https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#phishing). So who
// opens the page must be the caller. With [Options.Identity], the browser first logs in at the
// gateway's own authorization server by OpenID Connect, and its subject must be that of the caller.
// Without it, all callers are one user and the pages are served to browsers on this machine only.
//
// A login is bound to the browser by a cookie, and to the requests to authorization servers by a
// state, PKCE, a nonce, and a separate redirect URI for each upstream. It is valid for ten minutes,
// and each state is used once.
//
// # Concurrency
//
// The methods of all types may be called by many goroutines at once. [Logins.Close] waits for the
// goroutines.
package login
