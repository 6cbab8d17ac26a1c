package wireclient

import (
	"bytes"
	"errors"
	"strconv"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

var (
	// ErrTooLarge is wrapped if the traffic exceeds a limit.
	ErrTooLarge = errors.New("too large")
	// ErrClosed is returned by calls on a closed [Session] or [Process].
	ErrClosed = errors.New("the session is closed")
)

// A StatusError is an HTTP response with an error status and without a message.
type StatusError struct {
	Status int
	// N is the number of the event with the head of the response.
	N uint64
}

// Error names the status.
func (e *StatusError) Error() string {
	return "the server responded with HTTP status " + strconv.Itoa(e.Status)
}

// An EndedError reports that the connection to the server has ended.
type EndedError struct {
	// Err is the reason: often io.EOF, or a *stdio.ExitError with the end of standard error.
	Err error
}

// Error includes the reason.
func (e *EndedError) Error() string { return "the server has ended the connection: " + e.Err.Error() }

// Unwrap returns Err.
func (e *EndedError) Unwrap() error { return e.Err }

// Messages returns the messages of a frame or batch, or nil if it is not JSON-RPC. They alias the
// frame.
func Messages(frame []byte) []jsonrpc.Message {
	if rpcbatch.Is(frame) {
		list, err := rpcbatch.Parse(frame, 0)
		if err != nil {
			return nil
		}
		all := make([]jsonrpc.Message, len(list))
		for i := range list {
			all[i] = list[i].Message
		}
		return all
	}
	var m jsonrpc.Message
	if jsonrpc.Parse(frame, &m, 0) != nil {
		return nil
	}
	return []jsonrpc.Message{m}
}

// Split returns the texts of the messages of a frame or batch, which must be valid JSON. They alias
// the frame.
func Split(frame []byte) (list [][]byte) {
	frame = bytes.TrimSpace(frame)
	if !rpcbatch.Is(frame) {
		return [][]byte{frame}
	}
	for elements := jsonwire.ArrayElements(frame); elements.Next() && len(list) < rpcbatch.Max; {
		list = append(list, elements.Value())
	}
	return list
}

// IsAnswer reports whether a message is a result or an error.
func IsAnswer(m *jsonrpc.Message) bool {
	return m.Kind == jsonrpc.KindResponse || m.Kind == jsonrpc.KindError
}

// A Pending is a set of ids without a response, by their keys.
type Pending map[string]bool

// PendingOf returns the ids that a message requests answers for, except for subscriptions, which
// last.
func PendingOf(message []byte) Pending {
	p := Pending{}
	for _, m := range Messages(message) {
		if m.Kind == jsonrpc.KindRequest && string(m.Method) != mcp.MethodSubscriptionsListen {
			p[m.ID.Key()] = true
		}
	}
	return p
}

// Resolve removes the ids that messages answer, and reports whether there was one. lone means that
// an error without an id answers the only pending request.
func (p Pending) Resolve(list []jsonrpc.Message, lone bool) bool {
	resolved := false
	for _, m := range list {
		if !IsAnswer(&m) {
			continue
		}
		if k := m.ID.Key(); p[k] {
			delete(p, k)
			resolved = true
		} else if m.Kind == jsonrpc.KindError && (len(m.ID) == 0 || m.ID.IsNull()) && lone {
			clear(p)
			resolved = true
		}
	}
	return resolved
}
