package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"mcpwire/cmd/internal/cli/kit"
)

// TestHelp checks the help of every command: it fits into 80 columns with its examples, has
// examples that name the command, and lists the flags that select a server separately. What --help
// prints fits on a screen, and has all flags of the command.
func TestHelp(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.Parent() != nil && !strings.Contains(c.Example, "mcpwire ") {
			t.Errorf("%s: no example", c.CommandPath())
		}
		var b bytes.Buffer
		if err := writeFullHelp(&b, c); err != nil {
			t.Fatal(err)
		}
		short := new(strings.Builder)
		if err := writeHelp(short, c); err != nil {
			t.Fatal(err)
		}
		own, _ := flagGroups(c)
		flagCount := 0
		own.VisitAll(func(f *pflag.Flag) {
			flagCount++
			if !f.Hidden && !strings.Contains(short.String(), " --"+f.Name) {
				t.Errorf("%s: --help does not have --%s", c.CommandPath(), f.Name)
			}
		})
		if n := strings.Count(short.String(), "\n"); c.HasParent() && n > max(helpScreen, 30+flagCount) {
			t.Errorf("%s: --help has %d lines with %d flags", c.CommandPath(), n, flagCount)
		}
		for line := range strings.Lines(b.String()) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > kit.HelpWidth {
				t.Errorf("%s: %d columns: %s", c.CommandPath(), n, line)
			}
		}
		for line := range strings.Lines(c.Example) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "mcpwire") && !strings.HasPrefix(line, c.CommandPath()) {
				t.Errorf("%s: an example of another command: %s", c.CommandPath(), line)
			}
		}
		flags, target, grouped := strings.Cut(b.String(), "\nTarget flags, which mcpwire help targets describes:\n")
		if c.Flags().Lookup("header") != nil != grouped {
			t.Errorf("%s: group of target flags: %t", c.CommandPath(), grouped)
		}
		if grouped && (strings.Contains(flags, "--connect-timeout ") || !strings.Contains(target, "--connect-timeout") || strings.Contains(target, "--help") || strings.Contains(target, "--json")) {
			t.Errorf("%s: flags in the wrong group:\n%s", c.CommandPath(), b.String())
		}
	}
	walk(newRoot(&kit.Env{}, nil))
	var b bytes.Buffer
	if err := writeTargetHelp(&b); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "--connect-timeout duration ") || !strings.Contains(b.String(), "HOST:NAME") {
		t.Errorf("help targets:\n%s", b.String())
	}
}

// TestShortHelp checks what --help omits: no flag ends in the first of several values, no paragraph
// in a colon, and a command with subcommands shows its own usage.
func TestShortHelp(t *testing.T) {
	for _, tt := range []struct{ command, want string }{
		{"check", "      --format FORMAT       FORMAT of the findings: text, json, junit, sarif …\n"},
		{"check", "      --fail-on SEVERITY    lowest SEVERITY for exit status 6: error …\n"},
		{"mock", "      --loose             if no params match, use a recorded request for the …\n"},
		{"call", "  -o, --output FILE      write images, audio and other data to FILE, or the …\n"},
		{"diff", "response times.\n\nUsage: "},
		{"export", "Convert captures to the formats of other tools.\n\nUsage: "},
		{"gateway", "Usage: mcpwire gateway [FLAGS] FILE |"},
	} {
		c, _, err := newRoot(&kit.Env{}, []string{tt.command}).Find([]string{tt.command})
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		if err := writeHelp(&b, c); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), tt.want) {
			t.Errorf("%s --help lacks %q:\n%s", tt.command, tt.want, b.String())
		}
	}
}

// TestCommandsFor checks that a command line which begins with a command needs that command only.
func TestCommandsFor(t *testing.T) {
	for _, c := range commands() {
		var got []string
		for _, sub := range newRoot(&kit.Env{}, []string{c.name, "--json"}).Commands() {
			got = append(got, sub.Name())
		}
		if diff := cmp.Diff([]string{c.name}, got); diff != "" {
			t.Errorf("%s: commands (-want +got):\n%s", c.name, diff)
		}
	}
	for _, args := range [][]string{nil, {"help", "tap"}, {"--errors", "json", "tap"}, {"tpa"}, {"__complete", "ta"}, {"man", "."}} {
		if got := commandsFor(args); len(got) != len(commands()) {
			t.Errorf("%q: got %d commands, want all %d", args, len(got), len(commands()))
		}
	}
}

func TestSimilarFlag(t *testing.T) {
	c, _, err := newRoot(&kit.Env{}, nil).Find([]string{"call"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, want string }{
		{"--tmeout", ": did you mean --timeout?"},
		{"--jsno", ": did you mean --json?"},
		{"--colour", ""},
		{"-x", ""},
	} {
		if got := kit.SimilarFlag(c, tt.name); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
