package tui

import (
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/cmd/internal/view/watch"
)

// TestViews opens the palette, the facets, the lists of servers and captures, and the overview.
func TestViews(t *testing.T) {
	for _, tt := range []struct {
		name  string
		keys  []string
		typed string
		after []string
		has   []string
		lacks []string
	}{
		{"palette", []string{":"}, "", nil, []string{"Commands", "› type to narrow", "overview: calls"}, nil},
		{"palette, narrowed", []string{"ctrl+p"}, "stat lat", nil, []string{"nothing matches"}, []string{"filter"}},
		{"palette, chosen", []string{":"}, "overv", []string{"enter"}, []string{"Overview", "Requests over time", "p99", "files search"}, []string{"Commands"}},
		{"palette, back", []string{":", "esc"}, "", nil, []string{"tools/list"}, []string{"Commands"}},
		{"palette, corrected", []string{":"}, "zz", []string{"backspace", "backspace"}, []string{"filter"}, []string{"nothing matches"}},
		{"facets", []string{"F"}, "", nil, []string{"Server", "❯ files", "Status", "tool failed"}, nil},
		{"facets, chosen", []string{"F"}, "tool failed", []string{"enter"}, []string{"status:=iserror   1 of 11"}, nil},
		{"facets, removed", []string{"F", "down", "enter", "F", "down", "enter"}, "", nil, []string{"11 rows"}, []string{"server:="}},
		{"facets, two", []string{"F", "enter", "F"}, "pending", []string{"enter"}, []string{"server:=files status:=pending   1 of 11"}, nil},
		{"servers and captures", []string{"L"}, "", nil, []string{"Servers", "● files", "Captures"}, nil},
		{"server, chosen", []string{"L"}, "weather", []string{"enter"}, []string{"server:=weather   2 of 11"}, nil},
		{"sorted", []string{"a"}, "latency", []string{"enter"}, []string{"↓ by latency", "❯  12:13:05.852 files       … search"}, []string{"▼ follow"}},
		{"sorted by name", []string{"a"}, "name", []string{"enter", "G"}, []string{"↓ by name of the tool", "weather"}, nil},
		{"by time again", []string{"a"}, "latency", []string{"enter", "esc"}, []string{"11 rows"}, []string{"↓ by"}},
		{"columns", []string{"C"}, "", nil, []string{"✓ latency", "8 columns wide", "  id", "shown where there is room"}, nil},
		{"columns, hidden", []string{"C", "down", "space", "esc"}, "", nil, []string{"latency"}, []string{"12:13:05"}},
		{"columns, shown", []string{"C", "down", "down", "down", "down", "space", "esc"}, "", nil, []string{"what", " id "}, nil},
		{"columns, wider", []string{"C", "down", "down", "down", "+", "+", "+"}, "", []string{"esc"}, []string{"server           what"}, nil},
		{"columns, as usual", []string{"C", "down", "space", "u", "esc"}, "", nil, []string{"12:13:05"}, nil},
		{"frames instead", []string{"a"}, "latency", []string{"enter", "x"}, []string{"≡ frames"}, []string{"↓ by"}},
		{"split", []string{"enter", "tab", ">", ">", ">", ">", ">", ">", ">", ">", ">", ">"}, "", nil, []string{"#"}, nil},
		{"pager", []string{"k", "k", "k", "v"}, "", nil, []string{"Message", `"method": "resources/read"`}, nil},
		{"editor", []string{"e"}, "", nil, []string{"EDITOR is not set"}, nil},
	} {
		bubble(t, tt.name, func(t *testing.T) {
			d := drive(t, both(t), &Options{Colors: NoColor}).size(110, 36)
			d.keys(tt.keys...).types(tt.typed).keys(tt.after...).has(tt.has...)
			d.lacks(tt.lacks...)
		})
	}
}

