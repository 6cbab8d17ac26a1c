package interop

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
)

// everythingVerb as the first argument makes the test binary the everything server. Further
// arguments are the supported revisions; without any, it supports all.
const everythingVerb = "everything"

// everything is our server with every feature of package server.
type everything struct {
	*server.Server
	cancelled chan struct{} // one for each canceled call of slow
	errs      []error       // from registration
}

func everythingMain(revisions []string) int {
	e, err := newEverything(revisions)
	if err == nil {
		err = stdio.Serve(context.Background(), e)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func newEverything(revisions []string) (*everything, error) {
	opts := &server.Options{
		Info:         server.Info{Title: "Everything"},
		Instructions: instructions,
		Limits:       server.Limits{PageSize: 2},
		Tasks:        &server.TaskOptions{PollInterval: 20 * time.Millisecond},
	}
	for _, name := range revisions {
		r, ok := mcp.ParseRevision(name)
		if !ok {
			return nil, fmt.Errorf("unknown revision: %s", name)
		}
		opts.Revisions = append(opts.Revisions, r)
	}
	e := &everything{server.MustNew("everything", "1.0.0", opts), make(chan struct{}, 16), nil}
	e.addTools()
	e.addElicitTools()
	e.addChanges()
	e.addTasks()
	e.addResources()
	e.addPrompts()
	return e, errors.Join(e.errs...)
}

func (e *everything) check(err error) { e.errs = append(e.errs, err) }

type empty struct{}

// addTools adds the tools that need no other feature.
func (e *everything) addTools() {
	e.check(server.AddTool(e.Server, "echo", "Returns the text.", func(_ context.Context, in struct {
		Text string `json:"text"`
	}) (string, error) {
		return in.Text, nil
	}))
	type sum struct {
		Sum int `json:"sum"`
	}
	e.check(server.AddToolWith(e.Server, mcp.Tool{Name: "sum", Description: "Adds.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: new(true)}},
		func(_ context.Context, in struct {
			A int `json:"a"`
			B int `json:"b"`
		}) (sum, error) {
			return sum{in.A + in.B}, nil
		}))
	e.check(server.AddTool(e.Server, "fail", "Fails.", func(_ context.Context, in struct {
		Message string `json:"message"`
	}) (string, error) {
		return "", errors.New(in.Message)
	}))
	e.check(server.AddTool(e.Server, "slow", "Takes its time.", e.slow))
	e.check(server.AddTool(e.Server, "cancelled", "Waits until a call of slow is canceled.", func(ctx context.Context, in struct {
		For int `json:"for_ms,omitempty"`
	}) (string, error) {
		select {
		case <-e.cancelled:
			return "cancelled", nil
		case <-time.After(cmp.Or(time.Duration(in.For)*time.Millisecond, 10*time.Second)):
			return "nothing was cancelled", nil
		}
	}))
	e.check(server.AddTool(e.Server, "log", "Logs.", func(ctx context.Context, _ empty) (string, error) {
		for _, m := range logged {
			level, _ := mcp.ParseLoggingLevel(m.level)
			if err := server.CallOf(ctx).Log(level, "surface", m.text); err != nil {
				return "", err
			}
		}
		return "logged", nil
	}))
	e.check(server.AddTool(e.Server, "media", "Returns content of all kinds.", func(context.Context, empty) ([]mcp.ContentBlock, error) {
		return []mcp.ContentBlock{
			mcp.TextContent{Text: "text"},
			mcp.ImageContent{Data: []byte("pixel"), MIMEType: "image/png"},
			mcp.AudioContent{Data: []byte("pixel"), MIMEType: "audio/wav"},
			mcp.ResourceLink{URI: greetingURI, Name: "greeting"},
			mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: greetingURI, MIMEType: "text/plain", Text: greetingText}},
		}, nil
	}))
	e.check(server.AddTool(e.Server, "crash", "Ends the process.", func(context.Context, empty) (string, error) {
		os.Exit(crashStatus)
		return "", nil
	}))
}

func (e *everything) slow(ctx context.Context, in struct {
	Steps int `json:"steps"`
	Delay int `json:"delay_ms"`
}) (string, error) {
	for i := range in.Steps {
		select {
		case <-ctx.Done():
			e.cancelled <- struct{}{}
			return "", ctx.Err()
		case <-time.After(time.Duration(in.Delay) * time.Millisecond):
		}
		if err := server.CallOf(ctx).Progress(float64(i+1), float64(in.Steps), "a step"); err != nil {
			select {
			case <-ctx.Done(): // a client that disconnects cancels its call
				e.cancelled <- struct{}{}
			case <-time.After(10 * time.Second):
			}
			return "", err
		}
	}
	return fmt.Sprintf("done after %d steps", in.Steps), nil
}

// person is the form of the tool ask.
type person struct {
	Name string `json:"name" schema:"title=Your name"`
	Age  *int   `json:"age" schema:"minimum=0"`
}

func (p person) String() string {
	if p.Age == nil {
		return p.Name
	}
	return fmt.Sprintf("%s %d", p.Name, *p.Age)
}

// addElicitTools adds the tools that send input requests.
func (e *everything) addElicitTools() {
	ask := func(ctx context.Context, _ empty) (string, error) {
		a, err := server.Elicit[person](ctx, "who", askMessage)
		if err != nil || !a.Accepted() {
			return string(a.Action), err
		}
		return "accept " + a.Value.String(), nil
	}
	e.check(server.AddTool(e.Server, "ask", "Asks the user.", ask))
	e.check(server.AddTool(e.Server, "visit", "Sends the user to a web page.", func(ctx context.Context, _ empty) (string, error) {
		a, err := server.CallOf(ctx).ElicitURL(ctx, "page", visitMessage, visitURL)
		if err != nil {
			return "", err
		}
		return string(a.Action), nil
	}))
	e.check(server.AddTool(e.Server, "sample", "Asks the model.", func(ctx context.Context, _ empty) (string, error) {
		r, err := server.CallOf(ctx).Sample(ctx, "hello", &mcp.CreateMessageRequestParams{
			Messages:  []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.SamplingContent{mcp.TextContent{Text: sampleText}}}},
			MaxTokens: 50,
		})
		if err != nil {
			return "", err
		}
		text, _ := r.Content[0].(mcp.TextContent)
		return text.Text + " by " + r.Model, nil
	}))
	e.check(server.AddTool(e.Server, "roots", "Asks for the roots.", func(ctx context.Context, _ empty) (string, error) {
		roots, err := server.CallOf(ctx).Roots(ctx, "roots")
		if err != nil {
			return "", err
		}
		var all []string
		for _, r := range roots {
			all = append(all, strings.TrimSpace(r.URI+" "+r.Name))
		}
		return strings.Join(all, ", "), nil
	}))
	e.check(server.AddPrompt(e.Server, mcp.Prompt{Name: "asked", Description: "Asks the user first."}, func(ctx context.Context, _ map[string]string) (string, error) {
		return ask(ctx, empty{})
	}))
	e.check(server.AddResource(e.Server, mcp.Resource{URI: askedURI, Name: "asked"}, func(ctx context.Context) (string, error) {
		return ask(ctx, empty{})
	}))
}

