package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// An mcpGoGuest is a client of github.com/mark3labs/mcp-go with all handlers.
type mcpGoGuest struct {
	client        *client.Client
	started       *mcp.InitializeResult
	notifications *notes
	progress      progressHandlers
	stop          func() // ends the subscription; nil without one
}

func newMCPGoGuest(ctx context.Context, t *testing.T, s *recordedServer, revision string) *mcpGoGuest {
	t.Helper()
	g := &mcpGoGuest{notifications: newNotes()}
	capabilities := mcp.ClientCapabilities{Elicitation: &mcp.ElicitationCapability{Form: &struct{}{}, URL: &struct{}{}}}
	g.client = client.NewClient(mcpGoTransport(t, s, revision), client.WithProtocolVersion(revision), client.WithClientCapabilities(capabilities),
		client.WithElicitationHandler(g), client.WithSamplingHandler(g), client.WithRootsHandler(g))
	g.client.OnNotification(g.notified)
	if err := g.client.Start(ctx); err != nil {
		t.Fatalf("start: %v", err)
	}
	var request mcp.InitializeRequest
	request.Params.ClientInfo = mcp.Implementation{Name: "interop", Version: "1"}
	request.Params.Capabilities = capabilities
	var err error
	if g.started, err = g.client.Initialize(ctx, request); err != nil {
		g.client.Close()
		t.Fatalf("initialize: %v", err)
	}
	return g
}

func (g *mcpGoGuest) notified(n mcp.JSONRPCNotification) {
	fields := n.Params.AdditionalFields
	switch n.Method {
	case "notifications/progress":
		value, _ := fields["progress"].(float64)
		g.progress.notify(fields["progressToken"], value)
	case "notifications/message":
		g.notifications.log <- fmt.Sprintf("%s %s %s", fields["level"], fields["logger"], fields["data"])
	case "notifications/resources/updated":
		g.notifications.events <- fmt.Sprintf("updated %s", fields["uri"])
	case "notifications/tools/list_changed":
		g.notifications.events <- "tools changed"
	case "notifications/subscriptions/acknowledged":
		g.notifications.acked <- n.Method
	}
}

func (g *mcpGoGuest) Elicit(_ context.Context, r mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	accept := &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{Action: mcp.ElicitationResponseActionAccept}}
	if r.Params.Mode == mcp.ElicitationModeURL {
		g.notifications.inputRequests <- "visit " + r.Params.URL + ": " + r.Params.Message
		return accept, nil
	}
	g.notifications.inputRequests <- formLine(r.Params.RequestedSchema, r.Params.Message)
	accept.Content = map[string]any{"name": "Ada", "age": 36}
	return accept, nil
}

func (g *mcpGoGuest) CreateMessage(_ context.Context, r mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	message := r.Messages[0]
	text, ok := message.Content.(mcp.TextContent)
	if !ok { // as decoded from inputRequests
		members, _ := message.Content.(map[string]any)
		text.Text, _ = members["text"].(string)
	}
	g.notifications.inputRequests <- fmt.Sprintf("sample %s up to %d: %s", message.Role, r.MaxTokens, text.Text)
	return &mcp.CreateMessageResult{
		SamplingMessage: mcp.SamplingMessage{Role: mcp.RoleAssistant, Content: mcp.NewTextContent("hello")}, Model: "test-model", StopReason: "endTurn",
	}, nil
}

func (g *mcpGoGuest) ListRoots(context.Context, mcp.ListRootsRequest) (*mcp.ListRootsResult, error) {
	return &mcp.ListRootsResult{Roots: []mcp.Root{{URI: "file:///projects/a", Name: "Project A"}, {URI: "file:///projects/b"}}}, nil
}

func (g *mcpGoGuest) revision() string { return g.started.ProtocolVersion }

func (g *mcpGoGuest) about() (name, instructions string) {
	return g.started.ServerInfo.Name, g.started.Instructions
}

