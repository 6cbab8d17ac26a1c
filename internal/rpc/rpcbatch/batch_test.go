package rpcbatch

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/jsonrpc"
)

// An envelope has the members of a message.
type envelope struct {
	Kind                               jsonrpc.Kind
	ID, Method, Params, Result, ErrObj string
}

func envelopeOf(m *jsonrpc.Message) envelope {
	return envelope{m.Kind, string(m.ID), string(m.Method), string(m.Params), string(m.Result), string(m.Error)}
}

func wireError(t *testing.T, err error, code jsonrpc.Code) {
	t.Helper()
	if e, ok := errors.AsType[*jsonrpc.Error](err); !ok || e.Code != code {
		t.Errorf("got %v, want the code %d", err, code)
	}
}

func TestDepth(t *testing.T) {
	frame := []byte(`[{"jsonrpc":"2.0","method":"m","params":[[]]}]`)
	if _, err := Parse(frame, 4); err != nil {
		t.Errorf("4 levels: %v", err)
	}
	_, err := Parse(frame, 3)
	wireError(t, err, jsonrpc.CodeParseError)
}

func TestIsBatch(t *testing.T) {
	for frame, want := range map[string]bool{"[]": true, " \t\r\n[": true, "": false, " ": false, "{}": false, "x[": false} {
		if got := Is([]byte(frame)); got != want {
			t.Errorf("Is(%q) = %v, want %v", frame, got, want)
		}
	}
}

func TestParseBatch(t *testing.T) {
	note := `{"jsonrpc":"2.0","method":"m"}`
	many := func(n int) string { return "[" + strings.Repeat(note+",", n-1) + note + "]" }
	tests := []struct {
		name  string
		frame string
		code  jsonrpc.Code // code of the whole batch; zero if there are entries
		want  []envelope
		bad   []string // text of the error of each entry
	}{
		{"empty", `[]`, jsonrpc.CodeInvalidRequest, nil, nil},
		{"empty with space", " [ ] ", jsonrpc.CodeInvalidRequest, nil, nil},
		{"not closed", `[` + note, jsonrpc.CodeParseError, nil, nil},
		{"trailing comma", `[` + note + `,]`, jsonrpc.CodeParseError, nil, nil},
		{"trailing bytes", `[` + note + `]x`, jsonrpc.CodeParseError, nil, nil},
		{"broken member", `[` + note + `,{"jsonrpc":]`, jsonrpc.CodeParseError, nil, nil},
		{"no array", note, jsonrpc.CodeParseError, nil, nil},
		{"too many", many(Max + 1), jsonrpc.CodeInvalidRequest, nil, nil},
		{"too many and broken", strings.TrimSuffix(many(Max+5), "]") + `,}]`, jsonrpc.CodeParseError, nil, nil},
		{"one", `[` + note + `]`, 0, []envelope{{jsonrpc.KindNotification, "", "m", "", "", ""}}, []string{""}},
		{
			"mixed", ` [ {"jsonrpc":"2.0","id":1,"method":"a","params":{"x":1}} , 1 , ` + note + `, {"jsonrpc":"2.0","id":"r","result":[]},{"id":2,"method":"b"},[],{"jsonrpc":"2.0","id":true,"result":1} ] `, 0,
			[]envelope{
				{jsonrpc.KindRequest, "1", "a", `{"x":1}`, "", ""},
				{},
				{jsonrpc.KindNotification, "", "m", "", "", ""},
				{jsonrpc.KindResponse, `"r"`, "", "", "[]", ""},
				{jsonrpc.KindInvalid, "2", "b", "", "", ""},
				{},
				{jsonrpc.KindResponse, "", "", "", "1", ""},
			},
			[]string{"", "not an object", "", "", "jsonrpc is missing", "not an object", "string or an integer"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			entries, err := Parse([]byte(test.frame), 0)
			if test.code != 0 {
				wireError(t, err, test.code)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []envelope
			for i := range entries {
				got = append(got, envelopeOf(&entries[i].Message))
				reason := ""
				if e := entries[i].Invalid; e != nil {
					reason = e.Message
				}
				if want := test.bad[i]; (want == "") != (reason == "") || !strings.Contains(reason, want) {
					t.Errorf("entry %d: got error %q, want one that contains %q", i, reason, want)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("entries (-want +got):\n%s", diff)
			}
		})
	}
	if entries, err := Parse([]byte(many(Max)), 0); err != nil || len(entries) != Max {
		t.Errorf("%d messages: got %d and %v", Max, len(entries), err)
	}
	entries, err := Parse([]byte(`[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","id":2,"method":"b","params":{"k":"v"}}]`), 0)
	if err != nil {
		t.Fatal(err)
	}
	if v, ok := entries[1].Param("k"); !ok || string(v) != `"v"` {
		t.Errorf("Param of the second entry: %q, %v", v, ok)
	}
	if v, ok := entries[1].Clone().Param("k"); !ok || string(v) != `"v"` {
		t.Errorf("Param of the second entry's clone: %q, %v", v, ok)
	}
}
