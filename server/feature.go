package server

import (
	"encoding/json"
	"strings"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A ClientFeature is a feature that a handler can ask the client for if the client has declared the
// capability.
type ClientFeature uint8

// The client features.
const (
	// FormElicitation asks the user to fill in a form.
	FormElicitation ClientFeature = iota
	// URLElicitation sends the user to a web page.
	URLElicitation
	// Sampling lets the client's model continue a conversation.
	Sampling
	// SamplingTools is Sampling with tools that the model may use.
	SamplingTools
	// Roots returns the folders that the client works in.
	Roots
	numClientFeatures
)

var clientFeatureNames = [numClientFeatures]string{"elicitation by form", "elicitation by URL", "sampling", "sampling with tools", "roots"}

// String returns the feature's name for messages.
func (f ClientFeature) String() string {
	if f >= numClientFeatures {
		return "unknown"
	}
	return clientFeatureNames[f]
}

// Supports reports whether the revision has the feature and the client has declared it.
func (c *Call) Supports(f ClientFeature) bool {
	switch f {
	case FormElicitation: // an empty capability means forms
		return c.ex.Elicitation && c.ClientHas("elicitation") &&
			(!c.ex.URLElicitation || c.ClientHas("elicitation", "form") || !c.ClientHas("elicitation", "url"))
	case URLElicitation:
		return c.ex.URLElicitation && c.ClientHas("elicitation", "url")
	case Sampling:
		return c.ClientHas("sampling")
	case SamplingTools:
		return c.ex.SamplingTools && c.ClientHas("sampling", "tools")
	case Roots:
		return c.ClientHas("roots")
	}
	return false
}

// Require returns an [*UnsupportedError] with the features that the client lacks, or nil. Input
// requests return the same error, but a handler that calls Require first has not done anything yet.
func (c *Call) Require(features ...ClientFeature) error {
	var missing []ClientFeature
	for _, f := range features {
		if !c.Supports(f) {
			missing = append(missing, f)
		}
	}
	if missing == nil {
		return nil
	}
	e := &UnsupportedError{Missing: missing}
	switch {
	case c.ex.Modern:
		e.wire = mcp.MissingRequiredClientCapability(capabilitiesFor(missing))
		e.wire.Message = e.Error()
	case c.method != mcp.MethodToolsCall: // a tool reports it in its result
		e.wire = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s", e.Error())
	}
	return e
}

// An UnsupportedError reports that the client has not declared features that a handler needs. A
// handler may do without them or return the error. The client then gets the error -32021 with the
// required capabilities if the revision has that error
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/index#error-codes). In legacy
// revisions a tool's result says it with isError, so that the model can tell the user; other
// requests get the error -32600.
type UnsupportedError struct {
	Missing []ClientFeature

	// wire is nil if the error becomes the result of a tool.
	wire *jsonrpc.Error
}

func (e *UnsupportedError) Error() string {
	names := make([]string, len(e.Missing))
	for i, f := range e.Missing {
		names[i] = f.String()
	}
	return "the client has not declared a required capability: " + strings.Join(names, ", ")
}

// Unwrap returns the [*jsonrpc.Error] that is sent for the error, or nil.
func (e *UnsupportedError) Unwrap() error {
	if e.wire == nil {
		return nil
	}
	return e.wire
}

// capabilitiesFor returns the capabilities of a client that has the features.
func capabilitiesFor(features []ClientFeature) mcp.ClientCapabilities {
	var caps mcp.ClientCapabilities
	for _, f := range features {
		switch f {
		case FormElicitation, URLElicitation:
			if caps.Elicitation == nil {
				caps.Elicitation = new(mcp.ElicitationCapability)
			}
			if f == FormElicitation {
				caps.Elicitation.Form = json.RawMessage(`{}`)
			} else {
				caps.Elicitation.URL = json.RawMessage(`{}`)
			}
		case Sampling, SamplingTools:
			if caps.Sampling == nil {
				caps.Sampling = new(mcp.SamplingCapability)
			}
			if f == SamplingTools {
				caps.Sampling.Tools = json.RawMessage(`{}`)
			}
		case Roots:
			caps.Roots = new(mcp.RootsCapability)
		}
	}
	return caps
}
