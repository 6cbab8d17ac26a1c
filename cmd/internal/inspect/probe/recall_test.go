package probe

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/trace/wireclient"
	"mcpwire/internal/json/jsonwire"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/streamable"
)

// when replies to requests of a method whose line contains a text.
func when(method, part string, reply func(*jsonrpc.Message) []string) fault {
	return func(m *jsonrpc.Message, line string) ([]string, bool) {
		if string(m.Method) != method || !strings.Contains(line, part) || !strings.Contains(line, "jsonrpc") || len(m.ID) == 0 {
			return nil, false
		}
		return reply(m), true
	}
}

func with(members string) func(*jsonrpc.Message) []string {
	return func(m *jsonrpc.Message) []string { return result(m, members) }
}

func code(c string) func(*jsonrpc.Message) []string {
	return func(m *jsonrpc.Message) []string { return failure(m, c) }
}

func mute(*jsonrpc.Message) []string          { return nil }
func exitInRequest(*jsonrpc.Message) []string { return []string{die} }

// lines replies to some lines, whatever they contain.
func lines(which func(string) bool, reply ...string) fault {
	return func(_ *jsonrpc.Message, line string) ([]string, bool) {
		if !which(line) {
			return nil, false
		}
		return reply, true
	}
}

func notJSON(line string) bool { return line != "" && !valid(line) }

// modernOnly applies a fault only to the modern era, and legacyOnly only to the legacy era.
func modernOnly(f fault) fault {
	return func(m *jsonrpc.Message, line string) ([]string, bool) {
		if metaText(m, mcp.MetaProtocolVersion) == "" {
			return nil, false
		}
		return f(m, line)
	}
}

func legacyOnly(f fault) fault {
	return func(m *jsonrpc.Message, line string) ([]string, bool) {
		if metaText(m, mcp.MetaProtocolVersion) != "" {
			return nil, false
		}
		return f(m, line)
	}
}

const initialized = `"protocolVersion":"%s","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}`

