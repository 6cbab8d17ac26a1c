package tui

import (
	"bytes"
	"encoding/json"
	"time"

	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/printable"
)

// maxEdit limits the size of an edited message, in bytes.
const maxEdit = 1 << 20

// An editor is a component: it edits a message on the screen, for users without $EDITOR.
type editor struct {
	*shared
	area  textarea.Model
	about string
	// done is called with the edited text.
	done func(text []byte) tea.Cmd
	// keep lets a held message wait while the user types, and left says how long it is held. Both
	// are nil for other messages.
	keep func() tea.Cmd
	left func() string
	// typed and kept are when the user typed last, and when keep was called last.
	typed, kept time.Time
}

func newEditor(s *shared, message []byte, about string, done func(text []byte) tea.Cmd) (*editor, tea.Cmd) {
	e := &editor{shared: s, area: textarea.New(), about: about, done: done}
	e.area.CharLimit, e.area.MaxHeight = 2*maxEdit, 0
	e.area.ShowLineNumbers = false // without a line limit they are misaligned
	e.area.Prompt = ""
	e.area.SetVirtualCursor(false)
	e.area.SetStyles(textarea.DefaultStyles(s.dark))
	e.area.SetValue(editable(message))
	e.area.MoveToBegin()
	e.fit()
	return e, e.area.Focus()
}

func (e *editor) fit() {
	e.area.SetWidth(max(4, e.width))
	e.area.SetHeight(max(1, e.height-2))
}

// Update edits the message.
func (e *editor) Update(msg tea.Msg) tea.Cmd {
	if _, ok := msg.(tea.WindowSizeMsg); ok {
		e.fit()
		return nil
	}
	var cmd tea.Cmd
	e.area, cmd = e.area.Update(msg)
	return cmd
}

// typing is how long after a key a message counts as being edited. Meanwhile its tap is asked to
// hold it for the whole time again, every keepInterval.
const (
	typing       = 5 * time.Second
	keepInterval = typing / 2
)

// key handles a key of the text.
func (e *editor) key(k tea.KeyPressMsg) tea.Cmd {
	cmd := e.Update(k)
	if e.typed = e.now(); e.keep != nil && e.typed.Sub(e.kept) >= keepInterval {
		e.kept = e.typed
		return tea.Batch(cmd, e.keep())
	}
	return cmd
}

func (e *editor) cursor() *tea.Cursor {
	c := e.area.Cursor()
	if c != nil {
		c.Y++
	}
	return c
}

// View draws the editor.
func (e *editor) View() string {
	title := line{{bold, " Edit and send"}, {e.theme.dim, "  " + e.about}}
	switch {
	case e.keep == nil:
	case e.now().Sub(e.typed) < typing:
		title = append(title, span{bold, "  waits while you type"})
	default:
		title = append(title, span{bold, "  " + e.left()})
	}
	return title.drawOver(e.theme.title, e.width) + "\n" + e.area.View() + "\n" + e.theme.hints("Ctrl+S", "send", "Esc", "leave it").draw(e.width)
}

// maxPretty is the nesting up to which JSON is indented. Deeper JSON would be mostly indentation.
const maxPretty = 64

// editable formats a message for editing. It has the same value, with all invisible characters
// escaped.
func editable(message []byte) string {
	text := printable.JSON(message)
	var b bytes.Buffer
	if jsonwire.Valid(text, maxPretty) == nil && json.Indent(&b, text, "", "  ") == nil {
		return b.String()
	}
	return printable.Text(string(text))
}
