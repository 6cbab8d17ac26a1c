package jsonwire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDuplicate(t *testing.T) {
	many := func(n int, last string) string {
		var b strings.Builder
		b.WriteByte('{')
		for i := range n {
			fmt.Fprintf(&b, `"member %d":%d,`, i, i)
		}
		return b.String() + last + "}"
	}
	for _, test := range []struct {
		text   string
		folded int
		want   string // empty if there is no duplicate
	}{
		{`{}`, 0, ""},
		{`[]`, 0, ""},
		{`"a"`, 0, ""},
		{`17`, 0, ""},
		{`{"a":1,"b":2}`, 0, ""},
		{`{"a":1,"a":2}`, 0, "a"},
		{` { "a" : 1 , "b" : [ ] , "a" : 2 } `, 0, "a"},
		{`{"":1,"":2}`, 9, "<empty>"},
		{`{"name":1,"n\u0061me":2}`, 0, `n\u0061me`},
		{`{"n\u0061me":1,"n\u0061\u006de":2}`, 0, `n\u0061\u006de`},
		{`{"a\"":1,"b":{"a\"":2},"c":"a\"","a\u0022":3}`, 0, `a\u0022`},
		{`{"a":"b","b":"a"}`, 0, ""},
		{`{"a":{"a":{"a":1}},"b":{"a":1}}`, 0, ""},
		{`[{"a":1},{"a":1}]`, 0, ""},
		{`{"a":[{"b":1},{"b":1,"c":{"d":[],"e":"}","d":0}}]}`, 0, "d"},
		{`{"a":{"x":1},"b":["a","a",{"a":"a"}],"c":1}`, 0, ""},
		{`{"a":{"b":1,"c":2},"b":1,"c":1,"a":1}`, 0, "a"},
		{many(500, `"x":1`), 0, ""},
		{many(500, `"member 17":1`), 0, "member 17"},
		{many(500, `"m\u0065mber 499":1`), 0, `m\u0065mber 499`},
		{many(20, `"x":`+many(20, `"x":1`)), 0, ""},
		{many(20, `"x":`+many(20, `"x":`+many(17, `"member 0":0`))), 0, "member 0"},
		{"[" + strings.Repeat(many(20, `"x":1`)+",", 20) + many(30, `"member 1":1`) + "]", 0, "member 1"},
		{`{"name":1,"Name":2}`, 0, ""},
		{`{"name":1,"Name":2}`, 1, "Name"},
		{`{"name":1,"\u004eame":2}`, 1, `\u004eame`},
		{`{"task":1,"taſk":2}`, 1, "taſk"},
		{`{"key":1,"` + "\u212a" + `ey":2}`, 1, "\u212aey"},
		{`{"a":{"b":1,"B":2}}`, 1, ""},
		{`{"a":{"b":1,"B":2}}`, 2, "B"},
		{`{"a":{"b":{"c":1,"C":1}}}`, 2, ""},
		{many(500, `"MEMBER 3":1`), 0, ""},
		{many(500, `"MEMBER 3":1`), 1, "MEMBER 3"},
	} {
		if !json.Valid([]byte(test.text)) {
			t.Fatalf("the test is wrong: %s", test.text)
		}
		name, ok := Duplicate([]byte(test.text), test.folded)
		got := string(name)
		if ok && got == "" {
			got = "<empty>"
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%.60s, folded %d (-want +got):\n%s", test.text, test.folded, diff)
		}
	}
}

// TestDuplicateOfMany has objects with so many members that comparing all pairs would take hours.
func TestDuplicateOfMany(t *testing.T) {
	var b bytes.Buffer
	b.WriteString(`{"a":{`)
	const n = 280_000
	for i := range n {
		fmt.Fprintf(&b, `"%d":0,`, i)
	}
	b.WriteString(`"x":0},"b":0}`)
	if name, ok := Duplicate(b.Bytes(), 2); ok {
		t.Errorf("got %q, want none", name)
	}
	b.Truncate(b.Len() - len(`"x":0},"b":0}`))
	fmt.Fprintf(&b, `"\u0031%05d":0},"b":0}`, 17)
	if name, ok := Duplicate(b.Bytes(), 2); !ok || string(name) != `\u003100017` {
		t.Errorf("got %q, %v, want the last name", name, ok)
	}
}

// TestDuplicateAllocs checks the allocations for usual messages.
func TestDuplicateAllocs(t *testing.T) {
	text := []byte(callText)
	for name, folded := range map[string]int{"exact": 0, "folded": 2} {
		if n := testing.AllocsPerRun(100, func() {
			if _, ok := Duplicate(text, folded); ok {
				t.Error("a duplicate was found")
			}
		}); n != 0 {
			t.Errorf("%s (%d): %v allocations, want 0", name, folded, n)
		}
	}
}

// FuzzDuplicate compares Duplicate with the tokens of encoding/json.
func FuzzDuplicate(f *testing.F) {
	for _, text := range []string{`{"a":1,"\u0061":2}`, `{"a":[{"b":1},{"b":1,"b":2}]}`, `[{"":{}},"",{"":1,"":1}]`, callText} {
		f.Add([]byte(text), 0)
		f.Add([]byte(text), 2)
	}
	f.Fuzz(func(t *testing.T, data []byte, folded int) {
		if Valid(data, 0) != nil {
			Duplicate(data, folded) // must return
			return
		}
		_, got := Duplicate(data, folded)
		if want := duplicateByTokens(t, data, folded); got != want {
			t.Errorf("got %v, want %v: %q, folded %d", got, want, data, folded)
		}
	})
}

func duplicateByTokens(t *testing.T, data []byte, folded int) bool {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var value func(level int) bool
	value = func(level int) bool {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		found := false
		switch token {
		case json.Delim('['):
			for d.More() {
				found = value(level+1) || found
			}
			_, _ = d.Token()
		case json.Delim('{'):
			seen := map[string]bool{}
			for d.More() {
				token, err := d.Token()
				if err != nil {
					t.Fatal(err)
				}
				name := token.(string)
				if level <= folded {
					name = string(appendFold(nil, []byte(name)))
				}
				found = found || seen[name]
				seen[name] = true
				found = value(level+1) || found
			}
			_, _ = d.Token()
		}
		return found
	}
	return value(1)
}

func BenchmarkDuplicate(b *testing.B) {
	text := []byte(callText)
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Duplicate(text, 2)
	}
}
