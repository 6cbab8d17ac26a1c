package replay_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/playback/replay"
)

func TestCompare(t *testing.T) {
	const (
		uuid1, uuid2 = "0b0e6a6c-6f6e-4a57-9c0f-2b1d7f3a9e11", "9f1c2d3e-4b5a-4c7d-8e9f-0a1b2c3d4e5f"
		ulid1, ulid2 = "01JD3K9Z6QW8X2V5T7Y4R1N0PM", "01KD3K9Z6QW8X2V5T7Y4R1N0PZ"
	)
	later := began.Add(90 * 24 * time.Hour)
	text := func(s string) string { return `{"content":[{"type":"text","text":` + fmt.Sprintf("%q", s) + `}]}` }
	tests := []struct {
		name, old, now string
		hidden         []string
		ignore         []string
		want, strict   string
	}{
		{name: "equal", old: `{"a":1}`, now: `{ "a" : 1.0 }`},
		{name: "another value", old: `{"a":1}`, now: `{"a":2}`, want: "replace /result/a", strict: "replace /result/a"},
		{name: "ignored", old: `{"l":[{"a":1},{"a":2}]}`, now: `{"l":[{"a":3},{"a":4}]}`, ignore: []string{"/result/l/*/a"}},
		{name: "times", old: text("at 2026-11-20T12:00:00Z"), now: text("at 2027-02-18T12:00:00.123+01:00"), strict: "replace /result/content/0/text"},
		{name: "a time and no time", old: text("at 2026-11-20T12:00:00Z"), now: text("at noon"), want: "replace /result/content/0/text", strict: "replace /result/content/0/text"},
		{name: "uuids", old: `{"a":"` + uuid1 + `"}`, now: `{"a":"` + uuid2 + `"}`, strict: "replace /result/a"},
		{name: "a uuid and a ulid", old: `{"a":"` + uuid1 + `"}`, now: `{"a":"` + ulid2 + `"}`, want: "replace /result/a", strict: "replace /result/a"},
		{name: "ulids", old: `{"a":"x ` + ulid1 + `"}`, now: `{"a":"x ` + ulid2 + `"}`, strict: "replace /result/a"},
		{name: "json in text", old: text(`{"id":"` + uuid1 + `","n":1}`), now: text(`{"id": "` + uuid2 + `", "n": 1}`), strict: "replace /result/content/0/text"},
		{name: "other json in text", old: text(`{"id":"` + uuid1 + `","n":1}`), now: text(`{"id":"` + uuid2 + `","n":2}`), want: "replace /result/content/0/text", strict: "replace /result/content/0/text"},
		{name: "unix times", old: fmt.Sprintf(`{"ms":%d,"s":"%d"}`, began.UnixMilli()-5, began.Unix()), now: fmt.Sprintf(`{"ms":%d,"s":"%d"}`, later.UnixMilli(), later.Unix()-60), strict: "replace /result/ms replace /result/s"},
		{name: "a number that was a time", old: fmt.Sprintf(`{"ms":%d}`, began.UnixMilli()), now: `{"ms":1234567890123}`, want: "replace /result/ms", strict: "replace /result/ms"},
		{name: "the same number, near one of the times", old: fmt.Sprintf(`{"ms":%d}`, began.UnixMilli()), now: fmt.Sprintf(`{"ms":%d}`, began.UnixMilli())},
		{name: "metadata", old: `{"_meta":{"x":1},"a":1,"ttlMs":5}`, now: `{"a":1,"content":[{"_meta":{},"type":"x"}]}`, want: "add /result/content", strict: "remove /result/_meta remove /result/ttlMs add /result/content"},
		{name: "chosen by the server", old: `{"nextCursor":"a","taskId":"b"}`, now: `{"nextCursor":"c","taskId":"d"}`, strict: "replace /result/nextCursor replace /result/taskId"},
		{name: "of an application", old: `{"structuredContent":{"taskId":"b","ttlMs":1,"sessionId":"q"}}`, now: `{"structuredContent":{"taskId":"d","ttlMs":2,"sessionId":"r"}}`,
			want: "replace /result/structuredContent/taskId replace /result/structuredContent/ttlMs", strict: "replace /result/structuredContent/taskId replace /result/structuredContent/ttlMs replace /result/structuredContent/sessionId"},
		{name: "no next page", old: `{"nextCursor":"a"}`, now: `{}`, want: "remove /result/nextCursor", strict: "remove /result/nextCursor"},
		{name: "a version", old: `{"serverInfo":{"name":"a","version":"1"}}`, now: `{"serverInfo":{"name":"a","version":"2"}}`, want: "note /result/serverInfo/version", strict: "replace /result/serverInfo/version"},
		{name: "hidden", old: `{"a":"x ` + placeholder + ` y","n":0}`, now: `{"a":"x open y","n":7}`, hidden: []string{"/result/n"}},
		{name: "redacted value and another difference", old: `{"a":"x ` + placeholder + ` y"}`, now: `{"a":"x open z"}`, want: "replace /result/a", strict: "replace /result/a"},
		{name: "an added tool, in another order", old: `{"tools":[{"name":"a","x":1},{"name":"b","x":1},{"name":"c/d","x":1}]}`, now: `{"tools":[{"name":"new"},{"name":"c/d","x":2},{"name":"a","x":1},{"name":"b","x":1}]}`,
			want: "replace /result/tools/1/x add /result/tools/0", strict: "replace /result/tools/1/x add /result/tools/0"},
		{name: "a removed tool", old: `{"tools":[{"name":"a"},{"name":"b"},{"name":"c"}]}`, now: `{"tools":[{"name":"a"},{"name":"c"}]}`, want: "remove /result/tools/1", strict: "remove /result/tools/1"},
		{name: "a resource by its URI", old: `{"resources":[{"uri":"a:1","name":"n"},{"uri":"a:2","name":"n"}]}`, now: `{"resources":[{"uri":"a:2","name":"n"},{"uri":"a:1","name":"m"}]}`, want: "replace /result/resources/1/name", strict: "replace /result/resources/1/name"},
		{name: "a duplicate name", old: `{"tools":[{"name":"a","x":1},{"name":"a","x":2}]}`, now: `{"tools":[{"name":"a","x":1},{"name":"a","x":3}]}`, want: "replace /result/tools/1/x", strict: "replace /result/tools/1/x"},
		{name: "ignored by index and by name", old: `{"tools":[{"name":"a","x":1},{"name":"b","x":1}]}`, now: `{"tools":[{"name":"b","x":2},{"name":"a","x":2}]}`, ignore: []string{"/result/tools/0/x", "/result/tools/b/x"}},
		{name: "redacted in a list", old: `{"tools":[{"name":"a","n":0},{"name":"b","n":1}]}`, now: `{"tools":[{"name":"b","n":1},{"name":"a","n":7}]}`, hidden: []string{"/result/tools/0/n"}},
		{name: "not in a result", old: `{"structuredContent":{"tools":[{"name":"a"}]}}`, now: `{"structuredContent":{"tools":[{"name":"b"},{"name":"a"}]}}`, want: "add /result/structuredContent/tools/0", strict: "add /result/structuredContent/tools/0"},
		{name: "inserted", old: `{"l":["` + uuid1 + `","b"]}`, now: `{"l":["new","` + uuid2 + `","b"]}`, want: "add /result/l/0", strict: "replace /result/l/0 add /result/l/1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			old, now := `{"jsonrpc":"2.0","id":1,"result":`+tt.old+`}`, `{"jsonrpc":"2.0","id":"other","result":`+tt.now+`}`
			for _, strict := range []bool{false, true} {
				var got []string
				for _, d := range replay.Compare(old, now, began, later, tt.hidden, &replay.Options{Strict: strict, Ignore: tt.ignore}) {
					if d.Note {
						d.Op = "note"
					}
					got = append(got, d.Op+" "+d.Pointer)
				}
				want := tt.want
				if strict {
					want = tt.strict
				}
				if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
					t.Errorf("strict %v (-want +got):\n%s", strict, diff)
				}
			}
		})
	}
}

