package server_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/middleware"
	"mcpwire/server"
)

// secret returns a fixed secret instead of a random one.
func secret(n byte) []byte {
	s := make([]byte, 32)
	for i := range s {
		s[i] = n + byte(i)
	}
	return s
}

func stateKeys(t testing.TB, secrets ...[]byte) *server.StateKeys {
	t.Helper()
	k, err := server.NewStateKeys(secrets...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A careful server counts the runs of its handlers. Its tools t and u, its prompt p and its
// resource test:r request a name.
func careful(t testing.TB, opts *server.Options, runs *int) *server.Server {
	t.Helper()
	ask := func(ctx context.Context) (string, error) {
		*runs++
		c := server.CallOf(ctx)
		who, err := c.Elicit(ctx, "who", nameForm)
		if err != nil {
			return "", err
		}
		return string(who.Content), nil
	}
	srv := withTool(t, opts, func(c *server.Call) (string, error) { return ask(c) })
	addTool(t, srv, "u", func(c *server.Call) (string, error) { return ask(c) })
	if err := server.AddResource(srv, mcp.Resource{URI: "test:r", Name: "r"}, ask); err != nil {
		t.Fatal(err)
	}
	return srv
}

const who = `{"who":` + alice + `}`

const startOver = "invalid params: params.requestState is not valid for this request, or has expired: start over without requestState and inputResponses"

// rejected checks that the request is rejected before a handler runs, with the error for an invalid
// state.
func rejected(t *testing.T, what string, c *inputClient, runs *int, method, params string) {
	t.Helper()
	before := *runs
	r, err := c.request(t.Context(), method, params)
	if r != nil || code(err) != jsonrpc.CodeInvalidParams || !strings.Contains(err.Error(), startOver) || !strings.Contains(err.Error(), ": "+startOver) {
		t.Errorf("%s: got %+v, %v; want the error %q", what, r, err, startOver)
	}
	if *runs != before {
		t.Errorf("%s: the handler ran", what)
	}
}

// TestForeignState sends states that were issued for other requests.
//
// Spec: S108 S109 S110 S182 S189
func TestForeignState(t *testing.T) {
	runs := 0
	keys := stateKeys(t, secret(1))
	srv := careful(t, &server.Options{StateKeys: keys}, &runs)
	as := func(srv *server.Server, id string) *inputClient {
		return respondAs(t, server.WithPrincipalID(context.Background(), id), srv, modern, everything)
	}
	c := as(srv, "alice")
	const with = `{"name":"t","arguments":{"a":[1,{"b":"c"}]}}`
	first, err := c.request(t.Context(), "tools/call", with)
	if err != nil || first.ResultType != "input_required" {
		t.Fatalf("%+v, %v", first, err)
	}
	state := first.state()

	rejected(t, "another principal", as(srv, "bob"), &runs, "tools/call", retry(with, who, state))
	rejected(t, "nobody", as(srv, ""), &runs, "tools/call", retry(with, who, state))
	rejected(t, "another tool", c, &runs, "tools/call", retry(strings.Replace(with, `"t"`, `"u"`, 1), who, state))
	rejected(t, "another method", c, &runs, "resources/read", retry(`{"uri":"test:r"}`, who, state))
	for _, args := range []string{`{}`, `{"a":[1,{"b":"C"}]}`, `{"a":[1,{"b":"c"}],"d":1}`, `{"a":[1,{"b":"c","d":0}]}`, `{"a":["1",{"b":"c"}]}`} {
		rejected(t, "arguments "+args, c, &runs, "tools/call", retry(`{"name":"t","arguments":`+args+`}`, who, state))
	}
	rejected(t, "no arguments", c, &runs, "tools/call", retry(`{"name":"t"}`, who, state))
	rejected(t, "one more parameter", c, &runs, "tools/call", retry(strings.Replace(with, `{`, `{"x":1,`, 1), who, state))
	rejected(t, "another server with the same keys", as(careful(t, &server.Options{StateKeys: keys, Info: server.Info{Title: "x"}}, &runs), "bob"), &runs, "tools/call", retry(with, who, state))
	other := server.MustNew("other", "1", &server.Options{StateKeys: keys})
	addTool(t, other, "t", func(*server.Call) (string, error) { runs++; return "", nil })
	rejected(t, "a server with another name", as(other, "alice"), &runs, "tools/call", retry(with, who, state))
	rejected(t, "a server with its own keys", as(careful(t, nil, &runs), "alice"), &runs, "tools/call", retry(with, who, state))

	// The state is still valid for its own request, in any spelling.
	for _, same := range []string{with, `{"arguments": {"a" : [1, {"b":"c"}]}, "name":"t"}`} {
		if r, err := c.request(t.Context(), "tools/call", retry(same, who, state)); err != nil || r.text() != `{"name":"Alice"}` {
			t.Errorf("%s: %+v, %v", same, r, err)
		}
	}
}

// TestTamperedState modifies a state.
//
// Spec: S108 S109 S110 S191
func TestTamperedState(t *testing.T) {
	runs := 0
	c := respond(t, careful(t, nil, &runs), modern, everything)
	first, err := c.request(t.Context(), "tools/call", callT)
	if err != nil {
		t.Fatal(err)
	}
	state := first.state()
	box, err := base64.RawURLEncoding.DecodeString(state)
	if err != nil {
		t.Fatal(err)
	}
	again := func(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
	for _, i := range []int{0, 1, 8, 9, 32, 33, len(box) / 2, len(box) - 17, len(box) - 16, len(box) - 1} {
		for bit := range 8 {
			flipped := append([]byte{}, box...)
			flipped[i] ^= 1 << bit
			rejected(t, fmt.Sprintf("bit %d of byte %d", bit, i), c, &runs, "tools/call", retry(callT, who, again(flipped)))
		}
	}
	unknown := append([]byte{}, box...)
	copy(unknown[1:9], "12345678")
	for what, text := range map[string]string{
		"an unknown key": again(unknown), "cut": state[:len(state)-1], "cut in half": state[:len(state)/2], "cut to one letter": state[:1], "longer": state + "A",
		"a suffix": state + "-TAMPERED", "padded": state + "=", "plain JSON": `{\"Rounds\":0}`, "blank": " ", "a line break": state + `\n`, "too long": strings.Repeat("A", 300_000),
		"random base64": strings.Repeat("A", 200), "twice": state + state, "another alphabet": strings.Repeat("+/", 50),
	} {
		rejected(t, what, c, &runs, "tools/call", strings.TrimSuffix(callT, "}")+`,"inputResponses":`+who+`,"requestState":"`+text+`"}`)
	}
	rejected(t, "empty", c, &runs, "tools/call", strings.TrimSuffix(callT, "}")+`,"inputResponses":`+who+`,"requestState":""}`)
	rejected(t, "without answers", c, &runs, "tools/call", retry(callT, "", state[:len(state)-2]))
	for _, kind := range []string{"1", "{}", "true", "[]"} {
		_, err := c.request(t.Context(), "tools/call", strings.TrimSuffix(callT, "}")+`,"requestState":`+kind+`}`)
		if code(err) != jsonrpc.CodeInvalidParams || !strings.Contains(err.Error(), "must be a string") {
			t.Errorf("state %s: %v", kind, err)
		}
	}
	if r, err := c.request(t.Context(), "tools/call", retry(callT, who, state)); err != nil || r.text() != `{"name":"Alice"}` {
		t.Errorf("the unmodified state: %+v, %v", r, err)
	}
}

// TestStateExpires shows that a state expires.
//
// Spec: S110
func TestStateExpires(t *testing.T) {
	for _, tt := range []struct {
		option, life time.Duration
	}{{0, 10 * time.Minute}, {time.Hour, time.Hour}, {time.Second, time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			c := respond(t, careful(t, &server.Options{Input: server.InputOptions{StateTTL: tt.option}}, &runs), modern, everything)
			first, err := c.request(t.Context(), "tools/call", callT)
			if err != nil {
				t.Fatal(err)
			}
			elapse(tt.life - time.Millisecond)
			if r, err := c.request(t.Context(), "tools/call", retry(callT, who, first.state())); err != nil || r.text() != `{"name":"Alice"}` {
				t.Errorf("%v: %+v, %v", tt.option, r, err)
			}
			elapse(time.Millisecond)
			rejected(t, "expired", c, &runs, "tools/call", retry(callT, who, first.state()))
		})
	}
}

// TestStateRotation replaces one of two servers that share keys, and shows that any of them can
// handle the next round.
func TestStateRotation(t *testing.T) {
	runs := 0
	old, fresh := secret(1), secret(2)
	local, remote := stateKeys(t, old), stateKeys(t, old)
	a := respond(t, careful(t, &server.Options{StateKeys: local}, &runs), modern, everything)
	b := respond(t, careful(t, &server.Options{StateKeys: remote}, &runs), modern, everything)
	ask := func(c *inputClient) string {
		r, err := c.request(t.Context(), "tools/call", callT)
		if err != nil {
			t.Fatal(err)
		}
		return r.state()
	}
	finish := func(step string, c *inputClient, state string) {
		t.Helper()
		if r, err := c.request(t.Context(), "tools/call", retry(callT, who, state)); err != nil || r.text() != `{"name":"Alice"}` {
			t.Errorf("%s: %+v, %v", step, r, err)
		}
	}
	replace := func(k *server.StateKeys, secrets ...[]byte) {
		if err := k.Replace(secrets...); err != nil {
			t.Fatal(err)
		}
	}
	first := ask(a)
	finish("shared", b, first)
	replace(local, old, fresh)
	replace(remote, old, fresh)
	replace(local, fresh, old)
	second := ask(a)
	finish("new, at the other", b, second)
	replace(remote, fresh, old)
	finish("old, at the other", b, first)
	replace(local, fresh)
	replace(remote, fresh)
	finish("new, when the old one is gone", b, second)
	rejected(t, "old, when it is gone", b, &runs, "tools/call", retry(callT, who, first))

	for _, bad := range [][][]byte{nil, {old[:31]}, {old, old}} {
		if err := local.Replace(bad...); err == nil {
			t.Errorf("Replace(%x): no error", bad)
		}
		if _, err := server.NewStateKeys(bad...); err == nil {
			t.Errorf("NewStateKeys(%x): no error", bad)
		}
	}
	finish("after what failed", a, second)
}

// TestMaxRounds has a handler that always requests more input.
func TestMaxRounds(t *testing.T) {
	for _, tt := range []struct{ option, rounds int }{{0, 8}, {1, 1}, {3, 3}} {
		asks := 0
		c := respond(t, withTool(t, &server.Options{Input: server.InputOptions{MaxRounds: tt.option}}, func(c *server.Call) (string, error) {
			for i := 0; ; i++ {
				if _, err := c.Elicit(c, fmt.Sprint("again ", i), nameForm); err != nil {
					return "", err
				}
				asks++
			}
		}), modern, everything)
		c.answer = fixed(answers)
		_, err := c.tool()
		if code(err) != jsonrpc.CodeInternalError || !strings.Contains(err.Error(), "Options.Input.MaxRounds") || c.rounds != tt.rounds {
			t.Errorf("MaxRounds %d: %d rounds, %v", tt.option, c.rounds, err)
		}
	}
}

// TestRepeatedRound sends a retry without a response: it repeats the input round, does not count
// toward MaxRounds and does not extend the time for the response.
func TestRepeatedRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		c := respond(t, careful(t, &server.Options{Input: server.InputOptions{MaxRounds: 1, SingleUseState: true}}, &runs), modern, everything)
		r, err := c.request(t.Context(), "tools/call", callT)
		if err != nil {
			t.Fatal(err)
		}
		for i, answers := range []string{"", "{}", `{"another":` + alice + `}`} {
			elapse(time.Minute)
			if r, err = c.request(t.Context(), "tools/call", retry(callT, answers, r.state())); err != nil || r.ResultType != "input_required" || runs != i+2 {
				t.Fatalf("repetition %d: %+v, %v after %d runs", i, r, err, runs)
			}
		}
		elapse(7*time.Minute - time.Millisecond)
		last, err := c.request(t.Context(), "tools/call", retry(callT, "", r.state()))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := c.request(t.Context(), "tools/call", retry(callT, who, last.state())); err != nil || r.text() != `{"name":"Alice"}` {
			t.Errorf("%+v, %v", r, err)
		}
		elapse(time.Millisecond)
		rejected(t, "expired", c, &runs, "tools/call", retry(callT, who, last.state()))
	})
}

