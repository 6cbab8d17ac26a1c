package jsondiff_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/json/jsondiff"
)

// text formats changes as lines such as "replace /a 1 -> 2".
func text(changes []jsondiff.Change) string {
	var b strings.Builder
	for _, c := range changes {
		fmt.Fprintf(&b, "%s %s", c.Op, c.Pointer)
		if c.OldPointer != "" {
			fmt.Fprintf(&b, " (%s)", c.OldPointer)
		}
		switch c.Op {
		case jsondiff.Add:
			fmt.Fprintf(&b, " %s", c.New)
		case jsondiff.Remove:
			fmt.Fprintf(&b, " %s", c.Old)
		case jsondiff.Replace:
			fmt.Fprintf(&b, " %s -> %s", c.Old, c.New)
		}
		if c.Cut {
			b.WriteString(" …")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func TestDiff(t *testing.T) {
	for _, tt := range []struct{ name, a, b, want string }{
		{"same bytes", `{"a":1}`, `{"a":1}`, ""},
		{"same value", `{"a":1,"b":[1,2.50,-0,"é/"]}`, ` { "b" : [1e0,25E-1,0,"\u00e9\/"], "a":10e-1 }`, ""},
		{"numbers that are equal as floating point", `[0.1,9007199254740993,1e400]`, `[0.10000000000000001,9007199254740992,1e401]`,
			"replace /0 0.1 -> 0.10000000000000001\nreplace /1 9007199254740993 -> 9007199254740992\nreplace /2 1e400 -> 1e401\n"},
		{"exponents beyond int64", `[1e99999999999999999999,1]`, `[1e99999999999999999998,1]`, "replace /0 1e99999999999999999999 -> 1e99999999999999999998\n"},
		{"number and string", `1`, `"1"`, "replace  1 -> \"1\"\n"},
		{"members", `{"a":1,"b":2,"c/~":{"x":true}}`, `{"b":3,"c/~":{"x":null},"d":[]}`,
			"remove /a 1\nreplace /b 2 -> 3\nreplace /c~1~0/x true -> null\nadd /d []\n"},
		{"names with escapes", `{"\u0061":1}`, `{"a":2}`, "replace /a 1 -> 2\n"},
		{"an empty name", `{"":{"":1}}`, `{"":{"":2}}`, "replace // 1 -> 2\n"},
		{"elements inserted", `[1,2,3]`, `[1,9,8,2,3]`, "add /1 9\nadd /2 8\n"},
		{"elements removed", `[1,2,3,4]`, `[1,4]`, "remove /1 2\nremove /1 (/2) 3\n"},
		{"change after an inserted element", `[{"a":1},{"b":1},{"c":1}]`, `[0,{"a":1},{"b":2},{"c":1}]`, "add /0 0\nreplace /2/b (/1/b) 1 -> 2\n"},
		{"element appended", `{"l":[1,2]}`, `{"l":[1,2,3]}`, "add /l/2 3\n"},
		{"nothing in common", `[1,2]`, `[3]`, "replace /0 1 -> 3\nremove /1 2\n"},
		{"other type", `{"a":{}}`, `{"a":[]}`, "replace /a {} -> []\n"},
		{"duplicate names in other order", `{"a":1,"a":2}`, `{"a":2,"a":1}`, "replace  {\"a\":1,\"a\":2} -> {\"a\":2,\"a\":1}\n"},
		{"duplicate names, equal values", `[{"a":1,"a":2}]`, `[{"a" : 1,"\u0061":2}]`, ""},
		{"duplicate names in one text", `{"x":{"a":1}}`, `{"x":{"a":1,"a":1}}`, "replace /x {\"a\":1} -> {\"a\":1,\"a\":1}\n"},
		{"no JSON", `{"a":1}`, `{"a":`, "replace  {\"a\":1} -> {\"a\":\n"},
		{"nothing", ``, `1`, "replace   -> 1\n"},
		{"halves of an emoji", `"\ud83d"`, `"\ufffd"`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, text(jsondiff.Diff([]byte(tt.a), []byte(tt.b), nil))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestIgnore(t *testing.T) {
	a := `{"id":1,"result":{"_meta":{"t":1},"content":[{"text":"a","n":1},{"text":"b","n":2}]},"traceparent":"x","a/b":1}`
	b := `{"id":2,"result":{"content":[{"text":"c","n":1},{"text":"d","n":3}]},"traceparent":"y","tracestate":"z","a/b":2}`
	for _, tt := range []struct {
		ignore []string
		want   string
	}{
		{[]string{"/id", "/result/_meta", "/result/content/*/text", "/trace*", "/a~1b"}, "replace /result/content/1/n 2 -> 3\n"},
		{[]string{"/id", "/result", "/t*e*", "/*/b", "/a*b"}, ""},
		{[]string{"/*"}, ""},
		{[]string{""}, ""},
		{[]string{"/i", "/idd", "/result/content/0", "/*/_meta", "/result/*/1/n", "/*race*", "/a~1*"}, "replace /id 1 -> 2\nreplace /result/content/1/text \"b\" -> \"d\"\n"},
	} {
		if diff := cmp.Diff(tt.want, text(jsondiff.Diff([]byte(a), []byte(b), &jsondiff.Options{Ignore: tt.ignore}))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.ignore, diff)
		}
	}
	if got := jsondiff.Diff([]byte(`{"l":[1,2]}`), []byte(`{"l":[3]}`), &jsondiff.Options{Ignore: []string{"/l/*"}}); got != nil {
		t.Errorf("changes of ignored elements: %v", got)
	}
}

func TestLimits(t *testing.T) {
	deep := func(n int, leaf string) []byte {
		return []byte(strings.Repeat(`{"a":[`, n/2) + leaf + strings.Repeat(`]}`, n/2))
	}
	many := func(x string) []byte { return []byte("[" + strings.Repeat(x+",", 3000) + "0]") }
	long := `"` + strings.Repeat("é", 5000) + `"`
	longName := func(x string) []byte {
		return []byte(`{"` + strings.Repeat("n", 1<<20) + `":{"a":` + x + `,"b":` + x + `,"c":` + x + `}}`)
	}
	for _, tt := range []struct {
		name    string
		a, b    []byte
		opts    *jsondiff.Options
		changes int
		first   string // prefix of the first change
	}{
		{"deep", deep(10_000, "1"), deep(10_000, "2"), nil, 1, "replace " + strings.Repeat("/a/0", 50) + " {"},
		{"deep and equal", deep(10_000, "1"), bytes.ReplaceAll(deep(10_000, "1"), []byte(`"a"`), []byte(` "a" `)), nil, 0, ""},
		{"Options.MaxDepth", deep(6, "1"), deep(6, "2"), &jsondiff.Options{MaxDepth: 2}, 1, `replace /a/0 {"a":[{"a":[1]}]}`},
		{"many changes", many("1"), many("2"), &jsondiff.Options{MaxChanges: 10}, 11, "replace /0 1 -> 2"},
		{"default limit of changes", many("1"), many("2"), nil, 1001, "replace /0 1 -> 2"},
		{"as many as allowed", []byte(`[1,2]`), []byte(`[3,4]`), &jsondiff.Options{MaxChanges: 2}, 2, "replace /0 1 -> 3"},
		{"too large", many("1"), many("2"), &jsondiff.Options{MaxSize: 100}, 1, "replace  [1,1"},
		{"too many values", many("1"), many("2"), &jsondiff.Options{MaxNodes: 100}, 1, "replace  [1,1"},
		{"a long value", []byte(long), []byte("1"), nil, 1, "replace  \"" + strings.Repeat("é", 2047) + " -> 1 …"},
		{"a long value without a limit", []byte(long), []byte("1"), &jsondiff.Options{MaxValue: -1}, 1, "replace  " + long + " -> 1\n"},
		{"a long pointer", longName("1"), longName("2"), nil, 1, "replace /nnn"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := jsondiff.Diff(tt.a, tt.b, tt.opts)
			if s := text(got); len(got) != tt.changes || !strings.HasPrefix(s, tt.first) {
				t.Errorf("%d changes, want %d; they begin with %.200s", len(got), tt.changes, s)
			}
			if len(got) > 0 && tt.opts != nil && len(got) > tt.opts.MaxChanges && tt.opts.MaxChanges > 0 && got[len(got)-1].Op != jsondiff.More {
				t.Errorf("the last change is %+v", got[len(got)-1])
			}
		})
	}
}

// TestTableLimit shows that arrays that are too long to be aligned are compared by index, with
// correct changes.
func TestTableLimit(t *testing.T) {
	var a, b []string
	for i := range 3000 {
		a = append(a, strconv.Itoa(i))
		b = append(b, strconv.Itoa(i*i%7000))
	}
	checkApplies(t, []byte("["+strings.Join(a, ",")+"]"), []byte("["+strings.Join(b[10:], ",")+"]"))
}

// checkApplies checks that the changes turn a into b, for JSON texts without duplicate names.
func checkApplies(t *testing.T, a, b []byte) {
	t.Helper()
	changes := jsondiff.Diff(a, b, &jsondiff.Options{MaxChanges: 1 << 30, MaxValue: -1})
	doc := decode(t, a)
	for _, c := range changes {
		if c.OldPointer != "" || c.Op == jsondiff.Remove {
			at := c.OldPointer
			if at == "" {
				at = c.Pointer
			}
			if diff := cmp.Diff(decode(t, []byte(c.Old)), lookUp(t, decode(t, a), at), numbers); diff != "" {
				t.Errorf("%+v: value at the old pointer (-want +got):\n%s", c, diff)
			}
		}
		doc = apply(t, doc, strings.Split(c.Pointer, "/")[1:], c)
	}
	if diff := cmp.Diff(decode(t, b), doc, numbers); diff != "" {
		t.Errorf("%s\nof %.1000s\nto %.1000s\nmake (-want +got):\n%.2000s", text(changes), a, b, diff)
	}
	if equal := cmp.Equal(decode(t, a), decode(t, b), numbers); equal != (len(changes) == 0) {
		t.Errorf("%d changes, equal is %v: %.1000s and %.1000s", len(changes), equal, a, b)
	}
}

// numbers makes cmp compare numbers by value.
var numbers = cmp.Comparer(func(a, b json.Number) bool {
	x, ok1 := new(big.Rat).SetString(string(a))
	y, ok2 := new(big.Rat).SetString(string(b))
	return ok1 && ok2 && x.Cmp(y) == 0
})

func decode(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%.200s: %v", text, err)
	}
	return v
}

func unescape(s string) string {
	return strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
}

func lookUp(t *testing.T, v any, pointer string) any {
	t.Helper()
	for _, s := range strings.Split(pointer, "/")[1:] {
		switch x := v.(type) {
		case map[string]any:
			v = x[unescape(s)]
		case []any:
			i, err := strconv.Atoi(s)
			if err != nil || i >= len(x) {
				t.Fatalf("%s is not there", pointer)
			}
			v = x[i]
		}
	}
	return v
}

// apply makes a change as JSON Patch defines it.
func apply(t *testing.T, v any, path []string, c jsondiff.Change) any {
	t.Helper()
	if len(path) == 0 {
		return decode(t, []byte(c.New))
	}
	name := unescape(path[0])
	switch x := v.(type) {
	case map[string]any:
		old, there := x[name]
		if there == (len(path) == 1 && c.Op == jsondiff.Add) {
			t.Fatalf("%+v: there is %v", c, old)
		}
		if len(path) == 1 && c.Op == jsondiff.Remove {
			delete(x, name)
		} else {
			x[name] = apply(t, old, path[1:], c)
		}
		return x
	case []any:
		i, err := strconv.Atoi(name)
		last := len(path) == 1
		if err != nil || i > len(x) || i == len(x) && (!last || c.Op != jsondiff.Add) {
			t.Fatalf("%+v: there are %d elements", c, len(x))
		}
		switch {
		case last && c.Op == jsondiff.Add:
			return append(x[:i:i], append([]any{decode(t, []byte(c.New))}, x[i:]...)...)
		case last && c.Op == jsondiff.Remove:
			return append(x[:i:i], x[i+1:]...)
		}
		x[i] = apply(t, x[i], path[1:], c)
		return x
	}
	t.Fatalf("%+v leads into %T", c, v)
	return nil
}

// FuzzDiff shows that applying the changes to one text gives the other.
func FuzzDiff(f *testing.F) {
	for _, s := range [][2]string{
		{`{"a":[1,2,{"b":"x"}]}`, `{"a":[2,{"b":"y"},3],"c":1.0}`}, {`[1,2,3,4,5]`, `[5,1,3,9,9]`}, {`{"~/":{"":1}}`, `{"~/":{"":[]}}`},
		{`[[1,2],[1,2]]`, `[[1,2],[2],[1,2]]`}, {`"\u00e9"`, `"é"`}, {`1e2`, `100.0`}, {`{"a":1,"a":2}`, `{}`}, {`[`, `]`},
	} {
		f.Add([]byte(s[0]), []byte(s[1]))
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		changes := jsondiff.Diff(a, b, nil)
		for _, pair := range [][]byte{a, b} {
			if !simple(pair) {
				if bytes.Equal(a, b) && changes != nil {
					t.Errorf("changes between equal texts: %v", changes)
				}
				return
			}
		}
		checkApplies(t, a, b)
	})
}

// simple reports whether encoding/json reads a text as this package does: without invalid UTF-8,
// which encoding/json replaces, and without duplicate names, of which it takes the last.
func simple(text []byte) bool {
	// big.Rat is too slow for 1e999999999
	if !json.Valid(text) || !bytes.Equal(bytes.ToValidUTF8(text, []byte("?")), text) || bytes.ContainsAny(text, "eE") {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return noTwice(d)
}

func noTwice(d *json.Decoder) bool {
	tok, err := d.Token()
	delim, ok := tok.(json.Delim)
	if err != nil || !ok {
		return err == nil
	}
	seen := map[string]bool{}
	for d.More() {
		if delim == '{' {
			name, err := d.Token()
			s, _ := name.(string)
			if err != nil || seen[s] {
				return false
			}
			seen[s] = true
		}
		if !noTwice(d) {
			return false
		}
	}
	_, err = d.Token()
	return err == nil
}

func BenchmarkDiff(b *testing.B) {
	var items []string
	for i := range 2000 {
		items = append(items, fmt.Sprintf(`{"name":"tool%d","description":"does a thing","inputSchema":{"type":"object","properties":{"q":{"type":"string"}}}}`, i))
	}
	x := []byte("[" + strings.Join(items, ",") + "]")
	items[1000] = `{"name":"other"}`
	y := []byte("[" + strings.Join(items[1:], ",") + "]")
	b.SetBytes(int64(len(x) + len(y)))
	b.ReportAllocs()
	for b.Loop() {
		jsondiff.Diff(x, y, nil)
	}
}

func ExampleDiff() {
	a := `{"result":{"content":[{"type":"text","text":"3"}],"took":12}}`
	b := `{"result":{"content":[{"type":"text","text":"4"}],"took":13}}`
	for _, c := range jsondiff.Diff([]byte(a), []byte(b), &jsondiff.Options{Ignore: []string{"/result/took"}}) {
		fmt.Println(c.Op, c.Pointer, c.Old, c.New)
	}
	// Output: replace /result/content/0/text "3" "4"
}

func TestAround(t *testing.T) {
	long, tail := strings.Repeat("a", 1000), strings.Repeat("a", 40)
	wide, wideTail := strings.Repeat("ä", 500), strings.Repeat("ä", 20)
	for _, tt := range []struct{ name, a, b, x, y string }{
		{"early", "a" + long, "b" + long, "a" + long, "b" + long},
		{"short", tail + "x", tail + "y", tail + "x", tail + "y"},
		{"late", long + "x" + long, long + "y", "…" + tail + "x" + long, "…" + tail + "y"},
		{"a common prefix", long, long + "y", "…" + tail, "…" + tail + "y"},
		{"nothing", "", "b", "", "b"},
		{"equal", long, long, long, long},
		{"within a rune", wide + "ä", wide + "ö", "…" + wideTail + "ä", "…" + wideTail + "ö"},
	} {
		if x, y := jsondiff.TrimCommonPrefix(tt.a, tt.b); x != tt.x || y != tt.y {
			t.Errorf("%s: got %q and %q, want %q and %q", tt.name, x, y, tt.x, tt.y)
		}
	}
}
