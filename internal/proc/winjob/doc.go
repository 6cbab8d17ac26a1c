// Package winjob groups the processes that one process starts on Windows, so that
// they can be ended together and end with this process. On other systems, which have
// process groups, it is empty.
//
// # Concurrency
//
// A Job is not safe for concurrent use.
//
// # Errors
//
// No function returns an error. If the system refuses a job, only the process itself
// is ended.
package winjob
