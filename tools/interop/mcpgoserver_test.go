package interop

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpgo "github.com/mark3labs/mcp-go/server"
)

// mcpGoVerb as the first argument makes the test binary a server on github.com/mark3labs/mcp-go,
// whose revisions are not configurable.
const mcpGoVerb = "mcp-go"

// An mcpGoServer is the server that mcpGoVerb runs.
type mcpGoServer struct {
	*mcpgo.MCPServer
	cancelled chan struct{} // one for each canceled call of slow

	mu      sync.Mutex
	watched map[string]bool // subscribed resources, which the SDK does not record
}

func mcpGoMain([]string) int {
	if err := mcpgo.ServeStdio(newMCPGoServer().MCPServer); err != nil {
		log.Print(err)
		return 1
	}
	return 0
}

func newMCPGoServer() *mcpGoServer {
	s := &mcpGoServer{cancelled: make(chan struct{}, 16), watched: map[string]bool{}}
	hooks := &mcpgo.Hooks{}
	hooks.AddBeforeSubscribe(func(_ context.Context, _ any, r *mcp.SubscribeRequest) { s.watch(r.Params.URI, true) })
	hooks.AddBeforeUnsubscribe(func(_ context.Context, _ any, r *mcp.UnsubscribeRequest) { s.watch(r.Params.URI, false) })
	s.MCPServer = mcpgo.NewMCPServer("mcp-go", "1.2.1",
		mcpgo.WithInstructions(instructions), mcpgo.WithPaginationLimit(2), mcpgo.WithHooks(hooks),
		mcpgo.WithToolCapabilities(true), mcpgo.WithResourceCapabilities(true, true), mcpgo.WithPromptCapabilities(true),
		mcpgo.WithLogging(), mcpgo.WithCompletions(), mcpgo.WithElicitation(), mcpgo.WithRoots(), mcpgo.WithInputSchemaValidation(),
		mcpgo.WithTaskCapabilities(true, true, true),
		mcpgo.WithPromptCompletionProvider(mcpGoCompleter{}), mcpgo.WithResourceCompletionProvider(mcpGoCompleter{}))
	s.EnableSampling()
	s.addTools()
	s.addInputTools()
	s.addChanges()
	s.addTasks()
	s.addResources()
	s.addPrompts()
	return s
}

func (s *mcpGoServer) watch(uri string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watched[uri] = on
}

// add registers a tool whose result is a text.
func (s *mcpGoServer) add(name string, f func(ctx context.Context, r mcp.CallToolRequest) (string, error), options ...mcp.ToolOption) {
	s.AddTool(mcp.NewTool(name, options...), func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		text, err := f(ctx, r)
		if err != nil {
			return mcp.NewToolResultError(err.Error()), nil
		}
		return mcp.NewToolResultText(text), nil
	})
}

func (s *mcpGoServer) addTools() {
	s.add("echo", func(_ context.Context, r mcp.CallToolRequest) (string, error) { return r.GetString("text", ""), nil },
		mcp.WithString("text", mcp.Required()))
	type sum struct {
		Sum int `json:"sum"`
	}
	s.AddTool(mcp.NewTool("sum", mcp.WithNumber("a", mcp.Required()), mcp.WithNumber("b", mcp.Required()), mcp.WithOutputSchema[sum](), mcp.WithReadOnlyHintAnnotation(true)),
		func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultStructuredOnly(sum{r.GetInt("a", 0) + r.GetInt("b", 0)}), nil
		})
	s.add("fail", func(_ context.Context, r mcp.CallToolRequest) (string, error) {
		return "", errors.New(r.GetString("message", ""))
	}, mcp.WithString("message", mcp.Required()))
	s.add("slow", s.slow, mcp.WithNumber("steps", mcp.Required()), mcp.WithNumber("delay_ms", mcp.Required()))
	s.add("cancelled", func(context.Context, mcp.CallToolRequest) (string, error) {
		select {
		case <-s.cancelled:
			return "cancelled", nil
		case <-time.After(10 * time.Second):
			return "nothing was cancelled", nil
		}
	})
	s.add("log", func(ctx context.Context, _ mcp.CallToolRequest) (string, error) {
		for _, m := range logged {
			n := mcp.NewLoggingMessageNotification(mcp.LoggingLevel(m.level), "surface", m.text)
			if err := s.SendLogMessageToClient(ctx, n); err != nil {
				return "", err
			}
		}
		return "logged", nil
	})
	s.AddTool(mcp.NewTool("media"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{
			mcp.NewTextContent("text"),
			mcp.NewImageContent(pixel, "image/png"),
			mcp.NewAudioContent(pixel, "audio/wav"),
			mcp.NewResourceLink(greetingURI, "greeting", "", ""),
			mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: greetingURI, MIMEType: "text/plain", Text: greetingText}),
		}}, nil
	})
	s.add("crash", func(context.Context, mcp.CallToolRequest) (string, error) {
		os.Exit(crashStatus)
		return "", nil
	})
}

