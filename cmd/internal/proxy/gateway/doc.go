// Package gateway puts many MCP servers behind one endpoint. It implements mcpwire gateway, for
// clients and servers of all revisions of the specification
// (https://modelcontextprotocol.io/specification).
//
// A [Gateway] is a relay.Handler: streamable.NewHandler serves it over HTTP, and [Gateway.Serve]
// serves one client on a byte stream. Behind it, each [Upstream] has one or more bridges of package
// internal/proxy/bridge, which connect, restart, detect eras and translate.
//
// # Names
//
// The gateway's name for a tool or prompt is the upstream's name, two underscores and the
// server's own name, for example "files__read", unless Upstream.Rename has another one. In URIs,
// the upstream's name and "+" follow the scheme, for example "ui://files+app/main.html", except for
// http and https.
//
// # Catalogs
//
// For each upstream and era of clients the gateway has a catalog of the tools, prompts, resources
// and templates. For a server with MCP Apps it has another one for clients without apps. It answers
// handshakes and lists from the catalogs, and requests them when a client first needs them, when
// the server announces a change, and when they are older than Options.CatalogTTL. If a server does
// not answer in Options.ListWait, or fails, lists have its last known catalog, or nothing of it.
//
// # Logins
//
// An upstream with a [Login] asks the caller to log in before a call is sent. Until then, it has
// one tool, "NAME__log_in".
//
// # Bytes
//
// The gateway forwards messages unchanged, except for names, URIs, ids of tasks, request states,
// and ids of the servers' own requests.
//
// # Errors
//
// A server that fails costs only its own tools: calls get an error with code -32603 that names the
// upstream and says why.
//
// # Concurrency
//
// The methods of a Gateway may be called by many goroutines at once. [Gateway.Close] waits for all
// goroutines and processes.
package gateway
