package config

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSecrets(t *testing.T) {
	first, second := strings.Repeat("ab", 16), strings.Repeat("cde", 20)
	for _, tt := range []struct {
		name, file, variable string
		want                 [][]byte
		err                  string
	}{
		{"two", base64.StdEncoding.EncodeToString([]byte(first)) + "\n", base64.StdEncoding.EncodeToString([]byte(second)), [][]byte{[]byte(first), []byte(second)}, ""},
		{"short", base64.StdEncoding.EncodeToString([]byte(first)), "YWJj", nil, "keys[1]: want 32 random bytes or more in base64"},
		{"not base64", first + "!", first, nil, "keys[0]: want 32 random bytes or more in base64"},
		{"empty", "", first, nil, "keys[0]: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range map[string]string{"key": tt.file, "g.yaml": "keys: [file:key, env:TEST_KEY]\nupstreams: {a: {url: 'http://127.0.0.1:1/'}}\n"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Setenv("TEST_KEY", tt.variable)
			c, err := Load(filepath.Join(dir, "g.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := c.Secrets()
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("got error %v, want %q", err, tt.err)
			}
			if found := c.Check(); len(found) > 0 != (tt.err != "") {
				t.Errorf("Check = %v", found)
			}
		})
	}
}