func (s *mcpGoServer) slow(ctx context.Context, r mcp.CallToolRequest) (string, error) {
	steps := r.GetInt("steps", 0)
	for i := range steps {
		select {
		case <-ctx.Done():
			s.cancelled <- struct{}{}
			return "", ctx.Err()
		case <-time.After(time.Duration(r.GetInt("delay_ms", 0)) * time.Millisecond):
		}
		if r.Params.Meta == nil || r.Params.Meta.ProgressToken == nil {
			continue
		}
		err := s.SendNotificationToClient(ctx, "notifications/progress", map[string]any{
			"progressToken": r.Params.Meta.ProgressToken, "progress": i + 1, "total": steps, "message": "a step",
		})
		if err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("done after %d steps", steps), nil
}

// addInputTools adds the tools with input requests. From the same handlers, the SDK sends them to
// legacy clients as requests and to modern ones in results.
func (s *mcpGoServer) addInputTools() {
	addTool := func(name string, ask func(*mcpgo.InputRequestBuilder), take func(mcp.InputResponses) string) {
		s.AddTool(mcp.NewTool(name), func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			if _, ok := r.Params.InputResponses["question"]; !ok {
				b := mcpgo.NewInputRequestBuilder(trickyState)
				ask(b)
				return b.ToolResult(), nil
			}
			if r.Params.RequestState != trickyState {
				return mcp.NewToolResultErrorf("requestState = %q", r.Params.RequestState), nil
			}
			return mcp.NewToolResultText(take(r.Params.InputResponses)), nil
		})
	}
	addTool("ask", func(b *mcpgo.InputRequestBuilder) { b.Elicit("question", mcpGoAsk) }, mcpGoAsked)
	addTool("visit", func(b *mcpgo.InputRequestBuilder) {
		b.Elicit("question", mcp.ElicitationParams{Mode: mcp.ElicitationModeURL, Message: visitMessage, URL: visitURL, ElicitationID: "e1"})
	}, func(all mcp.InputResponses) string {
		return string(mcpgo.ElicitationResponse(all, "question").Action)
	})
	addTool("sample", func(b *mcpgo.InputRequestBuilder) {
		b.Sample("question", mcp.CreateMessageParams{MaxTokens: 50, Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent(sampleText)}}})
	}, func(all mcp.InputResponses) string {
		a := mcpgo.SamplingResponse(all, "question")
		text, ok := a.Content.(mcp.TextContent)
		if !ok { // as decoded from inputResponses
			members, _ := a.Content.(map[string]any)
			text.Text, _ = members["text"].(string)
		}
		return text.Text + " by " + a.Model
	})
	addTool("roots", func(b *mcpgo.InputRequestBuilder) { b.Roots("question") }, func(all mcp.InputResponses) string {
		var lines []string
		for _, root := range mcpgo.RootsResponse(all, "question").Roots {
			lines = append(lines, strings.TrimSpace(root.URI+" "+root.Name))
		}
		return strings.Join(lines, ", ")
	})
}

