package auth_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/auth"
)

// Spec: C118
func TestParseChallenges(t *testing.T) {
	type params = map[string]string
	for _, tt := range []struct {
		in   []string
		want []auth.Challenge
		err  bool
	}{
		{nil, nil, false},
		{[]string{"", " , ,"}, nil, false},
		{[]string{"Bearer"}, []auth.Challenge{{Scheme: "bearer", Params: params{}}}, false},
		{[]string{`Bearer realm="a, b=\"c\"", SCOPE = "x y",error=invalid_token`},
			[]auth.Challenge{{Scheme: "bearer", Params: params{"realm": `a, b="c"`, "scope": "x y", "error": "invalid_token"}}}, false},
		{[]string{`Basic realm=x, Bearer scope="a", DPoP algs="ES256"`, `Negotiate`}, []auth.Challenge{
			{Scheme: "basic", Params: params{"realm": "x"}}, {Scheme: "bearer", Params: params{"scope": "a"}},
			{Scheme: "dpop", Params: params{"algs": "ES256"}}, {Scheme: "negotiate", Params: params{}}}, false},
		{[]string{"Negotiate YWJj==, Bearer a=b"}, []auth.Challenge{
			{Scheme: "negotiate", Token: "YWJj==", Params: params{}}, {Scheme: "bearer", Params: params{"a": "b"}}}, false},
		{[]string{"Basic, Bearer"}, []auth.Challenge{{Scheme: "basic", Params: params{}}, {Scheme: "bearer", Params: params{}}}, false},
		{[]string{`Bearer a="1", a="2"`}, []auth.Challenge{{Scheme: "bearer", Params: params{"a": "1"}}}, false},
		{[]string{`Bearer a=""`}, []auth.Challenge{{Scheme: "bearer", Params: params{"a": ""}}}, false},
		{[]string{`Bearer a="1" b="2"`}, []auth.Challenge{{Scheme: "bearer", Params: params{"a": "1"}}}, true},
		{[]string{`Bearer a="1`}, []auth.Challenge{{Scheme: "bearer", Params: params{}}}, true},
		{[]string{`Bearer a="\`}, []auth.Challenge{{Scheme: "bearer", Params: params{}}}, true},
		{[]string{`Bearer a=, x`}, []auth.Challenge{{Scheme: "bearer", Token: "a=", Params: params{}}, {Scheme: "x", Params: params{}}}, false},
		{[]string{`Bearer "x"`}, nil, true},
		{[]string{`=x`}, nil, true},
		{[]string{`a=b`}, nil, true},
		{[]string{`Bearer/x`}, nil, true},
		{[]string{"Bearer\x00"}, nil, true},
		{[]string{strings.Repeat("a", 17<<10)}, nil, true},
		{[]string{strings.Repeat("a,", 17)}, repeat(auth.Challenge{Scheme: "a", Params: params{}}, 16), true},
	} {
		got, err := auth.ParseChallenges(tt.in)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%.80q: %s", tt.in, diff)
		}
		if errors.Is(err, auth.ErrChallenge) != tt.err {
			t.Errorf("%.80q: %v", tt.in, err)
		}
	}
	many := "Bearer "
	for i := range 40 {
		many += fmt.Sprintf("p%d=x,", i)
	}
	if got, err := auth.ParseChallenges([]string{many}); !errors.Is(err, auth.ErrChallenge) || len(got[0].Params) != 32 {
		t.Errorf("got %d parameters, %v", len(got[0].Params), err)
	}
}

func repeat[T any](v T, n int) []T {
	out := make([]T, n)
	for i := range out {
		out[i] = v
	}
	return out
}

func ExampleParseChallenges() {
	list, err := auth.ParseChallenges([]string{`Basic realm="x", Bearer error="insufficient_scope", scope="files:read files:write"`})
	if err != nil {
		fmt.Println(err)
	}
	for _, c := range list {
		fmt.Printf("%s %q\n", c.Scheme, c.Params["scope"])
	}
	// Output:
	// basic ""
	// bearer "files:read files:write"
}

// FuzzParseChallenges holds that what was read can be written, and is the same when it is read again.
func FuzzParseChallenges(f *testing.F) {
	for _, s := range []string{`Bearer realm="a, b=\"c\"", scope=x`, "Negotiate YWJj==, Bearer a=b", "a,b c,d=e", `Bearer a="1`, "=", `x y="\\"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		list, _ := auth.ParseChallenges([]string{in})
		var out []string
		for _, c := range list {
			text := c.Scheme
			if c.Token != "" {
				text += " " + c.Token
			}
			sep := " "
			for name, value := range c.Params {
				text += sep + name + `="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
				sep = ", "
			}
			out = append(out, text)
		}
		again, err := auth.ParseChallenges(out)
		if len(strings.Join(out, "")) > 16<<10 {
			return // Quoting made it too long.
		}
		if diff := cmp.Diff(list, again); diff != "" || err != nil {
			t.Errorf("%q: %v %s", in, err, diff)
		}
	})
}