// TestCompareShowsTheDifference shows that a long text is shortened to a part with the difference.
func TestCompareShowsTheDifference(t *testing.T) {
	long := strings.Repeat("word ", 2000)
	list := replay.Compare(`{"jsonrpc":"2.0","id":1,"result":{"a":"`+long+`one`+long+`"}}`, `{"jsonrpc":"2.0","id":1,"result":{"a":"`+long+`two"}}`, began, began, nil, nil)
	if len(list) != 1 || !strings.Contains(list[0].Old, "word one") || !strings.HasSuffix(list[0].New, `word two"`) || len(list[0].Old) > 4200 {
		t.Errorf("got %v", list)
	}
}

// TestCompareHidesSecrets shows that secrets are not in a result.
func TestCompareHidesSecrets(t *testing.T) {
	const secret = "hunter2hunter2"
	list := replay.Compare(`{"jsonrpc":"2.0","id":1,"result":{"a":1}}`, `{"jsonrpc":"2.0","id":1,"result":{"a":2,"password":"`+secret+`"}}`, began, began, nil, nil)
	if len(list) != 2 || strings.Contains(fmt.Sprint(list), secret) {
		t.Errorf("got %v", list)
	}
	// Equal secrets on both sides are not a difference.
	same := `{"jsonrpc":"2.0","id":1,"result":{"password":"` + secret + `"}}`
	if list := replay.Compare(same, same, began, began, nil, nil); len(list) > 0 {
		t.Errorf("got %v for equal messages", list)
	}
}