// TestMaxStateBytes has handlers that need more than the limit of a state.
func TestMaxStateBytes(t *testing.T) {
	for _, tt := range []struct {
		option, size int
		fits         bool
	}{{0, 190_000, true}, {0, 200_000, false}, {1000, 100, true}, {1000, 1000, false}} {
		c := respond(t, withTool(t, &server.Options{Input: server.InputOptions{MaxStateBytes: tt.option}}, func(c *server.Call) (string, error) {
			text, err := server.Once(c, "text", func(context.Context) (string, error) { return strings.Repeat("x", tt.size), nil })
			if err != nil {
				return "", err
			}
			_, err = c.Elicit(c, "who", nameForm)
			return fmt.Sprint(len(text)), err
		}), modern, everything)
		c.answer = fixed(answers)
		got, err := c.tool()
		if tt.fits && (err != nil || got != fmt.Sprint(tt.size)) || !tt.fits && (code(err) != jsonrpc.CodeInternalError || !strings.Contains(err.Error(), "Options.Input.MaxStateBytes")) {
			t.Errorf("%d bytes, MaxStateBytes %d: %q, %v", tt.size, tt.option, got, err)
		}
	}
}

// TestInputResponses sends input responses of all kinds.
func TestInputResponses(t *testing.T) {
	runs := 0
	c := respond(t, careful(t, nil, &runs), modern, everything)
	first, err := c.request(t.Context(), "tools/call", callT)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, answers string
		// result; "ask" and the keys of the input requests; or part of an error
		want string
	}{
		{"the answer", who, `{"name":"Alice"}`},
		{"additional keys", `{"x":1,"who":` + alice + `,"y":null}`, `{"name":"Alice"}`},
		{"another key", `{"wrong_key":` + alice + `}`, "ask who"},
		{"none", `{}`, "ask who"},
		{"absent", ``, "ask who"},
		{"null", `null`, "ask who"},
		{"an array", `[]`, "must be an object"},
		{"a number", `1`, "must be an object"},
		{"a number for an answer", `{"who":12345}`, "expected an object"},
		{"null for an answer", `{"who":null}`, "expected an object"},
		{"no action", `{"who":{}}`, `inputResponses["who"]: action`},
		{"unknown action", `{"who":{"action":"perhaps"}}`, "action must be accept, decline or cancel"},
		{"action of a wrong type", `{"who":{"action":1}}`, "action"},
		{"content of a wrong type", `{"who":{"action":"accept","content":[]}}`, "content"},
		{"no content", `{"who":{"action":"accept"}}`, "the content is missing"},
		{"content that does not fit", `{"who":{"action":"accept","content":{"name":1}}}`, "content.name: expected string"},
		{"content that lacks something", `{"who":{"action":"accept","content":{}}}`, "content: missing required property"},
		{"an answer to another input request", `{"who":` + home + `}`, "action"},
		{"twice", `{"who":` + alice + `,"who":{"action":"decline"}}`, "appears twice"},
		{"wrapped in a response", `{"who":{"jsonrpc":"2.0","id":1,"result":` + alice + `}}`, "action"},
	} {
		for _, state := range []string{first.state(), ""} {
			r, err := c.request(t.Context(), "tools/call", retry(callT, tt.answers, state))
			var got string
			switch {
			case err != nil && code(err) != jsonrpc.CodeInvalidParams:
				t.Errorf("%s: %v", tt.name, err)
			case err != nil:
				if got = err.Error(); strings.Contains(got, tt.want) {
					got = tt.want
				}
			case r.ResultType == "input_required":
				got = "ask " + r.keys()
			default:
				got = r.text()
			}
			if got != tt.want {
				t.Errorf("%s, with a state of %d bytes: got %q, want %q", tt.name, len(state), got, tt.want)
			}
		}
	}
}

