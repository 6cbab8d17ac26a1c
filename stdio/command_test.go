package stdio

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestCommandString(t *testing.T) {
	t.Parallel()
	tests := []struct {
		cmd  *Cmd
		want string
	}{
		{Command("/usr/bin/node", "server.js"), "node server.js"},
		{Command("node"), "node"},
		{Command("npx", "-y", "@scope/server", "--token=abc", "/dir"), "npx -y @scope/server …"},
		{Command("server", "--token=abc", "-v"), "server --token -v"},
		{Command("server", "-x", strings.Repeat("y", 100)), "server -x …"},
		{Command("docker", "run", "-e", "TOKEN=abc", "image"), "docker run …"},
	}
	for _, tt := range tests {
		if got := tt.cmd.String(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestCommandEnviron(t *testing.T) {
	t.Setenv("STDIO_TEST_A", "1")
	t.Setenv("STDIO_TEST_B", "2")
	t.Setenv("STDIO_SECRET", "3")
	ours := func(c *Cmd) string {
		var names []string
		for _, entry := range c.environ() {
			if strings.HasPrefix(entry, "STDIO_") {
				names = append(names, entry)
			}
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	if env := new(Cmd).environ(); env != nil {
		t.Errorf("the default is %q, want to inherit", env)
	}
	tests := []struct {
		name string
		cmd  Cmd
		want string
	}{
		{"added", Cmd{Env: []string{"STDIO_X=4"}}, "STDIO_SECRET=3 STDIO_TEST_A=1 STDIO_TEST_B=2 STDIO_X=4"},
		{"none", Cmd{EnvAllow: []string{}}, ""},
		{"allowed", Cmd{EnvAllow: []string{"STDIO_TEST_A"}, Env: []string{"STDIO_X=4"}}, "STDIO_TEST_A=1 STDIO_X=4"},
		{"prefix", Cmd{EnvAllow: []string{"STDIO_TEST_*"}}, "STDIO_TEST_A=1 STDIO_TEST_B=2"},
		{"no prefix", Cmd{EnvAllow: []string{"STDIO_TEST_"}}, ""},
		{"minimal", Cmd{EnvAllow: MinimalEnv()}, ""},
	}
	for _, tt := range tests {
		if got := ours(&tt.cmd); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	minimal := Cmd{EnvAllow: MinimalEnv()}
	if !slices.ContainsFunc(minimal.environ(), func(s string) bool { return strings.HasPrefix(strings.ToUpper(s), "PATH=") }) {
		t.Error("MinimalEnv does not pass PATH on")
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	_, err := Command("no-such-program-anywhere", "x").Start(t.Context())
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), `start "no-such-program-anywhere x"`) {
		t.Errorf("got %v", err)
	}
	c := helperCommand(t, "serve")
	c.Dir = "no such directory"
	if _, err := c.Start(t.Context()); err == nil {
		t.Error("started in a directory that does not exist")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := helperCommand(t, "serve").Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
