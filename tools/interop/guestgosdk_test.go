package interop

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A goSDKGuest is a client of github.com/modelcontextprotocol/go-sdk with all handlers.
type goSDKGuest struct {
	*mcp.ClientSession
	notifications *notes
	progress      progressHandlers
	level         string // of the log messages that requests of the modern era request
}

func newGoSDKGuest(ctx context.Context, t *testing.T, s *recordedServer, revision string) *goSDKGuest {
	t.Helper()
	g := &goSDKGuest{notifications: newNotes()}
	options := &mcp.ClientOptions{
		Capabilities: &mcp.ClientCapabilities{
			//lint:ignore SA1019 roots are deprecated and there
			RootsV2:     &mcp.RootCapabilities{ListChanged: true},
			Elicitation: &mcp.ElicitationCapabilities{Form: &mcp.FormElicitationCapabilities{}, URL: &mcp.URLElicitationCapabilities{}},
		},
		ElicitationHandler: g.elicit,
		//lint:ignore SA1019 sampling is deprecated and there
		CreateMessageHandler: g.sample,
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) {
			g.notifications.events <- "tools changed"
		},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			g.notifications.events <- "updated " + r.Params.URI
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			g.progress.notify(r.Params.ProgressToken, r.Params.Progress)
		},
		//lint:ignore SA1019 logging is deprecated and there
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			g.notifications.log <- fmt.Sprintf("%s %s %s", r.Params.Level, r.Params.Logger, r.Params.Data)
		},
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, options)
	//lint:ignore SA1019 roots are deprecated and there
	client.AddRoots(&mcp.Root{URI: "file:///projects/a", Name: "Project A"}, &mcp.Root{URI: "file:///projects/b"})
	client.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, r mcp.Request) (mcp.Result, error) {
			if method == "notifications/subscriptions/acknowledged" {
				g.notifications.acked <- method
			}
			return next(ctx, method, r)
		}
	})
	var err error
	if g.ClientSession, err = client.Connect(ctx, goSDKTransport(s), &mcp.ClientSessionOptions{ProtocolVersion: revision}); err != nil {
		t.Fatalf("connect: %v", err)
	}
	return g
}

func (g *goSDKGuest) elicit(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
	if r.Params.Mode == "url" {
		g.notifications.inputRequests <- "visit " + r.Params.URL + ": " + r.Params.Message
		return &mcp.ElicitResult{Action: "accept"}, nil
	}
	g.notifications.inputRequests <- formLine(r.Params.RequestedSchema, r.Params.Message)
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada", "age": 36}}, nil
}

//lint:ignore SA1019 sampling is deprecated and there
func (g *goSDKGuest) sample(_ context.Context, r *mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	text, _ := r.Params.Messages[0].Content.(*mcp.TextContent)
	g.notifications.inputRequests <- fmt.Sprintf("sample %s up to %d: %s", r.Params.Messages[0].Role, r.Params.MaxTokens, text.Text)
	//lint:ignore SA1019 sampling is deprecated and there
	return &mcp.CreateMessageResult{Model: "test-model", Role: "assistant", StopReason: "endTurn", Content: &mcp.TextContent{Text: "hello"}}, nil
}

func (g *goSDKGuest) revision() string { return g.InitializeResult().ProtocolVersion }

func (g *goSDKGuest) about() (name, instructions string) {
	r := g.InitializeResult()
	return r.ServerInfo.Name, r.Instructions
}

func (g *goSDKGuest) tools(ctx context.Context) (names []string, err error) {
	for tool, err := range g.Tools(ctx, nil) {
		if err != nil {
			return nil, err
		}
		names = append(names, tool.Name)
	}
	return names, nil
}

func (g *goSDKGuest) resources(ctx context.Context) (uris []string, err error) {
	for r, err := range g.Resources(ctx, nil) {
		if err != nil {
			return nil, err
		}
		uris = append(uris, r.URI)
	}
	return uris, nil
}

func (g *goSDKGuest) templates(ctx context.Context) (templates []string, err error) {
	for r, err := range g.ResourceTemplates(ctx, nil) {
		if err != nil {
			return nil, err
		}
		templates = append(templates, r.URITemplate)
	}
	return templates, nil
}

