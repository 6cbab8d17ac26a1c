// Package jq runs jq programs (https://jqlang.org/manual/) on JSON payloads, within limits that
// hold whatever a program does.
//
// The library that evaluates the programs looks at a context between two steps, but not inside one:
// a single regular expression, string repetition or serialization can run for minutes or take
// gigabytes. So programs run in a process of their own, a worker, which can be killed.
//
// A worker is this executable again. It is started with an environment variable that makes it a
// worker before its main function begins, so that a test binary can be one too. A worker has no
// arguments, no other environment but TZ, and its standard input and output are pipes. It ends with
// its owner, and when it was not used for a while.
//
// # Concurrency
//
// A Program may be used by any number of goroutines. Up to [maxWorkers] evaluate at once.
//
// # Errors
//
// Compile returns a *gojq.ParseError for bad syntax, and other errors for what does not compile.
// Evaluation has none: a program that fails or exceeds a limit is not true.
package jq
