// Package web holds tests alone: mcpwire's HTTP side against what others wrote
// for the web. An authorization server from npm issues the tokens that servers
// are protected by and clients get; a browser runs the pages that servers let in
// or keep out, and the page of mcpwire watch, which is driven there. It is a module of its own, so that none of this gets into
// mcpwire's go.mod.
//
// # Concurrency
//
// The tests share one authorization server for each issuer and one browser. Each
// has its own resource servers and its own users.
//
// # Errors
//
// What is missing on the machine skips the tests that need it; with CI=true it
// fails them.
package web
