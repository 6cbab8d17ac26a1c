package tui

import (
	"context"
	"flag"
	"image/color"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/trace"
)

var update = flag.Bool("u", false, "write the frames that are expected")

// A driver feeds messages to a model and runs its commands one after the other, as the event loop
// does. There are no ticks.
type driver struct {
	t   testing.TB
	m   *model
	now time.Time
}

func drive(t testing.TB, src source, opts *Options) *driver {
	d := &driver{t: t, now: began.Add(5 * time.Second)}
	o := Options{}
	if opts != nil {
		o = *opts
	}
	o.Zone = time.UTC
	o.Now = func() time.Time { return d.now }
	if o.Environ == nil {
		o.Environ = []string{"TERM=xterm"}
	}
	tasks := newBackground(context.Background())
	t.Cleanup(tasks.close)
	d.m = newModel(src, &o, tasks)
	d.run(d.m.table.selectRows())
	d.send(changedMsg{sources: true})
	return d
}

// send has the model handle messages.
func (d *driver) send(msgs ...tea.Msg) *driver {
	for _, msg := range msgs {
		_, cmd := d.m.Update(msg)
		d.run(cmd)
	}
	return d
}

// run runs a command, unless it only waits.
func (d *driver) run(cmd tea.Cmd) {
	if cmd == nil {
		return
	}
	d.m.tickPending = true // suppresses ticks
	switch msg := cmd().(type) {
	case nil, tickMsg:
	case tea.BatchMsg:
		for _, c := range msg {
			d.run(c)
		}
	default:
		d.send(msg)
	}
}

// size sets the size of the screen.
func (d *driver) size(w, h int) *driver { return d.send(tea.WindowSizeMsg{Width: w, Height: h}) }

// keys presses keys by name: "j", "enter", "ctrl+c".
func (d *driver) keys(names ...string) *driver {
	for _, n := range names {
		d.send(press(n))
	}
	return d
}

// types types a text.
func (d *driver) types(s string) *driver {
	for _, r := range s {
		d.send(tea.KeyPressMsg{Code: r, Text: string(r)})
	}
	return d
}

func press(name string) tea.KeyPressMsg {
	special := map[string]rune{"enter": tea.KeyEnter, "esc": tea.KeyEscape, "up": tea.KeyUp, "down": tea.KeyDown, "left": tea.KeyLeft, "right": tea.KeyRight, "tab": tea.KeyTab,
		"home": tea.KeyHome, "end": tea.KeyEnd, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "backspace": tea.KeyBackspace, "delete": tea.KeyDelete}
	if rest, ok := strings.CutPrefix(name, "ctrl+"); ok {
		return tea.KeyPressMsg{Code: rune(rest[0]), Mod: tea.ModCtrl}
	}
	if code, ok := special[name]; ok {
		return tea.KeyPressMsg{Code: code}
	}
	if name == "space" {
		return tea.KeyPressMsg{Code: tea.KeySpace, Text: " "}
	}
	r := []rune(name)[0]
	return tea.KeyPressMsg{Code: r, Text: name}
}

var sgr = regexp.MustCompile("\x1b\\[[0-9;]*m")

// plain returns the screen without styles.
func (d *driver) plain() string {
	var out []string
	for l := range strings.SplitSeq(sgr.ReplaceAllString(d.m.screen(), ""), "\n") {
		out = append(out, strings.TrimRight(l, " "))
	}
	return strings.Join(out, "\n") + "\n"
}

// golden compares a text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; go test -u writes it):\n%s", name, diff)
	}
}

// check checks every frame: it must have the size of the screen, and no styles but our own.
func (d *driver) check() *driver {
	d.t.Helper()
	screen := d.m.screen()
	lines := strings.Split(screen, "\n")
	if d.m.dialogs.editor == nil && len(lines) != d.m.height {
		d.t.Fatalf("%d lines on a screen of %d:\n%s", len(lines), d.m.height, screen)
	}
	for _, l := range lines {
		l = sgr.ReplaceAllString(l, "")
		if n := width(l); d.m.dialogs.editor == nil && n != d.m.width {
			d.t.Fatalf("%d columns on a screen of %d: %q\n%s", n, d.m.width, l, screen)
		}
		if esc := trace.Escape(l); esc != l {
			d.t.Fatalf("a text is not safe: %q", l)
		}
	}
	return d
}

// bubble runs a test in a synctest bubble.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

func TestFrames(t *testing.T) {
	sizes := []struct {
		name string
		w, h int
	}{{"80x24", 80, 24}, {"120x40", 120, 40}, {"40x10", 40, 10}}
	for _, tt := range []struct {
		name string
		do   func(d *driver)
	}{
		{"table", func(d *driver) {}},
		{"unfolded", func(d *driver) { d.keys("*", "g") }},
		{"since", func(d *driver) { d.keys("t") }},
		{"filter", func(d *driver) { d.keys("/").types("tool:search").keys("enter") }},
		{"filter-wrong", func(d *driver) { d.keys("/").types("tool:search stat:x") }},
		{"filter-none", func(d *driver) { d.keys("/").types("tool:nothing").keys("enter") }},
		{"frames", func(d *driver) { d.keys("x") }},
		{"detail", func(d *driver) { d.keys("k", "k", "enter") }},
		{"request", func(d *driver) { d.keys("k", "k", "enter", "2") }},
		{"card", func(d *driver) { d.keys("g", "c") }},
		{"tools", func(d *driver) { d.keys("s") }},
		{"help", func(d *driver) { d.keys("?") }},
		{"paused", func(d *driver) {
			d.keys("p")
			d.m.src.(*fakeSource).add(d.t, "A", "files", "stdio", `2100 c2s 1/0 msg {"jsonrpc":"2.0","id":6,"method":"ping"}`)
			d.send(changedMsg{})
		}},
	} {
		for _, size := range sizes {
			bubble(t, tt.name+"-"+size.name, func(t *testing.T) {
				d := drive(t, both(t), &Options{Colors: NoColor}).size(size.w, size.h)
				tt.do(d)
				golden(t, tt.name+"-"+size.name, d.check().plain())
			})
		}
	}
}

func TestEmptyFrames(t *testing.T) {
	for _, tt := range []struct {
		name string
		w, h int
	}{{"80x24", 80, 24}, {"40x10", 40, 10}} {
		golden(t, "empty-"+tt.name, drive(t, newFake(), &Options{Colors: NoColor}).size(tt.w, tt.h).check().plain())
	}
}

// TestColors checks the styles: of 16 colors, and of a light and a dark background.
func TestColors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		colors Colors
		dark   bool
	}{{"16", Colors16, true}, {"dark", Colors256, true}, {"light", Colors256, false}} {
		d := drive(t, both(t), &Options{Colors: tt.colors}).size(80, 12)
		d.send(tea.BackgroundColorMsg{Color: map[bool]color.Color{true: color.Black, false: color.White}[tt.dark]}).check()
		golden(t, "colors-"+tt.name, strings.ReplaceAll(d.m.screen(), "\x1b[", "‹")+"\n")
	}
}
