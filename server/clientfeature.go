package server

import (
	"encoding/json"
	"strings"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// A ClientFeature is something that a handler can ask the client for, if the client has declared the capability.
type ClientFeature uint8

// The features.
const (
	FormElicitation ClientFeature = iota // the user fills in a form
	URLElicitation                       // the user is sent to a web page
	Sampling                             // the client's model continues a conversation
	SamplingTools                        // the same, with tools that the model may use
	Roots                                // the folders that the client works in
	numClientFeatures
)

var clientFeatureNames = [numClientFeatures]string{"elicitation by form", "elicitation by URL", "sampling", "sampling with tools", "roots"}

// String returns what the feature is called in messages.
func (f ClientFeature) String() string {
	if f >= numClientFeatures {
		return "unknown"
	}
	return clientFeatureNames[f]
}

// Supports reports whether the client can be asked for the feature: the revision has it and the client has declared it.
func (c *Call) Supports(f ClientFeature) bool {
	switch f {
	case FormElicitation: // an empty capability stands for it
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

// Require fails with an [*UnsupportedError] that names the features which the client does not have. What asks for one of them fails with it too, but a
// handler that calls Require first has not done anything by then.
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
	case c.method != mcp.MethodToolsCall: // a tool can say so in its result
		e.wire = jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s", e.Error())
	}
	return e
}

// An UnsupportedError says that the client was to be asked for what it has not declared that it can do. A handler may do without, or return the error.
// It is answered as the error -32021, with the capabilities that are required, where the revision has that
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/index#error-codes). In legacy revisions a tool's result says so with isError, so that
// the model can tell the user, and other requests get the error -32600.
type UnsupportedError struct {
	Missing []ClientFeature

	wire *jsonrpc.Error // nil if it becomes the result of a tool
}

func (e *UnsupportedError) Error() string {
	names := make([]string, len(e.Missing))
	for i, f := range e.Missing {
		names[i] = f.String()
	}
	return "the client has not declared what is needed here: " + strings.Join(names, ", ")
}

// Unwrap returns the [*jsonrpc.Error] that it is answered as, or nil.
func (e *UnsupportedError) Unwrap() error {
	if e.wire == nil {
		return nil
	}
	return e.wire
}

// capabilitiesFor returns the capabilities that a client declares if it has the features.
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
