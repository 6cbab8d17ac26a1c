package jsonrpc

import "time"

// elapse lets the clock of the test's synctest bubble go on by d: nothing really waits.
func elapse(d time.Duration) { <-time.After(d) }
