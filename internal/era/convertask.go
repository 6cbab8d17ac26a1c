package era

import (
	"errors"
	"fmt"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An InputRequest is what a server wants to know from a client: a request in the legacy era, an entry of inputRequests in the modern one.
type InputRequest struct {
	Method string
	Params []byte // text of an object, or nil
}

// IsInputRequest reports whether it is a method by which servers ask.
func IsInputRequest(method string) bool {
	switch method {
	case mcp.MethodElicit, mcp.MethodCreateMessage, mcp.MethodRootsList:
		return true
	}
	return false
}

// IsURL reports whether the user is to open a page.
func (r *InputRequest) IsURL() bool {
	return r.Method == mcp.MethodElicit && LookupString(r.Params, "mode") == mcp.ElicitModeURL
}

// MissingCapability returns the ClientCapabilities object that is needed and was not declared by a client of the revision, with what that is called; nil if the
// client can be asked.
func (r *InputRequest) MissingCapability(c *Client, f *Features) (required []byte, name string) {
	form := f.Elicitation && c.Has("elicitation") && (!f.URLElicitation || c.Has("elicitation", "form") || !c.Has("elicitation", "url"))
	switch {
	case r.IsURL() && !(f.URLElicitation && c.Has("elicitation", "url")):
		return []byte(`{"elicitation":{"url":{}}}`), "elicitation by URL"
	case r.Method == mcp.MethodElicit && !r.IsURL() && !form:
		return []byte(`{"elicitation":{"form":{}}}`), "elicitation by form"
	case r.Method == mcp.MethodCreateMessage && !c.Has("sampling"):
		return []byte(`{"sampling":{}}`), "sampling"
	case r.Method == mcp.MethodCreateMessage && r.usesTools() && !(f.SamplingTools && c.Has("sampling", "tools")):
		return []byte(`{"sampling":{"tools":{}}}`), "sampling with tools"
	case r.Method == mcp.MethodRootsList && !c.Has("roots"):
		return []byte(`{"roots":{}}`), "roots"
	}
	return nil, ""
}

func (r *InputRequest) usesTools() bool {
	return Lookup(r.Params, "tools") != nil || Lookup(r.Params, "toolChoice") != nil
}

// Convert returns the ask, which is of the other era, as one of the revision. elicitationID is what a page is known by where pages have ids. It fails
// if the revision has no way to ask that.
func (r *InputRequest) Convert(to *Features, elicitationID string) (InputRequest, error) {
	var added []byte
	if r.IsURL() && to.ElicitationIDs {
		added = jsonwire.AppendQuote([]byte(`"elicitationId":`), elicitationID)
	}
	if r.Method == mcp.MethodElicit && !r.IsURL() {
		if err := checkFormFields(r.Params, to); err != nil {
			return InputRequest{}, err
		}
	}
	if r.Params == nil {
		return InputRequest{r.Method, nil}, nil
	}
	params := Rewrite(nil, r.Params, func(m *jsonwire.Members) []byte {
		v := m.Value()
		switch {
		case m.KeyIs("elicitationId"), m.KeyIs("task"):
			return nil
		case m.KeyIs("mode") && !to.URLElicitation:
			return nil
		case m.KeyIs("_meta"):
			return trimMeta(v)
		case m.KeyIs("messages") && !to.SamplingTools && isArray(v):
			return flattenMessages(v, to)
		}
		return v
	}, added)
	if r.Method == mcp.MethodRootsList && string(params) == "{}" {
		params = nil
	}
	return InputRequest{r.Method, params}, nil
}

// trimMeta leaves out of an ask's _meta what only means something to the two who shook hands, or to those who did not.
func trimMeta(v []byte) []byte {
	if !IsObject(v) {
		return nil
	}
	v = Rewrite(nil, v, except(mcp.MetaProgressToken, mcp.MetaRelatedTask, mcp.MetaServerInfo, mcp.MetaSubscriptionID), nil)
	if string(v) == "{}" {
		return nil
	}
	return v
}

var errMultiSelect = errors.New("a field of the form lets the user choose several values, which clients of the revision cannot show")

// checkFormFields makes sure that the revision has all kinds of fields that the form has.
func checkFormFields(params []byte, to *Features) error {
	properties := Lookup(params, "requestedSchema", "properties")
	if to.MultiSelect || !IsObject(properties) {
		return nil
	}
	members := jsonwire.ObjectMembers(properties)
	for members.Next() {
		if v := members.Value(); IsObject(v) && LookupString(v, "type") == "array" {
			return errMultiSelect
		}
	}
	return nil
}

// flattenMessages gives each message of a conversation one block of content, as revisions without tools in sampling have it.
func flattenMessages(messages []byte, to *Features) []byte {
	return RewriteArray(nil, messages, func(message []byte) []byte {
		content := Lookup(message, "content")
		if !IsObject(message) || !isArray(content) {
			return convertBlockIn(message, "content", to)
		}
		var flat []byte
		blocks := jsonwire.ArrayElements(content)
		for blocks.Next() {
			if flat != nil {
				flat = append(flat, ',')
			}
			flat = Rewrite(flat, message, func(m *jsonwire.Members) []byte {
				if m.KeyIs("content") {
					return convertBlock(blocks.Value(), to)
				}
				return m.Value()
			}, nil)
		}
		return flat
	})
}

// CheckResponse says what is wrong with a client's answer to an ask.
func (r *InputRequest) CheckResponse(response []byte) error {
	ok := IsObject(response)
	if ok {
		switch r.Method {
		case mcp.MethodElicit:
			action := LookupString(response, "action")
			ok = action == "accept" || action == "decline" || action == "cancel"
		case mcp.MethodCreateMessage:
			content := Lookup(response, "content")
			ok = LookupString(response, "role") != "" && (IsObject(content) || isArray(content))
		case mcp.MethodRootsList:
			ok = isArray(Lookup(response, "roots"))
		}
	}
	if !ok {
		return fmt.Errorf("no result of %s", r.Method)
	}
	return nil
}

// ConvertResponse returns a client's answer to the ask, which is of the other era, as one of the revision: a bare object for a modern server, a result for a
// legacy one.
func (r *InputRequest) ConvertResponse(response []byte, to *Features) []byte {
	return Rewrite(nil, response, func(m *jsonwire.Members) []byte {
		v := m.Value()
		switch {
		case m.KeyIs("resultType"):
			return nil
		case m.KeyIs("_meta") && to.Modern && r.Method != mcp.MethodCreateMessage:
			return nil
		case m.KeyIs("content") && r.Method == mcp.MethodElicit && r.IsURL():
			return nil
		case m.KeyIs("content") && r.Method == mcp.MethodCreateMessage && !to.SamplingTools && isArray(v):
			if one, ok := onlyElement(v); ok {
				return one
			}
		}
		return v
	}, nil)
}

// onlyElement returns the element of an array that has no other.
func onlyElement(arr []byte) (one []byte, ok bool) {
	n := 0
	elements := jsonwire.ArrayElements(arr)
	for elements.Next() {
		one = elements.Value()
		n++
	}
	return one, n == 1
}

// Refusal is how an ask fails that the client was never to be asked, or that it did not answer.
func (r *InputRequest) Refusal(message string) *jsonrpc.Error {
	code := jsonrpc.CodeMethodNotFound
	if r.Method == mcp.MethodElicit {
		code = jsonrpc.CodeInvalidParams // a mode that was not declared
	}
	return &jsonrpc.Error{Code: code, Message: message}
}
