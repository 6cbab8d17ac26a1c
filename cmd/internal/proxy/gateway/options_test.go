package gateway

import (
	"strings"
	"testing"
)

func TestCheckName(t *testing.T) {
	for name, want := range map[string]string{
		"a": "", "aZ09": "", "a-b": "", "a_b": "", "0": "", "-": "", strings.Repeat("a", 64): "",
		"": "empty", strings.Repeat("a", 65): "more than 64", "a__b": "must not contain", "_a": "begin or end", "a_": "begin or end", "_": "begin or end",
		"`a": "has only", "{a": "has only", "@a": "has only", "[a": "has only", "/a": "has only", ":a": "has only", "a.b": "has only", "a b": "has only", "ä": "has only",
	} {
		err := CheckName(name)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", name, err, want)
		}
	}
}

func TestIsolation(t *testing.T) {
	for i, want := range map[Isolation]string{IsolatePrincipals: "principal", IsolateClients: "client", IsolateNone: "shared", 3: "Isolation(3)", 255: "Isolation(255)"} {
		if got := i.String(); got != want {
			t.Errorf("%d: got %q, want %q", uint8(i), got, want)
		}
		if got, err := ParseIsolation(want); i <= IsolateNone && (got != i || err != nil) || i > IsolateNone && err == nil {
			t.Errorf("%q: got %v, %v", want, got, err)
		}
	}
}
