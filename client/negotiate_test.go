package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/base/userwait"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
)

var (
	onlyLegacy = []mcp.Revision{mcp.Revision20241105, mcp.Revision20250326, mcp.Revision20250618, mcp.Revision20251125}
	onlyModern = []mcp.Revision{mcp.Revision20260728}
)

// probeFails returns a server that rejects the probe with an error and then accepts the handshake.
func probeFails(code jsonrpc.Code, data string) func(*script) {
	return func(s *script) {
		s.reject(s.expect("server/discover"), code, data)
		s.handshake(legacyDate)
		s.expectEnd()
	}
}

// TestNegotiation checks which revision is negotiated for each way in which a server opens.
func TestNegotiation(t *testing.T) {
	for _, tt := range []struct {
		name    string
		opts    Options
		scripts []func(*script)
		want    mcp.Revision
		takes   time.Duration
	}{
		{name: "modern", want: mcp.Revision20260728, scripts: []func(*script){func(s *script) {
			s.discovers()
			s.expectEnd()
		}}},
		{name: "modern only", opts: Options{Revisions: onlyModern}, want: mcp.Revision20260728, scripts: []func(*script){func(s *script) {
			s.discovers()
			s.expectEnd()
		}}},
		{name: "dual-era server", want: mcp.Revision20260728, scripts: []func(*script){func(s *script) {
			s.answer(s.expect("server/discover"), discovered("2024-11-05", "2027-01-01", modernDate, legacyDate))
			s.expectEnd()
		}}},
		// Spec: C33
		{name: "method not found", want: mcp.Revision20251125, scripts: []func(*script){probeFails(-32601, "")}},
		{name: "invalid params", want: mcp.Revision20251125, scripts: []func(*script){probeFails(-32602, `{"supported":["2026-07-28"]}`)}},
		{name: "invalid request", want: mcp.Revision20251125, scripts: []func(*script){probeFails(-32600, "")}},
		{name: "internal error", want: mcp.Revision20251125, scripts: []func(*script){probeFails(-32603, "")}},
		{name: "server error", want: mcp.Revision20251125, scripts: []func(*script){probeFails(-32000, `"not initialized"`)}},
		{name: "error code of a draft", want: mcp.Revision20251125, scripts: []func(*script){probeFails(-32004, `{"supported":["2026-07-28"],"requested":"x"}`)}},
		{name: "application's error code", want: mcp.Revision20251125, scripts: []func(*script){probeFails(1, "")}},
		{name: "a result without versions", want: mcp.Revision20251125, scripts: []func(*script){func(s *script) {
			s.answer(s.expect("server/discover"), "{}")
			s.handshake(legacyDate)
			s.expectEnd()
		}}},
		{name: "a result of another type", want: mcp.Revision20251125, scripts: []func(*script){func(s *script) {
			s.answer(s.expect("server/discover"), strings.Replace(discovered(modernDate), "complete", "input_required", 1))
			s.handshake(legacyDate)
			s.expectEnd()
		}}},
		{name: "no message at all", want: mcp.Revision20251125, scripts: []func(*script){func(s *script) {
			m := s.expect("server/discover")
			s.send("Error: unknown method")
			s.send(`{"jsonrpc":"2.0","id":%s,"result":{},"error":{}}`, m.ID)
			s.handshake(legacyDate)
			s.expectEnd()
		}}},
		{name: "silence", want: mcp.Revision20251125, takes: 5 * time.Second, scripts: []func(*script){func(s *script) {
			m := s.expect("server/discover")
			i := s.expect("initialize")
			s.answer(m, discovered(modernDate)) // too late: no request with this id is pending
			s.answer(i, initialized(legacyDate))
			s.expect("notifications/initialized")
			s.expectEnd()
		}}},
		{name: "silence, with another timeout", opts: Options{Timeouts: Timeouts{Probe: time.Minute}}, want: mcp.Revision20251125, takes: time.Minute, scripts: []func(*script){func(s *script) {
			s.expect("server/discover")
			s.handshake(legacyDate)
			s.expectEnd()
		}}},
		{name: "a slow modern server", want: mcp.Revision20260728, takes: 5 * time.Second, scripts: []func(*script){func(s *script) {
			late := s.expect("server/discover")
			i := s.expect("initialize")
			s.answer(late, discovered(modernDate))
			s.reject(i, -32601, "")
			s.discovers()
			s.expectEnd()
		}}},
		{name: "the probe ends the server", want: mcp.Revision20251125, scripts: []func(*script){
			func(s *script) { s.expect("server/discover") },
			func(s *script) { s.handshake(legacyDate); s.expectEnd() },
		}},
		{name: "the probe ends the server after a response", want: mcp.Revision20251125, scripts: []func(*script){
			func(s *script) { s.reject(s.expect("server/discover"), -32600, "") },
			func(s *script) { s.handshake(legacyDate); s.expectEnd() },
		}},
		{name: "no response after the probe", want: mcp.Revision20251125, takes: 10 * time.Second, scripts: []func(*script){
			func(s *script) { s.expect("server/discover"); s.expect("initialize"); s.expectEnd() },
			func(s *script) { s.handshake(legacyDate); s.expectEnd() },
		}},
		{name: "a legacy server that is slow on its first connection", want: mcp.Revision20251125, takes: 12 * time.Second, scripts: []func(*script){
			func(s *script) {
				s.expect("server/discover")
				i := s.expect("initialize")
				elapse(7 * time.Second)
				s.answer(i, initialized(legacyDate))
				s.expect("notifications/initialized")
				s.expectEnd()
			},
			func(s *script) { s.expect("initialize"); s.expectEnd() },
		}},
		{name: "a slow legacy server that allows one process", want: mcp.Revision20251125, takes: 12 * time.Second, scripts: []func(*script){
			func(s *script) {
				s.expect("server/discover")
				i := s.expect("initialize")
				elapse(7 * time.Second)
				s.answer(i, initialized(legacyDate))
				s.expect("notifications/initialized")
				s.expectEnd()
			},
			func(s *script) { s.expect("initialize") },
		}},
		{name: "a modern server that is slow on its first connection", want: mcp.Revision20260728, takes: 12 * time.Second, scripts: []func(*script){
			func(s *script) {
				s.expect("server/discover")
				i := s.expect("initialize")
				elapse(7 * time.Second)
				s.reject(i, -32601, "")
				s.discovers()
				s.expectEnd()
			},
			func(s *script) { s.expect("initialize"); s.expectEnd() },
		}},
		{name: "another modern version required", want: mcp.Revision20260728, scripts: []func(*script){func(s *script) {
			s.reject(s.expect("server/discover"), -32022, `{"supported":["2026-07-28"],"requested":"2026-07-28"}`)
			s.discovers()
			s.expectEnd()
		}}},
		{name: "unsupported version, legacy versions supported", want: mcp.Revision20250618, scripts: []func(*script){func(s *script) {
			s.reject(s.expect("server/discover"), -32022, `{"supported":["2025-06-18","2024-11-05","2099-01-01"],"requested":"2026-07-28"}`)
			if got := memberOf(s.t, s.handshake("2025-06-18"), "protocolVersion"); got != `"2025-06-18"` {
				s.fail("initialize with %s", got)
			}
			s.expectEnd()
		}}},
		{name: "only legacy versions discovered", want: mcp.Revision20250326, scripts: []func(*script){func(s *script) {
			s.answer(s.expect("server/discover"), discovered("2025-03-26"))
			s.handshake("2025-03-26")
			s.expectEnd()
		}}},
		// Spec: C26 C27
		{name: "legacy only", opts: Options{Revisions: onlyLegacy[:3]}, want: mcp.Revision20250618, scripts: []func(*script){func(s *script) {
			if got := memberOf(s.t, s.handshake("2025-06-18"), "protocolVersion"); got != `"2025-06-18"` {
				s.fail("initialize with %s", got)
			}
			s.expectEnd()
		}}},
		{name: "the server chooses an older version", opts: Options{Revisions: onlyLegacy}, want: mcp.Revision20241105, scripts: []func(*script){func(s *script) {
			s.handshake("2024-11-05")
			s.expectEnd()
		}}},
		{name: "versions in an error", opts: Options{Revisions: onlyLegacy}, want: mcp.Revision20250326, scripts: []func(*script){func(s *script) {
			s.reject(s.expect("initialize"), -32602, `{"supported":["2025-03-26"],"requested":"2025-11-25"}`)
			s.handshake("2025-03-26")
			s.expectEnd()
		}}},
		{name: "profile: legacy", opts: Options{Profile: &Profile{Revision: mcp.Revision20250618}}, want: mcp.Revision20250618, scripts: []func(*script){func(s *script) {
			s.handshake("2025-06-18")
			s.expectEnd()
		}}},
		{name: "profile: legacy, server: modern only", opts: Options{Profile: &Profile{Revision: mcp.Revision20250618}}, want: mcp.Revision20260728, scripts: []func(*script){func(s *script) {
			s.reject(s.expect("initialize"), -32601, "")
			s.discovers()
			s.expectEnd()
		}}},
		{name: "profile: legacy, server: both eras", opts: Options{Profile: &Profile{Revision: mcp.Revision20250618}}, want: mcp.Revision20260728, scripts: []func(*script){func(s *script) {
			s.reject(s.expect("initialize"), -32022, `{"supported":["2026-07-28"],"requested":"2025-06-18"}`)
			s.discovers()
			s.expectEnd()
		}}},
		{name: "profile: modern, without server info", opts: Options{Profile: &Profile{Revision: mcp.Revision20260728}}, want: mcp.Revision20260728, scripts: []func(*script){func(s *script) {
			s.discovers()
			s.expectEnd()
		}}},
		{name: "profile: modern, with server info", opts: Options{Profile: &Profile{Revision: mcp.Revision20260728, Server: mcp.Implementation{Name: "script", Version: "7"}, Instructions: "be nice"}},
			want: mcp.Revision20260728, scripts: []func(*script){func(s *script) { s.expectEnd() }}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				c, err := Dial(t.Context(), scriptTransport(t, tt.scripts...), &tt.opts)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				if c.Revision() != tt.want || c.Revision().Modern() != tt.want.Modern() {
					t.Errorf("speaks %v, want %v", c.Revision(), tt.want)
				}
				if c.Profile().Server.Name != "script" || c.Profile().Instructions != "be nice" || c.Profile().Revision != tt.want {
					t.Errorf("server %+v, %q, %+v", c.Profile().Server, c.Profile().Instructions, c.Profile())
				}
				if d := time.Since(began); d != tt.takes {
					t.Errorf("took %v, want %v", d, tt.takes)
				}
			})
		})
	}
}

