package interop

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// goSDKVerb as the first argument makes the test binary a server on
// github.com/modelcontextprotocol/go-sdk. Further arguments are the supported revisions; without
// any, it supports all.
const goSDKVerb = "go-sdk"

// trickyState is a requestState that a wrong encoding would change.
const trickyState = "st\u00e4te <&> \u2028 \"\\/ \U0001f680"

// A goSDKServer is the server that goSDKVerb runs.
type goSDKServer struct {
	*mcp.Server
	cancelled chan struct{} // one for each canceled call of slow
}

func goSDKMain(revisions []string) int {
	if err := newGoSDKServer(revisions).Run(context.Background(), &mcp.StdioTransport{}); err != nil {
		log.Print(err)
		return 1
	}
	return 0
}

func newGoSDKServer(revisions []string) *goSDKServer {
	accept := func(context.Context, *mcp.SubscribeRequest) error { return nil }
	opts := &mcp.ServerOptions{
		Instructions:              instructions,
		PageSize:                  2,
		SupportedProtocolVersions: revisions,
		SubscribeHandler:          accept,
		UnsubscribeHandler:        func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		CompletionHandler:         goSDKComplete,
	}
	s := &goSDKServer{mcp.NewServer(&mcp.Implementation{Name: "go-sdk", Version: "1.8.0"}, opts), make(chan struct{}, 16)}
	s.addTools()
	s.addInputTools()
	s.addChanges()
	s.addContent()
	return s
}

// goSDKText returns the handler of a tool whose result is a text.
func goSDKText[In any](f func(ctx context.Context, req *mcp.CallToolRequest, in In) (string, error)) mcp.ToolHandlerFor[In, any] {
	return func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		text, err := f(ctx, req, in)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}, nil, err
	}
}

func (s *goSDKServer) addTools() {
	type echo struct {
		Text string `json:"text"`
	}
	mcp.AddTool(s.Server, &mcp.Tool{Name: "echo"}, goSDKText(func(_ context.Context, _ *mcp.CallToolRequest, in echo) (string, error) { return in.Text, nil }))
	type terms struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	type sum struct {
		Sum int `json:"sum"`
	}
	mcp.AddTool(s.Server, &mcp.Tool{Name: "sum", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, in terms) (*mcp.CallToolResult, sum, error) {
			return nil, sum{in.A + in.B}, nil
		})
	type fail struct {
		Message string `json:"message"`
	}
	mcp.AddTool(s.Server, &mcp.Tool{Name: "fail"}, goSDKText(func(_ context.Context, _ *mcp.CallToolRequest, in fail) (string, error) {
		return "", errors.New(in.Message)
	}))
	mcp.AddTool(s.Server, &mcp.Tool{Name: "slow"}, goSDKText(s.slow))
	mcp.AddTool(s.Server, &mcp.Tool{Name: "cancelled"}, goSDKText(func(context.Context, *mcp.CallToolRequest, empty) (string, error) {
		select {
		case <-s.cancelled:
			return "cancelled", nil
		case <-time.After(10 * time.Second):
			return "nothing was cancelled", nil
		}
	}))
	mcp.AddTool(s.Server, &mcp.Tool{Name: "log"}, goSDKText(func(ctx context.Context, req *mcp.CallToolRequest, _ empty) (string, error) {
		for _, m := range logged {
			//lint:ignore SA1019 logging is deprecated and there
			if err := req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: mcp.LoggingLevel(m.level), Logger: "surface", Data: m.text}); err != nil {
				return "", err
			}
		}
		return "logged", nil
	}))
	mcp.AddTool(s.Server, &mcp.Tool{Name: "crash"}, goSDKText(func(context.Context, *mcp.CallToolRequest, empty) (string, error) {
		os.Exit(crashStatus)
		return "", nil
	}))
}

type slowArgs struct {
	Steps int `json:"steps"`
	Delay int `json:"delay_ms"`
}

func (s *goSDKServer) slow(ctx context.Context, req *mcp.CallToolRequest, in slowArgs) (string, error) {
	for i := range in.Steps {
		select {
		case <-ctx.Done():
			s.cancelled <- struct{}{}
			return "", ctx.Err()
		case <-time.After(time.Duration(in.Delay) * time.Millisecond):
		}
		token := req.Params.GetProgressToken()
		if token == nil {
			continue
		}
		p := &mcp.ProgressNotificationParams{ProgressToken: token, Progress: float64(i + 1), Total: float64(in.Steps), Message: "a step"}
		if err := req.Session.NotifyProgress(ctx, p); err != nil && ctx.Err() == nil {
			return "", err
		}
	}
	return fmt.Sprintf("done after %d steps", in.Steps), nil
}