func (g *mcpGoGuest) tools(ctx context.Context) (names []string, err error) {
	r, err := g.client.ListTools(ctx, mcp.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	for _, tool := range r.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}

func (g *mcpGoGuest) resources(ctx context.Context) (uris []string, err error) {
	r, err := g.client.ListResources(ctx, mcp.ListResourcesRequest{})
	if err != nil {
		return nil, err
	}
	for _, resource := range r.Resources {
		uris = append(uris, resource.URI)
	}
	return uris, nil
}

func (g *mcpGoGuest) templates(ctx context.Context) (templates []string, err error) {
	r, err := g.client.ListResourceTemplates(ctx, mcp.ListResourceTemplatesRequest{})
	if err != nil {
		return nil, err
	}
	for _, template := range r.ResourceTemplates {
		templates = append(templates, template.URITemplate.Raw())
	}
	return templates, nil
}

func (g *mcpGoGuest) prompts(ctx context.Context) (names []string, err error) {
	r, err := g.client.ListPrompts(ctx, mcp.ListPromptsRequest{})
	if err != nil {
		return nil, err
	}
	for _, prompt := range r.Prompts {
		names = append(names, prompt.Name)
	}
	return names, nil
}

func (g *mcpGoGuest) read(ctx context.Context, uri string) (string, error) {
	var request mcp.ReadResourceRequest
	request.Params.URI = uri
	r, err := g.client.ReadResource(ctx, request)
	if err != nil {
		return "", err
	}
	switch c := r.Contents[0].(type) {
	case mcp.TextResourceContents:
		return c.MIMEType + " " + c.Text, nil
	case mcp.BlobResourceContents:
		return c.MIMEType + " " + c.Blob, nil
	}
	return "", fmt.Errorf("unknown contents %T", r.Contents[0])
}

func (g *mcpGoGuest) prompt(ctx context.Context, name string, args map[string]string) (lines []string, err error) {
	var request mcp.GetPromptRequest
	request.Params.Name, request.Params.Arguments = name, args
	r, err := g.client.GetPrompt(ctx, request)
	if err != nil {
		return nil, err
	}
	for _, m := range r.Messages {
		text, _ := m.Content.(mcp.TextContent)
		lines = append(lines, string(m.Role)+": "+text.Text)
	}
	return lines, nil
}

func (g *mcpGoGuest) complete(ctx context.Context, template bool, of, argument, value string, known map[string]string) ([]string, error) {
	var request mcp.CompleteRequest
	request.Params.Ref = mcp.PromptReference{Type: "ref/prompt", Name: of}
	if template {
		request.Params.Ref = mcp.ResourceReference{Type: "ref/resource", URI: of}
	}
	request.Params.Argument = mcp.CompleteArgument{Name: argument, Value: value}
	request.Params.Context.Arguments = known
	r, err := g.client.Complete(ctx, request)
	if err != nil {
		return nil, err
	}
	return r.Completion.Values, nil
}

func (g *mcpGoGuest) text(ctx context.Context, tool string, args map[string]any) (string, error) {
	var request mcp.CallToolRequest
	request.Params.Name, request.Params.Arguments = tool, args
	return g.call(ctx, request)
}

func (g *mcpGoGuest) slow(ctx context.Context, args map[string]any, progress func(float64)) (string, error) {
	var request mcp.CallToolRequest
	request.Params.Name, request.Params.Arguments = "slow", args
	request.Params.Meta = &mcp.Meta{ProgressToken: g.progress.add(progress)}
	return g.call(ctx, request)
}

func (g *mcpGoGuest) call(ctx context.Context, request mcp.CallToolRequest) (string, error) {
	r, err := g.client.CallTool(ctx, request)
	if err != nil {
		return "", err
	}
	return mcpGoText(r.Content, r.IsError)
}

func mcpGoText(content []mcp.Content, isError bool) (string, error) {
	text, _ := content[0].(mcp.TextContent)
	if isError {
		return "", errors.New(text.Text)
	}
	return text.Text, nil
}

func (g *mcpGoGuest) logFrom(ctx context.Context) error {
	var request mcp.SetLevelRequest
	request.Params.Level = mcp.LoggingLevelInfo
	//lint:ignore SA1019 logging is deprecated and there
	return g.client.SetLevel(ctx, request)
}

func (g *mcpGoGuest) watch(ctx context.Context, uri string) (err error) {
	if g.revision() == modern {
		g.stop, err = g.client.ListenAsync(ctx, mcp.SubscriptionFilter{ResourceSubscriptions: []string{uri}, ToolsListChanged: true}, nil)
		if err != nil {
			return err
		}
		_, err = collectNotes(ctx, g.notifications.acked, 1)
		return err
	}
	var request mcp.SubscribeRequest
	request.Params.URI = uri
	//lint:ignore SA1019 the legacy era has it
	return g.client.Subscribe(ctx, request)
}

// runTasks runs tasks. The SDK's CallTool has no result for a created task.
func (g *mcpGoGuest) runTasks(ctx context.Context, interview bool) (map[string]string, error) {
	done := map[string]string{}
	start := func(tool string, args map[string]any) (id string, err error) {
		params := map[string]any{"name": tool, "arguments": args, "task": map[string]any{"ttl": 60_000}}
		request := transport.JSONRPCRequest{JSONRPC: "2.0", ID: mcp.NewRequestId(fmt.Sprint("task ", len(done))), Method: "tools/call", Params: params}
		r, err := g.client.GetTransport().SendRequest(ctx, request)
		if err != nil {
			return "", err
		}
		var created mcp.CreateTaskResult
		if err := json.Unmarshal(r.Result, &created); err != nil {
			return "", err
		}
		return created.Task.TaskId, nil
	}
	result := func(id string) (string, error) {
		var request mcp.TaskResultRequest
		request.Params.TaskId = id
		r, err := g.client.TaskResult(ctx, request)
		if err != nil {
			return "", err
		}
		return mcpGoText(r.Content, r.IsError)
	}
	id, err := start("work", map[string]any{"text": "a task", "for_ms": 50})
	if err != nil {
		return done, err
	}
	var wait mcp.GetTaskRequest
	wait.Params.TaskId = id
	if _, err := g.client.WaitForTask(ctx, wait, 10*time.Millisecond); err != nil {
		return done, err
	}
	if done["work"], err = result(id); err != nil {
		return done, err
	}
	if id, err = start("work", map[string]any{"text": "a task", "for_ms": 60_000}); err != nil {
		return done, err
	}
	var cancel mcp.CancelTaskRequest
	cancel.Params.TaskId = id
	cancelled, err := g.client.CancelTask(ctx, cancel)
	if err != nil {
		return done, err
	}
	done["cancel"] = string(cancelled.Status)
	if !interview {
		return done, nil
	}
	if id, err = start("interview", map[string]any{}); err != nil {
		return done, err
	}
	done["interview"], err = result(id)
	return done, err
}

func (g *mcpGoGuest) code(err error) int {
	switch {
	case errors.Is(err, mcp.ErrInvalidParams):
		return mcp.INVALID_PARAMS
	case errors.Is(err, mcp.ErrResourceNotFound):
		return mcp.RESOURCE_NOT_FOUND
	}
	return 0
}

func (g *mcpGoGuest) notes() *notes { return g.notifications }

func (g *mcpGoGuest) close() error {
	if g.stop != nil {
		g.stop()
	}
	return g.client.Close()
}

// TestMCPGoVisit lets a client of the SDK visit our server.
func TestMCPGoVisit(t *testing.T) {
	for _, revision := range allRevisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			s := newProgram(t, everythingVerb)
			// The SDK does not support the tasks extension.
			able := featuresOf(revision).without(func(c *features) { c.Tasks, c.Interview = revision == latestLegacy, revision == latestLegacy })
			g := newMCPGoGuest(t.Context(), t, s, revision)
			checkVisit(t, makeVisit(t, g, able), expected(revision, able))
			s.audit(1)
		})
	}
}
