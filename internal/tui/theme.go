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
	text              style // of what matters
	dim               style // of what is beside it
	rule              style // lines between parts of the screen
	request           style // → and what goes well
	response          style // ←
	serverRequest     style // ⇠ of the server's
	failure           style // ✖
	toolFail          style // !
	notification      style // •
	stderr            style // ~ of the process
	finding           style // ▲
	pending           style // …
	mark              style
	bar               style // of the waterfall
	waiting           style // the part of a bar in which a human or the client was waited for
	title             style // the first line
	head              style // the heads of columns
	selected          style // the line of the cursor
	selectedBlurred   style // the line of the cursor, when the keys are elsewhere
	tab               style // the tab that is open
	match             style // what a search found
	key               style // keys in the help, names of members in JSON
	str               style // strings in JSON
	number            style
	invalid           style // the filter bar with a mistake
	added             style // what was added, in a difference
	selectedOverrides bool  // the style of the cursor's line replaces all others on it
}

// Colors says how many colours a terminal has.
type Colors uint8

// The numbers of colours that make a difference.
const (
	Colors256 Colors = iota // 256 or more
	Colors16                // those of the palette
	NoColor
)

// newTheme returns the theme for a terminal with a dark or a light background.
func newTheme(c Colors, dark bool) *theme {
	switch {
	case c == Colors16:
		return theme16()
	case c == NoColor:
		return themeMono()
	case dark:
		return theme256(palette{text: "252", dim: "245", rule: "239", blue: "75", green: "114", cyan: "80", red: "203", orange: "215", violet: "146", amber: "221",
			sel: "237", unsel: "235", back: "236"})
	}
	return theme256(palette{text: "235", dim: "243", rule: "250", blue: "25", green: "28", cyan: "30", red: "160", orange: "130", violet: "97", amber: "94",
		sel: "253", unsel: "255", back: "254"})
}

// themeMono uses what terminals without colour have.
func themeMono() *theme {
	return &theme{dim: faint, rule: faint, title: bold, head: underline, selected: reverse, selectedBlurred: bold, tab: reverse, match: reverse, invalid: reverse, selectedOverrides: true, mark: bold,
		waiting: faint, stderr: faint, failure: bold, toolFail: bold, finding: bold}
}

// theme16 uses the colours that every palette has. Yellow is not for text on a light background in most of them, so it stands for signs and short words only.
func theme16() *theme {
	t := themeMono()
	t.request, t.response, t.serverRequest, t.failure, t.toolFail, t.notification = "34", "32", "36", "31", "33", "35"
	t.finding, t.pending, t.mark, t.bar, t.key, t.str, t.number = "33", "36", "35;1", "34", "34", "32", "35"
	t.invalid, t.added, t.match = "41;37", "32", reverse
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
		text: fg(p.text), dim: fg(p.dim), rule: fg(p.rule), request: fg(p.blue), response: fg(p.green), serverRequest: fg(p.cyan), failure: fg(p.red), toolFail: fg(p.orange),
		notification: fg(p.violet), stderr: fg(p.dim), finding: fg(p.amber), pending: fg(p.cyan), mark: fg(p.orange).plus(bold), bar: fg(p.blue), waiting: fg(p.rule),
		title: fg(p.text).plus(bg(p.back)), head: fg(p.dim).plus(bold), selected: bg(p.sel), selectedBlurred: bg(p.unsel), tab: fg(p.text).plus(bg(p.sel)).plus(bold),
		match: reverse, key: fg(p.blue), str: fg(p.green), number: fg(p.violet), invalid: style("48;5;160;38;5;231"), added: fg(p.green),
	}
}