// TestNegotiationFails checks the errors of Dial.
func TestNegotiationFails(t *testing.T) {
	for _, tt := range []struct {
		name    string
		opts    Options
		scripts []func(*script)
		want    string
		check   func(error) bool
	}{
		{name: "modern client, legacy server", opts: Options{Revisions: onlyModern}, scripts: []func(*script){func(s *script) {
			s.reject(s.expect("server/discover"), -32601, "")
			s.expectEnd()
		}}, want: "client speaks [2026-07-28], the server an older one", check: is[*IncompatibleError]},
		{name: "modern client, server with a result for every method", opts: Options{Revisions: onlyModern}, scripts: []func(*script){func(s *script) {
			s.answer(s.expect("server/discover"), "{}")
			s.expectEnd()
		}}, want: "supportedVersions is missing", check: is[*IncompatibleError]},
		{name: "modern client, silent server", opts: Options{Revisions: onlyModern}, scripts: []func(*script){func(s *script) {
			s.expect("server/discover")
			s.expectEnd()
		}}, want: "call server/discover: no response within 30s (see Options.Timeouts.Handshake)", check: is[*TimeoutError]},
		{name: "legacy client, modern server", opts: Options{Revisions: onlyLegacy}, scripts: []func(*script){func(s *script) {
			s.reject(s.expect("initialize"), -32022, `{"supported":["2026-07-28"],"requested":"2025-11-25"}`)
			s.expectEnd()
		}}, want: "the server [2026-07-28]", check: is[*IncompatibleError]},
		{name: "legacy client, modern server with an unspecific error", opts: Options{Revisions: onlyLegacy}, scripts: []func(*script){func(s *script) {
			s.reject(s.expect("initialize"), -32601, "")
			s.expectEnd()
		}}, want: "call initialize: no (-32601)", check: IsServerError},
		{name: "future versions", scripts: []func(*script){func(s *script) {
			s.answer(s.expect("server/discover"), discovered("2030-01-01", "2031-01-01"))
			s.expectEnd()
		}}, want: "the server [2030-01-01 2031-01-01]", check: is[*IncompatibleError]},
		{name: "future versions in an error", scripts: []func(*script){func(s *script) {
			s.reject(s.expect("server/discover"), -32022, `{"supported":["2030-01-01"],"requested":"2026-07-28"}`)
			s.expectEnd()
		}}, want: "the server [2030-01-01]", check: is[*IncompatibleError]},
		{name: "every version rejected", scripts: []func(*script){func(s *script) {
			for range maxOpeningAttempts {
				s.reject(s.expect("server/discover"), -32022, `{"supported":["2026-07-28"],"requested":"2026-07-28"}`)
			}
			s.expectEnd()
		}}, want: "no revision negotiated after 3 attempts", check: is[*ProtocolError]},
		{name: "every version rejected, legacy", opts: Options{Revisions: onlyLegacy}, scripts: []func(*script){func(s *script) {
			for range maxOpeningAttempts {
				s.reject(s.expect("initialize"), -32602, `{"supported":["2025-03-26"],"requested":"2025-03-26"}`)
			}
			s.expectEnd()
		}}, want: "no revision negotiated after 3 attempts", check: is[*ProtocolError]},
		{name: "modern error", scripts: []func(*script){func(s *script) {
			s.reject(s.expect("server/discover"), -32021, `{"requiredCapabilities":{"sampling":{}}}`)
			s.expectEnd()
		}}, want: "-32021", check: IsServerError},
		{name: "another modern error", scripts: []func(*script){func(s *script) {
			s.reject(s.expect("server/discover"), -32020, "")
			s.expectEnd()
		}}, want: "-32020", check: IsServerError},
		// Spec: C28
		{name: "the server chooses an unsupported version", opts: Options{Revisions: onlyLegacy[1:]}, scripts: []func(*script){func(s *script) {
			s.answer(s.expect("initialize"), initialized("2024-11-05"))
			s.expectEnd()
		}}, want: "the server [2024-11-05]", check: is[*IncompatibleError]},
		{name: "the server chooses a modern version", opts: Options{Revisions: onlyLegacy}, scripts: []func(*script){func(s *script) {
			s.answer(s.expect("initialize"), initialized("2026-07-28"))
			s.expectEnd()
		}}, want: "the server [2026-07-28]", check: is[*IncompatibleError]},
		{name: "no version", opts: Options{Revisions: onlyLegacy}, scripts: []func(*script){func(s *script) {
			s.answer(s.expect("initialize"), `{"capabilities":{}}`)
			s.expectEnd()
		}}, want: "protocolVersion is missing", check: is[*ProtocolError]},
		{name: "capabilities of a wrong type", scripts: []func(*script){func(s *script) {
			s.answer(s.expect("server/discover"), `{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":"yes"}}}`)
			s.expectEnd()
		}}, want: "tools.listChanged", check: is[*ProtocolError]},
		{name: "server of neither era", scripts: []func(*script){func(s *script) {
			s.reject(s.expect("server/discover"), -32601, "")
			s.reject(s.expect("initialize"), -32601, "")
			s.expectEnd()
		}}, want: "call initialize: no (-32601)", check: IsServerError},
		{name: "no response at all", scripts: []func(*script){
			func(s *script) { s.expect("server/discover"); s.expect("initialize"); s.expectEnd() },
			func(s *script) { s.expect("initialize"); s.expectEnd() },
		}, want: "call initialize: no response within 30s", check: is[*TimeoutError]},
		{name: "the probe ends the server, which cannot be restarted", scripts: []func(*script){func(s *script) { s.expect("server/discover") }},
			want: "failed after a probe", check: func(err error) bool { return errors.Is(err, ErrNoReconnect) }},
		{name: "every request ends the server", scripts: []func(*script){
			func(s *script) { s.expect("server/discover") },
			func(s *script) { s.expect("initialize") },
		}, want: "call initialize: connection closed", check: isConnectionLost},
		{name: "connection fails", want: "no script is left", check: func(err error) bool { return errors.Is(err, ErrNoReconnect) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := Dial(t.Context(), scriptTransport(t, tt.scripts...), &tt.opts)
				if err == nil {
					c.Close()
					t.Fatalf("connected, speaking %v", c.Revision())
				}
				if !strings.HasPrefix(err.Error(), "dial: ") || !strings.Contains(err.Error(), tt.want) || !tt.check(err) {
					t.Errorf("got %v, want an error with %q", err, tt.want)
				}
			})
		})
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// TestOpening checks what the client sends about itself in each revision.
//
// Spec: C10 C11 C26 C29 C30 C89 C96 C97 C103 C104
func TestOpening(t *testing.T) {
	const (
		info   = `{"name":"me","version":"1"`
		title  = `,"title":"Me"`
		more   = `,"description":"D","websiteUrl":"https://example.com"`
		sample = `"sampling":{"tools":{}}`
		custom = `"experimental":{"x":{"y":1}}`
	)
	opts := Options{
		Info: mcp.Implementation{Name: "me", Version: "1", Title: "Me", Description: "D", WebsiteURL: "https://example.com"},
		Input: InputOptions{
			Elicit:      func(context.Context, *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) { return nil, nil },
			ElicitModes: []mcp.ElicitMode{mcp.ElicitModeForm, mcp.ElicitModeURL},
			Sample: func(context.Context, *mcp.CreateMessageRequestParams) (*mcp.CreateMessageResult, error) {
				return nil, nil
			},
			SampleTools: true,
			Roots:       func(context.Context) ([]mcp.Root, error) { return nil, nil },
		},
		Capabilities: map[string]json.RawMessage{"experimental": json.RawMessage("{\"x\":\n{\"y\":1}}")},
		Extensions:   map[string]json.RawMessage{"io.modelcontextprotocol/tasks": json.RawMessage("{}"), "com.example/x": json.RawMessage(`{"a":1}`)},
	}
	const extension = `"extensions":{"com.example/x":{"a":1}}`
	for _, tt := range []struct {
		revision, capabilities, info string
	}{
		{"2024-11-05", `{` + custom + `,` + extension + `,"roots":{"listChanged":true},"sampling":{}}`, info},
		{"2025-03-26", `{` + custom + `,` + extension + `,"roots":{"listChanged":true},"sampling":{}}`, info},
		{"2025-06-18", `{"elicitation":{},` + custom + `,` + extension + `,"roots":{"listChanged":true},"sampling":{}}`, info + title},
		{"2025-11-25", `{"elicitation":{"form":{},"url":{}},` + custom + `,` + extension + `,"roots":{"listChanged":true},` + sample + `}`, info + title + more},
		{"2026-07-28", `{"elicitation":{"form":{},"url":{}},` + custom + `,"extensions":{"com.example/x":{"a":1},"io.modelcontextprotocol/tasks":{}},"roots":{},` + sample + `}`, info + title + more},
	} {
		t.Run(tt.revision, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, _ := mcp.ParseRevision(tt.revision)
				o := opts
				o.Revisions = []mcp.Revision{r}
				got := make(chan string, 1)
				c := dial(t, &o, func(s *script) {
					if r.Modern() {
						m := s.expect("server/discover")
						got <- string(m.Params)
						s.answer(m, discovered(tt.revision))
					} else {
						got <- s.handshake(tt.revision)
					}
					s.expectEnd()
				})
				params := <-got
				version, capabilities, info := "protocolVersion", "capabilities", "clientInfo"
				if r.Modern() {
					params = memberOf(t, params, "_meta")
					version, capabilities, info = mcp.MetaProtocolVersion, mcp.MetaClientCapabilities, mcp.MetaClientInfo
				}
				want := []string{`"` + tt.revision + `"`, tt.capabilities, tt.info + "}"}
				if diff := cmp.Diff(want, []string{memberOf(t, params, version), memberOf(t, params, capabilities), memberOf(t, params, info)}); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if c.Profile().Capabilities.Tools == nil {
					t.Error("the server's capabilities are lost")
				}
			})
		})
	}
}

