package detail_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
)

// TestAlign aligns the lines of two messages by pointer, or by value if the pointer differs.
func TestAlign(t *testing.T) {
	for _, tt := range []struct{ name, before, after, want string }{
		{"the same", `{"a":1,"b":[2]}`, `{"a":1,"b":[2]}`, "={ ={ | ='a':1, ='a':1, | ='b':[ ='b':[ | =2 =2 | =] =] | =} =}"},
		{"changed, added, removed", `{"a":1,"b":2}`, `{"a":3,"c":{"d":4}}`, "={ ={ | -'a':1, +'a':3, | -'b':2 | +'c':{ | +'d':4 | +} | =} =}"},
		{"in another order", `{"a":1,"b":2}`, `{"b":2,"a":1}`, "={ ={ | ='a':1, | ='b':2 ='b':2, | ='a':1 | =} =}"},
		{"deeper", `{"r":{"q":{"m":"x","p":{"n":1}}}}`, `{"m":"x","p":{"n":1}}`, "={ ={ | -'r':{ | -'q':{ | ='m':'x', ='m':'x', | ='p':{ ='p':{ | ='n':1 ='n':1 | =} =} | -} | -} | =} =}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := snapshotRecord("stdio").c2s(tt.before).
				add(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToServer, Session: 2, Data: []byte(tt.after)}).
				add(&capture.Event{Kind: capture.KindTranslate, Translation: &capture.Translation{Of: 1, To: []uint64{2}}}).detail(t, 1, nil)
			x := d.Translations[0]
			var got []string
			for _, p := range x.Lines {
				var halves []string
				for i, lines := range [][2]string{{"=", "-"}, {"=", "+"}} {
					payload := x.Before
					if i == 1 {
						payload = x.After
					}
					if p[i] > 0 {
						text := spans(payload.Lines[p[i]-1].Spans, false)
						halves = append(halves, lines[p[2]]+strings.NewReplacer(" ", "", `"`, "'").Replace(text))
					}
				}
				got = append(got, strings.Join(halves, " "))
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " | ")); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, fmt.Sprint(x.Lines))
			}
		})
	}
}