// TestRecallStdio breaks one rule after the other.
func TestRecallStdio(t *testing.T) {
	for _, tt := range []struct {
		name string
		flaw flaw
		want []string // rules of this package; others may fire too
	}{
		{"unknown method accepted", flaw{in: when(noSuchMethod, "", with(""))}, []string{"probe/unknown-method"}},
		{"unknown method is an internal error", flaw{in: legacyOnly(when(noSuchMethod, "", code("-32603")))}, []string{"probe/error-code"}},
		{"unknown method, modern", flaw{in: modernOnly(when(noSuchMethod, "", code("-32603")))}, []string{"probe/error-code", "probe/modern-refusal"}},
		{"unknown method ends the server", flaw{in: when(noSuchMethod, "", exitInRequest)}, []string{"probe/died"}},
		{"missing name accepted", flaw{in: when(mcp.MethodResourcesRead, `"params":{}`, with(`"contents":[]`))}, []string{"probe/invalid-params"}},
		{"unknown tool accepted", flaw{in: when(mcp.MethodToolsCall, noSuchTool, with(`"content":[]`))}, []string{"probe/unknown-tool"}},
		{"unknown resource read", flaw{in: when(mcp.MethodResourcesRead, noSuchResource, with(`"contents":[{"uri":"x://y","text":""}],"ttlMs":0,"cacheScope":"private"`))}, []string{"probe/unknown-resource"}},
		{"unknown prompt", flaw{in: when(mcp.MethodPromptsGet, noSuchPrompt, with(`"messages":[]`))}, []string{"probe/unknown-prompt"}},
		{"unknown completion", flaw{in: when(mcp.MethodComplete, noSuchPrompt, with(`"completion":{"values":[]}`))}, []string{"probe/unknown-completion"}},
		{"invalid cursor accepted", flaw{in: when(mcp.MethodPromptsList, noSuchCursor, with(`"prompts":[],"ttlMs":0,"cacheScope":"private"`))}, []string{"probe/invalid-cursor"}},
		{"list rejected", flaw{in: when(mcp.MethodToolsList, `"params"`, code("-32603"))}, []string{"probe/error-code", "probe/failing"}},
		{"list rejected as unknown", flaw{in: when(mcp.MethodToolsList, `"params"`, code("-32601"))}, []string{"probe/error-code", "probe/refused"}},
		{"list out of order", flaw{in: when(mcp.MethodToolsList, "", code("-32603"))}, []string{"probe/failing"}},
		{"listen at a limit", flaw{in: when(mcp.MethodSubscriptionsListen, "", code("-32603"))}, []string{}},
		{"listen with a wrong code", flaw{in: when(mcp.MethodSubscriptionsListen, "", code("-32602"))}, []string{"probe/modern-refusal"}},
		{"version echoed", flaw{in: when(mcp.MethodInitialize, noSuchVersion, with(strings.Replace(initialized, "%s", noSuchVersion, 1)))}, []string{"probe/version-echoed"}},
		{"version rejected", flaw{in: when(mcp.MethodInitialize, noSuchVersion, code("-32602"))}, []string{"probe/version-error"}},
		{"second initialize accepted", flaw{in: second(legacyOnly(when(mcp.MethodInitialize, "", with(strings.Replace(initialized, "%s", rev20251125.String(), 1)))))}, []string{"probe/second-initialize"}},
		{"listed before initialize", flaw{in: early(when(mcp.MethodToolsList, "", with(`"tools":[]`)))}, []string{"probe/before-initialize"}},
		{"ping before initialize rejected", flaw{in: early(when(mcp.MethodPing, "", code("-32600")))}, []string{"probe/ping-first"}},
		{"version error without versions", flaw{in: when(mcp.MethodDiscover, noSuchVersion, code("-32022"))}, []string{"probe/modern-refusal"}},
		{"missing metadata, wrong code", flaw{in: orMissing(mcp.MetaClientCapabilities, code("-32600"))}, []string{"probe/modern-refusal"}},
		{"clientInfo required", flaw{in: orMissing(mcp.MetaClientInfo, code("-32602"))}, []string{"probe/client-info-required"}},
		{"ping in the modern era", flaw{in: modernOnly(when(mcp.MethodPing, "", with("")))}, []string{"probe/removed-method"}},
		{"no response to listen", flaw{in: when(mcp.MethodSubscriptionsListen, "", mute)}, []string{"probe/listen"}},
		{"listen ended at once", flaw{in: when(mcp.MethodSubscriptionsListen, "", with(""))}, []string{"probe/listen"}},
		{"invalid input ends the server", flaw{in: lines(notJSON, die)}, []string{"probe/fragile"}},
		{"invalid input ignored", flaw{in: lines(notJSON)}, []string{"probe/garbage-unanswered"}},
		{"invalid input, wrong code", flaw{in: lines(notJSON, `{"jsonrpc":"2.0","error":{"code":-32603,"message":"m"}}`)}, []string{"probe/error-code"}},
		{"a number ignored", flaw{in: lines(func(line string) bool { return line == "42" })}, []string{"probe/invalid-request"}},
		{"a blank line ends the server", flaw{in: lines(func(line string) bool { return line == "" }, die)}, []string{"probe/line-ends"}},
		{"large numbers are floats", flaw{out: func(line string) string {
			return strings.Replace(line, "9007199254740993", "9007199254740992", 1)
		}}, []string{"probe/id-huge"}},
		{"a large request ends the server", flaw{in: lines(func(line string) bool { return len(line) > 1<<20 }, die)}, []string{"probe/fragile"}},
		{"the server does not end", flaw{deaf: true}, []string{"probe/eof"}},
		{"batch rejected", flaw{in: lines(func(line string) bool { return strings.HasPrefix(line, "[") })}, []string{"probe/batch"}},
		{"batch accepted", flaw{in: unpack}, []string{"probe/batch-taken"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				report, err := probeFake(t, tt.flaw, &Options{Revisions: []mcp.Revision{rev20250326, rev20251125, rev20260728}, Only: []string{"probe/*"}})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, brief(report.Findings)); diff != "" {
					t.Errorf("rules (-want +got):\n%s%s", diff, verbose(report.Findings))
				}
			})
		})
	}
}