// TestInitializeNotCanceled shows that a canceled Dial closes the connection and sends no
// cancellation.
//
// Spec: C31
func TestInitializeNotCanceled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := Dial(ctx, scriptTransport(t, func(s *script) {
			s.expect("initialize")
			s.expectEnd()
		}), &Options{Revisions: onlyLegacy})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}

// TestProfile shows that the profile found by one client saves the next client the probe, also
// after JSON encoding. A profile that was not verified is verified when it seems to be wrong.
func TestProfile(t *testing.T) {
	found := func(t *testing.T) *Profile {
		c := dial(t, nil, func(s *script) { s.discovers(); s.expectEnd() })
		text, err := json.Marshal(c.Profile())
		if err != nil {
			t.Fatal(err)
		}
		v := new(Profile)
		if err := json.Unmarshal(text, v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	list := func(s *script) message { return s.expect("tools/list") }
	for _, tt := range []struct {
		name    string
		scripts []func(*script)
		retry   CallOption
		want    string // error of the call; empty for success
		after   mcp.Revision
	}{
		{"right", []func(*script){func(s *script) {
			s.answer(list(s), `{"resultType":"complete"}`)
			s.reject(list(s), -32601, "") // the era is known by now
			s.expectEnd()
		}}, WithRetry(true), "", mcp.Revision20260728},
		{"right, although the first response is an error", []func(*script){func(s *script) {
			s.reject(list(s), -32602, "")
			s.discovers()
			s.expectEnd()
		}}, WithRetry(true), "(-32602)", mcp.Revision20260728},
		{"wrong, and the call can be repeated", []func(*script){
			func(s *script) {
				s.reject(list(s), -32602, "")
				s.reject(s.expect("server/discover"), -32602, "")
				s.expectEnd()
			},
			func(s *script) {
				s.reject(s.expect("server/discover"), -32602, "")
				s.handshake(legacyDate)
				s.answer(list(s), "{}")
				s.expectEnd()
			},
		}, WithRetry(true), "", mcp.Revision20251125},
		{"wrong, and the call cannot be repeated", []func(*script){
			func(s *script) {
				s.reject(list(s), -32602, "")
				s.reject(s.expect("server/discover"), -32602, "")
				s.expectEnd()
			},
			func(s *script) {
				s.reject(s.expect("server/discover"), -32602, "")
				s.handshake(legacyDate)
				s.expectEnd()
			},
		}, WithRetry(false), "does not speak 2026-07-28", mcp.Revision20251125},
		{"wrong, and the server ended", []func(*script){
			func(s *script) { list(s) },
			func(s *script) {
				s.reject(s.expect("server/discover"), -32602, "")
				s.handshake(legacyDate)
				s.answer(list(s), "{}")
				s.expectEnd()
			},
		}, WithRetry(true), "", mcp.Revision20251125},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := dial(t, &Options{Profile: found(t)}, tt.scripts...)
				err := c.Call(t.Context(), "tools/list", nil, nil, tt.retry)
				if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, want %q", err, tt.want)
				}
				elapse(time.Minute) // the client has reconnected
				if c.Revision() != tt.after {
					t.Errorf("speaks %v, want %v", c.Revision(), tt.after)
				}
				if tt.name == "right" {
					if err := c.Call(t.Context(), "tools/list", nil, nil); !IsServerError(err) {
						t.Errorf("second call: %v", err)
					}
				}
			})
		})
	}
}

