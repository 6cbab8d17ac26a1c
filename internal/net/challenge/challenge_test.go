package challenge_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/internal/net/challenge"
)

// Spec: C118
func TestParse(t *testing.T) {
	type params = map[string]string
	for _, tt := range []struct {
		in   []string
		want []challenge.Challenge
		err  bool
	}{
		{nil, nil, false},
		{[]string{"", " , ,"}, nil, false},
		{[]string{"Bearer"}, []challenge.Challenge{{Scheme: "bearer", Params: params{}}}, false},
		{[]string{`Bearer realm="a, b=\"c\"", SCOPE = "x y",error=invalid_token`},
			[]challenge.Challenge{{Scheme: "bearer", Params: params{"realm": `a, b="c"`, "scope": "x y", "error": "invalid_token"}}}, false},
		{[]string{`Basic realm=x, Bearer scope="a", DPoP algs="ES256"`, `Negotiate`}, []challenge.Challenge{
			{Scheme: "basic", Params: params{"realm": "x"}}, {Scheme: "bearer", Params: params{"scope": "a"}},
			{Scheme: "dpop", Params: params{"algs": "ES256"}}, {Scheme: "negotiate", Params: params{}}}, false},
		{[]string{"Negotiate YWJj==, Bearer a=b"}, []challenge.Challenge{
			{Scheme: "negotiate", Token: "YWJj==", Params: params{}}, {Scheme: "bearer", Params: params{"a": "b"}}}, false},
		{[]string{"Basic, Bearer"}, []challenge.Challenge{{Scheme: "basic", Params: params{}}, {Scheme: "bearer", Params: params{}}}, false},
		{[]string{`Bearer a="1", a="2"`}, []challenge.Challenge{{Scheme: "bearer", Params: params{"a": "1"}}}, false},
		{[]string{`Bearer a=""`}, []challenge.Challenge{{Scheme: "bearer", Params: params{"a": ""}}}, false},
		{[]string{`Bearer a="1" b="2" c=3, d=4`}, []challenge.Challenge{{Scheme: "bearer", Params: params{"a": "1", "b": "2", "c": "3", "d": "4"}}}, true},
		{[]string{`Bearer a="1" Basic`}, []challenge.Challenge{{Scheme: "bearer", Params: params{"a": "1"}}}, true},
		{[]string{`Bearer a=https://x.example/y?z=1, b=2`}, []challenge.Challenge{{Scheme: "bearer", Params: params{"a": "https://x.example/y?z=1", "b": "2"}}}, true},
		{[]string{`Bearer a=/y/z`}, []challenge.Challenge{{Scheme: "bearer", Params: params{"a": "/y/z"}}}, true},
		{[]string{`Bearer a='https://x.example/y', b='z'`}, []challenge.Challenge{{Scheme: "bearer", Params: params{"a": "https://x.example/y", "b": "z"}}}, true},
		{[]string{`Bearer a='`, `b=''`}, []challenge.Challenge{{Scheme: "bearer", Params: params{"a": "'", "b": "''"}}}, false},
		{[]string{`Bearer a=/y"z"`}, []challenge.Challenge{{Scheme: "bearer", Params: params{"a": "/y"}}}, true},
		{[]string{`Bearer a="1`}, []challenge.Challenge{{Scheme: "bearer", Params: params{}}}, true},
		{[]string{`Bearer a="\`}, []challenge.Challenge{{Scheme: "bearer", Params: params{}}}, true},
		{[]string{`Bearer a=, x`}, []challenge.Challenge{{Scheme: "bearer", Token: "a=", Params: params{}}, {Scheme: "x", Params: params{}}}, false},
		{[]string{`Bearer "x"`}, nil, true},
		{[]string{`=x`}, nil, true},
		{[]string{`a=b`}, nil, true},
		{[]string{`Bearer/x`}, nil, true},
		{[]string{"Bearer\x00"}, nil, true},
		{[]string{strings.Repeat("a", 17<<10)}, nil, true},
		{[]string{strings.Repeat("a,", 17)}, repeat(challenge.Challenge{Scheme: "a", Params: params{}}, 16), true},
	} {
		got, err := challenge.Parse(tt.in)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%.80q: %s", tt.in, diff)
		}
		if errors.Is(err, challenge.ErrMalformed) != tt.err {
			t.Errorf("%.80q: %v", tt.in, err)
		}
	}
	many := "Bearer "
	for i := range 40 {
		many += fmt.Sprintf("p%d=x,", i)
	}
	if got, err := challenge.Parse([]string{many}); !errors.Is(err, challenge.ErrMalformed) || len(got[0].Params) != 32 {
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

func ExampleParse() {
	list, err := challenge.Parse([]string{`Basic realm="x", Bearer error="insufficient_scope", scope="files:read files:write"`})
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

// FuzzParse checks that a parsed challenge can be written, and parses to the same value again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`Bearer realm="a, b=\"c\"", scope=x`, "Negotiate YWJj==, Bearer a=b", "a,b c,d=e", `Bearer a="1`, "=", `x y="\\"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		list, _ := challenge.Parse([]string{in})
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
		again, err := challenge.Parse(out)
		if len(strings.Join(out, "")) > 16<<10 {
			return // quoting made it longer than the limit
		}
		if diff := cmp.Diff(list, again); diff != "" || err != nil {
			t.Errorf("%q: %v %s", in, err, diff)
		}
	})
}
