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

// noForm checks the revisions that have no forms.
var noForm = lacks("form", "elicitation by form")

// TestInputRejected has clients and users give no answer, or none that can be used.
func TestInputRejected(t *testing.T) {
	try(t, "ask", []behavior{
		// Spec: S193
		{name: "declining is an answer", when: elicits, test: func(s *scene) {
			for _, action := range []mcp.ElicitAction{mcp.ElicitActionDecline, mcp.ElicitActionCancel} {
				u := user{action: action} // with content, which must not get through
				same(s, "result", s.call(s.dial(u.answers), "form", nil), string(action))
			}
		}, instead: noForm},
		{name: "a handler of the client that fails is a cancel", when: elicits, test: func(s *scene) {
			c := s.dial(func(o *client.Options) {
				o.Input.Elicit = func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) { return nil, errBored }
			})
			same(s, "result", s.call(c, "form", nil), "cancel")
		}, instead: noForm},
		{name: "content that is not what was asked for stays here", when: elicits, test: func(s *scene) {
			for content, problem := range badForms {
				u := user{content: content}
				res, err := s.dial(u.answers).CallTool(s.Context(), "form", nil)
				if !s.Modern { // the server hears that there is no answer
					ok(s, content, err)
					if got := text(res); !strings.HasPrefix(got, `error: elicitation/create "to": the client rejected it`) {
						s.Errorf("%s: got %s", content, got)
					}
					continue
				}
				e, is := errors.AsType[*client.InputError](err)
				if !is || e.Method != mcp.MethodElicit || client.IsPeer(err) || !strings.Contains(err.Error(), problem) {
					s.Errorf("%s: %s is not named: %v", content, problem, err)
				}
			}
		}, instead: noForm},
		{name: "content that a client did not look at", when: elicits, test: func(s *scene) {
			for content, problem := range badForms {
				if got := s.fillIn(content); !strings.Contains(got, problem) || !strings.Contains(got, `"isError":true`) && !strings.Contains(got, "-32602") {
					s.Errorf("%s: %s is not named: %s", content, problem, got)
				}
			}
		}, instead: noForm},
		{name: "sampling that the user refuses", when: modern, test: func(s *scene) {
			_, err := s.dial(refusing).CallTool(s.Context(), "sample", nil)
			e, is := errors.AsType[*client.InputError](err)
			if !is || e.Method != mcp.MethodCreateMessage || !errors.Is(err, client.ErrRefused) || client.IsPeer(err) {
				s.Errorf("got %v", err)
			}
		}, instead: func(s *scene) { // the server hears of it
			got := s.call(s.dial(refusing), "sample", nil)
			if !strings.HasPrefix(got, "error: ") || !strings.Contains(got, "rejected") {
				s.Errorf("got %s", got)
			}
		}},
		{name: "a handler of the client that panics", test: func(s *scene) {
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
		{name: "no end of rounds", when: modern, test: func(s *scene) {
			var u user
			c := s.dial(func(o *client.Options) {
				u.answers(o)
				o.Input.MaxRounds = 1
			})
			_, err := c.CallTool(s.Context(), "order", nil) // sends two input requests
			if !errors.Is(err, client.ErrTooManyRounds) || client.IsPeer(err) {
				s.Errorf("got %v", err)
			}
		}, instead: func(s *scene) {
			var u user
			c := s.dial(func(o *client.Options) {
				u.answers(o)
				o.Input.MaxRounds = 1
			})
			same(s, "result", s.call(c, "order", nil), "order 1")
		}},
		// Spec: S107
		{name: "a call that is given up while the user is asked", test: func(s *scene) {
			asked, ended := make(chan struct{}), make(chan error, 1)
			c := s.dial(func(o *client.Options) {
				o.Input.Roots = func(ctx context.Context) ([]mcp.Root, error) {
					close(asked)
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
			<-asked
			cancel()
			if err := <-done; !errors.Is(err, context.Canceled) || client.IsPeer(err) {
				s.Errorf("got %v", err)
			}
			if err := <-ended; err == nil {
				s.Error("the user is still asked")
			}
			same(s, "runs", s.call(c, "runs", nil), "1 0")
		}},
	})
}

// badForms are wrong contents of the form, and what is wrong.
var badForms = map[string]string{
	`{"street":"x","speed":"express"}`:                    "street",
	`{"street":"Main St 1","speed":"slow"}`:               "speed",
	`{"street":"Main St 1"}`:                              "speed",
	`{"street":7,"speed":"normal"}`:                       "street",
	`{"street":"Main St 1","speed":"normal","ring":1}`:    "ring",
	`{"street":"Main St 1","speed":"normal","floors":[]}`: "floors",
}

// fillIn plays a client that accepts the form with any content, and returns what it is answered.
func (s *scene) fillIn(content string) string {
	s.Helper()
	const capabilities = `{"elicitation":{"form":{}}}`
	answer := `{"action":"accept","content":` + content + `}`
	p := s.silentPeer()
	if s.Modern {
		params := `{"_meta":{"io.modelcontextprotocol/protocolVersion":"` + s.revision.String() +
			`","io.modelcontextprotocol/clientCapabilities":` + capabilities + `},"name":"form"`
		p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsCall, params+`}`))
		p.Expect(mcptest.Result(1, `{"inputRequests":{"to":"$any"},"requestState":"$state","$any":"$any"}`))
		p.Send(mcptest.Request(s.revision, 2, mcp.MethodToolsCall, params+`,"inputResponses":{"to":`+answer+`},"requestState":"$state"}`))
		return p.Receive()
	}
	p.Send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + s.revision.String() +
		`","capabilities":` + capabilities + `,"clientInfo":{"name":"x","version":"1"}}}`)
	p.Expect(mcptest.Result(0, `"$any"`))
	p.Send(mcptest.Initialized)
	p.Send(mcptest.Request(s.revision, 1, mcp.MethodToolsCall, `{"name":"form"}`))
	p.Expect(`{"jsonrpc":"2.0","id":"$id","method":"elicitation/create","params":"$any"}`)
	p.Send(`{"jsonrpc":"2.0","id":"$id","result":` + answer + `}`)
	return p.Receive()
}

// refusing has a client whose user refuses to have its model used.
func refusing(o *client.Options) {
	o.Input.Sample = func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
		return nil, client.ErrRefused
	}
}