// TestOneFinding checks that one defect has one finding of all rules.
func TestOneFinding(t *testing.T) {
	first := func() fault { // at the first message of each process
		return func(m *jsonrpc.Message, _ string) ([]string, bool) {
			if string(m.ID) != "1" || string(m.Method) == mcp.MethodInitialize {
				return nil, false
			}
			return []string{die}, true
		}
	}
	for _, tt := range []struct {
		name string
		flaw flaw
		want []string
	}{
		{"exit at a first request that is not initialize", flaw{in: first()}, []string{"probe/died"}},
		{"exit at a request", flaw{in: when(noSuchMethod, "", exitInRequest)}, []string{"probe/died"}},
		{"initialize in the modern era, with a malformed result", flaw{in: modernOnly(when(mcp.MethodInitialize, "", with(`"capabilities":1`)))}, []string{"probe/removed-method"}},
		{"no ping", flaw{in: legacyOnly(when(mcp.MethodPing, "", code("-32601")))}, []string{"lifecycle/ping", "probe/ping-first"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				report, err := probeFake(t, tt.flaw, &Options{Revisions: []mcp.Revision{rev20251125, rev20260728}})
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, brief(report.Findings)); diff != "" {
					t.Errorf("rules (-want +got):\n%s%s", diff, verbose(report.Findings))
				}
			})
		})
	}
}

// orMissing responds to modern requests that lack some metadata.
func orMissing(key string, reply func(*jsonrpc.Message) []string) fault {
	return modernOnly(func(m *jsonrpc.Message, _ string) ([]string, bool) {
		if len(m.ID) == 0 || jsonwire.Lookup(m.Params, "_meta", key) != nil {
			return nil, false
		}
		return reply(m), true
	})
}

// second applies a fault only after a request with the id 1, that is, after the handshake.
func second(f fault) fault {
	return func(m *jsonrpc.Message, line string) ([]string, bool) {
		if string(m.ID) == "1" {
			return nil, false
		}
		return f(m, line)
	}
}

// early applies a fault only before a handshake: to a connection whose first requests are not a
// handshake's.
func early(f fault) fault {
	return legacyOnly(func(m *jsonrpc.Message, line string) ([]string, bool) {
		if string(m.ID) != "1" && string(m.ID) != "2" || string(m.Method) == mcp.MethodToolsList && bytes.Contains([]byte(line), []byte("params")) {
			return nil, false
		}
		if string(m.ID) == "2" && string(m.Method) == mcp.MethodPing {
			return nil, false
		}
		return f(m, line)
	})
}

// unpack responds to each request of a batch.
func unpack(_ *jsonrpc.Message, line string) ([]string, bool) {
	if !strings.HasPrefix(line, "[") {
		return nil, false
	}
	var list []string
	for _, m := range wireclient.Messages([]byte(line)) {
		list = append(list, result(&m, "")...)
	}
	return list, true
}

// TestUnreachable shows that a server that accepts no revision is an error, and that its findings
// are still reported.
func TestUnreachable(t *testing.T) {
	for _, tt := range []struct {
		name string
		flaw flaw
		want []string
	}{
		{"silent", flaw{in: lines(func(string) bool { return true })}, []string{"probe/no-handshake"}},
		{"dead", flaw{in: lines(func(string) bool { return true }, die)}, []string{"probe/no-handshake", "stdio/exit-pending"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				report, err := probeFake(t, tt.flaw, &Options{Revisions: []mcp.Revision{rev20251125}})
				if !errors.Is(err, ErrNoAnswer) {
					t.Errorf("error %v, want one that is ErrNoAnswer", err)
				}
				if diff := cmp.Diff(tt.want, brief(report.Findings)); diff != "" {
					t.Errorf("rules (-want +got):\n%s", diff)
				}
			})
		})
	}
}