func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		opts Options
		want string
	}{
		{Options{Revisions: []mcp.Revision{99}}, "Options.Revisions"},
		{Options{Revisions: onlyModern, Profile: &Profile{Revision: mcp.Revision20241105}}, "Options.Profile.Revision 2024-11-05 is not an allowed revision"},
		{Options{Input: InputOptions{ElicitModes: []mcp.ElicitMode{"voice"}}}, `Options.Input.ElicitModes: unknown mode "voice"`},
		{Options{Capabilities: map[string]json.RawMessage{"x": json.RawMessage("{")}}, `Options.Capabilities["x"]`},
		{Options{Extensions: map[string]json.RawMessage{"a.b/c": json.RawMessage("1")}}, "must be a JSON object"},
		{Options{Extensions: map[string]json.RawMessage{"c": json.RawMessage("{}")}}, "needs a prefix"},
	} {
		_, err := Dial(t.Context(), scriptTransport(t), &tt.opts)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %q", err, tt.want)
		}
	}
	if got := fmt.Sprint(&IncompatibleError{Client: onlyModern, Server: []string{"x"}}); got != "no common revision of the protocol: the client speaks [2026-07-28], the server [x]" {
		t.Errorf("got %s", got)
	}
}

// TestProbeTimeoutIsNamed shows that the log message about a probe without a response names the
// option for it.
func TestProbeTimeoutIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		dial(t, &Options{Timeouts: Timeouts{Probe: 3 * time.Second}, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}, func(s *script) {
			s.expect("server/discover")
			s.handshake(legacyDate)
			s.expectEnd()
		})
		if want := "call server/discover: no response within 3s (see Options.Timeouts.Probe)"; !strings.Contains(log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, log.String())
		}
	})
}

