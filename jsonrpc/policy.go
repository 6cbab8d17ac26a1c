package jsonrpc

import "mcpwire/internal/jsonwire"

// A Policy is what the two sides of a connection may agree on while it runs. The zero Policy is plain JSON-RPC 2.0.
type Policy struct {
	NoBatches         bool // an array is answered with one invalid request instead of being taken as a batch
	OmitNullID        bool // an error that belongs to no readable id has no id, instead of "id":null
	NoErrorsWithoutID bool // what would be an error that belongs to no readable id is logged only
	DropRequests      bool // nothing is answered: requests are logged and dropped. In MCP since 2026-07-28, only servers answer
}

const (
	policyNoBatches = 1 << iota
	policyOmitNullID
	policyNoErrorsWithoutID
	policyDropRequests
)

// SetPolicy changes the policy for what is read and written from now on.
func (c *Conn) SetPolicy(p Policy) {
	bits := uint32(0)
	if p.NoBatches {
		bits |= policyNoBatches
	}
	if p.OmitNullID {
		bits |= policyOmitNullID
	}
	if p.NoErrorsWithoutID {
		bits |= policyNoErrorsWithoutID
	}
	if p.DropRequests {
		bits |= policyDropRequests
	}
	c.policy.Store(bits)
}

func (c *Conn) has(bit uint32) bool { return c.policy.Load()&bit != 0 }

// mayRespond reports whether something may be answered under the id, which is empty or null if nobody could read it.
func (c *Conn) mayRespond(id ID) bool {
	bits := c.policy.Load()
	return bits&(policyNoErrorsWithoutID|policyDropRequests) == 0 || bits&policyDropRequests == 0 && len(id) > 0 && !id.IsNull()
}

// A Cancellation is the notification by which one side gives up a request it sent.
type Cancellation interface {
	// Target returns the id of the request that n cancels; ok is false if n is no cancellation. The id may alias n.
	Target(n *Message) (id ID, reason string, ok bool)
	// Notice makes the notification that cancels the request this side sent. An empty name means that it must not be cancelled.
	Notice(id ID, method, reason string) (name string, params []byte)
}

// CancelRequest is the Cancellation of the Language Server Protocol and of plain JSON-RPC peers: $/cancelRequest with {"id": …}.
type CancelRequest struct{}

// Target implements [Cancellation].
func (CancelRequest) Target(n *Message) (ID, string, bool) {
	if string(n.Method) != "$/cancelRequest" {
		return nil, "", false
	}
	id, ok := n.Param("id")
	return id, "", ok
}

// Notice implements [Cancellation].
func (CancelRequest) Notice(id ID, _, _ string) (string, []byte) {
	return "$/cancelRequest", append(append([]byte(`{"id":`), id...), '}')
}

// CancelReason decodes the member of a cancellation that says why, if there is one.
func CancelReason(n *Message, member string) string {
	text, ok := n.Param(member)
	if !ok || text[0] != '"' {
		return ""
	}
	return clip(jsonwire.UnquoteString(text[1 : len(text)-1]))
}
