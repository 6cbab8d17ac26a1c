package trace

import "mcpwire/capture"

// Glyph returns the sign for a row, one column wide, so that colour is never all that tells.
func Glyph(r *Row) string {
	switch r.Kind {
	case Request, HTTP:
		switch r.Status {
		case Failed, HTTPFailed, Unanswered:
			return "✖"
		case ToolFailed:
			return "!"
		case Canceled:
			return "⊘"
		case InputRequired:
			return "?"
		case Pending, TaskCreated:
			return "…"
		}
		if r.Dir == capture.ToClient {
			return "⇠"
		}
		return "→"
	case Stderr:
		return "~"
	case Stdout, Invalid, Response:
		return "▲"
	case Start:
		return "+"
	case Exit, EOF:
		return "-"
	case Gap:
		return "▒"
	}
	return "•"
}