// mcpGoAsk is the input request of the tool ask.
var mcpGoAsk = mcp.ElicitationParams{Message: askMessage, RequestedSchema: json.RawMessage(askSchema)}

// mcpGoAsked returns the result of the tool ask for an elicitation result.
func mcpGoAsked(all mcp.InputResponses) string {
	a := mcpgo.ElicitationResponse(all, "question")
	if a.Action != mcp.ElicitationResponseActionAccept {
		return string(a.Action)
	}
	content, _ := a.Content.(map[string]any)
	return fmt.Sprintf("accept %v %v", content["name"], content["age"])
}

func (s *mcpGoServer) addChanges() {
	s.add("extend", func(context.Context, mcp.CallToolRequest) (string, error) {
		s.add("extra", func(context.Context, mcp.CallToolRequest) (string, error) { return "extra", nil })
		return "extended", nil
	})
	s.add("touch", func(ctx context.Context, r mcp.CallToolRequest) (string, error) {
		uri := r.GetString("uri", "")
		s.mu.Lock()
		watched := s.watched[uri]
		s.mu.Unlock()
		if !watched {
			return "touched", nil
		}
		return "touched", s.SendNotificationToClient(ctx, "notifications/resources/updated", map[string]any{"uri": uri})
	}, mcp.WithString("uri", mcp.Required()))
}

func (s *mcpGoServer) addTasks() {
	tool := mcp.NewTool("work", mcp.WithTaskSupport(mcp.TaskSupportOptional), mcp.WithString("text", mcp.Required()), mcp.WithNumber("for_ms"))
	s.AddTaskTool(tool, func(_ context.Context, r mcp.CallToolRequest) (*mcp.CreateTaskResult, error) {
		// The handler cannot use its context, which ends with the response, before the work begins.
		<-time.After(time.Duration(r.GetInt("for_ms", 0)) * time.Millisecond)
		return &mcp.CreateTaskResult{Content: []mcp.Content{mcp.NewTextContent("worked on " + r.GetString("text", ""))}}, nil
	})
}

func (s *mcpGoServer) addResources() {
	read := func(_ context.Context, r mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
		uri := r.Params.URI
		id, item := strings.CutPrefix(uri, "test://items/")
		switch {
		case uri == missingItem:
			return nil, mcpgo.ErrResourceNotFound
		case item:
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: uri, MIMEType: "text/plain", Text: "item " + id}}, nil
		case uri == greetingURI:
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: uri, MIMEType: "text/plain", Text: greetingText}}, nil
		case uri == logoURI:
			return []mcp.ResourceContents{mcp.BlobResourceContents{URI: uri, MIMEType: "image/png", Blob: base64.StdEncoding.EncodeToString(logo)}}, nil
		}
		return []mcp.ResourceContents{mcp.TextResourceContents{URI: uri, Text: "the resource " + uri}}, nil
	}
	for _, uri := range []string{"test://a", "test://b", "test://c"} {
		s.AddResource(mcp.NewResource(uri, uri), read)
	}
	s.AddResource(mcp.NewResource(greetingURI, "greeting", mcp.WithMIMEType("text/plain")), read)
	s.AddResource(mcp.NewResource(logoURI, "logo", mcp.WithMIMEType("image/png")), read)
	s.AddResourceTemplate(mcp.NewResourceTemplate(itemTemplate, "items", mcp.WithTemplateMIMEType("text/plain")), read)
}

