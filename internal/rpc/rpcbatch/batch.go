// Package rpcbatch parses batches of JSON-RPC messages. Only the revision 2025-03-26 of MCP has
// them.
package rpcbatch

import (
	"cmp"
	"errors"
	"math"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
)

// Max limits the messages of a batch.
const Max = 100

// Is reports whether the frame's JSON text is an array.
func Is(frame []byte) bool {
	for _, c := range frame {
		switch c {
		case ' ', '\t', '\r', '\n':
		default:
			return c == '['
		}
	}
	return false
}

// An Entry is one member of a batch.
type Entry struct {
	jsonrpc.Message
	// Invalid is the error to answer with if the member is not a message. Otherwise it is nil.
	Invalid *jsonrpc.Error
}

// Parse parses a frame that holds an array of messages. The messages alias the frame. maxDepth
// limits the levels of the whole frame; zero means 512. The error is a *jsonrpc.Error that answers
// the whole batch: it is not JSON, it is empty, or it has more than Max members.
func Parse(frame []byte, maxDepth int) ([]Entry, error) {
	maxDepth = cmp.Or(maxDepth, jsonwire.DefaultMaxDepth)
	var s jsonwire.Scanner
	s.Reset(frame, maxDepth)
	if len(frame) > math.MaxInt32 {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "batch of more than %d bytes", math.MaxInt32)
	}
	var members [][]byte
	total := 0
	more, err := s.EnterArray()
	for more && err == nil {
		s.Peek()
		start := s.Pos()
		// Beyond the limit too, because an error may follow that is a parse error.
		if err = s.Skip(); err == nil {
			if total++; total <= Max {
				members = append(members, frame[start:s.Pos()])
			}
			more, err = s.NextElement()
		}
	}
	if err == nil {
		err = s.End()
	}
	switch {
	case err != nil:
		message := "parse error"
		if syntax, ok := errors.AsType[*jsonwire.SyntaxError](err); ok {
			message += ": " + syntax.Error()
		}
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: message}
	case total == 0:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "invalid request: empty batch"}
	case total > Max:
		return nil, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "invalid request: batch of %d messages (limit %d)", total, Max)
	}
	entries := make([]Entry, total)
	for i, member := range members {
		e := &entries[i]
		if err := jsonrpc.Parse(member, &e.Message, maxDepth); err != nil {
			e.Invalid = jsonrpc.ErrorOf(err)
		}
	}
	return entries, nil
}
