package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"mcpwire/mcp"
	"mcpwire/server"
	"mcpwire/streamable"
)

// The forms that the suite compares literally.
const (
	accountForm = `{"type":"object","properties":{` +
		`"username":{"type":"string","description":"User's response"},` +
		`"email":{"type":"string","description":"User's email address"}},"required":["username","email"]}`
	defaultsForm = `{"type":"object","properties":{` +
		`"name":{"type":"string","default":"John Doe"},` +
		`"age":{"type":"integer","default":30},` +
		`"score":{"type":"number","default":95.5},` +
		`"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},` +
		`"verified":{"type":"boolean","default":true}},"required":[]}`
	enumsForm = `{"type":"object","properties":{` +
		`"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},` +
		`"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},` +
		`"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},` +
		`"untitledMulti":{"type":"array","items":{"type":"string","enum":["option1","option2","option3"]}},` +
		`"titledMulti":{"type":"array","items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}},"required":[]}`
)

type (
	promptInput struct {
		Prompt string `json:"prompt" jsonschema:"what the model is to answer"`
	}
	messageInput struct {
		Message string `json:"message" jsonschema:"what the user reads"`
	}
)

// addElicitTools registers tools that send input requests to the client, as its revision requires.
func addElicitTools(srv *server.Server) error {
	return errors.Join(
		server.AddTool(srv, "test_sampling", "Ask the client's model.", sample),
		server.AddTool(srv, "test_elicitation", "Ask the user for an account.", func(ctx context.Context, in messageInput) (string, error) {
			return fillIn(ctx, "account", in.Message, accountForm)
		}),
		server.AddTool(srv, "test_elicitation_sep1034_defaults", "Ask the user by a form with defaults.", form("Please review and update the form fields with defaults", defaultsForm)),
		server.AddTool(srv, "test_elicitation_sep1330_enums", "Ask the user by a form with each kind of choice.", form("Please select options from the enum fields", enumsForm)),
		server.AddTool(srv, "test_streaming_elicitation", "Ask the user, and send no request for it.", form("Please continue", accountForm)),
		server.AddTool(srv, "test_reconnection", "Close the stream, then answer: the client has to come back for it.", reconnection),
	)
}

func sample(ctx context.Context, in promptInput) (string, error) {
	got, err := server.CallOf(ctx).Sample(ctx, "answer", samplingParams(in.Prompt))
	if err != nil {
		return "", err
	}
	return "LLM response: " + sampled(got), nil
}

func samplingParams(prompt string) *mcp.CreateMessageRequestParams {
	return &mcp.CreateMessageRequestParams{
		Messages:  []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.SamplingContent{mcp.TextContent{Text: prompt}}}},
		MaxTokens: 100,
	}
}

// sampled returns the text that the model generated.
func sampled(res *mcp.CreateMessageResult) string {
	for _, c := range res.Content {
		if t, ok := c.(mcp.TextContent); ok {
			return t.Text
		}
	}
	return "(no text)"
}

func form(message, schema string) func(context.Context, none) (string, error) {
	return func(ctx context.Context, _ none) (string, error) { return fillIn(ctx, "form", message, schema) }
}

// fillIn asks the user to fill in a form and describes the result.
func fillIn(ctx context.Context, key, message, schema string) (string, error) {
	res, err := server.CallOf(ctx).Elicit(ctx, key, &mcp.ElicitRequestParams{Message: message, RequestedSchema: json.RawMessage(schema)})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("Elicitation completed: action=%s, content=%s", res.Action, res.Content), nil
}

// reconnectAfter is the delay that test_reconnection tells the client to wait, and reconnectWork
// the time that its answer takes.
const (
	reconnectAfter = 500 * time.Millisecond
	reconnectWork  = 100 * time.Millisecond
)

func reconnection(ctx context.Context, _ none) (string, error) {
	// Without a resumable stream, this is an ordinary tool.
	if err := streamable.CloseStream(ctx, reconnectAfter); err != nil {
		server.CallOf(ctx).Logger().Debug("the stream stays open", "error", err)
	}
	if err := pause(ctx, reconnectWork); err != nil {
		return "", err
	}
	return "Reconnection test completed successfully.", nil
}