// addInputTools adds the tools with input requests. From the same handlers, the SDK sends them to
// legacy clients as requests and to modern ones in results.
func (s *goSDKServer) addInputTools() {
	addTool := func(name string, ask mcp.InputRequest, take func(mcp.InputResponse) string) {
		mcp.AddTool(s.Server, &mcp.Tool{Name: name}, func(_ context.Context, req *mcp.CallToolRequest, _ empty) (*mcp.CallToolResult, any, error) {
			answer, ok := req.Params.InputResponses["question"]
			if !ok {
				return &mcp.CallToolResult{InputRequests: mcp.InputRequestMap{"question": ask}, RequestState: trickyState}, nil, nil
			}
			if req.Params.RequestState != trickyState {
				return nil, nil, fmt.Errorf("requestState = %q", req.Params.RequestState)
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: take(answer)}}}, nil, nil
		})
	}
	addTool("ask", goSDKAsk, goSDKAsked)
	addTool("visit", &mcp.ElicitParams{Mode: "url", Message: visitMessage, URL: visitURL, ElicitationID: "e1"}, func(r mcp.InputResponse) string {
		a, _ := r.(*mcp.ElicitResult)
		return a.Action
	})
	//lint:ignore SA1019 sampling is deprecated and there
	message := &mcp.SamplingMessage{Role: "user", Content: &mcp.TextContent{Text: sampleText}}
	//lint:ignore SA1019 sampling is deprecated and there
	addTool("sample", &mcp.CreateMessageParams{MaxTokens: 50, Messages: []*mcp.SamplingMessage{message}}, func(r mcp.InputResponse) string {
		return goSDKSampled(r)
	})
	//lint:ignore SA1019 roots are deprecated and there
	addTool("roots", &mcp.ListRootsParams{}, func(r mcp.InputResponse) string {
		//lint:ignore SA1019 roots are deprecated and there
		a, _ := r.(*mcp.ListRootsResult)
		var all []string
		for _, root := range a.Roots {
			all = append(all, strings.TrimSpace(root.URI+" "+root.Name))
		}
		return strings.Join(all, ", ")
	})
}

// goSDKAsk is the input request of the tool ask.
var goSDKAsk = &mcp.ElicitParams{Mode: "form", Message: askMessage, RequestedSchema: json.RawMessage(askSchema)}

// goSDKAsked returns the result of the tool ask for an elicitation result.
func goSDKAsked(r mcp.InputResponse) string {
	a, _ := r.(*mcp.ElicitResult)
	if a.Action != "accept" {
		return a.Action
	}
	return fmt.Sprintf("accept %v %v", a.Content["name"], a.Content["age"])
}

// goSDKSampled returns the result of the tool sample. The SDK has two types for a sampling result.
func goSDKSampled(r mcp.InputResponse) string {
	text, model := &mcp.TextContent{}, ""
	switch a := r.(type) {
	//lint:ignore SA1019 sampling is deprecated and there
	case *mcp.CreateMessageResult:
		text, _ = a.Content.(*mcp.TextContent)
		model = a.Model
	//lint:ignore SA1019 sampling is deprecated and there
	case *mcp.CreateMessageWithToolsResult:
		text, _ = a.Content[0].(*mcp.TextContent)
		model = a.Model
	}
	return text.Text + " by " + model
}

func (s *goSDKServer) addChanges() {
	mcp.AddTool(s.Server, &mcp.Tool{Name: "extend"}, goSDKText(func(context.Context, *mcp.CallToolRequest, empty) (string, error) {
		mcp.AddTool(s.Server, &mcp.Tool{Name: "extra"}, goSDKText(func(context.Context, *mcp.CallToolRequest, empty) (string, error) { return "extra", nil }))
		return "extended", nil
	}))
	type touch struct {
		URI string `json:"uri"`
	}
	mcp.AddTool(s.Server, &mcp.Tool{Name: "touch"}, goSDKText(func(ctx context.Context, _ *mcp.CallToolRequest, in touch) (string, error) {
		return "touched", s.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: in.URI})
	}))
}