// TestMalformedAnswersComeFirst shows that a malformed answer is rejected before the handler runs.
func TestMalformedAnswersComeFirst(t *testing.T) {
	for key, answer := range map[string]string{"who": `{"action":"no"}`, "sum": `{"role":"assistant"}`, "where": `{"roots":[{}]}`} {
		runs := 0
		c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) { runs++; return askAll(c) }), modern, everything)
		first, err := c.request(t.Context(), "tools/call", callT)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.request(t.Context(), "tools/call", retry(callT, fmt.Sprintf("{%q:%s}", key, answer), first.state()))
		if code(err) != jsonrpc.CodeInvalidParams || runs != 1 {
			t.Errorf("%s: %v after %d runs", key, err, runs)
		}
	}
}

// TestPartialAnswers answers one of three input requests, then the others: the server keeps earlier
// answers, and does not request them again.
//
// Spec: S107
func TestPartialAnswers(t *testing.T) {
	c := respond(t, withTool(t, nil, askAll), modern, everything)
	state := ""
	for i, step := range []struct{ answers, asks string }{
		{"", "sum where who"},
		{`{"sum":` + four + `}`, "where who"},
		// sum is already answered
		{`{"sum":` + strings.Replace(four, `"m"`, `"other"`, 1) + `,"where":` + home + `}`, "who"},
		{who, ""},
	} {
		r, err := c.request(t.Context(), "tools/call", retry(callT, step.answers, state))
		if err != nil {
			t.Fatal(err)
		}
		if r.keys() != step.asks {
			t.Errorf("round %d asks for %q, want %q", i, r.keys(), step.asks)
		}
		if step.asks == "" && r.text() != `{"name":"Alice"}m1` {
			t.Errorf("got %q", r.text())
		}
		if r.state() == state && state != "" {
			t.Error("two rounds have the same state")
		}
		state = r.state()
	}
}