// TestLoginTime shows that no timeout runs while a request waits for a user to log in, and that it
// runs on afterwards.
func TestLoginTime(t *testing.T) {
	const login = 10 * time.Minute
	for _, tt := range []struct {
		name      string
		revisions []mcp.Revision
		method    string
		silent    bool // the server does not respond after the login
		noProbe   bool // the server does not respond to the probe
		want      mcp.Revision
		takes     time.Duration
	}{
		{name: "probe", method: "server/discover", want: mcp.Revision20260728, takes: login},
		{name: "probe of a modern client", revisions: onlyModern, method: "server/discover", want: mcp.Revision20260728, takes: login},
		{name: "handshake", revisions: onlyLegacy, method: "initialize", want: mcp.Revision20251125, takes: login},
		{name: "handshake after a probe without response", method: "initialize", noProbe: true, want: mcp.Revision20251125, takes: login + 5*time.Second},
		{name: "call", method: "slow", want: mcp.Revision20260728, takes: login},
		{name: "silence after the login", revisions: onlyLegacy, method: "initialize", silent: true, takes: login + 30*time.Second},
		{name: "silence in a call", method: "slow", want: mcp.Revision20260728, silent: true, takes: login + 5*time.Minute},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var connection context.Context
				connects := 0
				server := scriptTransport(t, func(s *script) {
					for {
						m := s.next()
						if m.Method == tt.method {
							end := userwait.Begin(connection)
							elapse(login)
							end()
							if tt.silent {
								if m.Method == "slow" {
									s.expect("notifications/cancelled")
								}
								s.expectEnd()
								return
							}
						}
						switch m.Method {
						case "server/discover":
							if !tt.noProbe {
								s.answer(m, discovered(modernDate))
							}
						case "initialize":
							s.answer(m, initialized(legacyDate))
						case "slow":
							s.answer(m, "{}")
							s.expectEnd()
							return
						}
					}
				})
				began := time.Now()
				c, err := Dial(t.Context(), TransportFunc(func(ctx context.Context) (jsonrpc.Framer, error) {
					connection = ctx
					connects++
					return server.Connect(ctx)
				}), &Options{Revisions: tt.revisions, Reconnect: ReconnectPolicy{Disabled: true}})
				if err == nil {
					defer c.Close()
					if got := c.Revision(); got != tt.want {
						t.Errorf("negotiated %v, want %v", got, tt.want)
					}
					err = c.Call(t.Context(), "slow", nil, nil)
				}
				if connects != 1 {
					t.Errorf("%d connections, want 1", connects)
				}
				_, timedOut := errors.AsType[*TimeoutError](err)
				if took := time.Since(began).Truncate(time.Second); took != tt.takes || timedOut != tt.silent || err != nil && !tt.silent {
					t.Errorf("got %v after %v, want %v", err, took, tt.takes)
				}
			})
		})
	}
}

