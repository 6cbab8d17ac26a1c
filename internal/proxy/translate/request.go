package translate

import (
	"slices"

	"mcpwire/jsonrpc"
)

// A request is a request of a client that has no response yet.
type request struct {
	id     jsonrpc.ID
	method string
	// progressToken is the client's progress token, or nil.
	progressToken []byte
	// cause is the event of the request's message.
	cause uint64
	// size counts the stored bytes.
	size     int
	finished bool
}

func (r *request) isFinished() bool { return r.finished }

// A waitQueue holds the work of requests that wait for the server.
type waitQueue[R interface{ isFinished() bool }] []waitingWork[R]

// A waitingWork continues a request.
type waitingWork[R any] struct {
	req R
	do  func()
}

// add adds work. pending is the number of pending requests: the queue forgets finished ones when it
// holds many more.
func (q *waitQueue[R]) add(req R, pending int, do func()) {
	if len(*q) > 2*pending+8 { // most were canceled
		*q = slices.DeleteFunc(*q, func(w waitingWork[R]) bool { return w.req.isFinished() })
	}
	*q = append(*q, waitingWork[R]{req, do})
}

// take removes all work and returns it.
func (q *waitQueue[R]) take() []waitingWork[R] {
	all := *q
	*q = nil
	return all
}

// run removes all work and does that of pending requests.
func (q *waitQueue[R]) run() {
	for _, w := range q.take() {
		if !w.req.isFinished() {
			w.do()
		}
	}
}
