package server

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxElicited is how many pages that its client was sent to a session remembers.
const maxElicited = 256

// elicited remembers that the client was told of an elicitation. The oldest is forgotten if there are too many.
func (s *session) elicited(id string) {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	if len(s.pages) == maxElicited {
		s.pages = slices.Delete(s.pages, 0, 1)
	}
	s.pages = append(s.pages, id)
}

// ElicitationComplete tells the client that was sent to a web page with that elicitation id that the user is done there: the id is the ElicitationID
// of the question, or of the error [mcp.URLElicitationRequired]. It does nothing for an id that it does not know: of a client that has gone, of a
// revision without such ids (all but 2025-11-25), of more than 256 questions ago. It does not wait for anybody.
// (https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#completion-notifications-for-url-mode-elicitation)
func (s *Server) ElicitationComplete(id string) {
	s.elicitationCompleteHere(id)
	s.relay.publish(Event{Kind: ElicitationDone, Name: id})
}

func (s *Server) elicitationCompleteHere(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for x := range s.sessions {
		if i := slices.Index(x.pages, id); i >= 0 {
			x.pages = slices.Delete(x.pages, i, i+1)
			x.news.visited = append(x.news.visited, id)
			x.tell()
		}
	}
}

func (s *session) tellVisited(id string) {
	s.notify(mcp.NotificationElicitationComplete, (&mcp.ElicitationCompleteNotificationParams{ElicitationID: id}).AppendJSON(nil))
}

// convertURLRequired deals with the error by which a handler sends the user to web pages before it can do anything. It exists in one revision
// (https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#url-elicitation-required-error). In modern ones it becomes questions;
// where there is no such thing, or the client has not declared it, the text of the failure says where to go.
func (c *Call) convertURLRequired(head, out []byte, err error) ([]byte, error) {
	e, ok := errors.AsType[*jsonrpc.Error](err)
	if !ok || e.Code != mcp.CodeURLElicitationRequired {
		return out, err
	}
	pages, err := requiredPages(e)
	if err != nil {
		return head, fmt.Errorf("error %d of a handler: %w", e.Code, err)
	}
	if c.ex.Modern {
		if a := c.round(); a != nil {
			return c.askRequired(a, head, e, pages)
		}
	}
	if !c.ex.ElicitationIDs || !c.Supports(URLElicitation) {
		return c.refuse(head, urlRefusal(e, pages))
	}
	for _, p := range pages {
		c.session.elicited(p.ElicitationID)
	}
	return head, e
}

// requiredPages reads what the error asks for.
func requiredPages(e *jsonrpc.Error) ([]mcp.ElicitRequestParams, error) {
	var data mcp.URLElicitationRequiredData
	if err := data.UnmarshalJSON(e.Data); err != nil {
		return nil, err
	}
	for i := range data.Elicitations {
		p := &data.Elicitations[i]
		if p.Mode != mcp.ElicitModeURL || p.ElicitationID == "" || p.Message == "" {
			return nil, fmt.Errorf("elicitations[%d]: it needs the mode url, an elicitationId and a message", i)
		}
		if err := checkURL(p.URL); err != nil {
			return nil, fmt.Errorf("elicitations[%d]: %w", i, err)
		}
	}
	if len(data.Elicitations) == 0 {
		return nil, errors.New("elicitations are missing")
	}
	return data.Elicitations, nil
}

// askRequired asks for the pages, unless the user has said no before. A handler that requires a page once more, though the user agreed to visit it, has it
// asked once more: accepting does not say that the user is done there. The keys are not the elicitation ids, since a handler may make new ones in each run.
func (c *Call) askRequired(a *round, head []byte, e *jsonrpc.Error, pages []mcp.ElicitRequestParams) ([]byte, error) {
	qs := c.Questions()
	for i, p := range pages {
		key := "required page " + strconv.Itoa(i+1)
		switch a.forget(key) {
		case mcp.ElicitActionDecline, mcp.ElicitActionCancel:
			return c.refuse(head, "the user did not agree: "+urlRefusal(e, pages))
		}
		qs.Elicit(key, &p)
	}
	return head, qs.Wait(c)
}

// refuse says that the request cannot be done as things are: by a tool in words for the model.
func (c *Call) refuse(head []byte, text string) ([]byte, error) {
	if c.method == mcp.MethodToolsCall {
		return c.appendFailure(head, text), nil
	}
	return head, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s", text)
}

func urlRefusal(e *jsonrpc.Error, pages []mcp.ElicitRequestParams) string {
	lines := []string{cmp.Or(e.Message, "the user has to visit a web page first")}
	for _, p := range pages {
		lines = append(lines, p.Message+" "+p.URL)
	}
	return strings.Join(lines, "\n")
}

// forget takes out the answer to a question and returns what the user did; "" if there is none.
func (a *round) forget(key string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	got := a.answers[key]
	if got == nil {
		return ""
	}
	delete(a.answers, key)
	res, err := readElicitResult(got.text)
	if err != nil {
		return ""
	}
	return res.Action
}