// TestInitializedTimeout shows that the error of a handshake whose last message takes too long is a
// timeout, and that of a canceled one a cancellation.
func TestInitializedTimeout(t *testing.T) {
	canceled := errors.New("not needed")
	for _, tt := range []struct {
		name        string
		cause, want error
		mention     string
	}{
		{"timeout", nil, context.DeadlineExceeded, "Options.Timeouts.Handshake"},
		{"canceled", canceled, context.Canceled, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				server := scriptTransport(t, func(s *script) {
					s.answer(s.expect("initialize"), initialized(legacyDate))
					s.expectEnd()
				})
				wait := func(next middleware.Handler) middleware.Handler {
					return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
						if m.Method != mcp.NotificationInitialized {
							return next(ctx, m)
						}
						if tt.cause != nil {
							cancel(tt.cause)
						}
						<-ctx.Done()
						return nil, ctx.Err()
					}
				}
				_, err := Dial(ctx, server, &Options{Revisions: onlyLegacy, Middleware: []middleware.Func{wait}, Reconnect: ReconnectPolicy{Disabled: true}})
				if !errors.Is(err, tt.want) || !strings.Contains(fmt.Sprint(err), tt.mention) {
					t.Errorf("Dial: %v, want %v that mentions %q", err, tt.want, tt.mention)
				}
			})
		})
	}
}

