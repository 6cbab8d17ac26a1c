package tui

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/capture"
	"mcpwire/cmd/internal/view/watch"
)

// cursorRow returns the row of the cursor.
func (d *driver) cursorRow() *rowView {
	d.t.Helper()
	if d.m.table.view.cursor < 0 {
		d.t.Fatalf("there is no cursor:\n%s", d.plain())
	}
	return &d.m.table.view.rows[d.m.table.view.cursor]
}

func (d *driver) has(texts ...string) *driver {
	d.t.Helper()
	screen := d.plain()
	for _, s := range texts {
		if !strings.Contains(screen, s) {
			d.t.Errorf("%q is not on the screen:\n%s", s, screen)
		}
	}
	return d
}

func (d *driver) lacks(texts ...string) *driver {
	d.t.Helper()
	for _, s := range texts {
		if screen := d.plain(); strings.Contains(screen, s) {
			d.t.Errorf("%q is on the screen:\n%s", s, screen)
		}
	}
	return d
}

// TestKeys presses keys and checks the screen.
func TestKeys(t *testing.T) {
	for _, tt := range []struct {
		keys string // separated by spaces; ":text" types a text
		want []string
		not  []string
	}{
		{"g", []string{"❯  12:13:03 files     + started"}, []string{"▼ follow"}},
		{"g G", []string{"❯  12:13:06 weather   ✖ GET"}, nil},
		{"g j j", []string{"❯  12:13:03 files     • notifications/initialized"}, nil},
		{"g n", []string{"❯  12:13:03 files     → tools/list"}, nil},
		{"g n n", []string{"❯  12:13:04 files     ▲ stray output"}, nil},
		{"N", []string{"❯  12:13:05 files     ✖ file:///etc/motd read"}, nil},
		{"g n N", []string{"no more rows"}, nil},
		{"g j j j j space", []string{"▾→ search call", "• progress 1/3: looking", "• log info: found it"}, nil},
		{"g j j j j right j left", []string{"❯  12:13:04 files    ▸→ search call"}, []string{"progress 1/3"}},
		{"*", []string{"⇠ elicitation/create"}, nil},
		{"* *", nil, []string{"⇠ elicitation/create"}},
		{"l", []string{"only with findings", "2 of 11", "tools/list", "stray output"}, []string{"✖ file:///etc/motd read"}},
		{"l esc", []string{"✖ file:///etc/motd read"}, []string{"only with findings"}},
		{"t", []string{"since", "0.012"}, nil},
		{"t t", []string{"delta", "0.043"}, nil},
		{"/ :status:error enter", []string{"❯  12:13:05 files     ✖ file:///etc/motd read", "1 of 11"}, []string{"tools/list"}},
		{"/ :status:error enter esc", []string{"tools/list"}, []string{"1 of 11"}},
		{"/ :status:error esc", []string{"tools/list"}, []string{"1 of 11"}},
		{"/ :dur>x", []string{"✖ column"}, nil},
		{"/ :dur>x enter enter", []string{"✖ column"}, nil},
		{"/ :abc left left backspace :x enter", []string{"/ xbc"}, nil},
		{"/ :one ctrl+w :two ctrl+a ctrl+k :three enter", []string{"/ three"}, nil},
		{"k k k enter", []string{"[1 Summary]", "#17 ✖ resources/read"}, nil},
		{"k k k enter 3", []string{"[3 Response]", `"code": -32002`}, nil},
		{"k k k enter right right", []string{"[3 Response]"}, nil},
		{"k k k enter left", []string{"Timing]"}, nil},
		{"k k k enter esc", nil, []string{"[1 Summary]"}},
		{"k k k 3", []string{"[3 Response]"}, nil},
		{"k k k 3 k", []string{"#13 ! tools/call order", "[3 Response]"}, nil},
		{"k k k enter J", []string{"#19 … tools/call search"}, nil},
		{"k k k enter 5", []string{"this row has no tab 5, HTTP", "[1 Summary]", "7 Timing"}, nil},
		{"k k k enter 4 b", []string{"[4 Raw]", "00000000"}, nil},
		{"k k k enter 2 / :method enter", []string{`"method"`}, nil},
		{"k k k enter / :nowhere enter", []string{"✖ nowhere is not there"}, nil},
		{"k k k enter z", []string{"[1 Summary]"}, []string{"12:13:03  →"}},
		{"c", []string{"Session", "weather", "era", "modern"}, nil},
		{"g c", []string{"2025-11-25", "claude-ai 0.1.0", "elicitation", "tools.listChanged", "4711"}, nil},
		{"s", []string{"search", "order", "weather", "p95", "tools/list"}, nil},
		{"? esc", []string{"tools/list"}, nil},
		{"?", []string{"follow: stay on the newest", "move the border"}, nil},
		{"? / :waterfall enter", []string{"in the waterfall"}, nil},
		{"g j j j j m", []string{"❯1 12:13:04"}, nil},
		{"k k k y", []string{"copied the request, "}, nil},
		{"k k k Y", []string{"As a command", "mcpwire read", "file:///etc/motd", "y copy"}, []string{"curl"}},
		{"k k k Y Y", []string{"mcpwire read"}, []string{"curl"}},
		{"k Y", []string{"Failed", "the capture does not have the server's URL", "Esc back"}, nil},
		{"k k k Y esc", []string{"✖ file:///etc/motd read"}, []string{"As a command"}},
		{"/ :tool:nothing enter y", []string{"nothing is selected"}, nil},
		{"d", []string{"m marks a row"}, nil},
		{"w", []string{"no running tap of weather"}, nil},
		{"g w y", []string{"the server is being restarted"}, nil},
		{"g w n", []string{"nothing was done"}, nil},
		{"r", []string{"sending again is disabled"}, nil},
		{"f", nil, []string{"▼ follow"}},
		{"x", []string{"≡ frames"}, nil},
		{"x x", []string{"11 rows"}, []string{"≡ frames"}},
	} {
		bubble(t, tt.keys, func(t *testing.T) {
			d := drive(t, both(t), &Options{Colors: NoColor}).size(80, 30)
			for k := range strings.SplitSeq(tt.keys, " ") {
				if text, ok := strings.CutPrefix(k, ":"); ok {
					d.types(text)
				} else {
					d.keys(k)
				}
				d.check()
			}
			d.has(tt.want...).lacks(tt.not...)
		})
	}
}

