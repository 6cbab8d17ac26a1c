package server_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"net"
	"slices"
	"strings"

	"mcpwire/internal/rpc"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

// A handler that requests input from the user is the same for clients of all revisions. A legacy
// client gets a request, and the handler waits. A modern client gets the input request in the
// result of its call, and retries the call with the user's answer: the handler runs from its
// beginning, and this time Elicit returns.
func ExampleElicit() {
	srv := server.MustNew("shop", "1.0.0", nil)
	type delivery struct {
		Street string `json:"street" schema:"title=Street and number,minLength=1"`
		Speed  string `json:"speed" schema:"enum=normal|express,default=normal"`
	}
	err := server.AddTool(srv, "order", "Order a thing.", func(ctx context.Context, in struct {
		Thing string `json:"thing"`
	}) (string, error) {
		fmt.Println("  the handler runs")
		to, err := server.Elicit[delivery](ctx, "delivery", "Where shall the "+in.Thing+" go?")
		if err != nil {
			return "", err // in modern revisions this error carries the input request
		}
		if !to.Accepted() {
			return "Nothing was ordered.", nil
		}
		return fmt.Sprintf("A %s goes to %s, %s.", in.Thing, to.Value.Street, to.Value.Speed), nil
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		fmt.Println(revision)
		c := startPerson(srv, revision, map[string]string{"elicitation/create": `{"action":"accept","content":{"street":"1 Main St"}}`})
		c.call("order", `{"thing":"hat"}`)
	}
	// Output:
	// 2025-11-25
	//   the handler runs
	//   the client is asked: elicitation/create
	// A hat goes to 1 Main St, normal.
	// 2026-07-28
	//   the handler runs
	//   the client is asked: elicitation/create
	//   the handler runs
	// A hat goes to 1 Main St, normal.
}

// A handler runs again from its beginning after each input request. Once keeps the effect of the
// first run.
func ExampleOnce() {
	srv := server.MustNew("shop", "1.0.0", nil)
	type order struct {
		Number int
		Price  float64
	}
	orders := 0
	err := server.AddTool(srv, "buy", "Buy a thing.", func(ctx context.Context, _ struct{}) (string, error) {
		made, err := server.Once(ctx, "order", func(context.Context) (order, error) {
			orders++ // a real handler calls the shop
			return order{Number: orders, Price: 9.5}, nil
		})
		if err != nil {
			return "", err
		}
		type consent struct {
			Agree bool `json:"agree"`
		}
		pay, err := server.Elicit[consent](ctx, "pay", fmt.Sprintf("Order %d costs %.2f. Pay?", made.Number, made.Price))
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("order %d paid: %t", made.Number, pay.Value.Agree), nil
	})
	if err != nil {
		log.Fatal(err)
	}
	c := startPerson(srv, "2026-07-28", map[string]string{"elicitation/create": `{"action":"accept","content":{"agree":true}}`})
	c.call("buy", `{}`)
	fmt.Println("orders:", orders)
	// Output:
	//   the client is asked: elicitation/create
	// order 1 paid: true
	// orders: 1
}

// Several input requests are sent to the client in one round.
func ExampleCall_InputRequests() {
	srv := server.MustNew("assistant", "1.0.0", nil)
	type name struct {
		Name string `json:"name"`
	}
	err := server.AddTool(srv, "greet", "Greet the user.", func(ctx context.Context, _ struct{}) (string, error) {
		call := server.CallOf(ctx)
		if err := call.Require(server.FormElicitation, server.Sampling, server.Roots); err != nil {
			return "", err // before anything has an effect
		}
		q := call.InputRequests()
		user := server.Form[name](q, "user", "What is your name?")
		saying := q.Sample("saying", &mcp.CreateMessageRequestParams{
			Messages:  []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.SamplingContent{mcp.TextContent{Text: "A wise word, please."}}}},
			MaxTokens: 20,
		})
		roots := q.Roots("roots")
		if err := q.Wait(ctx); err != nil {
			return "", err
		}
		text, _ := saying.Value().Content[0].(mcp.TextContent)
		return fmt.Sprintf("%s, at work on %s: %s", user.Value().Value.Name, roots.Value()[0].Name, text.Text), nil
	})
	if err != nil {
		log.Fatal(err)
	}
	c := startPerson(srv, "2026-07-28", map[string]string{
		"elicitation/create":     `{"action":"accept","content":{"name":"Ada"}}`,
		"roots/list":             `{"roots":[{"uri":"file:///engine","name":"the engine"}]}`,
		"sampling/createMessage": `{"role":"assistant","model":"m","content":{"type":"text","text":"Less is more."}}`,
	})
	c.call("greet", `{}`)
	// Output:
	//   the client is asked: roots/list
	//   the client is asked: sampling/createMessage
	//   the client is asked: elicitation/create
	// Ada, at work on the engine: Less is more.
}

