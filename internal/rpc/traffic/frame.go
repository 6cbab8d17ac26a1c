// Package traffic reads the frames of recorded traffic: it parses the messages of a frame once, for
// all who look at them, and pairs the responses with their requests.
//
// # Ownership
//
// The messages of a [Frame] alias the payload, and are valid until the Frame parses the next one.
//
// # Concurrency
//
// A [Frame] and a [Pairer] are for one goroutine at a time.
package traffic

import (
	"mcpwire/internal/rpc/rpcbatch"
	"mcpwire/jsonrpc"
)

// A Frame is the parsed payload of a recorded frame: one message or a batch. The zero Frame is
// empty. A Frame can be used again for the next payload, and then allocates nothing for single
// messages.
type Frame struct {
	// Messages has the valid messages. It is empty if the payload is not a message.
	Messages []Message
	// Batch reports that the payload is an array.
	Batch bool
	// Size is the number of messages including invalid ones: 1 unless the payload is a batch.
	Size int
	// Err is the error of [jsonrpc.Parse] or [rpcbatch.Parse].
	Err error

	payload []byte
	single  [1]Message
}

// A Message is one message of a frame.
type Message struct {
	jsonrpc.Message
	// Index is the position in a batch, or 0.
	Index int
	// Call is this request, or the request that this response answers. [Pairer.Add] sets it.
	Call *Call
}

// Parse replaces f by the messages of a payload, which must not change as long as they are in use.
func (f *Frame) Parse(payload []byte) {
	f.payload, f.Messages, f.Batch, f.Size, f.Err = payload, nil, false, 1, nil
	if !rpcbatch.Is(payload) {
		m := &f.single[0]
		m.Index, m.Call = 0, nil
		if f.Err = jsonrpc.Parse(payload, &m.Message, 0); f.Err == nil {
			f.Messages = f.single[:]
		}
		return
	}
	f.Batch = true
	entries, err := rpcbatch.Parse(payload, 0)
	f.Size, f.Err = len(entries), err
	for i := range entries {
		if entries[i].Invalid == nil {
			f.Messages = append(f.Messages, Message{Message: entries[i].Message, Index: i})
		}
	}
}

// Or returns f if it has parsed this payload. Otherwise it returns other, after other has. f may be
// nil.
func (f *Frame) Or(other *Frame, payload []byte) *Frame {
	if f != nil && len(f.payload) == len(payload) && len(payload) > 0 && &f.payload[0] == &payload[0] {
		return f
	}
	other.Parse(payload)
	return other
}
