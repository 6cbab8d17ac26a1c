package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"mcpwire/jsonrpc"
	"mcpwire/server"
)

// FuzzResume brings any state and any answers. Nobody but the server can make a state, so the handler never gets past its first question by one.
func FuzzResume(f *testing.F) {
	f.Add(`"AAAA"`, who)
	f.Add(`null`, `{"who":{"action":"accept","content":{"name":1}}}`)
	f.Add(`""`, `{"who":1}`)
	f.Add(`1`, `[]`)
	f.Add(`"`+strings.Repeat("A", 100)+`"`, `{"a":{"action":"accept"},"a":{}}`)
	var unseen bool
	c := respond(f, withTool(f, nil, func(c *server.Call) (string, error) {
		if _, err := server.Once(c, "once", func(context.Context) (int, error) { unseen = true; return 1, nil }); err != nil {
			return "", err
		}
		_, err := c.Elicit(c, "who", nameForm)
		return "done", err
	}), modern, everything)
	f.Fuzz(func(t *testing.T, state, answers string) {
		if !json.Valid([]byte(state)) || !json.Valid([]byte(answers)) {
			return
		}
		unseen = false
		params := strings.TrimSuffix(callT, "}") + `,"inputResponses":` + answers + `,"requestState":` + state + `}`
		r, err := c.request(context.Background(), "tools/call", params)
		if err != nil {
			if c := code(err); c != jsonrpc.CodeInvalidParams && c != 0 { // 0: it was not sent
				t.Errorf("%v", err)
			}
			return
		}
		if !unseen {
			t.Errorf("a state that nobody made was taken: %s", state)
		}
		if r.ResultType == "complete" && !strings.ContainsAny(answers, `\w`) { // as in who
			t.Errorf("completed by %s", answers)
		}
	})
}
