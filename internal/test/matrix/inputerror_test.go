package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"mcpwire/client"
	"mcpwire/mcp"
	"mcpwire/mcptest"
)

// noForm tests the revisions that have no forms.
var noForm = testUnsupported("form", "elicitation by form")

// TestInputRejected checks input requests without a response, and with an invalid one.
func TestInputRejected(t *testing.T) {
	testBehaviors(t, "input", []behavior{
		// Spec: S193
		{name: "decline and cancel", when: hasForms, test: func(s *subtest) {
			for _, action := range []mcp.ElicitAction{mcp.ElicitActionDecline, mcp.ElicitActionCancel} {
				u := user{action: action} // with content, which must not be forwarded
				same(s, "result", s.call(s.dial(u.answers), "form", nil), string(action))
			}
		}, instead: noForm},
		{name: "an error of the client's handler is a cancel", when: hasForms, test: func(s *subtest) {
			c := s.dial(func(o *client.Options) {
				o.Input.Elicit = func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) { return nil, errCause }
			})
			same(s, "result", s.call(c, "form", nil), "cancel")
		}, instead: noForm},
		{name: "a client does not send invalid content", when: hasForms, test: func(s *subtest) {
			for content, field := range invalidForms {
				u := user{content: content}
				res, err := s.dial(u.answers).CallTool(s.Context(), "form", nil)
				if !s.Modern { // the server gets an error
					ok(s, content, err)
					if got := text(res); !strings.HasPrefix(got, `error: elicitation/create "to": the client rejected it`) {
						s.Errorf("%s: got %s", content, got)
					}
					continue
				}
				e, is := errors.AsType[*client.InputError](err)
				if !is || e.Method != mcp.MethodElicit || client.IsServerError(err) || !strings.Contains(err.Error(), field) {
					s.Errorf("%s: got %v, want %s in it", content, err, field)
				}
			}
		}, instead: noForm},
		{name: "a server rejects invalid content", when: hasForms, test: func(s *subtest) {
			for content, field := range invalidForms {
				if got := s.submitForm(content); !strings.Contains(got, field) || !strings.Contains(got, `"isError":true`) && !strings.Contains(got, "-32602") {
					s.Errorf("%s: got %s, want %s in it", content, got, field)
				}
			}
		}, instead: noForm},
		{name: "the user rejects sampling", when: modern, test: func(s *subtest) {
			_, err := s.dial(rejectSampling).CallTool(s.Context(), "sample", nil)
			e, is := errors.AsType[*client.InputError](err)
			if !is || e.Method != mcp.MethodCreateMessage || !errors.Is(err, client.ErrRefused) || client.IsServerError(err) {
				s.Errorf("got %v", err)
			}
		}, instead: func(s *subtest) { // the server gets an error
			got := s.call(s.dial(rejectSampling), "sample", nil)
			if !strings.HasPrefix(got, "error: ") || !strings.Contains(got, "rejected") {
				s.Errorf("got %s", got)
			}
		}},
		{name: "a handler of the client panics", test: func(s *subtest) {
			c := s.dial(func(o *client.Options) {
				o.Input.Roots = func(context.Context) ([]mcp.Root, error) { panic("boom") }
			})
			res, err := c.CallTool(s.Context(), "roots", nil)
			if s.Modern {
				if _, is := errors.AsType[*client.InputError](err); !is {
					s.Errorf("got %v", err)
				}
			} else {
				ok(s, "roots", err)
				same(s, "is an error", res.IsError, true)
			}
			ok(s, "ping", c.Ping(s.Context()))
		}},
		{name: "too many rounds", when: modern, test: func(s *subtest) {
			var u user
			c := s.dial(func(o *client.Options) {
				u.answers(o)
				o.Input.MaxRounds = 1
			})
			_, err := c.CallTool(s.Context(), "order", nil) // sends two input requests
			if err == nil || !strings.Contains(err.Error(), "too many input rounds") || client.IsServerError(err) {
				s.Errorf("got %v", err)
			}
		}, instead: func(s *subtest) {
			var u user
			c := s.dial(func(o *client.Options) {
				u.answers(o)
				o.Input.MaxRounds = 1
			})
			same(s, "result", s.call(c, "order", nil), "order 1")
		}},
		// Spec: S107
		{name: "a call canceled during an input request", test: func(s *subtest) {
			requested, ended := make(chan struct{}), make(chan error, 1)
			c := s.dial(func(o *client.Options) {
				o.Input.Roots = func(ctx context.Context) ([]mcp.Root, error) {
					close(requested)
					<-ctx.Done()
					ended <- ctx.Err()
					return nil, ctx.Err()
				}
			})
			ctx, cancel := context.WithCancel(s.Context())
			done := make(chan error, 1)
			go func() {
				_, err := c.CallTool(ctx, "roots", nil)
				done <- err
			}()
			<-requested
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) || client.IsServerError(err) {
				s.Errorf("got %v", err)
			}
			if err := <-ended; err == nil {
				s.Error("the context of the input request has no error")
			}
			same(s, "runs", s.call(c, "runs", nil), "1 0")
		}},
	})
}