// TestJudgedByCheck checks that the probe applies the rules of package check to the traffic.
func TestJudgedByCheck(t *testing.T) {
	for _, tt := range []struct {
		name string
		flaw flaw
		want string
	}{
		{"silence", flaw{in: when(mcp.MethodToolsList, "", mute)}, "probe/unanswered"},
		{"stray output", flaw{out: func(line string) string { return "hello\n" + line }}, "stdio/stray-output"},
		{"another id", flaw{out: func(line string) string { return strings.Replace(line, `"id":3,`, `"id":"3",`, 1) }}, "jsonrpc/unknown-id"},
		{"an unknown tool as a result", flaw{in: when(mcp.MethodToolsCall, noSuchTool, with(`"content":[],"isError":true`))}, "tools/unknown-as-result"},
		{"wrong shape", flaw{in: when(mcp.MethodToolsList, "", with(`"tools":{}`))}, "shape/wrong-type"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				report, err := probeFake(t, tt.flaw, &Options{Revisions: []mcp.Revision{rev20251125}})
				if err != nil {
					t.Fatal(err)
				}
				if got := brief(report.Findings); !slices.Contains(got, tt.want) {
					t.Errorf("rules %v, want %s among them", got, tt.want)
				}
			})
		})
	}
}

// A webFlaw handles a request instead of the server, unless it returns false.
type webFlaw func(w http.ResponseWriter, r *http.Request, body []byte) bool

// TestRecallHTTP breaks one rule after the other.
func TestRecallHTTP(t *testing.T) {
	status := func(when func(*http.Request, []byte) bool, code int) webFlaw {
		return func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			if when(r, body) {
				w.WriteHeader(code)
				return true
			}
			return false
		}
	}
	take := func(when func(*http.Request, []byte) bool) webFlaw {
		return func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			list := wireclient.Messages(body)
			if !when(r, body) || len(list) == 0 || len(list[0].ID) == 0 {
				return false
			}
			members := ""
			if string(list[0].Method) == mcp.MethodDiscover {
				members = `"supportedVersions":["` + rev20260728.String() + `"],"capabilities":{},"ttlMs":0,"cacheScope":"public"`
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, result(&list[0], members)[0])
			return true
		}
	}
	foreign := func(r *http.Request, _ []byte) bool { return r.Header.Get("Origin") == hostileOrigin }
	ping := func(header, value string) func(*http.Request, []byte) bool {
		return func(r *http.Request, body []byte) bool {
			return r.Header.Get(header) == value && strings.Contains(string(body), `"ping"`) && !strings.Contains(string(body), "_meta") && !strings.HasPrefix(string(body), "[")
		}
	}
	for _, tt := range []struct {
		name string
		flaw webFlaw
		want []string
	}{
		{"foreign origins accepted", take(foreign), []string{"probe/origin"}},
		{"foreign origins rejected with a wrong status", status(foreign, 400), []string{"probe/origin-status"}},
		{"foreign host accepted", take(func(r *http.Request, _ []byte) bool { return r.Host == hostileHost }), []string{"probe/host"}},
		{"no JSON taken", status(func(_ *http.Request, b []byte) bool { return len(b) > 0 && !jsonOK(b) }, 202), []string{"probe/http-body"}},
		{"invalid JSON breaks the server", status(func(_ *http.Request, b []byte) bool { return len(b) > 0 && !jsonOK(b) }, 500), []string{"probe/http-5xx"}},
		{"any content type", take(func(r *http.Request, _ []byte) bool { return r.Header.Get("Content-Type") == "text/plain" }), []string{}},
		{"session not required", take(ping("Mcp-Session-Id", "")), []string{"probe/session-missing"}},
		{"any session", take(ping("Mcp-Session-Id", "mcpwire-probe-nobodys")), []string{"probe/session-unknown"}},
		{"version rejected with a wrong status", status(ping("MCP-Protocol-Version", noSuchVersion), 500), []string{"probe/version-status"}},
		{"version required", status(func(r *http.Request, b []byte) bool {
			return ping("MCP-Protocol-Version", "")(r, b) && r.Header.Get("Mcp-Session-Id") != ""
		}, 400), []string{"probe/version-absent"}},
		{"headers looked at first", func(w http.ResponseWriter, r *http.Request, body []byte) bool { // which is right: without a name there is no Mcp-Name
			list := wireclient.Messages(body)
			if r.Header.Get("MCP-Protocol-Version") != rev20260728.String() || len(list) == 0 || string(list[0].Method) != mcp.MethodToolsCall || r.Header.Get("Mcp-Name") != "" {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			_, _ = io.WriteString(w, failure(&list[0], "-32020")[0])
			return true
		}, []string{}},
		{"base64 not decoded", func(w http.ResponseWriter, r *http.Request, body []byte) bool {
			list := wireclient.Messages(body)
			if !strings.HasPrefix(r.Header.Get("Mcp-Name"), "=?base64?") || len(list) == 0 {
				return false
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(400)
			_, _ = io.WriteString(w, failure(&list[0], "-32020")[0])
			return true
		}, []string{"probe/header-spelling"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			report, err := probeWeb(t, tt.flaw, &Options{Revisions: []mcp.Revision{rev20251125, rev20260728}, Only: []string{"probe/*"}, Disabled: []string{"probe/http-lenient"}})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, brief(report.Findings)); diff != "" {
				t.Errorf("rules (-want +got):\n%s%s", diff, verbose(report.Findings))
			}
		})
	}
}