// addChanges adds the tools that change the server.
func (e *everything) addChanges() {
	e.check(server.AddTool(e.Server, "extend", "Registers one more tool.", func(context.Context, empty) (string, error) {
		e.RemoveTools("extra")
		err := server.AddTool(e.Server, "extra", "Was not there before.", func(context.Context, empty) (string, error) { return "extra", nil })
		return "extended", err
	}))
	e.check(server.AddTool(e.Server, "touch", "Announces that a resource was updated.", func(_ context.Context, in struct {
		URI string `json:"uri"`
	}) (string, error) {
		e.ResourceUpdated(in.URI)
		return "touched", nil
	}))
}

// addTasks adds the tools that can be tasks.
func (e *everything) addTasks() {
	execution := &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}
	e.check(server.AddToolWith(e.Server, mcp.Tool{Name: "work", Description: "Works.", Execution: execution}, func(ctx context.Context, in struct {
		Text string `json:"text"`
		For  int    `json:"for_ms,omitempty"`
	}) (string, error) {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(time.Duration(in.For) * time.Millisecond):
		}
		if in.Text == "" {
			return "", errors.New("text is empty")
		}
		return "worked on " + in.Text, nil
	}))
	e.check(server.AddToolWith(e.Server, mcp.Tool{Name: "interview", Description: "Works and asks the user.", Execution: execution}, func(ctx context.Context, _ empty) (string, error) {
		a, err := server.Elicit[person](ctx, "who", askMessage)
		if err != nil {
			return "", err
		}
		return strings.TrimSpace(string(a.Action) + " " + a.Value.String()), nil
	}))
}

func (e *everything) addResources() {
	for _, uri := range []string{"test://a", "test://b", "test://c"} {
		e.check(server.AddResource(e.Server, mcp.Resource{URI: uri, Name: uri}, server.Static("the resource "+uri)))
	}
	e.check(server.AddResource(e.Server, mcp.Resource{URI: greetingURI, Name: "greeting", MIMEType: "text/plain"}, server.Static(greetingText)))
	e.check(server.AddResource(e.Server, mcp.Resource{URI: logoURI, Name: "logo", MIMEType: "image/png", Size: new(int64(len(logo)))}, server.Static(logo)))
	e.check(server.AddResourceTemplate(e.Server, mcp.ResourceTemplate{URITemplate: itemTemplate, Name: "items", MIMEType: "text/plain"},
		func(_ context.Context, vars server.Vars) (string, error) {
			if id := vars.Get("id"); id != "none" {
				return "item " + id, nil
			}
			return "", server.ErrNotFound
		}, server.CompleteFrom("id", items...)))
}

func (e *everything) addPrompts() {
	e.check(server.AddPrompt(e.Server, mcp.Prompt{Name: "greet", Description: "Greets."}, func(_ context.Context, in struct {
		Name  string `json:"name" jsonschema:"whom to greet"`
		Style string `json:"style,omitempty" jsonschema:"how"`
	}) ([]mcp.PromptMessage, error) {
		return []mcp.PromptMessage{
			{Role: mcp.RoleUser, Content: mcp.TextContent{Text: "Greet " + in.Name + " in a " + cmp.Or(in.Style, "friendly") + " way."}},
			{Role: mcp.RoleAssistant, Content: mcp.TextContent{Text: "Hello, " + in.Name + "!"}},
		}, nil
	}, server.CompleteFrom("style", styles...), server.Complete("name", func(_ context.Context, req server.CompleteRequest) ([]string, error) {
		return names(req.Arguments["style"]), nil
	})))
	e.check(server.AddPrompt(e.Server, mcp.Prompt{Name: "review", Description: "Reviews the greeting."}, func(context.Context, map[string]string) ([]mcp.PromptMessage, error) {
		return []mcp.PromptMessage{{Content: mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: greetingURI, MIMEType: "text/plain", Text: greetingText}}}}, nil
	}))
}