// TestCanceledWhileServerIsSlow shows that a handshake that is canceled opens no second connection.
func TestCanceledWhileServerIsSlow(t *testing.T) {
	for range 20 { // two goroutines notice the end
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			server := scriptTransport(t, func(s *script) {
				s.expect("server/discover")
				s.expect("initialize")
				cancel()
				s.expectEnd()
			})
			connects := 0
			_, err := Dial(ctx, TransportFunc(func(ctx context.Context) (jsonrpc.Framer, error) {
				connects++
				return server.Connect(context.WithoutCancel(ctx))
			}), nil)
			if !errors.Is(err, context.Canceled) || connects != 1 {
				t.Errorf("Dial: %v with %d connections, want a cancellation with 1", err, connects)
			}
		})
	}
}

// TestLoginBeforeInitialized shows that the handshake's timeout, which middleware sees, does not run
// while a user logs in.
func TestLoginBeforeInitialized(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var connection context.Context
		server := scriptTransport(t, func(s *script) { s.handshake(legacyDate); s.expectEnd() })
		c, err := Dial(t.Context(), TransportFunc(func(ctx context.Context) (jsonrpc.Framer, error) {
			connection = ctx
			return server.Connect(ctx)
		}), &Options{Revisions: onlyLegacy, Middleware: []middleware.Func{func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
				if m.Method != mcp.NotificationInitialized {
					return next(ctx, m)
				}
				end := userwait.Begin(connection)
				elapse(10 * time.Minute)
				end()
				if ctx.Err() != nil {
					t.Errorf("after the login: %v", context.Cause(ctx))
				}
				result, err := next(ctx, m)
				began := time.Now()
				<-ctx.Done()
				if took := time.Since(began); took != 30*time.Second || context.Cause(ctx) != context.DeadlineExceeded {
					t.Errorf("after the login, the context ended with %v after %v, want a timeout after 30s", context.Cause(ctx), took)
				}
				return result, err
			}
		}}})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	})
}
