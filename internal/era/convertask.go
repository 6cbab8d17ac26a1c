package era

import (
	"errors"
	"fmt"

	"mcpwire/internal/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An Ask is what a server wants to know from a client: a request in the legacy era, an entry of inputRequests in the modern one.
type Ask struct {
	Method string
	Params []byte // text of an object, or nil
}

// IsAsk reports whether it is a method by which servers ask.
func IsAsk(method string) bool {
	switch method {
	case mcp.MethodElicit, mcp.MethodCreateMessage, mcp.MethodRootsList:
		return true
	}
	return false
}

// URL reports whether the user is to open a page.
func (a *Ask) URL() bool {
	return a.Method == mcp.MethodElicit && LookupString(a.Params, "mode") == mcp.ElicitModeURL
}

// Missing returns the ClientCapabilities object that is needed and was not declared by a client of the revision, with what that is called; nil if the
// client can be asked.
func (a *Ask) Missing(c *Client, f *Features) (required []byte, name string) {
	form := f.Elicitation && c.Has("elicitation") && (!f.URLElicitation || c.Has("elicitation", "form") || !c.Has("elicitation", "url"))
	switch {
	case a.URL() && !(f.URLElicitation && c.Has("elicitation", "url")):
		return []byte(`{"elicitation":{"url":{}}}`), "elicitation by URL"
	case a.Method == mcp.MethodElicit && !a.URL() && !form:
		return []byte(`{"elicitation":{"form":{}}}`), "elicitation by form"
	case a.Method == mcp.MethodCreateMessage && !c.Has("sampling"):
		return []byte(`{"sampling":{}}`), "sampling"
	case a.Method == mcp.MethodCreateMessage && a.tools() && !(f.SamplingTools && c.Has("sampling", "tools")):
		return []byte(`{"sampling":{"tools":{}}}`), "sampling with tools"
	case a.Method == mcp.MethodRootsList && !c.Has("roots"):
		return []byte(`{"roots":{}}`), "roots"
	}
	return nil, ""
}

func (a *Ask) tools() bool {
	return Lookup(a.Params, "tools") != nil || Lookup(a.Params, "toolChoice") != nil
}

// Convert returns the ask, which is of the other era, as one of the revision. elicitationID is what a page is known by where pages have ids. It fails
// if the revision has no way to ask that.
func (a *Ask) Convert(to *Features, elicitationID string) (Ask, error) {
	var added []byte
	if a.URL() && to.ElicitationIDs {
		added = jsonwire.AppendQuote([]byte(`"elicitationId":`), elicitationID)
	}
	if a.Method == mcp.MethodElicit && !a.URL() {
		if err := checkFields(a.Params, to); err != nil {
			return Ask{}, err
		}
	}
	if a.Params == nil {
		return Ask{a.Method, nil}, nil
	}
	params := Rewrite(nil, a.Params, func(m *jsonwire.Members) []byte {
		v := m.Value()
		switch {
		case m.KeyIs("elicitationId"), m.KeyIs("task"):
			return nil
		case m.KeyIs("mode") && !to.URLElicitation:
			return nil
		case m.KeyIs("_meta"):
			return trimMeta(v)
		case m.KeyIs("messages") && !to.SamplingTools && isArray(v):
			return flatMessages(v, to)
		}
		return v
	}, added)
	if a.Method == mcp.MethodRootsList && string(params) == "{}" {
		params = nil
	}
	return Ask{a.Method, params}, nil
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

// checkFields makes sure that the revision has all kinds of fields that the form has.
func checkFields(params []byte, to *Features) error {
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

// flatMessages gives each message of a conversation one block of content, as revisions without tools in sampling have it.
func flatMessages(messages []byte, to *Features) []byte {
	return RewriteArray(nil, messages, func(message []byte) []byte {
		content := Lookup(message, "content")
		if !IsObject(message) || !isArray(content) {
			return blockIn(message, "content", to)
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

// CheckAnswer says what is wrong with a client's answer to an ask.
func (a *Ask) CheckAnswer(answer []byte) error {
	ok := IsObject(answer)
	if ok {
		switch a.Method {
		case mcp.MethodElicit:
			action := LookupString(answer, "action")
			ok = action == "accept" || action == "decline" || action == "cancel"
		case mcp.MethodCreateMessage:
			content := Lookup(answer, "content")
			ok = LookupString(answer, "role") != "" && (IsObject(content) || isArray(content))
		case mcp.MethodRootsList:
			ok = isArray(Lookup(answer, "roots"))
		}
	}
	if !ok {
		return fmt.Errorf("no result of %s", a.Method)
	}
	return nil
}

// Answer returns a client's answer to the ask, which is of the other era, as one of the revision: a bare object for a modern server, a result for a
// legacy one.
func (a *Ask) Answer(answer []byte, to *Features) []byte {
	return Rewrite(nil, answer, func(m *jsonwire.Members) []byte {
		v := m.Value()
		switch {
		case m.KeyIs("resultType"):
			return nil
		case m.KeyIs("_meta") && to.Modern && a.Method != mcp.MethodCreateMessage:
			return nil
		case m.KeyIs("content") && a.Method == mcp.MethodElicit && a.URL():
			return nil
		case m.KeyIs("content") && a.Method == mcp.MethodCreateMessage && !to.SamplingTools && isArray(v):
			if one, ok := only(v); ok {
				return one
			}
		}
		return v
	}, nil)
}

// only returns the element of an array that has no other.
func only(arr []byte) (one []byte, ok bool) {
	n := 0
	elements := jsonwire.ArrayElements(arr)
	for elements.Next() {
		one = elements.Value()
		n++
	}
	return one, n == 1
}

// Refusal is how an ask fails that the client was never to be asked, or that it did not answer.
func (a *Ask) Refusal(message string) *jsonrpc.Error {
	code := jsonrpc.CodeMethodNotFound
	if a.Method == mcp.MethodElicit {
		code = jsonrpc.CodeInvalidParams // a mode that was not declared
	}
	return &jsonrpc.Error{Code: code, Message: message}
}
