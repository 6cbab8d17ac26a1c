// Package winjob keeps the processes that one process starts together on Windows, so that they can be ended together and end with us. On other systems, where process
// groups do that, it is empty.
//
// # Concurrency
//
// A Job is for one goroutine at a time.
//
// # Errors
//
// There are none: where the system refuses a job, the process itself is all that is ended.
package winjob
