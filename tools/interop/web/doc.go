// Package web contains only tests, of mcpwire's HTTP side against web software that others wrote.
// An authorization server from npm issues the tokens that clients get and servers require. A
// browser runs pages whose origins servers allow or reject, and the page of mcpwire watch. It is
// in module tools, so that none of this gets into the library's go.mod.
//
// # Concurrency
//
// The tests share one authorization server for each issuer, and one browser. Each test has its own
// resource servers and users.
//
// # Errors
//
// A test whose program or package is not installed is skipped. With CI=true it fails.
package web