func (s *mcpGoServer) addPrompts() {
	s.AddPrompt(mcp.NewPrompt("greet", mcp.WithArgument("name", mcp.RequiredArgument()), mcp.WithArgument("style")),
		func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			name, style := r.Params.Arguments["name"], cmp.Or(r.Params.Arguments["style"], "friendly")
			if name == "" {
				return nil, errors.New("the argument name is missing")
			}
			return mcp.NewGetPromptResult("", []mcp.PromptMessage{
				mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent("Greet "+name+" in a "+style+" way.")),
				mcp.NewPromptMessage(mcp.RoleAssistant, mcp.NewTextContent("Hello, "+name+"!")),
			}), nil
		})
	s.AddPrompt(mcp.NewPrompt("asked"), func(_ context.Context, r mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		if _, ok := r.Params.InputResponses["question"]; !ok {
			return mcpgo.NewInputRequestBuilder("").Elicit("question", mcpGoAsk).PromptResult(), nil
		}
		text := mcp.NewTextContent(mcpGoAsked(r.Params.InputResponses))
		return mcp.NewGetPromptResult("", []mcp.PromptMessage{mcp.NewPromptMessage(mcp.RoleUser, text)}), nil
	})
	s.AddPrompt(mcp.NewPrompt("review"), func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		greeting := mcp.NewEmbeddedResource(mcp.TextResourceContents{URI: greetingURI, MIMEType: "text/plain", Text: greetingText})
		return mcp.NewGetPromptResult("", []mcp.PromptMessage{mcp.NewPromptMessage(mcp.RoleUser, greeting)}), nil
	})
}

// An mcpGoCompleter completes arguments with suggest.
type mcpGoCompleter struct{}

func (mcpGoCompleter) CompletePromptArgument(_ context.Context, _ string, arg mcp.CompleteArgument, known mcp.CompleteContext) (*mcp.Completion, error) {
	values := suggest(arg.Name, arg.Value, known.Arguments)
	return &mcp.Completion{Values: values, Total: len(values)}, nil
}

func (c mcpGoCompleter) CompleteResourceArgument(ctx context.Context, uri string, arg mcp.CompleteArgument, known mcp.CompleteContext) (*mcp.Completion, error) {
	return c.CompletePromptArgument(ctx, uri, arg, known)
}

var mcpGoPeer = &peer{
	name:      mcpGoName,
	info:      "mcp-go",
	revisions: allRevisions,
	launch: func(t *testing.T, _ ...string) *recordedServer {
		t.Helper()
		return newProgram(t, mcpGoVerb)
	},
	quirks: map[string]string{
		"late progress":                              "notifications have a separate queue, so some come after the result",
		"late log":                                   "notifications have a separate queue, so some come after the result",
		"content of later revisions":                 "it sends all kinds of content in every revision",
		"changes without subscription id":            "on standard output, notifications of changes lack the subscription id",
		"handlers cannot report an unknown resource": "the SDK makes errors of handlers internal errors",
		"resources cannot send input requests":       "handlers of resources return contents, not results",
		"tasks cannot send input requests":           "the SDK has no input requests in tasks",
		"no tasks in 2026-07-28":                     "it does not support the extension",
	},
	deviations: func(revision string) []deviation {
		known := append(contentDeviations(revision),
			deviation{rule: serverCancelled, has: "tools/call", why: "it sends the results of canceled calls"},
			deviation{rule: serverProgress, why: "notifications have a separate queue, so some come after the result", racy: true})
		if revision == modern {
			known = append(known,
				deviation{rule: serverCancelled, has: "subscriptions/listen", why: "it sends the results of canceled subscriptions"},
				deviation{rule: serverListen, has: "change without a subscription", why: "on standard output, notifications of changes lack the subscription id"},
				deviation{rule: serverLogging, why: "notifications have a separate queue, so some come after the result", racy: true})
		}
		if revision == latestLegacy {
			known = append(known, deviation{rule: serverSchema, has: `missing required property "ttl"`, why: "it omits the time to live of a task without one, where null is required"})
		}
		return known
	},
}

// TestMCPGoServer runs our client against a server of the SDK.
func TestMCPGoServer(t *testing.T) { runTours(t, mcpGoPeer) }
