package cli

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"mcpwire/internal/proxy/gateway"
)

// TestAdminTexts checks that a server cannot write to the terminal of an operator who reads
// /upstreamz.
func TestAdminTexts(t *testing.T) {
	const hostile = "x\x1b]0;owned\a \u009b31m \u202e \x7f"
	w := httptest.NewRecorder()
	writeAdminJSON(w, []gateway.UpstreamStatus{{Name: "up", Server: hostile, LastError: hostile}})
	for _, r := range w.Body.String() {
		if r < ' ' && r != '\n' || r >= 0x7f {
			t.Errorf("%U is not escaped in %q", r, w.Body)
			break
		}
	}
	var got []gateway.UpstreamStatus
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got[0].Server != hostile || got[0].LastError != hostile {
		t.Errorf("got %+v, %v", got, err)
	}
	if !strings.HasSuffix(w.Body.String(), "]\n") {
		t.Error("there is no line break at the end")
	}
	w = httptest.NewRecorder()
	writeAdminJSON(w, "sh -c 'a >&2 </x'")
	if got, want := w.Body.String(), "\"sh -c 'a >&2 </x'\"\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