// TestHeld shows that a held message is announced, and checks the keys that decide about it.
func TestHeld(t *testing.T) {
	bubble(t, "held", func(t *testing.T) {
		f := both(t)
		until := began.Add(30 * time.Second).UnixMilli()
		message := live.HeldMessage{ID: 7, Dir: "c2s", Method: "tools/call", Target: "search\x1b", RequestID: "4", Until: until, Data: `{"id":4}`, Len: 8}
		f.sources = []watch.Source{{ID: "A", Name: "files", State: watch.Live, Intercepted: &live.Intercepted{Filter: "tool:search", Messages: []live.HeldMessage{message}}}}
		d := drive(t, f, &Options{Colors: NoColor}).size(100, 24)
		d.has(`‖ held: tools/call search\x1b to the server of files  25 s left  i decides`)
		d.keys("i").has("Held messages", "❯ ‖ tools/call", "p pass", "d drop")
		d.keys("p", "R", "d", "w", "a").has("Edit and send").keys("esc")
		d.keys("e").has("Edit and send", `"id": 4`).send(press("ctrl+s"))
		d.keys("f").has("hold what matches tool:search").types("x").keys("enter", "esc").has("tools/list")
		filter := "tool:searchx"
		want := []live.Decision{
			{ID: 7, Action: live.Pass}, {ID: 7, Action: live.Pass, HoldResponse: true}, {ID: 7, Action: live.Drop}, {ID: 7, Action: live.Delay, DelayMS: 5000},
			{ID: 7, Action: live.Edit, Data: "{\n  \"id\": 4\n}"}, {Filter: &filter},
		}
		if diff := cmp.Diff(want, f.decided); diff != "" {
			t.Errorf("decisions (-want +got):\n%s", diff)
		}
		f.sources = []watch.Source{{ID: "A", Name: "files", State: watch.Live}}
		d.send(changedMsg{sources: true}).lacks("held:")
		d.keys("i").has("no tap holds messages")
	})
}

// TestHeldKept shows that a held message waits while it is edited: every few seconds while the user
// types here, and as long as another program edits it, up to a limit.
func TestHeldKept(t *testing.T) {
	message := live.HeldMessage{ID: 7, Dir: "c2s", Method: "tools/call", RequestID: "4", Until: began.Add(30 * time.Second).UnixMilli(), Data: `{"id":4}`, Len: 8}
	held := func(t *testing.T) *fakeSource {
		f := both(t)
		f.sources = []watch.Source{{ID: "A", Name: "files", State: watch.Live, Intercepted: &live.Intercepted{Messages: []live.HeldMessage{message}}}}
		return f
	}
	kept := func(f *fakeSource) (n int) {
		for _, d := range f.decided {
			if d.Action == live.Keep && d.ID == 7 {
				n++
			}
		}
		return n
	}
	bubble(t, "here", func(t *testing.T) {
		f := held(t)
		d := drive(t, f, &Options{Colors: NoColor}).size(100, 24).keys("i", "e").has("Edit and send", "25 s left")
		if n := kept(f); n != 0 {
			t.Errorf("kept %d times before a key, want 0", n)
		}
		d.types("abc").has("waits while you type").lacks("s left")
		d.now = d.now.Add(time.Second)
		d.types("d")
		if n := kept(f); n != 1 {
			t.Errorf("kept %d times within two seconds, want 1", n)
		}
		d.now = d.now.Add(2 * time.Second)
		d.types("e")
		if n := kept(f); n != 2 {
			t.Errorf("kept %d times after three seconds, want 2", n)
		}
		d.now = d.now.Add(6 * time.Second)
		d.send(tickMsg{}).has("s left").lacks("waits while you type")
		f.sources = []watch.Source{{ID: "A", Name: "files", State: watch.Live, Intercepted: &live.Intercepted{}}}
		d.send(changedMsg{sources: true}).has("no longer held")
	})
	bubble(t, "in another program", func(t *testing.T) {
		f := held(t)
		begin := time.Now()
		d := drive(t, f, &Options{Colors: NoColor, Environ: []string{"EDITOR=ed"}}).size(100, 24).keys("i", "e")
		if n, took := kept(f), time.Since(begin); n < 100 || took > maxKept+time.Minute {
			t.Errorf("kept %d times in %v, want many in about %v", n, took, maxKept)
		}
		d.run(d.m.resender.gotEdited(nil, nil, func([]byte) tea.Cmd { return nil }))
		if d.m.resender.ended != nil {
			t.Error("the message is still kept after the program has ended")
		}
	})
}

// TestProgressRun folds progress into one line, which can be unfolded.
func TestProgressRun(t *testing.T) {
	bubble(t, "run", func(t *testing.T) {
		f := newFake()
		f.add(t, "A", "files", "stdio", `0 c2s 1/0 msg {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"slow","_meta":{"progressToken":1}}}
1 s2c 1/0 msg {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1,"total":4,"message":"one"}}
2 s2c 1/0 msg {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2,"total":4,"message":"two"}}
3 s2c 1/0 msg {"jsonrpc":"2.0","id":1,"result":{}}`)
		d := drive(t, f, &Options{Colors: NoColor}).size(100, 24)
		d.keys("g", "right").has("▸• progress 1…2/4 █████░░░░░ 2 messages").lacks("one")
		d.keys("j", "right").has("▾• progress 1/4: one", "• progress 2/4: two").lacks("messages")
		d.keys("j", "left").has("▸• progress 1…2/4").lacks("two")
		d.keys("left").has("▸→ slow").lacks("progress")
	})
}

