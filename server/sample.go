package server

import (
	"context"
	"errors"
	"fmt"

	"mcpwire/internal/text/clip"
	"mcpwire/mcp"
	"mcpwire/schema"
)

// Sample asks the client's model to continue a conversation
// (https://modelcontextprotocol.io/specification/2026-07-28/client/sampling). p holds the messages,
// the token limit, and optionally tools that the model may use. If the result's StopReason is
// [mcp.StopReasonToolUse], run the tools, add the result and their results to the messages, and
// call Sample again under another key.
//
// In modern revisions the handler RUNS AGAIN FROM ITS BEGINNING to get the response; see
// [InputRequests.Wait] for that and for the errors. Each run must ask the same under the same key.
// The specification deprecates sampling since 2026-07-28.
//
// If the client has not declared the context capability, IncludeContext is left out. Sample does
// not modify or keep p.
func (c *Call) Sample(ctx context.Context, key string, p *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
	return requestInput(ctx, c, func(q *InputRequests) *Reply[*mcp.CreateMessageResult] { return q.Sample(key, p) })
}

// Sample adds the input request of [Call.Sample].
func (rs *InputRequests) Sample(key string, p *mcp.CreateMessageRequestParams) *Reply[*mcp.CreateMessageResult] {
	c := rs.call
	r := new(Reply[*mcp.CreateMessageResult])
	q := &inputRequest{key: key, method: mcp.MethodCreateMessage, feature: Sampling}
	if p == nil {
		rs.add(q, errNoParams)
		return r
	}
	s := *p
	if s.Tools != nil || s.ToolChoice != nil || usesTools(s.Messages) {
		q.feature = SamplingTools
	}
	if c.ex.SamplingTools && !c.ClientHas("sampling", "context") {
		s.IncludeContext = ""
	}
	err := checkSampling(&s)
	if err == nil {
		q.params = mcp.Append(nil, &s, c.ex.Features.Revision)
	}
	q.decode = func(text []byte) error {
		res := new(mcp.CreateMessageResult)
		if err := res.UnmarshalJSON(text); err != nil {
			return err
		}
		if err := checkRole(res.Role); err != nil {
			return err
		}
		r.value = res
		return nil
	}
	rs.add(q, err)
	return r
}

var (
	errMaxTokens   = errors.New("maxTokens must be more than 0")
	errNoMessages  = errors.New("it needs messages")
	errBlocks      = errors.New("it needs content")
	errMixed       = errors.New("a message with tool results must contain nothing else")
	errToolUser    = errors.New("tool results have the role user, tool uses the role assistant")
	errBlockKind   = errors.New("a sampling message has only text, images, audio, tool uses and tool results")
	errIncluded    = errors.New("includeContext must be none, thisServer or allServers")
	errChoice      = errors.New("toolChoice.mode must be auto, required or none")
	errTemperature = errors.New("temperature must be a finite number that is not negative")
	errPreferences = errors.New("the priorities in modelPreferences must be from 0 to 1")
)

func checkRole(r mcp.Role) error {
	if r != mcp.RoleUser && r != mcp.RoleAssistant {
		return fmt.Errorf("role %q: want user or assistant", clip.String(string(r), 100))
	}
	return nil
}

// checkSampling checks what clients must reject.
func checkSampling(p *mcp.CreateMessageRequestParams) error {
	switch {
	case p.MaxTokens <= 0:
		return errMaxTokens
	case len(p.Messages) == 0:
		return errNoMessages
	case p.Task != nil:
		return errInputTask
	case p.Temperature != nil && !(*p.Temperature >= 0 && *p.Temperature < 1e9):
		return errTemperature
	case !inRange(p.ModelPreferences):
		return errPreferences
	}
	switch p.IncludeContext {
	case "", mcp.IncludeContextNone, mcp.IncludeContextThisServer, mcp.IncludeContextAllServers:
	default:
		return errIncluded
	}
	if p.ToolChoice != nil {
		switch p.ToolChoice.Mode {
		case "", mcp.ToolChoiceAuto, mcp.ToolChoiceRequired, mcp.ToolChoiceNone:
		default:
			return errChoice
		}
	}
	for i := range p.Tools {
		if err := checkSampledTool(&p.Tools[i]); err != nil {
			return fmt.Errorf("tools[%d]: %w", i, err)
		}
	}
	if err := checkMeta(p.Meta); err != nil {
		return err
	}
	if p.Metadata != nil {
		if err := checkObject(p.Metadata); err != nil {
			return fmt.Errorf("metadata: %w", err)
		}
	}
	return checkConversation(p.Messages)
}