// TestVisitFirst checks the error by which a handler sends the user to a web page before it can do
// anything.
func TestVisitFirst(t *testing.T) {
	const failure = "error: the user must open a URL first\nPay https://example.com/pay"
	try(t, "ask", []behavior{
		// Spec: S19 S194 S195 S196 S197 S199
		{name: "as an error", when: func(f *features) bool { return f.ElicitationIDs }, test: func(s *scene) {
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
			_, err := c.CallTool(s.Context(), "visit", nil)
			e := refused(s, "visit", err, mcp.CodeURLElicitationRequired)
			same(s, "data", string(e.Data), `{"elicitations":[{"mode":"url","message":"Pay","url":"https://example.com/pay","elicitationId":"e1"}]}`)
			s.call(c, "paid", nil)
			same(s, "complete", <-complete, `{"elicitationId":"e1"}`)
			s.call(c, "paid", nil) // the second time, there is no notification
			ok(s, "ping", c.Ping(s.Context()))
			same(s, "more", len(complete), 0)
		}, instead: func(s *scene) {
			u := user{action: mcp.ElicitActionDecline}
			var w wire
			c := s.dial(func(o *client.Options) {
				u.answers(o)
				w.record(o)
			})
			got := s.call(c, "visit", nil)
			if s.Modern { // it has become a question
				same(s, "asked", u.take(), []string{"page Pay https://example.com/pay false"})
				same(s, "result", got, strings.Replace(failure, "error: ", "error: the user did not accept: ", 1))
			} else {
				same(s, "result", got, failure)
			}
			s.call(c, "paid", nil)
			ok(s, "ping", c.Ping(s.Context()))
			same(s, "errors", w.count("-32042"), 0)
			same(s, "notifications", w.count(mcp.NotificationElicitationComplete), 0)
		}},
		// Spec: C115
		{name: "news of pages that the client does not know, or not any more", test: func(s *scene) {
			var u user
			c := s.dial(u.answers)
			for range 2 {
				same(s, "gossip", s.call(c, "gossip", nil), "sent")
			}
			same(s, "roots", s.call(c, "roots", nil), "home file:///home")
			same(s, "asked", u.take(), []string{"roots"})
		}},
		{name: "to a client that cannot show pages", test: func(s *scene) {
			res, err := s.client().CallTool(s.Context(), "visit", nil)
			if s.Modern {
				refused(s, "visit", err, mcp.CodeMissingRequiredClientCapability)
				return
			}
			ok(s, "visit", err)
			same(s, "result", text(res), failure)
		}},
	})
}
