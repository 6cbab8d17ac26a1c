package tui

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"mcpwire/capture"
	"mcpwire/cmd/internal/trace"
	"mcpwire/cmd/internal/trace/live"
	"mcpwire/cmd/internal/view/watch"
	"mcpwire/internal/base/wait"
)

// A heldRef is a message that a tap holds.
type heldRef struct {
	source  watch.Source
	message live.HeldMessage
}

// id identifies the message among those of all taps.
func (h *heldRef) id() string { return h.source.ID + "/" + strconv.FormatUint(h.message.ID, 10) }

func (s *shared) held() (list []heldRef) {
	for _, src := range s.sources {
		if src.Intercepted == nil {
			continue
		}
		for _, x := range src.Intercepted.Messages {
			list = append(list, heldRef{src, x})
		}
	}
	return list
}

func (h *heldRef) text() string {
	what := trace.Join(" ", safe(h.message.Method), safe(h.message.Target))
	if what == "" {
		what = "a frame"
	}
	if h.message.Response {
		what = "response to " + what
	}
	to := "the server"
	if h.message.Dir == capture.ToClient {
		to = "the client"
	}
	return what + " to " + to + " of " + safe(h.source.Name)
}

// left returns when the message will be passed on.
func (h *heldRef) left(now time.Time) string {
	return fmt.Sprintf("%d s left", max(0, (h.message.Until-now.UnixMilli()+999)/1000))
}

func (m *model) heldBar() string {
	list := m.held()
	if len(list) == 0 {
		return ""
	}
	l := line{{bold, " ‖ held: "}, {"", list[0].text() + "  " + list[0].left(m.now())}}
	if n := len(list) - 1; n > 0 {
		l = append(l, span{"", fmt.Sprintf("  and %d more", n)})
	}
	return append(l, span{bold, "  i"}, span{"", " decides"}).drawOver(m.theme.invalid, m.width)
}

// openHeld lists the held messages, with the keys that decide about them.
func (m *model) openHeld() {
	if len(m.held()) == 0 {
		if !slices.ContainsFunc(m.sources, func(s watch.Source) bool { return s.Intercepted != nil }) {
			m.showFlash(false, "no tap holds messages: start one with mcpwire tap --intercept FILTER -- COMMAND")
			return
		}
		m.showFlash(false, "no message is held now")
		return
	}
	c := newChooser(m.shared, "Held messages", func() []choice {
		var list []choice
		for _, h := range m.held() {
			list = append(list, choice{sign: span{m.theme.finding, "‖ "}, label: h.text(), hint: h.left(m.now()), id: h.id()})
		}
		return list
	})
	c.note = line{{m.theme.dim, "Later messages of the same direction, or on HTTP of the same stream, wait behind a held one."}}
	act := func(key, name string, run func(h heldRef) tea.Cmd) {
		c.keys = append(c.keys, chooserKey{key, name, func(id string) tea.Cmd {
			for _, h := range m.held() {
				if h.id() == id {
					return run(h)
				}
			}
			return nil
		}})
	}
	act("p", "pass", func(h heldRef) tea.Cmd { return m.decide(h, live.Decision{Action: live.Pass}) })
	act("R", "pass, hold the response", func(h heldRef) tea.Cmd {
		return m.decide(h, live.Decision{Action: live.Pass, HoldResponse: true})
	})
	act("e", "edit", func(h heldRef) tea.Cmd { return m.editHeld(h, live.Edit, h.message.Data) })
	act("d", "drop", func(h heldRef) tea.Cmd { return m.decide(h, live.Decision{Action: live.Drop}) })
	act("w", "delay 5 s", func(h heldRef) tea.Cmd {
		return m.decide(h, live.Decision{Action: live.Delay, DelayMS: 5000})
	})
	act("a", "answer", func(h heldRef) tea.Cmd {
		return m.editHeld(h, live.Answer, `{"jsonrpc":"2.0","id":`+h.message.RequestID+`,"result":{}}`)
	})
	act("f", "filter", func(h heldRef) tea.Cmd {
		p := newPrompt(m.shared, "hold what matches", h.source.Intercepted.Filter)
		p.accepted = func(text string) tea.Cmd { return m.decide(h, live.Decision{Filter: &text}) }
		m.dialogs.prompt = p
		return nil
	})
	m.dialogs.chooser = c
}

// decide sends a decision to the tap that holds a message.
func (m *model) decide(h heldRef, d live.Decision) tea.Cmd {
	if d.Filter == nil {
		d.ID = h.message.ID
	}
	src, id := m.src, h.source.ID
	return m.background.cmd(10*time.Second, func(ctx context.Context) tea.Msg {
		if err := src.Decide(ctx, id, &d); err != nil {
			return m.result(err, "")
		}
		return changedMsg{sources: true}
	})
}

// maxKept limits the time for which a message is held because a program of the user edits it.
const maxKept = time.Hour

// editHeld opens an editor for a held message, or for the answer to it. The message waits while the
// user types, or while another program edits it.
func (m *model) editHeld(h heldRef, action live.Action, text string) tea.Cmd {
	if text == "" || action == live.Answer && h.message.RequestID == "" {
		m.showFlash(true, "this message cannot be edited or answered")
		return nil
	}
	cmd := m.resender.editText([]byte(text), h.text(), func(edited []byte) tea.Cmd {
		return m.decide(h, live.Decision{Action: action, Data: strings.TrimSpace(string(edited))})
	})
	keep := live.Decision{ID: h.message.ID, Action: live.Keep}
	if e := m.dialogs.editor; e != nil {
		e.keep = func() tea.Cmd { return m.decide(h, keep) }
		e.left = func() string {
			for _, x := range m.held() {
				if x.id() == h.id() {
					return x.left(m.now())
				}
			}
			return "no longer held"
		}
		return cmd
	}
	editing, end := context.WithCancel(context.Background())
	m.resender.ended = end
	src, id := m.src, h.source.ID
	return tea.Batch(cmd, m.background.cmd(maxKept, func(ctx context.Context) tea.Msg {
		defer context.AfterFunc(ctx, end)()
		for wait.Sleep(editing, keepInterval) && src.Decide(ctx, id, &keep) == nil {
		}
		return nil
	}))
}
