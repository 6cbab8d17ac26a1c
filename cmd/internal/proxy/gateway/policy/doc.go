// Package policy decides who may use what behind a gateway, and with which credentials: views,
// limits, pins of definitions, the audit log, and the credentials that the gateway sends to its
// upstreams.
//
// The parts are independent. Each has a constructor that takes plain values, as a configuration
// has them, and reports invalid ones. A caller is the principal of a context ([auth.PrincipalOf]),
// or without one the network address ([relay.CallerOf]).
//
// # Concurrency
//
// Many goroutines may use every type at once. [Audit] and [Pins] have a goroutine each, which
// their Close ends.
package policy