// TestCompareIsBounded checks the limit of reported differences.
func TestCompareIsBounded(t *testing.T) {
	var a, b strings.Builder
	for i := range 60 {
		fmt.Fprintf(&a, `,"m%d":1`, i)
		fmt.Fprintf(&b, `,"m%d":%q`, i, strings.Repeat("é", 2500))
	}
	list := replay.Compare(`{"jsonrpc":"2.0"`+a.String()+`}`, `{"jsonrpc":"2.0"`+b.String()+`}`, began, began, nil, nil)
	if n := len(list); n != 51 || list[50].Op != "more" {
		t.Errorf("%d differences", n)
	}
	if n := len(list[0].New); n > 5000 {
		t.Errorf("a value of %d bytes", n)
	}
}

func TestEdit(t *testing.T) {
	tests := []struct{ text, pointer, by, want string }{
		{`{"a":1,"b":[1,{"c":2}]}`, "/a", `"x"`, `{"a":"x","b":[1,{"c":2}]}`},
		{`{"a":1,"b":[1,{"c":2}]}`, "/b/1/c", `3`, `{"a":1,"b":[1,{"c":3}]}`},
		{` {"a" : 1 } `, "/b", `3`, `{"b":3,"a" : 1 }`},
		{`{}`, "/b", `3`, `{"b":3}`},
		{`{"a":1,"b":2,"c":3}`, "/b", ``, `{"a":1,"c":3}`},
		{`{"a":1}`, "/a", ``, `{}`},
		{`{"a":1}`, "/b", ``, `{"a":1}`},
		{`{"a":1}`, "/b/c", `1`, `{"a":1}`},
		{`{"a/b":{"~":1}}`, "/a~1b/~0", `2`, `{"a/b":{"~":2}}`},
		{`[1]`, "/5", `2`, `[1]`},
		{`7`, "/x", `2`, `7`},
	}
	for _, tt := range tests {
		if got := replay.Edit(tt.text, tt.pointer, tt.by); got != tt.want {
			t.Errorf("Edit(%s, %s, %s) is %s, want %s", tt.text, tt.pointer, tt.by, got, tt.want)
		}
	}
}

func TestVolatile(t *testing.T) {
	for _, tt := range []struct {
		name, old, now string
		want           bool
	}{
		{"text", `"at 2026-11-20T12:00:00Z"`, `"at 2026-11-21T09:30:00Z"`, true},
		{"text", `"at 2026-11-20T12:00:00Z"`, `"on 2026-11-21T09:30:00Z"`, false},
		{"nextCursor", `"a"`, `"b"`, true},
		{"next", `"a"`, `"b"`, false},
		{"a/\"b", `1`, `1`, true},
		{"text", `"a`, `"a`, false},
		{"text", ``, ``, false},
	} {
		if got := replay.Volatile(tt.name, []byte(tt.old), []byte(tt.now)); got != tt.want {
			t.Errorf("%s: %s and %s: got %v, want %v", tt.name, tt.old, tt.now, got, tt.want)
		}
	}
}