func (g *goSDKGuest) prompts(ctx context.Context) (names []string, err error) {
	for p, err := range g.Prompts(ctx, nil) {
		if err != nil {
			return nil, err
		}
		names = append(names, p.Name)
	}
	return names, nil
}

func (g *goSDKGuest) read(ctx context.Context, uri string) (string, error) {
	r, err := g.ReadResource(ctx, &mcp.ReadResourceParams{URI: uri})
	if err != nil {
		return "", err
	}
	c := r.Contents[0]
	if c.Blob != nil {
		return c.MIMEType + " " + base64.StdEncoding.EncodeToString(c.Blob), nil
	}
	return c.MIMEType + " " + c.Text, nil
}

func (g *goSDKGuest) prompt(ctx context.Context, name string, args map[string]string) (lines []string, err error) {
	r, err := g.GetPrompt(ctx, &mcp.GetPromptParams{Name: name, Arguments: args})
	if err != nil {
		return nil, err
	}
	for _, m := range r.Messages {
		text, _ := m.Content.(*mcp.TextContent)
		lines = append(lines, string(m.Role)+": "+text.Text)
	}
	return lines, nil
}

func (g *goSDKGuest) complete(ctx context.Context, template bool, of, argument, value string, known map[string]string) ([]string, error) {
	p := &mcp.CompleteParams{Argument: mcp.CompleteParamsArgument{Name: argument, Value: value}, Ref: &mcp.CompleteReference{Type: "ref/prompt", Name: of}}
	if template {
		p.Ref = &mcp.CompleteReference{Type: "ref/resource", URI: of}
	}
	if known != nil {
		p.Context = &mcp.CompleteContext{Arguments: known}
	}
	r, err := g.Complete(ctx, p)
	if err != nil {
		return nil, err
	}
	return r.Completion.Values, nil
}

func (g *goSDKGuest) text(ctx context.Context, tool string, args map[string]any) (string, error) {
	params := &mcp.CallToolParams{Name: tool, Arguments: args}
	if g.level != "" && tool == "log" {
		params.Meta = mcp.Meta{"io.modelcontextprotocol/logLevel": g.level}
	}
	return goSDKCalled(g.CallTool(ctx, params))
}

func goSDKCalled(r *mcp.CallToolResult, err error) (string, error) {
	if err != nil {
		return "", err
	}
	text, _ := r.Content[0].(*mcp.TextContent)
	if r.IsError {
		return "", errors.New(text.Text)
	}
	return text.Text, nil
}

func (g *goSDKGuest) slow(ctx context.Context, args map[string]any, progress func(float64)) (string, error) {
	params := &mcp.CallToolParams{Name: "slow", Arguments: args}
	params.SetProgressToken(g.progress.add(progress))
	return goSDKCalled(g.CallTool(ctx, params))
}

func (g *goSDKGuest) logFrom(ctx context.Context) error {
	if g.revision() == modern {
		g.level = "info"
		return nil
	}
	//lint:ignore SA1019 logging is deprecated and there
	return g.SetLoggingLevel(ctx, &mcp.SetLoggingLevelParams{Level: "info"})
}

// watch subscribes to the resource. The SDK subscribed to changes of the tools when it connected.
func (g *goSDKGuest) watch(ctx context.Context, uri string) error {
	if err := g.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}); err != nil || g.revision() != modern {
		return err
	}
	_, err := collectNotes(ctx, g.notifications.acked, 2)
	return err
}

func (g *goSDKGuest) code(err error) int {
	if wire := (*jsonrpc.Error)(nil); errors.As(err, &wire) {
		return int(wire.Code)
	}
	return 0
}

func (g *goSDKGuest) notes() *notes { return g.notifications }

func (g *goSDKGuest) close() error { return g.Close() }

// TestGoSDKVisit lets a client of the SDK visit our server.
func TestGoSDKVisit(t *testing.T) {
	for _, revision := range allRevisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			s := newProgram(t, everythingVerb)
			// The SDK does not support tasks.
			able := featuresOf(revision).without(withoutTasks)
			g := newGoSDKGuest(t.Context(), t, s, revision)
			checkVisit(t, makeVisit(t, g, able), expected(revision, able))
			s.audit(1)
		})
	}
}
