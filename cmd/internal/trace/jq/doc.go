// Package jq runs jq programs (https://jqlang.org/manual/) on JSON
// payloads, within limits that hold for any program.
//
// The library that evaluates the programs checks a context between two
// steps, but not during one: a single regular expression, string repetition
// or serialization can run for minutes or take gigabytes. Therefore
// programs run in a separate process, a worker, which can be killed.
//
// A worker is this executable. An environment variable makes it a worker
// before its main function begins, so that a test binary can be one too. A
// worker has no arguments and no other environment variable but TZ. Its
// standard input and output are pipes. It ends with its owner, or when it
// was idle for a while.
//
// # Concurrency
//
// A [Program] is safe for concurrent use. At most maxWorkers workers
// evaluate programs at a time.
//
// # Errors
//
// Compile returns a *gojq.ParseError for bad syntax, and other errors for
// programs that do not compile or workers that do not start. Evaluation
// returns no errors: a program that fails or exceeds a limit is not true.
package jq
