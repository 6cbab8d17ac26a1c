package tui

import (
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"
)

// A chooser is a component: a list of choices that fills the screen. Typing narrows it, Enter runs
// the choice at the cursor.
type chooser struct {
	*shared
	title string
	// note is shown below the title. It may be nil.
	note line
	// choices returns the choices. It is called again after each message, because they may change.
	choices func() []choice
	// keys act on the choice at the cursor, instead of narrowing the list.
	keys []chooserKey

	typed string
	shown []choice
	at    int
	top   int
}

// A choice is one line of a chooser.
type choice struct {
	// heading is set for a line that cannot be chosen.
	heading bool
	sign    span
	label   string
	// hint is shown at the right, such as a count or a key.
	hint string
	// id identifies the choice for keys.
	id string
	// run is called by Enter, after the chooser has closed. Nil means that Enter does nothing.
	run func() tea.Cmd
}

// A chooserKey is a key that acts on the choice at the cursor. Such a chooser does not narrow.
type chooserKey struct {
	key, name string
	run       func(id string) tea.Cmd
}

// tick returns the sign of a choice that is in effect, or room for it.
func (t *theme) tick(is bool) span {
	if is {
		return span{t.response, "✓ "}
	}
	return span{"", "  "}
}

func newChooser(s *shared, title string, choices func() []choice) *chooser {
	c := &chooser{shared: s, title: title, choices: choices}
	c.narrow()
	return c
}

// narrow lists the choices that contain all typed words.
func (c *chooser) narrow() {
	words := strings.Fields(strings.ToLower(c.typed))
	c.shown = c.shown[:0]
	for _, x := range c.choices() {
		text := strings.ToLower(x.label + " " + x.hint)
		all := true
		for _, w := range words {
			all = all && strings.Contains(text, w)
		}
		if all && (!x.heading || len(words) == 0) {
			c.shown = append(c.shown, x)
		}
	}
	c.at = min(c.at, max(0, len(c.shown)-1))
	c.skipHeading(1)
}

// skipHeading moves the cursor off a heading, in the direction d if possible.
func (c *chooser) skipHeading(d int) {
	for i := c.at; i >= 0 && i < len(c.shown); i += d {
		if !c.shown[i].heading {
			c.at = i
			return
		}
	}
	if d < 0 {
		c.skipHeading(1)
	}
}

func (c *chooser) move(n int) {
	d := 1
	if n < 0 {
		d = -1
	}
	c.at = min(max(0, c.at+n), max(0, len(c.shown)-1))
	c.skipHeading(d)
}

// current returns the choice at the cursor, or nil.
func (c *chooser) current() *choice {
	if c.at >= len(c.shown) || c.shown[c.at].heading {
		return nil
	}
	return &c.shown[c.at]
}

// Update handles a key other than Enter. It reports whether the chooser is done.
func (c *chooser) Update(k tea.KeyPressMsg) (cmd tea.Cmd, done bool) {
	name := k.String()
	if n := scrollStep(name, c.listHeight()); n != 0 && k.Text == "" {
		c.move(n)
		return nil, false
	}
	switch name {
	case "esc", "ctrl+c":
		return nil, true
	case "ctrl+n":
		c.move(1)
	case "home":
		c.move(-len(c.shown))
	case "end":
		c.at = max(0, len(c.shown)-1)
		c.skipHeading(-1)
	case "backspace":
		if r := []rune(c.typed); len(r) > 0 {
			c.typed = string(r[:len(r)-1])
			c.narrow()
		}
	default:
		return c.letter(k)
	}
	return nil, false
}

// letter handles all other keys: text narrows the list, and one of keys acts on the choice.
func (c *chooser) letter(k tea.KeyPressMsg) (tea.Cmd, bool) {
	if len(c.keys) == 0 {
		if k.Text != "" {
			c.typed += safe(k.Text)
			c.at = 0
			c.narrow()
		}
		return nil, false
	}
	for _, x := range c.keys {
		if x.key == k.String() {
			if at := c.current(); at != nil {
				return x.run(at.id), false
			}
		}
	}
	c.move(scrollStep(k.String(), c.listHeight()))
	return nil, k.String() == "q"
}

func (c *chooser) listHeight() int {
	n := c.height - 3
	if c.note != nil {
		n--
	}
	return max(1, n)
}

// View draws the chooser, without the last line of the screen.
func (c *chooser) View() string {
	t := c.theme
	lines := []string{line{{t.title.plus(bold), " " + c.title}}.drawOver(t.title, c.width)}
	if c.note != nil {
		lines = append(lines, append(line{{"", " "}}, c.note...).draw(c.width))
	}
	prompt := line{{t.key.plus(bold), " › "}, {t.text, c.typed}}
	if c.typed == "" {
		prompt = append(prompt, span{t.dim, "type to narrow the list"})
	}
	if len(c.keys) > 0 {
		prompt = nil
	}
	lines = append(lines, prompt.draw(c.width))
	height := c.listHeight()
	c.top = min(c.top, c.at)
	c.top = max(c.top, c.at-height+1, 0)
	for i := range height {
		lines = append(lines, c.line(c.top+i))
	}
	return strings.Join(lines[:min(len(lines), max(1, c.height-1))], "\n")
}

func (c *chooser) line(i int) string {
	t := c.theme
	switch {
	case i == 0 && len(c.shown) == 0:
		return line{{t.dim, "   nothing matches"}}.draw(c.width)
	case i >= len(c.shown):
		return line{}.draw(c.width)
	}
	x := &c.shown[i]
	if x.heading {
		return line{{t.head, " " + x.label}}.draw(c.width)
	}
	hint := cut(x.hint, max(0, c.width/2))
	room := max(1, c.width-width(hint)-width(x.sign.text)-6)
	l := line{{"", "   "}, x.sign, {t.text, pad(cut(x.label, room), room)}, {"", " "}, {t.dim, hint}}
	if i != c.at {
		return l.draw(c.width)
	}
	l[0].text = " ❯ "
	return l.drawOver(t.selected, c.width)
}

func (c *chooser) footer() line {
	pairs := []string{"Enter", "choose", "Esc", "back"}
	if len(c.keys) > 0 {
		pairs = nil
		for _, k := range c.keys {
			pairs = append(pairs, k.key, k.name)
		}
		pairs = append(pairs, "Esc", "back")
	}
	right := ""
	if n := len(c.shown); n > c.listHeight() {
		right = fmt.Sprintf("%d of %d", c.at+1, n)
	}
	return c.theme.footer(nil, pairs, right, c.width)
}
