package tui

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"mcpwire/cmd/internal/trace"
)

// update handles a message, and returns the resulting commands without running them.
func (d *driver) update(msg tea.Msg) []tea.Cmd {
	d.m.tickPending = true
	_, cmd := d.m.Update(msg)
	return flatten(cmd)
}

func flatten(cmd tea.Cmd) (list []tea.Cmd) {
	if cmd == nil {
		return nil
	}
	msg := cmd()
	if batch, ok := msg.(tea.BatchMsg); ok {
		for _, c := range batch {
			list = append(list, flatten(c)...)
		}
		return list
	}
	return []tea.Cmd{func() tea.Msg { return msg }}
}

// TestOneDetailAtOnce shows that only one row is read at a time if the user moves faster than rows
// can be read, and that the last one is shown at the end.
func TestOneDetailAtOnce(t *testing.T) {
	bubble(t, "read", func(t *testing.T) {
		d := drive(t, both(t), &Options{Colors: NoColor}).size(80, 30).keys("g")
		first := d.update(press("enter"))
		if len(first) != 1 || !d.m.pane.reading {
			t.Fatalf("%d commands after Enter, reading %v", len(first), d.m.pane.reading)
		}
		for range 3 {
			if more := d.update(press("J")); len(more) != 0 {
				t.Fatalf("%d more commands while a row is read", len(more))
			}
		}
		d.run(first[0])
		if d.m.pane.reading || d.m.pane.loading || d.m.pane.detail.N != d.cursorRow().n || d.cursorRow().n != 6 {
			t.Errorf("reading %v, loading %v; #%d is shown with the cursor at #%d", d.m.pane.reading, d.m.pane.loading, d.m.pane.detail.N, d.cursorRow().n)
		}
	})
}

// TestUpstreamFinding finds a finding that is farther away than the rows that are searched under
// one lock.
func TestUpstreamFinding(t *testing.T) {
	f := newFake()
	var b strings.Builder
	b.WriteString("0 s2c 1/0 invalid first\n" + strings.Repeat("1 err 1/0 text x\n", 2*maxScanRows+10) + "2 s2c 1/0 invalid last")
	f.add(t, "A", "files", "stdio", b.String())
	d := drive(t, f, &Options{Colors: NoColor}).size(80, 24)
	d.keys("g", "n").has("❯  12:13:03  ▲ stray output: last")
	d.keys("N").has("❯  12:13:03  ▲ stray output: first")
	d.keys("N").has("no more rows")
}

// TestEvictedFrames evicts rows whose frames are listed.
func TestEvictedFrames(t *testing.T) {
	bubble(t, "evict", func(t *testing.T) {
		f := newFake()
		f.model = trace.New(&trace.Options{MaxRows: 8})
		f.add(t, "A", "files", "stdio", strings.Repeat("1 s2c 1/0 invalid first\n", 8))
		d := drive(t, f, &Options{Colors: NoColor}).size(80, 24).keys("x", "p").has("first")
		f.add(t, "A", "files", "stdio", strings.Repeat("2 s2c 1/0 invalid last\n", 6))
		d.send(changedMsg{}).check().has("first", "· removed for newer rows")
		d.keys("enter", "g", "enter", "n", "m", "d", "o", "y").check()
	})
}

// TestRedraw draws the whole screen again after a change of size.
func TestRedraw(t *testing.T) {
	bubble(t, "size", func(t *testing.T) {
		d := drive(t, both(t), nil)
		for _, step := range []struct{ msg, want tea.Msg }{
			{tea.WindowSizeMsg{Width: 150, Height: 45}, redrawMsg{}},
			{redrawMsg{}, tea.ClearScreen()},
		} {
			cmds := d.update(step.msg)
			if len(cmds) != 1 || cmds[0]() != step.want {
				t.Errorf("%T leads to %d commands, without %T", step.msg, len(cmds), step.want)
			}
		}
	})
}

// TestReopened closes the pane while a row is read, and opens it for another row.
func TestReopened(t *testing.T) {
	bubble(t, "read", func(t *testing.T) {
		d := drive(t, both(t), &Options{Colors: NoColor}).size(80, 30).keys("g")
		first := d.update(press("enter"))
		for _, k := range []string{"esc", "j", "enter"} {
			d.update(press(k))
		}
		if d.run(first[0]); d.m.pane.detail == nil || d.m.pane.detail.N != d.cursorRow().n {
			t.Errorf("the pane shows another row than that of the cursor:\n%s", d.plain())
		}
	})
}