// A model that may use a tool. Each response with a tool use leads to another input request, with
// another key.
func ExampleCall_Sample() {
	srv := server.MustNew("assistant", "1.0.0", nil)
	err := server.AddTool(srv, "ask", "Ask the model.", func(ctx context.Context, in struct {
		Question string `json:"question"`
	}) (string, error) {
		p := &mcp.CreateMessageRequestParams{
			MaxTokens: 100,
			Tools:     []mcp.Tool{{Name: "age", InputSchema: json.RawMessage(`{"type":"object"}`)}},
			Messages:  []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.SamplingContent{mcp.TextContent{Text: in.Question}}}},
		}
		for turn := 1; ; turn++ {
			said, err := server.CallOf(ctx).Sample(ctx, fmt.Sprint("turn ", turn), p)
			if err != nil {
				return "", err
			}
			if said.StopReason != mcp.StopReasonToolUse {
				text, _ := said.Content[0].(mcp.TextContent)
				return text.Text, nil
			}
			var results mcp.SamplingContent
			for _, block := range said.Content {
				if use, ok := block.(mcp.ToolUseContent); ok {
					results = append(results, mcp.ToolResultContent{ToolUseID: use.ID, Content: []mcp.ContentBlock{mcp.TextContent{Text: "36"}}})
				}
			}
			p.Messages = append(p.Messages,
				mcp.SamplingMessage{Role: mcp.RoleAssistant, Content: said.Content},
				mcp.SamplingMessage{Role: mcp.RoleUser, Content: results})
		}
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, revision := range []string{"2025-11-25", "2026-07-28"} {
		fmt.Println(revision)
		c := startPerson(srv, revision, map[string]string{"sampling/createMessage": `{"role":"assistant","model":"m","stopReason":"toolUse","content":{"type":"tool_use","id":"1","name":"age","input":{}}}
{"role":"assistant","model":"m","stopReason":"endTurn","content":{"type":"text","text":"Ada is 36."}}`})
		c.call("ask", `{"question":"How old is Ada?"}`)
	}
	// Output:
	// 2025-11-25
	//   the client is asked: sampling/createMessage
	//   the client is asked: sampling/createMessage
	// Ada is 36.
	// 2026-07-28
	//   the client is asked: sampling/createMessage
	//   the client is asked: sampling/createMessage
	// Ada is 36.
}

// A web page that the user must visit. Once keeps the random part of its URL, so that the page is
// the same when the handler runs again.
func ExampleCall_ElicitURL() {
	srv := server.MustNew("shop", "1.0.0", nil)
	// a real one waits until the page reports that the user is done
	connected := func(ctx context.Context, token string) error {
		return ctx.Err()
	}
	err := server.AddTool(srv, "connect", "Connect an account.", func(ctx context.Context, _ struct{}) (string, error) {
		token, err := server.Once(ctx, "token", func(context.Context) (string, error) { return rand.Text(), nil })
		if err != nil {
			return "", err
		}
		visit, err := server.CallOf(ctx).ElicitURL(ctx, "visit", "Connect your account.", "https://shop.example/connect?token="+token)
		if err != nil {
			return "", err
		}
		if visit.Action != mcp.ElicitActionAccept {
			return "Nothing was connected.", nil
		}
		// accepting means only that the user opens the page
		if err := connected(ctx, token); err != nil {
			return "", err
		}
		return "The account is connected.", nil
	})
	if err != nil {
		log.Fatal(err)
	}
	c := startPerson(srv, "2026-07-28", map[string]string{"elicitation/create": `{"action":"accept"}`})
	c.call("connect", `{}`)
	// Output:
	//   the client is asked: elicitation/create
	// The account is connected.
}

// A person is a client that gives the same answer to each request of a method, or several answers
// one after the other.
type person struct {
	conn     *rpc.Conn
	revision string
	answers  map[string]string
}

// answer returns the answer to an input request.
func (c *person) answer(method string) []byte {
	fmt.Println("  the client is asked:", method)
	now, later, more := strings.Cut(c.answers[method], "\n")
	if more {
		c.answers[method] = later
	}
	return []byte(now)
}

func startPerson(srv *server.Server, revision string, answers map[string]string) *person {
	local, remote := net.Pipe()
	c := &person{revision: revision, answers: answers}
	go srv.Serve(context.Background(), jsonrpc.NewFramer(remote, nil))
	c.conn = rpc.NewConn(jsonrpc.NewFramer(local, &jsonrpc.FramerOptions{Framing: jsonrpc.FramingLine}), &rpc.Options{Handler: rpc.HandlerFunc(c.asked)})
	go c.conn.Run(context.Background())
	if revision < modern {
		c.request("initialize", `{"protocolVersion":"`+revision+`","capabilities":`+everything+`,"clientInfo":{"name":"person","version":"1"}}`)
		if err := c.conn.Notify(context.Background(), "notifications/initialized", nil); err != nil {
			log.Fatal(err)
		}
	}
	return c
}

// asked handles a request of the server.
func (c *person) asked(_ context.Context, m *rpc.Request) ([]byte, error) {
	if m.Kind == jsonrpc.KindNotification {
		return nil, nil
	}
	return c.answer(string(m.Method)), nil
}

func (c *person) request(method, params string) []byte {
	result, err := c.conn.Call(context.Background(), method, []byte(params))
	if err != nil {
		log.Fatal(err)
	}
	return result
}

// call calls a tool, with retries for input requests, and prints the text of the result.
func (c *person) call(tool, args string) {
	defer c.conn.Close()
	more := ""
	for {
		params := `{"name":"` + tool + `","arguments":` + args + more
		if c.revision >= modern {
			params += `,"_meta":{"io.modelcontextprotocol/protocolVersion":"` + c.revision + `","io.modelcontextprotocol/clientCapabilities":` + everything + `}`
		}
		var result struct {
			Content       []struct{ Text string }
			InputRequests map[string]struct{ Method string }
			RequestState  json.RawMessage
		}
		if err := json.Unmarshal(c.request("tools/call", params+"}"), &result); err != nil {
			log.Fatal(err)
		}
		if result.InputRequests == nil {
			fmt.Println(result.Content[0].Text)
			return
		}
		responses := make(map[string]json.RawMessage)
		for _, key := range slices.Sorted(maps.Keys(result.InputRequests)) {
			responses[key] = c.answer(result.InputRequests[key].Method)
		}
		text, err := json.Marshal(responses)
		if err != nil {
			log.Fatal(err)
		}
		more = `,"inputResponses":` + string(text) + `,"requestState":` + string(result.RequestState)
	}
}
