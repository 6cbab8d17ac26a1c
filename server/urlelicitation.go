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

// maxURLElicitations is how many pages that its client was sent to a session remembers.
const maxURLElicitations = 256

// rememberElicitation remembers that the client was told of an elicitation. The oldest is forgotten if there are too many.
func (s *session) rememberElicitation(id string) {
	s.srv.mu.Lock()
	defer s.srv.mu.Unlock()
	if len(s.urlElicitations) == maxURLElicitations {
		s.urlElicitations = slices.Delete(s.urlElicitations, 0, 1)
	}
	s.urlElicitations = append(s.urlElicitations, id)
}

// ElicitationComplete tells the client that was sent to a web page with that elicitation id that the user is done there: the id is the ElicitationID
// of the question, or of the error [mcp.URLElicitationRequired]. It does nothing for an id that it does not know: of a client that has gone, of a
// revision without such ids (all but 2025-11-25), of more than 256 questions ago. It does not wait for anybody.
// (https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation#completion-notifications-for-url-mode-elicitation)
func (s *Server) ElicitationComplete(id string) {
	s.elicitationCompleteLocal(id)
	s.bus.publish(Event{Kind: ElicitationDone, Name: id})
}

func (s *Server) elicitationCompleteLocal(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for sess := range s.sessions {
		if i := slices.Index(sess.urlElicitations, id); i >= 0 {
			sess.urlElicitations = slices.Delete(sess.urlElicitations, i, i+1)
			sess.pending.elicitations = append(sess.pending.elicitations, id)
			sess.startNotifierLocked()
		}
	}
}

func (s *session) notifyElicitationComplete(id string) {
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
	pages, err := requiredElicitations(e)
	if err != nil {
		return head, fmt.Errorf("error %d of a handler: %w", e.Code, err)
	}
	if c.ex.Modern {
		if rd := c.inputRound(); rd != nil {
			return c.elicitRequired(rd, head, e, pages)
		}
	}
	if !c.ex.ElicitationIDs || !c.Supports(URLElicitation) {
		return c.failRequest(head, urlRequiredText(e, pages))
	}
	for _, p := range pages {
		c.session.rememberElicitation(p.ElicitationID)
	}
	return head, e
}

// requiredElicitations reads what the error asks for.
func requiredElicitations(e *jsonrpc.Error) ([]mcp.ElicitRequestParams, error) {
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

// elicitRequired asks for the pages, unless the user has said no before. A handler that requires a page once more, though the user agreed to visit it, has it
// asked once more: accepting does not say that the user is done there. The keys are not the elicitation ids, since a handler may make new ones in each run.
func (c *Call) elicitRequired(rd *inputRound, head []byte, e *jsonrpc.Error, pages []mcp.ElicitRequestParams) ([]byte, error) {
	rs := c.InputRequests()
	for i, p := range pages {
		key := "required page " + strconv.Itoa(i+1)
		switch rd.dropResponse(key) {
		case mcp.ElicitActionDecline, mcp.ElicitActionCancel:
			return c.failRequest(head, "the user did not agree: "+urlRequiredText(e, pages))
		}
		rs.Elicit(key, &p)
	}
	return head, rs.Wait(c)
}

// failRequest says that the request cannot be done as things are: by a tool in words for the model.
func (c *Call) failRequest(head []byte, text string) ([]byte, error) {
	if c.method == mcp.MethodToolsCall {
		return c.appendFailure(head, text), nil
	}
	return head, jsonrpc.Errorf(jsonrpc.CodeInvalidRequest, "%s", text)
}

func urlRequiredText(e *jsonrpc.Error, pages []mcp.ElicitRequestParams) string {
	lines := []string{cmp.Or(e.Message, "the user has to visit a web page first")}
	for _, p := range pages {
		lines = append(lines, p.Message+" "+p.URL)
	}
	return strings.Join(lines, "\n")
}

// dropResponse takes out the answer to a question and returns what the user did; "" if there is none.
func (rd *inputRound) dropResponse(key string) string {
	rd.mu.Lock()
	defer rd.mu.Unlock()
	got := rd.answers[key]
	if got == nil {
		return ""
	}
	delete(rd.answers, key)
	res, err := readElicitResult(got.text)
	if err != nil {
		return ""
	}
	return res.Action
}