// TestChangedInputRequest shows that if a handler changes the input request of a key when it runs
// again, the response to the first is not used for the second.
func TestChangedInputRequest(t *testing.T) {
	message := "Delete 3 files?"
	c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
		p := *nameForm
		p.Message = message
		_, err := c.Elicit(c, "sure", &p)
		return "deleted", err
	}), modern, everything)
	first, err := c.request(t.Context(), "tools/call", callT)
	if err != nil {
		t.Fatal(err)
	}
	message = "Delete 4 files?"
	second, err := c.request(t.Context(), "tools/call", retry(callT, `{"sure":`+alice+`}`, first.state()))
	if err != nil || second.ResultType != "input_required" || !strings.Contains(second.Text, message) {
		t.Fatalf("%+v, %v", second, err)
	}
	if r, err := c.request(t.Context(), "tools/call", retry(callT, `{"sure":`+alice+`}`, second.state())); err != nil || r.text() != "deleted" {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestStateIsOpaque shows that the contents of a state cannot be read.
//
// Spec: S191
func TestStateIsOpaque(t *testing.T) {
	c := respond(t, withTool(t, nil, func(c *server.Call) (string, error) {
		if _, err := server.Once(c, "password", func(context.Context) (string, error) { return "hunter2", nil }); err != nil {
			return "", err
		}
		return "", errorOf(c.Roots(c, "roots"))
	}), modern, everything)
	r, err := c.request(t.Context(), "tools/call", callT)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := base64.RawURLEncoding.DecodeString(r.state())
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"hunter2", "password", "roots", "Rounds"} {
		if strings.Contains(string(plain), word) {
			t.Errorf("%q can be read in the state", word)
		}
	}
}

