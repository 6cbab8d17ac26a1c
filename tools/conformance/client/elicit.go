package main

import (
	"context"
	"encoding/json"
	"fmt"

	"mcpwire/mcp"
)

// acceptDefaults accepts a form like a user who changes nothing: fields with a default have it,
// checkboxes without one are checked, and other fields stay empty.
func acceptDefaults(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	var form struct {
		Properties map[string]struct {
			Type    string          `json:"type"`
			Default json.RawMessage `json:"default"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(p.RequestedSchema, &form); err != nil {
		return nil, fmt.Errorf("the form: %w", err)
	}
	content := make(map[string]json.RawMessage)
	for name, field := range form.Properties {
		switch {
		case field.Default != nil:
			content[name] = field.Default
		case field.Type == "boolean":
			content[name] = json.RawMessage("true")
		}
	}
	text, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	return &mcp.ElicitResult{Action: mcp.ElicitActionAccept, Content: text}, nil
}
