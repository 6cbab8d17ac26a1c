package tui

import (
	"path/filepath"
	"testing"

	"mcpwire/capture"
)

// load adds the events of a capture.
func (f *fakeSource) load(t *testing.T, name string) *fakeSource {
	t.Helper()
	r, err := capture.Open(filepath.Join("testdata", name), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for e, err := range r.Events() {
		if err != nil {
			t.Fatal(err)
		}
		e = e.Clone()
		f.heads[e.Capture] = r.Head()
		f.events[key(e.Capture, e.N)] = e
		f.model.Add(r.Head(), e)
	}
	return f
}

// TestBridge shows the capture of a real bridge: the call of a legacy client, whose modern server
// has sent an input request. It shows the two sides, before and after side by side if there is
// room, and the path between the sides.
func TestBridge(t *testing.T) {
	for _, size := range []struct {
		name string
		w, h int
	}{{"80x24", 80, 24}, {"140x60", 140, 60}} {
		for _, tt := range []struct {
			name string
			keys []string
		}{
			{"bridge", nil},
			{"translated", []string{"enter", "9", "z"}},
			{"other", []string{"o", "enter", "1"}},
			{"back", []string{"o", "o", "enter", "1"}},
		} {
			bubble(t, tt.name+"-"+size.name, func(t *testing.T) {
				d := drive(t, newFake().load(t, "bridge.mcpcap.ndjson"), &Options{Colors: NoColor}).size(size.w, size.h)
				if len(tt.keys) > 0 {
					d.keys("/").types("tool:test_elicitation").keys("enter", "g")
				}
				d.keys(tt.keys...)
				golden(t, tt.name+"-"+size.name, d.check().plain())
			})
		}
	}
}
