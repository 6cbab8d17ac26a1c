package targets

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/cmd/internal/cli/kit"
)

func TestConfirmBrowser(t *testing.T) {
	const address = "https://victim.example/transfer?amount=1000&client_id=c1"
	for _, tt := range []struct {
		name, answer string
		err          error
		opened       string
		fails        bool
	}{
		{"Enter", "", nil, address, false},
		{"no", "no", nil, "", true},
		{"the end of input", "", io.EOF, "", true},
		{"the response has arrived", "", context.Canceled, "", true},
	} {
		var prompt, opened string
		var out bytes.Buffer
		browse := AskFirst(&out, func(_ context.Context, text string) (string, error) {
			if opened != "" {
				t.Errorf("%s: opened before the prompt", tt.name)
			}
			prompt = text
			return tt.answer, tt.err
		}, func(_ context.Context, u string) error {
			opened = u
			return nil
		})
		err := browse(t.Context(), address)
		if opened != tt.opened || (err != nil) != tt.fails || tt.err != nil && !errors.Is(err, tt.err) {
			t.Errorf("%s: opens %q, %v; want %q", tt.name, opened, err, tt.opened)
		}
		if said := strings.Contains(out.String(), "The browser could not be opened"); said != tt.fails {
			t.Errorf("%s: it says %q", tt.name, out.String())
		}
		if !strings.Contains(prompt, "Press Enter") {
			t.Errorf("%s: the prompt is %q", tt.name, prompt)
		}
	}
}

func TestShowLogin(t *testing.T) {
	var out bytes.Buffer
	new(HTTPSide).showLogin(&kit.Env{Stderr: &out}, "https://user@mcp.example:8443/mcp?key=1")("https://evil.example/\u202e?amount=1&client_id=c")
	want := `The server requires a login. Log in with the browser at this address:
  server                https://mcp.example:8443
  authorization server  https://evil.example
  https://evil.example/\u202e?amount=1&client_id=c
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
