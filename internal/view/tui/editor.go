package tui

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"charm.land/bubbles/v2/textarea"
	tea "charm.land/bubbletea/v2"

	"mcpwire/internal/proc/batchfile"
	"mcpwire/internal/text/printable"
	"mcpwire/internal/trace"
)

// maxEdit limits the size of an edited message, in bytes.
const maxEdit = 1 << 20

// An editor edits a message on the screen, for users without $EDITOR.
type editor struct {
	area    textarea.Model
	request *resendRequest
}

// editedMsg is sent when an editor has ended.
type editedMsg struct {
	request *resendRequest
	text    []byte
	err     error
}

// edit opens an editor for a message: $VISUAL, $EDITOR or the built-in one.
func (m *model) edit(s *resendRequest) tea.Cmd {
	if len(s.message) > maxEdit {
		m.showFlash(true, "%s are too large to edit here", trace.FormatSize(int64(len(s.message))))
		return nil
	}
	text := editable(s.message)
	command := m.getenv("VISUAL")
	if command == "" {
		command = m.getenv("EDITOR")
	}
	if words := strings.Fields(command); len(words) > 0 {
		return m.externalEditor(words, text, s)
	}
	area := textarea.New()
	area.CharLimit, area.MaxHeight = 2*maxEdit, 0
	area.ShowLineNumbers = false // without a line limit they are misaligned
	area.Prompt = ""
	area.SetVirtualCursor(false)
	area.SetStyles(textarea.DefaultStyles(m.dark))
	area.SetValue(text)
	area.MoveToBegin()
	m.editor = &editor{area, s}
	m.editor.resize(m.width, m.height)
	return m.editor.area.Focus()
}

// maxPretty is the nesting up to which JSON is indented. Deeper JSON would be mostly indentation.
const maxPretty = 64

// editable formats a message for editing. It has the same value, with all invisible characters
// escaped.
func editable(message []byte) string {
	text := printable.JSON(message)
	if nesting(text) <= maxPretty && json.Valid(text) {
		var b bytes.Buffer
		if json.Indent(&b, text, "", "  ") == nil {
			return b.String()
		}
	}
	return printable.Text(string(text))
}

// nesting returns the nesting depth of JSON.
func nesting(text []byte) (most int) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			most = max(most, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return most
}

// externalEditor runs the user's editor on a file that only the user can read.
func (m *model) externalEditor(words []string, text string, s *resendRequest) tea.Cmd {
	dir, err := os.MkdirTemp("", "mcpwire-edit-")
	if err != nil {
		m.showFlash(true, "%v", err)
		return nil
	}
	name := filepath.Join(dir, "message.json")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		os.RemoveAll(dir)
		m.showFlash(true, "%v", err)
		return nil
	}
	c := exec.Command(words[0], append(words[1:len(words):len(words)], name)...)
	if err := batchfile.Prepare(c); err != nil {
		os.RemoveAll(dir)
		m.showFlash(true, "the editor: %v", err)
		return nil
	}
	return tea.ExecProcess(c, func(err error) tea.Msg {
		defer os.RemoveAll(dir)
		if err != nil {
			return editedMsg{err: err}
		}
		data, err := os.ReadFile(name)
		return editedMsg{s, data, err}
	})
}

// gotEdited asks whether to send the edited message.
func (m *model) gotEdited(msg editedMsg) tea.Cmd {
	if msg.err != nil {
		m.showFlash(true, "the editor: %v", msg.err)
		return nil
	}
	again := *msg.request
	again.message = []byte(strings.TrimSpace(string(msg.text)))
	if len(again.message) == 0 {
		m.showFlash(false, "nothing was sent")
		return nil
	}
	if !json.Valid(again.message) {
		m.showFlash(true, "it is no longer JSON; nothing was sent (mcpwire send --raw sends anything)")
		return nil
	}
	again.origin.Redacted, again.origin.MoreRedacted = nil, 0 // the user has seen the placeholders
	m.confirmResend(&again)
	return nil
}

// editorKey handles a key in the built-in editor.
func (m *model) editorKey(k tea.KeyPressMsg) tea.Cmd {
	e := m.editor
	switch k.String() {
	case "esc":
		m.editor = nil
		m.showFlash(false, "nothing was sent")
		return nil
	case "ctrl+s", "ctrl+enter":
		m.editor = nil
		return m.gotEdited(editedMsg{request: e.request, text: []byte(e.area.Value())})
	}
	return e.update(k)
}

func (e *editor) update(msg tea.Msg) tea.Cmd {
	var cmd tea.Cmd
	e.area, cmd = e.area.Update(msg)
	return cmd
}

func (e *editor) resize(columns, lines int) {
	e.area.SetWidth(max(4, columns))
	e.area.SetHeight(max(1, lines-2))
}

// cursor returns the position of the terminal's cursor.
func (e *editor) cursor() *tea.Cursor {
	c := e.area.Cursor()
	if c != nil {
		c.Y++
	}
	return c
}

// screen draws the editor.
func (e *editor) screen(m *model) string {
	var top, bottom strings.Builder
	line{{bold, " Edit and send"}, {m.theme.dim, "  to a fresh copy of " + safe(e.request.origin.Name)}}.appendTo(&top, m.width, m.theme.title, false)
	m.hints("Ctrl+S", "send", "Esc", "leave it").appendTo(&bottom, m.width, "", false)
	return top.String() + "\n" + e.area.View() + "\n" + bottom.String()
}
