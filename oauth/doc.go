// Package oauth gets, stores and renews access tokens for HTTP requests, as a client of MCP's
// authorization (https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization).
//
// It does not depend on the rest of MCP: it works behind any [net/http.Client]. Package auth
// verifies tokens in servers.
//
// A [Client] finds a server's issuer, registers with it, has the user log in or uses
// another [Grant], and sends each request with a suitable token:
//
//	client, err := oauth.NewClient(&oauth.ClientOptions{
//		Grant: oauth.AuthorizationCode{Prompter: oauth.LoopbackPrompter{Show: show}},
//	})
//	…
//	transport, err := client.Transport("https://mcp.example.com/mcp", nil)
//	…
//	c := &http.Client{Transport: transport}
//
// A login may take minutes. The Timeouts of package client do not run while a request
// waits for it, so limit it by the prompter.
//
// A [Store] keeps tokens and registrations: in memory, or with [NewFileStore] in a file that
// several processes may share. [DPoPMode] says whether tokens are bound to a key of the client.
//
// A client's own requests go to addresses that others choose, so they reach only public
// addresses and those that [ClientOptions] allows.
//
// # Concurrency
//
// Many goroutines may use every type at once, unless noted. Options are read once, when they are
// passed. A client starts no goroutines, except while a [LoopbackPrompter] waits for the browser.
//
// # Errors
//
// An [AuthorizationError] says why a client has no token: [ErrConsentRequired],
// [ErrDenied], [ErrRefused], [ErrUntrusted], [ErrUnregistered] or [ErrUnreachable].
// [ErrNotReplayable] means that the client now has a token, but cannot send the request
// again. The text of an error never contains a token, a code, a secret, or any part of one.
package oauth