// invalidForms has invalid contents of the form, and the invalid field.
var invalidForms = map[string]string{
	`{"street":"x","speed":"express"}`:                    "street",
	`{"street":"Main St 1","speed":"slow"}`:               "speed",
	`{"street":"Main St 1"}`:                              "speed",
	`{"street":7,"speed":"normal"}`:                       "street",
	`{"street":"Main St 1","speed":"normal","ring":1}`:    "ring",
	`{"street":"Main St 1","speed":"normal","floors":[]}`: "floors",
}

// submitForm accepts the form with any content, and returns the response to the call.
func (s *subtest) submitForm(content string) string {
	s.Helper()
	const capabilities = `{"elicitation":{"form":{}}}`
	input := `{"action":"accept","content":` + content + `}`
	p := s.peerWithoutHandshake()
	if s.Modern {
		params := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + s.revision.String() +
			`","io.modelcontextprotocol/clientCapabilities":` + capabilities + `},"name":"form"`
		p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsCall, params+`}`))
		p.Expect(mcptest.Result(1, `{"inputRequests":{"to":"$any"},"requestState":"$state","$any":"$any"}`))
		p.Send(mcptest.Request(s.revision, 2, mcp.MethodToolsCall, params+`,"inputResponses":{"to":`+input+`},"requestState":"$state"}`))
		return p.Receive()
	}
	p.Send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + s.revision.String() +
		`","capabilities":` + capabilities + `,"clientInfo":{"name":"x","version":"1"}}}`)
	p.Expect(mcptest.Result(0, `"$any"`))
	p.Send(mcptest.Initialized)
	p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsCall, `{"name":"form"}`))
	p.Expect(`{"jsonrpc":"2.0","id":"$id","method":"elicitation/create","params":"$any"}`)
	p.Send(`{"jsonrpc":"2.0","id":"$id","result":` + input + `}`)
	return p.Receive()
}

// rejectSampling makes the user of a client reject sampling.
func rejectSampling(o *client.Options) {
	o.Input.Sample = func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
		return nil, client.ErrRefused
	}
}

// TestURLElicitationRequired checks the error of a handler that requires the user to open a URL
// first.
func TestURLElicitationRequired(t *testing.T) {
	const failure = "error: the user must open a URL first\nPay https://example.com/pay"
	testBehaviors(t, "input", []behavior{
		// Spec: S19 S194 S195 S196 S197 S199
		{name: "an error with a URL", when: func(f *features) bool { return f.ElicitationIDs }, test: func(s *subtest) {
			var u user
			complete := make(chan string, 1)
			c := s.dial(func(o *client.Options) {
				u.answers(o)
				o.OnNotification = func(method string, params json.RawMessage) {
					if method == mcp.NotificationElicitationComplete {
						complete <- string(params)
					}
				}
			})
			_, err := c.CallTool(s.Context(), "url required", nil)
			e := wantError(s, "url required", err, mcp.CodeURLElicitationRequired)
			same(s, "data", string(e.Data), `{"elicitations":[{"mode":"url","message":"Pay","url":"https://example.com/pay","elicitationId":"e1"}]}`)
			s.call(c, "complete", nil)
			same(s, "complete", <-complete, `{"elicitationId":"e1"}`)
			s.call(c, "complete", nil) // no second notification
			ok(s, "ping", c.Ping(s.Context()))
			same(s, "more", len(complete), 0)
		}, instead: func(s *subtest) {
			u := user{action: mcp.ElicitActionDecline}
			var w wire
			c := s.dial(func(o *client.Options) {
				u.answers(o)
				w.record(o)
			})
			got := s.call(c, "url required", nil)
			if s.Modern { // the error becomes an input request
				same(s, "input requests", u.take(), []string{"page Pay https://example.com/pay false"})
				same(s, "result", got, strings.Replace(failure, "error: ", "error: the user did not accept: ", 1))
			} else {
				same(s, "result", got, failure)
			}
			s.call(c, "complete", nil)
			ok(s, "ping", c.Ping(s.Context()))
			same(s, "errors", w.count("-32042"), 0)
			same(s, "notifications", w.count(mcp.NotificationElicitationComplete), 0)
		}},
		// Spec: C115
		{name: "notifications about unknown elicitations", test: func(s *subtest) {
			var u user
			c := s.dial(u.answers)
			for range 2 {
				same(s, "notify complete", s.call(c, "notify complete", nil), "sent")
			}
			same(s, "roots", s.call(c, "roots", nil), "home file:///home")
			same(s, "input requests", u.take(), []string{"roots"})
		}},
		{name: "a client without URL elicitation", test: func(s *subtest) {
			res, err := s.client().CallTool(s.Context(), "url required", nil)
			if s.Modern {
				wantError(s, "url required", err, mcp.CodeMissingRequiredClientCapability)
				return
			}
			ok(s, "url required", err)
			same(s, "result", text(res), failure)
		}},
	})
}
