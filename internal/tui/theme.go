package tui

// A style is parameters of the SGR escape sequence; "" is the terminal's own.
type style string

// plus returns a style with another one on top of it.
func (s style) plus(t style) style {
	if s == "" || t == "" {
		return s + t
	}
	return s + ";" + t
}

const (
	bold      style = "1"
	faint     style = "2"
	underline style = "4"
	reverse   style = "7"
)

// A theme is the styles that everything on the screen is drawn in.
type theme struct {
	text     style // of what matters
	dim      style // of what is beside it
	rule     style // lines between parts of the screen
	request  style // → and what goes well
	response style // ←
	asked    style // ⇠ of the server's
	fail     style // ✖
	toolFail style // !
	note     style // •
	stray    style // ~ of the process
	lint     style // ▲
	pending  style // …
	mark     style
	bar      style // of the waterfall
	wait     style // the part of a bar in which a human or the client was waited for
	title    style // the first line
	head     style // the heads of columns
	selected style // the line of the cursor
	unfocus  style // the line of the cursor, when the keys are elsewhere
	tab      style // the tab that is open
	match    style // what a search found
	key      style // keys in the help, names of members in JSON
	str      style // strings in JSON
	number   style
	wrong    style // the filter bar with a mistake
	good     style // what was added, in a difference
	selTakes bool  // the style of the cursor's line replaces all others on it
}

// Colours says how many colours a terminal has.
type Colours uint8

// The numbers of colours that make a difference.
const (
	Many    Colours = iota // 256 or more
	Sixteen                // those of the palette
	None
)

// newTheme returns the theme for a terminal with a dark or a light background.
func newTheme(c Colours, dark bool) *theme {
	switch {
	case c == Sixteen:
		return theme16()
	case c == None:
		return themePlain()
	case dark:
		return theme256(palette{text: "252", dim: "245", rule: "239", blue: "75", green: "114", cyan: "80", red: "203", orange: "215", violet: "146", amber: "221",
			sel: "237", unsel: "235", back: "236"})
	}
	return theme256(palette{text: "235", dim: "243", rule: "250", blue: "25", green: "28", cyan: "30", red: "160", orange: "130", violet: "97", amber: "94",
		sel: "253", unsel: "255", back: "254"})
}

// themePlain uses what terminals without colour have.
func themePlain() *theme {
	return &theme{dim: faint, rule: faint, title: bold, head: underline, selected: reverse, unfocus: bold, tab: reverse, match: reverse, wrong: reverse, selTakes: true, mark: bold,
		wait: faint, stray: faint, fail: bold, toolFail: bold, lint: bold}
}

// theme16 uses the colours that every palette has. Yellow is not for text on a light background in most of them, so it stands for signs and short words only.
func theme16() *theme {
	t := themePlain()
	t.request, t.response, t.asked, t.fail, t.toolFail, t.note = "34", "32", "36", "31", "33", "35"
	t.lint, t.pending, t.mark, t.bar, t.key, t.str, t.number = "33", "36", "35;1", "34", "34", "32", "35"
	t.wrong, t.good, t.match = "41;37", "32", reverse
	return t
}

// A palette is the numbers of colours in the table of 256.
type palette struct {
	text, dim, rule, blue, green, cyan, red, orange, violet, amber string
	sel, unsel, back                                               string
}

func theme256(p palette) *theme {
	fg := func(c string) style { return style("38;5;" + c) }
	bg := func(c string) style { return style("48;5;" + c) }
	return &theme{
		text: fg(p.text), dim: fg(p.dim), rule: fg(p.rule), request: fg(p.blue), response: fg(p.green), asked: fg(p.cyan), fail: fg(p.red), toolFail: fg(p.orange),
		note: fg(p.violet), stray: fg(p.dim), lint: fg(p.amber), pending: fg(p.cyan), mark: fg(p.orange).plus(bold), bar: fg(p.blue), wait: fg(p.rule),
		title: fg(p.text).plus(bg(p.back)), head: fg(p.dim).plus(bold), selected: bg(p.sel), unfocus: bg(p.unsel), tab: fg(p.text).plus(bg(p.sel)).plus(bold),
		match: reverse, key: fg(p.blue), str: fg(p.green), number: fg(p.violet), wrong: style("48;5;160;38;5;231"), good: fg(p.green),
	}
}
