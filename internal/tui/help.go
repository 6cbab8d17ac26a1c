package tui

// helpLines are the keys with what they do.
func (m *model) helpLines() []line {
	t := m.theme
	var out []line
	for _, g := range helpKeys() {
		out = append(out, line{{t.head, g.title}})
		for _, k := range g.keys {
			out = append(out, line{{t.key, "  " + pad(k[0], 11)}, {t.text, k[1]}})
		}
		out = append(out, nil)
	}
	return append(append(append(out, m.helpSigns()...), nil), m.helpFilters()...)
}

// A helpGroup is keys of one purpose.
type helpGroup struct {
	title string
	keys  [][2]string
}

func helpKeys() []helpGroup {
	return []helpGroup{
		{"Moving", [][2]string{
			{"j k ↑ ↓", "a line; PgUp PgDn a page, Ctrl+U Ctrl+D half of one"},
			{"g G", "the beginning, the end"},
			{"f", "follow: stay on the newest"},
			{"p", "pause: nothing moves, nothing is lost"},
			{"n N", "the next row with an error or a finding, the one before; in a text the next match"},
			{"space ← →", "unfold what is inside a row, fold it; * all rows"},
		}},
		{"Looking", [][2]string{
			{"Enter", "open a row; again, or z: in full size"},
			{"1 … 9", "tabs; ← → the one beside. Tab goes between table and detail, J K to other rows"},
			{"Esc", "back: closes the detail, ends a pause, takes the filter away"},
			{"/", "filter; in a detail: search"},
			{"l", "only rows with findings"},
			{"x", "exchanges, or frames: every event on its own"},
			{"t", "time: clock, since the start, since the line above"},
			{"o", "the other side of what a bridge has forwarded, and back"},
			{"b", "bytes as text or as hexadecimal digits"},
			{"W", "wrap long lines of a text, or cut them"},
			{"c", "the session: versions, capabilities of both sides, process"},
			{"s", "tools: calls, errors, p50 and p95, latency as a picture"},
		}},
		{"Doing", [][2]string{
			{"m d", "mark a row; compare two marked rows"},
			{"y", "copy the payload that is shown, or the request of a row in the table"},
			{"Y", "copy as a command: mcpwire call; once more, or in the HTTP tab: curl"},
			{"r", "send a request again, to a fresh copy of the server"},
			{"E", "edit it first"},
			{"e", "save what is shown: as a capture, or as text if the name ends in .txt"},
			{"w", "restart the server, if its tap can"},
			{"q", "leave"},
		}},
	}
}

func (m *model) helpSigns() []line {
	t := m.theme
	out := []line{{{t.head, "Signs"}}}
	for _, s := range []struct {
		st         style
		sign, text string
	}{
		{t.request, "→", "a request that was answered"}, {t.serverRequest, "⇠", "a request of the server's"}, {t.failure, "✖", "an error, or no answer"},
		{t.toolFail, "!", "the tool says that it failed"}, {t.pending, "…", "no answer yet; ? it waits for the user"}, {t.notification, "•", "a notification; something else that happened"},
		{t.finding, "▲", "a finding of the rules; what is no message"}, {t.stderr, "~", "what the process wrote to standard error"}, {t.finding, "▒", "events are missing; ⊘ cancelled"},
		{t.bar, "█", "in the waterfall: the server works, ▒ waits for the client, ━ a task, ─ a stream, › goes on"},
	} {
		out = append(out, line{{s.st, "  " + pad(s.sign, 11)}, {t.text, s.text}})
	}
	return out
}

func (m *model) helpFilters() []line {
	t := m.theme
	out := []line{{{t.head, "Filters"}}}
	for _, f := range [][2]string{
		{"tool:search", "also target method id task dir kind status server session era rev lint"},
		{"status:error", "ok error iserror input_required task cancelled pending unanswered http, or a code"},
		{"dur>500ms size>1MB", "took longer, is larger"},
		{"words \"two words\"", "in payloads; /regular expression/ as well"},
		{"has:_meta.x jq:(…)", "a member, a jq program"},
		{"-a  a | b  (a b)", "not, or, groups"},
	} {
		out = append(out, line{{t.key, "  " + pad(f[0], 20)}, {t.text, f[1]}})
	}
	return out
}
