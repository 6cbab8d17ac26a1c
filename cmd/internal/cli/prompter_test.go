package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/stdio"
)

// A script that needs a hostile server that requests input and sends images runs this program with
// a variable: mcpwire call -e MCPWIRE_TEST_SERVER=ask TOOL -- mcpwire
func init() {
	if os.Getenv("MCPWIRE_TEST_SERVER") != "ask" {
		return
	}
	if err := stdio.Serve(context.Background(), newTestServer()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

type delivery struct {
	Street string `json:"street" schema:"title=Street and number,minLength=3"`
	Speed  string `json:"speed" schema:"enum=normal|express,default=normal"`
	Floors int    `json:"floors,omitempty"`
	Ring   *bool  `json:"ring,omitempty" jsonschema:"ring the bell"`
}

// Text of a hostile peer: it turns the text red, moves the cursor up, and reverses the following
// text.
const nasty = "\x1b[31mred\x1b[A\u202eevil\u200b"

func newTestServer() *server.Server {
	srv := server.MustNew("test\u202e", "1", &server.Options{Limits: server.Limits{PageSize: 3}, Tasks: &server.TaskOptions{TTL: time.Minute, PollInterval: time.Millisecond}})
	must := func(errs ...error) {
		for _, err := range errs {
			if err != nil {
				panic(err)
			}
		}
	}
	tool := func(name string, fn func(c *server.Call) (string, error)) {
		must(server.AddTool(srv, name, "", func(ctx context.Context, _ struct{}) (string, error) { return fn(server.CallOf(ctx)) }))
	}
	tool("form", func(c *server.Call) (string, error) {
		to, err := server.Elicit[delivery](c, "to", "Where to?"+nasty)
		if err != nil || !to.Accepted() {
			return string(to.Action), err
		}
		text, err := json.Marshal(to.Value)
		return string(text), err
	})
	tool("page", func(c *server.Call) (string, error) {
		r, err := c.ElicitURL(c, "page", "Log in", "https://xn--e1awd7f.example.com/login")
		if err != nil {
			return "", err
		}
		return string(r.Action), nil
	})
	tool("sample", func(c *server.Call) (string, error) {
		r, err := c.Sample(c, "message", &mcp.CreateMessageRequestParams{
			Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.SamplingContent{mcp.TextContent{Text: "2+2?"}}}}, MaxTokens: 10,
		})
		if err != nil {
			return "", err
		}
		return r.Model, nil
	})
	tool("roots", func(c *server.Call) (string, error) {
		roots, err := c.Roots(c, "root")
		if err != nil || len(roots) == 0 {
			return "none", err
		}
		return roots[0].Name, nil
	})
	tool("logs", func(c *server.Call) (string, error) {
		return "logged", c.Log(mcp.LevelWarning, "lo"+nasty, map[string]any{"at": 1})
	})
	tool("nasty", func(*server.Call) (string, error) { return nasty, nil })
	bake := mcp.Tool{Name: "bake", Execution: &mcp.ToolExecution{TaskSupport: mcp.TaskSupportOptional}}
	must(server.AddToolWith(srv, bake, func(_ context.Context, in struct {
		Burn bool `json:"burn,omitempty"`
	}) (string, error) {
		if in.Burn {
			return "", errors.New("burnt")
		}
		return "a loaf", nil
	}))
	must(
		server.AddTool(srv, "album", "", func(context.Context, struct{}) (list []mcp.ContentBlock, err error) {
			for range 101 { // more than are written to files
				list = append(list, mcp.ImageContent{Data: []byte{1}, MIMEType: "image/png"})
			}
			return list, nil
		}),
		server.AddTool(srv, "picture", "A picture, and what is around it.", func(context.Context, struct{}) ([]mcp.ContentBlock, error) {
			size := int64(7)
			return []mcp.ContentBlock{
				mcp.TextContent{Text: "see:"},
				mcp.ImageContent{Data: []byte{0x89, 'P', 'N', 'G', 0, 255}, MIMEType: "image/png"},
				mcp.AudioContent{Data: []byte("riff"), MIMEType: "audio/wav"},
				mcp.ResourceLink{URI: "file:///a", Name: "a", Size: &size},
				mcp.EmbeddedResource{Resource: mcp.ResourceContents{URI: "test://t", Text: "within"}},
			}, nil
		}),
		server.AddTool(srv, "types", "", func(_ context.Context, in struct {
			N    int      `json:"n,omitempty"`
			X    float64  `json:"x,omitempty"`
			B    bool     `json:"b,omitempty"`
			S    string   `json:"s,omitempty"`
			List []string `json:"list,omitempty"`
		}) (string, error) {
			return strconv.Itoa(in.N) + " " + strconv.FormatFloat(in.X, 'g', -1, 64) + " " + strconv.FormatBool(in.B) + " " + in.S + fmt.Sprint(in.List), nil
		}),
		server.AddResource(srv, mcp.Resource{URI: "test://data", Name: "data", MIMEType: "application/octet-stream"}, func(context.Context) ([]byte, error) {
			return []byte{0, 1, 2, 255}, nil
		}),
	)
	return srv
}