// TestDiff marks two calls of a tool and compares them.
func TestDiff(t *testing.T) {
	bubble(t, "diff", func(t *testing.T) {
		d := drive(t, both(t), &Options{Colors: NoColor}).size(80, 40)
		d.keys("g", "j", "j", "j", "j", "m", "j", "j", "j", "j", "m", "d").check()
		d.has("#8 and #19", "/params/arguments/query", `- "hello world"`, `+ "slow"`, "the second response is missing")
	})
}

// TestFollow adds rows: the cursor stays on the newest only while it follows.
func TestFollow(t *testing.T) {
	bubble(t, "follow", func(t *testing.T) {
		f := both(t)
		d := drive(t, f, &Options{Colors: NoColor}).size(80, 12)
		ping := func(ms int) {
			f.add(t, "A", "files", "stdio", fmt.Sprintf(`%d c2s 1/0 msg {"jsonrpc":"2.0","id":%[1]d,"method":"ping"}`, ms))
			d.send(changedMsg{})
		}
		ping(6000)
		d.has("❯  12:13:09 files     … ping")
		d.keys("k")
		ping(7000)
		d.has("❯  12:13:06 weather   ✖ GET", "ping").lacks("❯  12:13:09")
		d.keys("f").has("❯  12:13:10 files     … ping")
		d.keys("p")
		ping(8000)
		d.has("‖ paused, 1 new").lacks("12:13:11")
		d.keys("p", "G").has("❯  12:13:11")
	})
}

