// Package procgroup ends a child process together with the processes that it has started. They are
// in a process group or, on Windows, in a job object, which also ends with this process.
//
// Start the child with the attributes of [Attr], call [New], and then [Reap] on a goroutine.
//
// # Concurrency
//
// A Group is not safe for concurrent use. Guard it with a lock that Reap's last
// function takes too, so that nothing is signaled after the end of the child.
//
// # Errors
//
// No function returns an error. If Windows refuses a job, only the child itself is ended.
package procgroup