// TestQuickEscape checks that a key right after Esc works, although terminals report it with Alt.
func TestQuickEscape(t *testing.T) {
	bubble(t, "escape", func(t *testing.T) {
		d := drive(t, both(t), &Options{Colors: NoColor}).size(80, 24).keys("enter").has("[1 Summary]")
		d.send(tea.KeyPressMsg{Code: '?', Mod: tea.ModAlt}).has("Moving").keys("esc").lacks("[1 Summary]")
	})
}

// TestOlder opens captures that are not read at the start.
func TestOlder(t *testing.T) {
	bubble(t, "older", func(t *testing.T) {
		f := both(t)
		f.older = []string{"/captures/b", "/captures/a"}
		d := drive(t, f, &Options{Colors: NoColor}).size(120, 40)
		d.send(changedMsg{sources: true}).has("L: 2 older captures")
		d.keys("L").has("2 older captures", "open all of them", "/captures/a").types("captures/a").keys("enter").has("opened 1 capture")
		if diff := cmp.Diff([]string{"/captures/b"}, f.older); diff != "" {
			t.Errorf("older captures (-want +got):\n%s", diff)
		}
	})
}

// TestIdleTime checks that the waterfall omits idle time.
func TestIdleTime(t *testing.T) {
	at := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	row := func(after, wall time.Duration) rowView {
		return rowView{at: at.Add(after), wall: wall, hasDuration: true, status: trace.OK}
	}
	pending := rowView{at: at.Add(30 * time.Minute), pending: true, hasDuration: true, status: trace.Pending}
	for _, tt := range []struct {
		name string
		rows []rowView
		now  time.Duration
		want []string
	}{
		{"none", []rowView{row(0, time.Second), row(time.Second, time.Second)}, time.Hour, []string{
			"███████████         ", "          ██████████",
		}},
		{"half an hour", []rowView{row(0, time.Second), row(30*time.Minute, time.Second)}, time.Hour, []string{
			"█████████┊          ", "         ┊ █████████",
		}},
		{"a pending call", []rowView{row(0, time.Second), pending}, 31 * time.Minute, []string{
			"███┊              ┊ ", "   ┊ ██████████████›",
		}},
		{"a moment", []rowView{{at: at}}, time.Hour, []string{"·                   "}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := &tableView{now: at.Add(tt.now), rows: tt.rows, theme: new(theme)}
			v.scale = newTimeScale(tt.rows, v.now)
			var got []string
			for i := range tt.rows {
				text := ""
				for _, s := range v.waterfall(&tt.rows[i], 20) {
					text += s.text
				}
				got = append(got, text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("bars (-want +got):\n%s", diff)
			}
		})
	}
}

// TestUpstreamName shows the servers behind a gateway by name, in one capture.
func TestUpstreamName(t *testing.T) {
	bubble(t, "upstream", func(t *testing.T) {
		m := trace.New(nil)
		v := &tableView{singleBridge: true}
		head := &capture.Head{ID: "g", Name: "gate"}
		for i, name := range []string{"shop", "mail"} {
			for k, x := range []struct {
				dir  capture.Dir
				data string
			}{
				{capture.ToServer, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"h","version":"1"}}}`},
				{capture.ToClient, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"` + name + `","version":"1"}}}`},
			} {
				m.Add(head, &capture.Event{Kind: capture.KindMessage, N: uint64(2*i + k + 1), Capture: "g", Session: uint64(i + 2), Side: capture.Upstream, Dir: x.dir, Data: []byte(x.data)})
			}
			want := []string{"up", "up mail"}[i]
			if got := v.serverLabel(m.Rows()[i]); got != want {
				t.Errorf("the server is %q, want %q", got, want)
			}
		}
		if got := v.serverLabel(m.Rows()[0]); got != "up shop" {
			t.Errorf("the first server is %q, want up shop", got)
		}
	})
}

// TestChooserClick shows that a click on a chooser does not reach the elements below it.
func TestChooserClick(t *testing.T) {
	bubble(t, "click", func(t *testing.T) {
		d := drive(t, both(t), &Options{Colors: NoColor}).size(80, 24).keys(":")
		d.send(tea.MouseClickMsg{X: 20, Y: 5, Button: tea.MouseLeft}, tea.MouseWheelMsg{Button: tea.MouseWheelDown}).has("Commands")
	})
}

// TestFacetQuoted shows that a facet with a space in its name is marked, and removed again.
func TestFacetQuoted(t *testing.T) {
	bubble(t, "quoted", func(t *testing.T) {
		f := newFake()
		f.add(t, "A", "my files", "stdio", legacy)
		d := drive(t, f, &Options{Colors: NoColor}).size(110, 36)
		d.keys("F", "enter").has(`server:="my files"`)
		d.keys("F").has("✓ my files").keys("enter").lacks("server:=")
	})
}
