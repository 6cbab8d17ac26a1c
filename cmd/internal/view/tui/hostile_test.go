package tui

import (
	"fmt"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/trace"
)

// nasty has characters that control a terminal, reverse text, are invisible, or break a line.
const nasty = "\x1b[2J\x1b]52;c;ZXZpbA==\x07\u202eevil\u202c\u200b\u2066\u0007\u009b31m\tx<script>\x7f🏳️‍🌈漢字e\u0301\u0301\u0301\u0301\u0301\u0301"

// hostile returns a source in which every text of peers is nasty.
func hostile(t testing.TB) *fakeSource {
	f := newFake()
	deep := strings.Repeat("[", 9_990) + strings.Repeat("]", 9_990)
	big := strings.Repeat("A", 3<<20)
	f.add(t, "X", "n"+nasty, "stdio", strings.Join([]string{
		"0 - 1/0 start sh -c " + nasty,
		"1 err 1/0 text " + nasty,
		"2 s2c 1/0 invalid " + nasty,
		`3 c2s 1/0 msg {"jsonrpc":"2.0","id":"` + "\u202e" + `x","method":"tools/call","params":{"name":"` + "\u202eevil\u200b" + `","arguments":{"a":"` + "\u2066\u009b" + `"}}}`,
		`4 s2c 1/0 msg {"jsonrpc":"2.0","id":"` + "\u202e" + `x","error":{"code":-32000,"message":"\u001b[31mred\u202e` + "\u202e" + `"}}`,
		`5 c2s 1/0 msg {"jsonrpc":"2.0","id":1,"method":"` + "\u202emethod\u200b漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字" + `","params":` + deep + `}`,
		`6 s2c 1/0 msg {"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + big + `"}]}}`,
	}, "\n"))
	f.model.AddFinding("X", 5, trace.Finding{Rule: nasty, Severity: nasty, Message: nasty, Pointer: nasty, URL: nasty})
	f.sources[0].Err = nasty
	return f
}

// TestHostile opens every view of hostile rows at sizes down to a single cell. check checks each
// frame.
func TestHostile(t *testing.T) {
	for _, size := range [][2]int{{120, 40}, {80, 24}, {40, 10}, {3, 3}, {1, 1}, {300, 2}} {
		bubble(t, fmt.Sprint(size), func(t *testing.T) {
			d := drive(t, hostile(t), nil).size(size[0], size[1]).check()
			d.send(tea.PasteMsg{Content: nasty}).check()
			for _, k := range strings.Fields("* x x t t s esc c esc ? G g esc l l g") {
				d.keys(k).check()
			}
			d.keys("/").send(tea.PasteMsg{Content: nasty}).check().keys("esc").check()
			for row := range 6 {
				d.keys("enter").check()
				for i := range 9 {
					d.keys(fmt.Sprint(i + 1)).check().keys("G").check()
					if row == i%6 {
						d.keys("W").check().keys("b").check().keys("Y").check().keys("esc").check().keys("enter").check()
					}
				}
				d.keys("/").types("a").keys("enter", "n", "N").check()
				d.keys("esc", "j").check()
			}
		})
	}
}

// TestResize changes the size of the screen while everything is open.
func TestResize(t *testing.T) {
	bubble(t, "resize", func(t *testing.T) {
		d := drive(t, both(t), nil).size(120, 40).keys("k", "k", "k", "enter", "3")
		for w := 1; w < 150; w += 7 {
			for h := 1; h < 50; h += 3 {
				d.size(w, h).check()
			}
		}
		d.keys("esc", "/").types("tool:search")
		for w := 1; w < 150; w += 7 {
			d.size(w, 10).check()
		}
	})
}