func errorOf[T any](_ T, err error) error { return err }

// TestLegacyIgnoresModernParams shows that a legacy request has no rounds.
func TestLegacyIgnoresModernParams(t *testing.T) {
	c := respond(t, withTool(t, nil, askAll), "2025-11-25", everything)
	c.answer = fixed(answers)
	r, err := c.request(t.Context(), "tools/call", retry(callT, `[1]`, "x"))
	if err != nil || r.text() != `{"name":"Alice"}m1` || len(c.takeAsked()) != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestSingleUse uses a state twice.
//
// Spec: S111
func TestSingleUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		c := respond(t, careful(t, &server.Options{Input: server.InputOptions{SingleUseState: true}}, &runs), modern, everything)
		first, err := c.request(t.Context(), "tools/call", callT)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := c.request(t.Context(), "tools/call", retry(callT, who, first.state())); err != nil || r.text() != `{"name":"Alice"}` {
			t.Errorf("%+v, %v", r, err)
		}
		rejected(t, "twice", c, &runs, "tools/call", retry(callT, who, first.state()))
		elapse(20 * time.Minute)
		rejected(t, "twice, and expired", c, &runs, "tools/call", retry(callT, who, first.state()))
	})
}

// A sharedStates stores used states for several servers, like a database.
type sharedStates struct {
	seen map[string]time.Duration
	err  error
}

func (s *sharedStates) Once(_ context.Context, owner, key string, ttl time.Duration) (bool, error) {
	if s.err != nil {
		return false, s.err
	}
	if _, ok := s.seen[owner+key]; ok {
		return false, nil
	}
	s.seen[owner+key] = ttl
	return true, nil
}

