package client

import (
	"sync/atomic"

	"mcpwire/internal/era"
	"mcpwire/mcp"
)

// A Profile is what [Dial] found out about a server. It can be kept, as JSON too, and given to a later Dial to the same server as [Options.Profile].
type Profile struct {
	Revision     mcp.Revision           `json:"revision"` // to speak with it
	Server       mcp.Implementation     `json:"server"`
	Capabilities mcp.ServerCapabilities `json:"capabilities"`
	Instructions string                 `json:"instructions,omitempty"`

	discovered bool // by this Client: nothing is missing
}

// complete reports whether the verdict says more than a revision to try.
func (p *Profile) complete() bool {
	return p.discovered || p.Server.Name != "" || p.Server.Version != ""
}

// negotiated are what the two sides have agreed on. They do not change.
type negotiated struct {
	*era.Features
	profile   *Profile
	accepts   era.InputSupport // what the server may ask for
	meta      []byte           // modern: `"_meta":{…` of each request, without the bracket that closes it
	confirmed atomic.Bool      // the server has shown that it is so; false of a Profile that nobody has checked yet
}

// terms returns the terms of a verdict.
func (c *Client) newNegotiated(profile *Profile) *negotiated {
	neg := &negotiated{Features: era.Of(profile.Revision), profile: profile}
	capabilities, accepts := c.offer.Capabilities(neg.Features)
	neg.accepts = accepts
	if neg.Modern {
		neg.meta = c.offer.AppendMeta([]byte(`"_meta":`), neg.Features, capabilities)
	}
	return neg
}

// confirm notes that the server speaks as the terms say.
func (n *negotiated) confirm() {
	if !n.confirmed.Load() {
		n.confirmed.Store(true)
	}
}

// newProfile makes a verdict of what a server says of itself.
func newProfile(method string, r mcp.Revision, info *era.ServerProfile) (*Profile, error) {
	profile := &Profile{Revision: r, Server: info.Info, Instructions: info.Instructions, discovered: true}
	if err := profile.Capabilities.UnmarshalJSON(info.Capabilities); err != nil {
		return nil, &ProtocolError{Method: method, Reason: "the server's capabilities are not as they should be", Err: err}
	}
	return profile, nil
}
