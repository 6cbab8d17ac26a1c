package server_test

import (
	"context"
	"fmt"
	"testing"

	"mcpwire/mcp"
	"mcpwire/server"
)

// addAsking adds tools that ask the client.
func addAsking(t testing.TB, srv *server.Server) {
	t.Helper()
	addTool(t, srv, "ask_form", func(c *server.Call) (string, error) {
		a, err := server.Elicit[struct {
			Name string `json:"name" schema:"title=Name,minLength=1"`
			Age  int    `json:"age,omitempty" schema:"minimum=0"`
			Size size   `json:"size,omitempty" schema:"default=M"`
			Mail string `json:"mail,omitempty" schema:"format=email"`
			OK   bool   `json:"ok" schema:"default=true"`
		}](c, "form", "Who?")
		return fmt.Sprint(a.Action, " ", a.Value), err
	})
	addTool(t, srv, "ask_page", func(c *server.Call) (string, error) {
		res, err := c.Elicit(c, "page", &mcp.ElicitRequestParams{Mode: "url", Message: "Log in.", URL: "https://example.com/login", ElicitationID: "e-1"})
		if err != nil {
			return "", err
		}
		srv.ElicitationComplete("e-1")
		return res.Action, nil
	})
	addTool(t, srv, "ask_all", func(c *server.Call) (string, error) {
		n, err := server.Once(c, "n", func(context.Context) (int, error) { return 7, nil })
		if err != nil {
			return "", err
		}
		text, err := askAll(c)
		return fmt.Sprint(n, " ", text), err
	})
	addTool(t, srv, "ask_model", func(c *server.Call) (string, error) {
		res, err := c.Sample(c, "model", &mcp.CreateMessageRequestParams{
			MaxTokens: 5, SystemPrompt: "Be brief.", Temperature: new(0.5), StopSequences: []string{"."}, IncludeContext: mcp.IncludeContextNone,
			ModelPreferences: &mcp.ModelPreferences{Hints: []mcp.ModelHint{{Name: "small"}}, SpeedPriority: new(1.0)},
			Messages: []mcp.SamplingMessage{
				says(mcp.RoleUser, mcp.TextContent{Text: "a"}, mcp.ImageContent{Data: []byte("i"), MIMEType: "image/png"}),
				says(mcp.RoleAssistant, mcp.AudioContent{Data: []byte("s"), MIMEType: "audio/wav"}),
			},
		})
		if err != nil {
			return "", err
		}
		return res.Model, nil
	})
	addTool(t, srv, "ask_visit", func(*server.Call) (string, error) { return "", mcp.URLElicitationRequired(pageA) })
}
