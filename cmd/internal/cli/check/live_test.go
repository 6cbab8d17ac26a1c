package check

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCommandFile(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(filepath.Join("build", "node"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"server.py", filepath.Join("build", "index.js")} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	outside, err := filepath.Abs("server.py")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		dir     string
		command []string
		want    string
	}{
		{"", []string{"node", "build/index.js", "server.py"}, filepath.Join("build", "index.js")},
		{"", []string{"bash", "-c", "exec python3 ./server.py --stdio"}, "server.py"},
		{"build", []string{"node", "index.js"}, filepath.Join("build", "index.js")},
		{"build", []string{"python3", "../server.py"}, "server.py"},
		{"", []string{"python3", outside}, ""},
		{"", []string{"build"}, ""},
		{"", []string{"npx", "-y", "server"}, ""},
		{"", nil, ""},
	} {
		if got := commandFile(tt.dir, tt.command); got != tt.want {
			t.Errorf("commandFile(%q, %q) = %q, want %q", tt.dir, tt.command, got, tt.want)
		}
	}
}
