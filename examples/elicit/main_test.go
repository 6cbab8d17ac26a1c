package main

import (
	"context"
	"testing"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
)

func TestOrder(t *testing.T) {
	accept, err := client.AcceptForm(delivery{Street: "1 Main St", Speed: "express"})
	if err != nil {
		t.Fatal(err)
	}
	for _, revision := range []mcp.Revision{mcp.Revision20251125, mcp.Revision20260728} {
		for _, tt := range []struct {
			name   string
			answer *mcp.ElicitResult
			want   string
		}{
			{"accept", accept, "Order 1: a hat to 1 Main St, express."},
			{"decline", &mcp.ElicitResult{Action: mcp.ElicitActionDecline}, "Nothing was ordered."},
			{"cancel", &mcp.ElicitResult{Action: mcp.ElicitActionCancel}, "Nothing was ordered."},
		} {
			t.Run(revision.String()+" "+tt.name, func(t *testing.T) {
				srv, err := newServer()
				if err != nil {
					t.Fatal(err)
				}
				asked := ""
				c := mcptest.Connect(t, srv, &client.Options{
					Revisions: []mcp.Revision{revision},
					Input: client.InputOptions{Elicit: func(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
						asked += p.Message
						return tt.answer, nil
					}},
				})
				got, err := client.CallTool[string](t.Context(), c, "order", map[string]string{"thing": "hat"})
				if got != tt.want || err != nil {
					t.Errorf("got %q, %v, want %q", got, err, tt.want)
				}
				if want := "Where shall the hat go?"; asked != want {
					t.Errorf("input request: got %q, want %q", asked, want)
				}
			})
		}
	}
}