// TestLateRow adds a row of another capture that happened before rows that are shown: it is inserted
// by its time, and the cursor stays on its row.
func TestLateRow(t *testing.T) {
	bubble(t, "late row", func(t *testing.T) {
		f := both(t)
		d := drive(t, f, &Options{Colors: NoColor}).size(80, 20)
		f.add(t, "A", "files", "stdio", `6000 c2s 1/0 msg {"jsonrpc":"2.0","id":6000,"method":"ping"}`)
		d.send(changedMsg{})
		d.has("❯  12:13:09 files     … ping")
		d.keys("k", "k").has("❯  12:13:05 weather")
		f.add(t, "B", "weather", "http", `4000 c2s 1/3 req GET /late`)
		d.send(changedMsg{})
		d.has("❯  12:13:05 weather")
		screen := d.plain()
		if late, ping := strings.Index(screen, "GET /late"), strings.Index(screen, "ping"); late < 0 || late > ping {
			t.Errorf("the late row is at %d, and a later one at %d:\n%s", late, ping, screen)
		}
	})
}

// TestTimers checks that a timer counts, and stops while nothing changes.
func TestTimers(t *testing.T) {
	bubble(t, "timers", func(t *testing.T) {
		d := drive(t, both(t), &Options{Colors: NoColor}).size(80, 24).has("3.0 s")
		d.now = d.now.Add(1234 * time.Millisecond)
		d.send(tickMsg(d.now)).has("4.2 s")
		d.keys("p")
		d.now = d.now.Add(time.Minute)
		d.send(tickMsg(d.now)).has("4.2 s")
		d.keys("p").has("1m4s")
	})
}

// TestCommands copies a call over HTTP as a command of mcpwire and of curl.
func TestCommands(t *testing.T) {
	bubble(t, "commands", func(t *testing.T) {
		f := newFake()
		f.heads["B"] = &capture.Head{Version: capture.Version, ID: "B", At: began, Name: "weather", Transport: "http", URL: "https://example.com/mcp"}
		f.add(t, "B", "weather", "http", modern)
		d := drive(t, f, &Options{Colors: NoColor}).size(80, 24)
		d.keys("k", "Y").has("As a command", "mcpwire call https://example.com/mcp weather", "Y curl")
		d.keys("Y").has("As curl", "curl ", "Y mcpwire call")
		d.keys("Y").has("As a command").keys("esc").has("weather tools/call")
	})
}

// TestFlash checks that the message in the last line disappears without a key press, and an error
// later.
func TestFlash(t *testing.T) {
	bubble(t, "flash", func(t *testing.T) {
		d := drive(t, both(t), &Options{Colors: NoColor}).size(80, 24)
		for _, tt := range []struct {
			key, text   string
			still, gone time.Duration
		}{{"m", "· marked", 5 * time.Second, 7 * time.Second}, {"r", "✖ sending again", 19 * time.Second, 21 * time.Second}} {
			begun := d.now
			d.keys(tt.key)
			d.now = begun.Add(tt.still)
			d.send(tickMsg(d.now)).has(" " + tt.text)
			d.now = begun.Add(tt.gone)
			d.send(tickMsg(d.now)).lacks(" " + tt.text)
		}
	})
}

// TestRestarted shows that the first line reports that the process of a session has ended and that
// another one runs.
func TestRestarted(t *testing.T) {
	bubble(t, "restarted", func(t *testing.T) {
		f := newFake()
		f.add(t, "A", "files", "stdio", "0 - 1/0 start node s.js\n1 - 1/0 exit 0")
		d := drive(t, f, &Options{Colors: NoColor}).size(80, 24).has("files · exit 0 · stdio")
		f.add(t, "A", "files", "stdio", "2 - 2/0 start node s.js")
		d.send(changedMsg{}).has("files/2 · stdio").lacks("exit 0 ·", "exit 0,")
		d.keys("g").has("files · exit 0, now /2 · stdio")
		d.keys("c").has("started again as session 2")
	})
}

