package config

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestFormat checks that a formatted configuration is parsed as the same configuration.
func TestFormat(t *testing.T) {
	for name, text := range validFiles {
		t.Run(name, func(t *testing.T) {
			want, err := Parse("/dir/gateway.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			formatted, err := want.Format(nil)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Parse("/dir/gateway.yaml", formatted)
			if err != nil {
				t.Fatalf("%v in\n%s", err, formatted)
			}
			if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{})); diff != "" {
				t.Errorf("(-want +got):\n%s\nin\n%s", diff, formatted)
			}
		})
	}
}

func TestFormatComments(t *testing.T) {
	c := &Config{Upstreams: Upstreams{
		{Name: "files", Command: Texts{"npx", "-y", "server", "1.0", "yes"}, Env: Values{"API_KEY": {Reference: Reference{Env: "API_KEY"}}, "MODE": {Text: "true"}}},
		{Name: "web", URL: Value{Text: "https://x.example/mcp"}, Disabled: true, Limits: UpstreamLimits{Rate: 2.5, Burst: 5}},
	}}
	got, err := c.Format(map[string]string{"upstreams.web": "from cursor", "upstreams.files.env.API_KEY": "was in plain text"})
	if err != nil {
		t.Fatal(err)
	}
	want := `upstreams:
  files:
    command: [npx, -y, server, "1.0", yes]
    env:
      API_KEY: env:API_KEY # was in plain text
      MODE: "true"
  # from cursor
  web:
    url: https://x.example/mcp
    limits:
      rate: 2.5
      burst: 5
    disabled: true
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text, err := json.Marshal(c)
	wantJSON := `{"upstreams":{"files":{"command":["npx","-y","server","1.0","yes"],"env":{"API_KEY":"env:API_KEY","MODE":"true"}},"web":{"disabled":true,"limits":{"burst":5,"rate":2.5},"url":"https://x.example/mcp"}}}`
	if string(text) != wantJSON || err != nil {
		t.Errorf("JSON is %s, %v, want %s", text, err, wantJSON)
	}
}
