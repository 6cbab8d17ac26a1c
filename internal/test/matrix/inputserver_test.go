package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/server"
)

type address struct {
	Street string   `json:"street" schema:"title=Street and number,minLength=3"`
	Speed  string   `json:"speed" schema:"enum=normal|express"`
	Floors int      `json:"floors,omitempty"`
	Ring   *bool    `json:"ring,omitempty"`
	Weight *float64 `json:"weight,omitempty"`
}

var samplingParams = &mcp.CreateMessageRequestParams{
	Messages:  []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.SamplingContent{mcp.TextContent{Text: "2+2?"}}}},
	MaxTokens: 10, SystemPrompt: "Be short.",
}

// newInputServer returns a server with tools, a prompt and a resource that send input requests.
func newInputServer(func()) *server.Server {
	srv := server.MustNew("input", "1", nil)
	var runs, orders, changes counter
	tool := func(name string, fn func(c *server.Call) (string, error)) {
		must(server.AddTool(srv, name, "", func(ctx context.Context, _ struct{}) (string, error) {
			runs.add()
			return fn(server.CallOf(ctx))
		}))
	}
	root := func(c *server.Call) (string, error) {
		roots, err := c.Roots(c, "root")
		if err != nil {
			return "", err
		}
		return roots[0].Name + " " + roots[0].URI, nil
	}
	tool("roots", root)
	tool("form", func(c *server.Call) (string, error) {
		to, err := server.Elicit[address](c, "to", "Where to?")
		if err != nil || !to.Accepted() {
			return string(to.Action), err
		}
		text, err := json.Marshal(to.Value)
		return string(text), err
	})
	tool("page", func(c *server.Call) (string, error) {
		res, err := c.ElicitURL(c, "page", "Log in", "https://example.com/login")
		if err != nil {
			return "", err
		}
		return string(res.Action), nil
	})
	tool("sample", func(c *server.Call) (string, error) { return sample(c, samplingParams) })
	tool("sample with tools", func(c *server.Call) (string, error) {
		q := *samplingParams
		q.Tools = []mcp.Tool{{Name: "add", InputSchema: json.RawMessage(`{"type":"object"}`)}}
		return sample(c, &q)
	})
	tool("several", func(c *server.Call) (string, error) {
		q := c.InputRequests()
		roots, message := q.Roots("roots"), q.Sample("message", samplingParams)
		form := new(server.Reply[server.Answer[address]])
		if c.Supports(server.FormElicitation) {
			form = server.Form[address](q, "form", "Where to?")
		}
		if err := q.Wait(c); err != nil {
			return "", err
		}
		return roots.Value()[0].Name + " " + message.Value().Model + " " + form.Value().Value.Street, nil
	})
	tool("order", func(c *server.Call) (string, error) {
		order, err := server.Once(c, "order", func(context.Context) (int, error) {
			orders.add()
			return orders.value(), nil
		})
		if err != nil {
			return "", err
		}
		for _, key := range []string{"a", "b"} {
			if _, err := c.Roots(c, key); err != nil {
				return "", err
			}
		}
		return fmt.Sprint("order ", order), nil
	})
	must(
		srv.OnNotification(mcp.NotificationRootsChanged, func(context.Context, json.RawMessage) { changes.add() }),
		server.AddTool(srv, "roots changed", "", func(ctx context.Context, _ struct{}) (bool, error) { return true, changes.wait(ctx, 1) }),
		server.AddTool(srv, "runs", "", func(context.Context, struct{}) (string, error) {
			return fmt.Sprint(runs.value(), " ", orders.value()), nil
		}),
		server.AddTool(srv, "url required", "", func(ctx context.Context, _ struct{}) (string, error) {
			return "", mcp.URLElicitationRequired(mcp.ElicitRequestParams{Message: "Pay", URL: "https://example.com/pay", ElicitationID: "e1"})
		}),
		server.AddTool(srv, "notify complete", "", func(ctx context.Context, _ struct{}) (string, error) {
			return "sent", server.CallOf(ctx).Notify(mcp.NotificationElicitationComplete, []byte(`{"elicitationId":"e1"}`))
		}),
		server.AddTool(srv, "complete", "", func(context.Context, struct{}) (string, error) {
			srv.ElicitationComplete("e0")
			srv.ElicitationComplete("e1")
			return "", nil
		}),
		server.AddPrompt(srv, mcp.Prompt{Name: "roots"}, func(ctx context.Context, _ struct {
			X string `json:"x,omitempty"`
		}) (string, error) {
			return root(server.CallOf(ctx))
		}, server.Complete("x", func(ctx context.Context, _ server.CompleteRequest) ([]string, error) {
			_, err := root(server.CallOf(ctx))
			return []string{fmt.Sprint(err != nil && strings.HasPrefix(err.Error(), "input requests are only possible in"))}, nil
		})),
		server.AddResource(srv, mcp.Resource{URI: "lib://roots", Name: "roots"}, func(ctx context.Context) (*mcp.ReadResourceResult, error) {
			text, err := root(server.CallOf(ctx))
			return server.CacheFor(text, 1<<40, mcp.CacheScopePublic), err
		}),
	)
	return srv
}

func sample(c *server.Call, q *mcp.CreateMessageRequestParams) (string, error) {
	res, err := c.Sample(c, "message", q)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s %s %s", res.Model, res.StopReason, mcp.Append(nil, &mcp.SamplingMessage{Role: res.Role, Content: res.Content}, mcp.RevisionNone)), nil
}

// A user responds to input requests, and records them.
type user struct {
	// action is the action of elicitations. Empty means accept.
	action mcp.ElicitAction
	// content is the content of forms. Empty means address.
	content string

	mu       sync.Mutex
	requests []string
}

func (u *user) note(parts ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.requests = append(u.requests, strings.Join(parts, " "))
}

// take returns the received input requests, and clears them.
func (u *user) take() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	requests := u.requests
	u.requests = nil
	return requests
}

const street = `{"street":"Main St 1","speed":"express"}`

// answers makes a client declare all input capabilities and use u's handlers.
func (u *user) answers(o *client.Options) {
	o.Input.ElicitModes, o.Input.SampleTools = []mcp.ElicitMode{mcp.ElicitModeForm, mcp.ElicitModeURL}, true
	o.Input.Elicit = func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
		res := &mcp.ElicitResult{Action: u.action}
		if u.action == "" {
			res.Action = mcp.ElicitActionAccept
		}
		if p.Mode == mcp.ElicitModeURL {
			u.note("page", p.Message, p.URL, fmt.Sprint(p.ElicitationID != ""))
			return res, nil
		}
		u.note("form", p.Message, string(p.RequestedSchema))
		if res.Content = json.RawMessage(u.content); u.content == "" {
			res.Content = json.RawMessage(street)
		}
		return res, nil
	}
	o.Input.Sample = func(_ context.Context, p *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
		u.note("sample", p.SystemPrompt, fmt.Sprint(p.MaxTokens, len(p.Messages), len(p.Tools)))
		res := &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Model: "m", StopReason: mcp.StopReasonEndTurn, Content: mcp.SamplingContent{mcp.TextContent{Text: "4"}}}
		if len(p.Tools) > 0 {
			res.StopReason = mcp.StopReasonToolUse
			res.Content = mcp.SamplingContent{mcp.ToolUseContent{ID: "u", Name: p.Tools[0].Name, Input: json.RawMessage(`{"a":2}`)}}
		}
		return res, nil
	}
	o.Input.Roots = func(context.Context) ([]mcp.Root, error) {
		u.note("roots")
		return []mcp.Root{{URI: "file:///home", Name: "home"}}, nil
	}
}
