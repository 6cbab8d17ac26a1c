package client

import (
	"sync/atomic"

	"mcpwire/internal/era"
	"mcpwire/mcp"
)

// A Verdict is what [Dial] found out about a server. It can be kept, as JSON too, and given to a later Dial to the same server as [Options.Known].
type Verdict struct {
	Revision     mcp.Revision           `json:"revision"` // to speak with it
	Server       mcp.Implementation     `json:"server"`
	Capabilities mcp.ServerCapabilities `json:"capabilities"`
	Instructions string                 `json:"instructions,omitempty"`

	found bool // by this Client: nothing is missing
}

// complete reports whether the verdict says more than a revision to try.
func (v *Verdict) complete() bool { return v.found || v.Server.Name != "" || v.Server.Version != "" }

// terms are what the two sides have agreed on. They do not change.
type terms struct {
	*era.Features
	verdict   *Verdict
	accepts   era.Accepts // what the server may ask for
	meta      []byte      // modern: `"_meta":{…` of each request, without the bracket that closes it
	confirmed atomic.Bool // the server has shown that it is so; false of a Verdict that nobody has checked yet
}

// terms returns the terms of a verdict.
func (c *Client) newTerms(v *Verdict) *terms {
	t := &terms{Features: era.Of(v.Revision), verdict: v}
	capabilities, accepts := c.offer.Capabilities(t.Features)
	t.accepts = accepts
	if t.Modern {
		t.meta = c.offer.AppendMeta([]byte(`"_meta":`), t.Features, capabilities)
	}
	return t
}

// confirm notes that the server speaks as the terms say.
func (t *terms) confirm() {
	if !t.confirmed.Load() {
		t.confirmed.Store(true)
	}
}

// verdictOf makes a verdict of what a server says of itself.
func verdictOf(method string, r mcp.Revision, h *era.Hello) (*Verdict, error) {
	v := &Verdict{Revision: r, Server: h.Info, Instructions: h.Instructions, found: true}
	if err := v.Capabilities.UnmarshalJSON(h.Capabilities); err != nil {
		return nil, &ProtocolError{Method: method, Reason: "the server's capabilities are not as they should be", Err: err}
	}
	return v, nil
}