func inRange(p *mcp.ModelPreferences) bool {
	if p == nil {
		return true
	}
	for _, f := range []*float64{p.CostPriority, p.SpeedPriority, p.IntelligencePriority} {
		if f != nil && !(*f >= 0 && *f <= 1) { // also rejects NaN
			return false
		}
	}
	return true
}

func checkSampledTool(t *mcp.Tool) error {
	if t.Name == "" {
		return errNoName
	}
	v, err := schema.Compile(t.InputSchema, func([]byte) (func([]byte) error, error) { return func([]byte) error { return nil }, nil })
	if err != nil {
		return fmt.Errorf("input schema: %w", err)
	}
	if !isObjectSchema(v.JSON()) {
		return errNotObject
	}
	return nil
}

// usesTools reports whether the messages contain tool uses or results, which not all clients
// support.
func usesTools(messages []mcp.SamplingMessage) bool {
	for i := range messages {
		for _, block := range messages[i].Content {
			switch block.(type) {
			case mcp.ToolUseContent, *mcp.ToolUseContent, mcp.ToolResultContent, *mcp.ToolResultContent:
				return true
			}
		}
	}
	return false
}

// checkConversation checks that the message after each tool use holds its results and nothing else
// (https://modelcontextprotocol.io/specification/2026-07-28/client/sampling#message-content-constraints).
func checkConversation(messages []mcp.SamplingMessage) error {
	var open map[string]bool // tool uses in the previous message
	for i := range messages {
		uses, results, err := checkMessage(&messages[i])
		if err != nil {
			return fmt.Errorf("messages[%d]: %w", i, err)
		}
		for _, id := range results {
			if !open[id] {
				return fmt.Errorf("messages[%d]: the tool result for %q has no tool use in the previous message, or is a duplicate", i, clip.String(id, 100))
			}
			delete(open, id)
		}
		for id := range open {
			return fmt.Errorf("messages[%d]: the tool use %q in the previous message has no result", i, clip.String(id, 100))
		}
		open = make(map[string]bool, len(uses))
		for _, id := range uses {
			if id == "" || open[id] {
				return fmt.Errorf("messages[%d]: each tool use needs an id", i)
			}
			open[id] = true
		}
	}
	for id := range open {
		return fmt.Errorf("messages[%d]: the tool use %q has no result", len(messages)-1, clip.String(id, 100))
	}
	return nil
}

// checkMessage checks a single message and returns the ids of its tool uses and results.
func checkMessage(m *mcp.SamplingMessage) (uses, results []string, err error) {
	if err := checkRole(m.Role); err != nil {
		return nil, nil, err
	}
	if len(m.Content) == 0 {
		return nil, nil, errBlocks
	}
	for k, block := range m.Content {
		block, err := mcp.CheckContent(block)
		if err != nil {
			return nil, nil, fmt.Errorf("content[%d]: %w", k, err)
		}
		switch v := block.(type) {
		case mcp.TextContent, mcp.ImageContent, mcp.AudioContent, mcp.UnknownContent:
		case mcp.ToolUseContent:
			uses = append(uses, v.ID)
		case mcp.ToolResultContent:
			results = append(results, v.ToolUseID)
		default:
			return nil, nil, fmt.Errorf("content[%d]: %w", k, errBlockKind)
		}
	}
	switch {
	case len(results) > 0 && len(results) < len(m.Content):
		return nil, nil, errMixed
	case len(uses) > 0 && m.Role != mcp.RoleAssistant, len(results) > 0 && m.Role != mcp.RoleUser:
		return nil, nil, errToolUser
	}
	return uses, results, nil
}

// Roots asks the client for the folders that it works in
// (https://modelcontextprotocol.io/specification/2026-07-28/client/roots). Roots are a hint for the
// server, not an access control. The client supplies the URIs; they are not validated.
//
// In modern revisions the handler RUNS AGAIN FROM ITS BEGINNING to get the response; see
// [InputRequests.Wait] for that and for the errors. The specification deprecates roots since
// 2026-07-28.
func (c *Call) Roots(ctx context.Context, key string) ([]mcp.Root, error) {
	return requestInput(ctx, c, func(q *InputRequests) *Reply[[]mcp.Root] { return q.Roots(key) })
}

// Roots adds the input request of [Call.Roots].
func (rs *InputRequests) Roots(key string) *Reply[[]mcp.Root] {
	r := new(Reply[[]mcp.Root])
	rs.add(&inputRequest{key: key, method: mcp.MethodRootsList, feature: Roots, decode: func(text []byte) error {
		var res mcp.ListRootsResult
		if err := res.UnmarshalJSON(text); err != nil {
			return err
		}
		r.value = res.Roots
		return nil
	}}, nil)
	return r
}