func jsonOK(b []byte) bool { return jsonwire.Valid(b, 0) == nil }

// probeWeb probes a correct server through a handler that adds a flaw.
func probeWeb(t *testing.T, flaw webFlaw, opts *Options) (*Report, error) {
	t.Helper()
	h := streamable.MustHandler(newServer(t), nil)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || flaw != nil && flaw(w, r, body) {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.ServeHTTP(w, r)
	}))
	defer func() {
		srv.Close()
		if err := h.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	return Run(t.Context(), &Target{URL: srv.URL, Transport: srv.Client().Transport}, opts)
}

// TestUnauthorized checks that an authorization status is reported as a separate error.
func TestUnauthorized(t *testing.T) {
	_, err := probeWeb(t, func(w http.ResponseWriter, _ *http.Request, _ []byte) bool {
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}, nil)
	if e, ok := errors.AsType[*StatusError](err); !ok || e.Status != http.StatusUnauthorized {
		t.Errorf("error %v, want a StatusError of 401", err)
	}
}

// A handlerTransport calls a handler without a network, so that tests can use a synctest bubble. It
// never responds to requests of some methods.
type handlerTransport struct {
	h      http.Handler
	silent string
}

func (t handlerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	body := []byte{}
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	if strings.Contains(string(body), t.silent) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	in := r.Clone(r.Context())
	in.Body, in.RequestURI, in.Host, in.RemoteAddr = io.NopCloser(bytes.NewReader(body)), r.URL.RequestURI(), r.URL.Host, "127.0.0.1:1"
	w := httptest.NewRecorder()
	t.h.ServeHTTP(w, in)
	return w.Result(), nil
}

func TestSilentHTTP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := streamable.MustHandler(newServer(t), nil)
		report, err := Run(t.Context(), &Target{URL: "http://127.0.0.1/mcp", Transport: handlerTransport{h, `"` + noSuchMethod}}, &Options{
			Revisions: []mcp.Revision{rev20260728}, Only: []string{"probe/unanswered", "probe/died"},
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"probe/unanswered"}, brief(report.Findings)); diff != "" {
			t.Errorf("rules (-want +got):\n%s%s", diff, verbose(report.Findings))
		}
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