// addContent adds the tool media, the resources and the prompts.
func (s *goSDKServer) addContent() {
	greeting := &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: greetingURI, MIMEType: "text/plain", Text: greetingText}}
	mcp.AddTool(s.Server, &mcp.Tool{Name: "media"}, func(context.Context, *mcp.CallToolRequest, empty) (*mcp.CallToolResult, any, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{
			&mcp.TextContent{Text: "text"},
			&mcp.ImageContent{Data: []byte("pixel"), MIMEType: "image/png"},
			&mcp.AudioContent{Data: []byte("pixel"), MIMEType: "audio/wav"},
			&mcp.ResourceLink{URI: greetingURI, Name: "greeting"},
			greeting,
		}}, nil, nil
	})
	read := func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		uri := req.Params.URI
		c := &mcp.ResourceContents{URI: uri, Text: "the resource " + uri}
		switch id, item := strings.CutPrefix(uri, "test://items/"); {
		case uri == missingItem:
			return nil, mcp.ResourceNotFoundError(uri)
		case item:
			c.Text = "item " + id
		case uri == greetingURI:
			c.Text = greetingText
		case uri == logoURI:
			c.Text, c.Blob = "", logo
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{c}}, nil
	}
	for _, uri := range []string{"test://a", "test://b", "test://c"} {
		s.AddResource(&mcp.Resource{URI: uri, Name: uri}, read)
	}
	s.AddResource(&mcp.Resource{URI: greetingURI, Name: "greeting", MIMEType: "text/plain"}, read)
	s.AddResource(&mcp.Resource{URI: logoURI, Name: "logo", MIMEType: "image/png", Size: int64(len(logo))}, read)
	s.AddResourceTemplate(&mcp.ResourceTemplate{URITemplate: itemTemplate, Name: "items", MIMEType: "text/plain"}, read)

	s.AddResource(&mcp.Resource{URI: askedURI, Name: "asked"}, func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		answer, ok := req.Params.InputResponses["question"]
		if !ok {
			return &mcp.ReadResourceResult{InputRequests: mcp.InputRequestMap{"question": goSDKAsk}}, nil
		}
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{Text: goSDKAsked(answer)}}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "asked"}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		answer, ok := req.Params.InputResponses["question"]
		if !ok {
			return &mcp.GetPromptResult{InputRequests: mcp.InputRequestMap{"question": goSDKAsk}}, nil
		}
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: goSDKAsked(answer)}}}}, nil
	})
	arguments := []*mcp.PromptArgument{{Name: "name", Required: true}, {Name: "style"}}
	s.AddPrompt(&mcp.Prompt{Name: "greet", Arguments: arguments}, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		name, style := req.Params.Arguments["name"], cmp.Or(req.Params.Arguments["style"], "friendly")
		if name == "" {
			return nil, errors.New("the argument name is missing")
		}
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{
			{Role: "user", Content: &mcp.TextContent{Text: "Greet " + name + " in a " + style + " way."}},
			{Role: "assistant", Content: &mcp.TextContent{Text: "Hello, " + name + "!"}},
		}}, nil
	})
	s.AddPrompt(&mcp.Prompt{Name: "review"}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: greeting}}}, nil
	})
}

func goSDKComplete(_ context.Context, req *mcp.CompleteRequest) (*mcp.CompleteResult, error) {
	known := map[string]string{}
	if req.Params.Context != nil {
		known = req.Params.Context.Arguments
	}
	values := suggest(req.Params.Argument.Name, req.Params.Argument.Value, known)
	return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: values, Total: len(values)}}, nil
}

// suggest returns the completion values of an argument or a variable, for servers whose SDK does
// not filter them.
func suggest(name, value string, known map[string]string) []string {
	var all []string
	switch name {
	case "style":
		all = styles
	case "id":
		all = items
	case "name":
		all = names(known["style"])
	}
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.HasPrefix(s, value) })
}

var goSDKPeer = &peer{
	name:      goSDKName,
	info:      "go-sdk",
	revisions: allRevisions,
	launch: func(t *testing.T, revisions ...string) *recordedServer {
		t.Helper()
		return newProgram(t, goSDKVerb, revisions...)
	},
	quirks: map[string]string{
		"resources cannot send input requests to legacy clients": "the SDK rejects a result without contents before it sends the input request",
		"no tasks in 2025-11-25":                                 "it does not support tasks",
		"no tasks in 2026-07-28":                                 "it does not support the extension",
		"content of later revisions":                             "it sends all kinds of content in every revision",
	},
	deviations: func(revision string) []deviation {
		known := append(contentDeviations(revision),
			deviation{rule: serverCancelled, has: "tools/call", why: "it sends the results of canceled calls"},
			deviation{rule: serverResponse, has: `"code":0`, why: "errors of handlers that are not JSON-RPC errors get the code 0"})
		if revision == modern {
			return append(known,
				deviation{rule: serverCancelled, has: "subscriptions/listen", why: "it sends the results of canceled subscriptions"},
				deviation{rule: serverListen, has: "change for a canceled subscription", why: "it ends a subscription some time after it read the cancellation", racy: true})
		}
		known = append(known, deviation{rule: serverLegacy, has: "ttlMs", why: "it sends caching hints in every revision; older clients ignore them"})
		return known
	},
}

// TestGoSDKServer runs our client against a server of the SDK.
func TestGoSDKServer(t *testing.T) { runTours(t, goSDKPeer) }