// TestSingleUseShared uses a state at two servers with a common store.
func TestSingleUseShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		shared := &sharedStates{seen: make(map[string]time.Duration)}
		open := func() *inputClient {
			o := &server.Options{StateKeys: stateKeys(t, secret(1)), Input: server.InputOptions{SingleUseState: true, UsedStates: shared}}
			return respondAs(t, server.WithPrincipalID(context.Background(), "alice"), careful(t, o, &runs), modern, everything)
		}
		one, two := open(), open()
		first, err := one.request(t.Context(), "tools/call", callT)
		if err != nil {
			t.Fatal(err)
		}
		elapse(time.Minute)
		shared.err = errors.New("no quorum")
		_, err = one.request(t.Context(), "tools/call", retry(callT, who, first.state()))
		if code(err) != jsonrpc.CodeInternalError || !strings.Contains(err.Error(), "it cannot be checked now") || strings.Contains(err.Error(), "quorum") {
			t.Errorf("a store that fails: %v", err)
		}
		shared.err = nil
		if r, err := two.request(t.Context(), "tools/call", retry(callT, who, first.state())); err != nil || r.text() != `{"name":"Alice"}` {
			t.Errorf("%+v, %v", r, err)
		}
		for _, c := range []*inputClient{one, two} {
			rejected(t, "twice", c, &runs, "tools/call", retry(callT, who, first.state()))
		}
		for _, ttl := range shared.seen {
			if ttl != 9*time.Minute {
				t.Errorf("the use is stored for %v, want the rest of the state's lifetime", ttl)
			}
		}
	})
}

// TestSingleUseWithMiddleware has a middleware call next twice, which counts as one use.
func TestSingleUseWithMiddleware(t *testing.T) {
	runs := 0
	srv := careful(t, &server.Options{Input: server.InputOptions{SingleUseState: true}}, &runs)
	srv.Use(func(next middleware.Handler) middleware.Handler {
		return func(ctx context.Context, m *middleware.Message) (json.RawMessage, error) {
			if _, err := next(ctx, m); err != nil {
				return nil, err
			}
			return next(ctx, m)
		}
	})
	c := respond(t, srv, modern, everything)
	first, err := c.request(t.Context(), "tools/call", callT)
	if err != nil || first.ResultType != "input_required" {
		t.Fatalf("%+v, %v", first, err)
	}
	if r, err := c.request(t.Context(), "tools/call", retry(callT, who, first.state())); err != nil || r.text() != `{"name":"Alice"}` || runs != 4 {
		t.Errorf("%+v, %v after %d runs", r, err, runs)
	}
	rejected(t, "twice", c, &runs, "tools/call", retry(callT, who, first.state()))
}

// TestSingleUseOfLongLivedState has another process with the same keys issue states with a longer
// lifetime: their use is stored for all of it.
//
// Spec: S111
func TestSingleUseOfLongLivedState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		keys := stateKeys(t, secret(1))
		long := respond(t, careful(t, &server.Options{StateKeys: keys, Input: server.InputOptions{StateTTL: time.Hour}}, &runs), modern, everything)
		short := respond(t, careful(t, &server.Options{StateKeys: keys, Input: server.InputOptions{StateTTL: time.Minute, SingleUseState: true}}, &runs), modern, everything)
		first, err := long.request(t.Context(), "tools/call", callT)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := short.request(t.Context(), "tools/call", retry(callT, who, first.state())); err != nil || r.text() != `{"name":"Alice"}` {
			t.Fatalf("%+v, %v", r, err)
		}
		for range 59 {
			elapse(time.Minute)
			rejected(t, "twice", short, &runs, "tools/call", retry(callT, who, first.state()))
		}
	})
}

// FuzzResume sends arbitrary states and answers. A handler never gets past its first input request
// with a forged state.
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
			if c := code(err); c != jsonrpc.CodeInvalidParams && c != 0 { // zero: it was not sent
				t.Errorf("%v", err)
			}
			return
		}
		if !unseen {
			t.Errorf("a forged state was accepted: %s", state)
		}
		if r.ResultType == "complete" && !strings.ContainsAny(answers, `\w`) { // as in the name who
			t.Errorf("completed by %s", answers)
		}
	})
}