// TestNothingRecorded checks that a capture that has ended looks different from one that is still
// recorded.
func TestNothingRecorded(t *testing.T) {
	bubble(t, "nothing", func(t *testing.T) {
		f := newFake()
		f.sources = []watch.Source{{ID: "A", State: watch.Complete}}
		drive(t, f, &Options{Colors: NoColor}).size(80, 24).has("The recording is empty").lacks("no tap runs", "as soon as")
		f.sources[0].State = watch.Live
		drive(t, f, &Options{Colors: NoColor}).size(80, 24).has("Traffic appears here")
	})
}

// TestMouse clicks and turns the wheel.
func TestMouse(t *testing.T) {
	bubble(t, "mouse", func(t *testing.T) {
		d := drive(t, both(t), &Options{Colors: NoColor}).size(80, 24)
		click := func(x, y int) { d.send(tea.MouseClickMsg{X: x, Y: y, Button: tea.MouseLeft}).check() }
		click(30, 6)
		d.has("❯  12:13:04 files    ▸→ search call")
		click(21, 6)
		d.has("▾→ search call", "progress 1/3")
		click(30, 6)
		d.has("[1 Summary]")
		for i, tab := range d.m.pane.bar.tabs {
			x := 1 + width(strings.Join(d.m.pane.bar.titles(79)[:i], ""))
			_, body := d.m.pane.split()
			click(x+1, body.y-1)
			d.has(tab.title + "]")
		}
		d.keys("2").send(tea.MouseWheelMsg{X: 30, Y: 20, Button: tea.MouseWheelDown}).check().lacks(`"jsonrpc"`)
		d.send(tea.MouseWheelMsg{X: 30, Y: 4, Button: tea.MouseWheelUp}).check()
		if got := d.cursorRow().n; got != 2 {
			t.Errorf("the wheel went to #%d", got)
		}
	})
}

// TestSave writes the visible rows as text and as a valid capture.
func TestSave(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "in.mcpcap.ndjson")
	f := both(t)
	saved(t, f, 0, path)
	synctest.Test(t, func(t *testing.T) {
		d := drive(t, f, &Options{Colors: NoColor, Folder: dir}).size(80, 24)
		d.keys("/").types("tool:order").keys("enter", "ctrl+s", "ctrl+u").types("out.txt").keys("enter").has("saved 1 row to")
		d.keys("ctrl+s", "ctrl+u").types("out").keys("enter").has("saved 1 row to")
		d.keys("ctrl+s", "ctrl+u").types("out").keys("enter").has("✖ open") // it exists
	})
	text, err := os.ReadFile(filepath.Join(dir, "out.txt"))
	if err != nil || !strings.Contains(string(text), "the tool failed: out of tea") || !strings.Contains(string(text), "  ⇠ requested input:") {
		t.Errorf("as text there is %q, %v", text, err)
	}
	r, err := capture.Open(filepath.Join(dir, "out.mcpcap.ndjson"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []uint64
	for e, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind != capture.KindHead && e.Kind != capture.KindGap {
			got = append(got, e.N)
		}
	}
	if fmt.Sprint(got) != "[13 14 15 16]" {
		t.Errorf("the capture has the events %v", got)
	}
}

// TestPrompt edits a prompt: the cursor counts columns, and only visible characters are inserted.
func TestPrompt(t *testing.T) {
	d := drive(t, both(t), &Options{Colors: NoColor}).size(80, 24).keys("/").types("漢字a").keys("left")
	if got := d.m.View().Cursor.X; got != len(" / ")+2*2 {
		t.Errorf("the cursor is in column %d", got)
	}
	d.send(tea.PasteMsg{Content: "1\n\x1b2" + strings.Repeat("\u0301", 9)})
	if got, want := d.m.dialogs.prompt.text(), "漢字12"+strings.Repeat("\u0301", 4)+"a"; got != want {
		t.Errorf("the text is %q, want %q", got, want)
	}
	d.send(tea.PasteMsg{Content: strings.Repeat("x", 2*maxPrompt)}).check()
	if got := len([]rune(d.m.dialogs.prompt.text())); got != maxPrompt {
		t.Errorf("the text has %d characters, want %d", got, maxPrompt)
	}
}
