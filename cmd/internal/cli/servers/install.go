package servers

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/exit"
	"mcpwire/cmd/internal/inspect/hosts"
	"mcpwire/internal/text/printable"
)

// An installation adds the server of the mcp command to a host.
type installation struct {
	name, command               string
	dryRun                      bool
	allowCalls, allowUnredacted bool
}

// NewInstallCommand returns the command install.
func NewInstallCommand(e *kit.Env) *cobra.Command {
	in := &installation{}
	c := &cobra.Command{
		Use:   "install mcp HOST [FLAGS]",
		Short: "add mcpwire's own MCP server to a host",
		Long: `Add the server of mcpwire mcp to the user's configuration of a host, so that its
agent can read captures and check servers. Everything else in the file stays as
it is, and a backup is made. Restart the host afterwards. mcpwire uninstall
removes the entry.

` + hostsHelp,
		Example: `  mcpwire install mcp cursor --dry-run
  mcpwire install mcp claude-code --allow-calls`,
		ValidArgsFunction: completeInstall,
		Args:              installArguments("install"),
		RunE:              func(_ *cobra.Command, args []string) error { return in.run(e, args[1]) },
	}
	c.Flags().StringVar(&in.name, "name", "mcpwire", "`NAME` of the entry")
	c.Flags().StringVar(&in.command, "command", "", "`PROGRAM` to write for mcpwire (default this program's path)")
	c.Flags().BoolVarP(&in.dryRun, "dry-run", "n", false, "only print what would change")
	c.Flags().BoolVar(&in.allowCalls, "allow-calls", false, "give the entry the flag --allow-calls")
	c.Flags().BoolVar(&in.allowUnredacted, "allow-unredacted", false, "give the entry the flag --allow-unredacted")
	return c
}

// NewUninstallCommand returns the command that undoes install.
func NewUninstallCommand(e *kit.Env) *cobra.Command {
	in := &installation{}
	c := &cobra.Command{
		Use:   "uninstall mcp HOST [FLAGS]",
		Short: "remove mcpwire's own MCP server from a host",
		Long: `Remove the server that mcpwire install has added to the user's configuration of a
host. Everything else in the file stays as it is, and a backup is made. Restart
the host afterwards.

` + hostsHelp,
		Example: `  mcpwire uninstall mcp cursor --dry-run
  mcpwire uninstall mcp cursor`,
		ValidArgsFunction: completeInstall,
		Args:              installArguments("uninstall"),
		RunE:              func(_ *cobra.Command, args []string) error { return in.remove(e, args[1]) },
	}
	c.Flags().StringVar(&in.name, "name", "mcpwire", "`NAME` of the entry")
	c.Flags().BoolVarP(&in.dryRun, "dry-run", "n", false, "only print what would change")
	return c
}

// hostsHelp names the hosts that hosts.Names returns.
const hostsHelp = `HOST is claude-desktop, claude-code, cursor, vscode, vscode-insiders, windsurf,
codex, cline, roo, kilo, gemini, opencode, zed, amp, kiro, lm-studio,
copilot-cli, antigravity, fx, grok, junie, kimi, mastra or pi. The file of goose
is YAML, which mcpwire only reads.`

func completeInstall(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return []string{"mcp"}, cobra.ShellCompDirectiveNoFileComp
	case 1:
		return CompleteHosts(cmd, args, prefix)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// installArguments checks the arguments of install and uninstall.
func installArguments(command string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 2 || args[0] != "mcp" {
			return exit.Usagef("%s: want mcp and a host, such as: mcpwire %[1]s mcp cursor", command)
		}
		host, names := args[1], hosts.Names()
		if slices.Contains(names, host) {
			return nil
		}
		hint := "the hosts are " + strings.Join(names, ", ")
		if similar := kit.Nearest(host, names); len(similar) > 0 {
			hint = "did you mean " + strings.Join(similar, " or ") + "?"
		}
		return exit.UsageHintf(hint, "%s: no host %q is known", command, printable.Line(host))
	}
}

// openUserFile opens the file where a host keeps the servers of the user.
func openUserFile(host string) (d *hosts.Document, file string, err error) {
	here, err := hosts.Current()
	if err != nil {
		return nil, "", err
	}
	if file, err = hosts.UserFile(here, host); err != nil {
		return nil, "", err
	}
	d, err = hosts.OpenOrNew(here, file)
	return d, file, err
}

// remove removes the entry, if it runs this command.
func (in *installation) remove(e *kit.Env, host string) error {
	d, file, err := openUserFile(host)
	if err != nil {
		return err
	}
	s, err := d.Entry(host, in.name)
	switch {
	case errors.Is(err, hosts.ErrNoEntry):
		return exit.Fail(exit.Unexpected, "missing", "mcpwire servers --host "+host+" lists the entries; --name names another one", err)
	case err != nil:
		return err
	case len(s.Args) == 0 || s.Args[0] != "mcp" || !isMcpwire(s.Command):
		return exit.Fail(exit.Unexpected, "other", "remove it there", fmt.Errorf("%s:%s does not run mcpwire mcp", printable.Line(file), printable.Line(s.Pointer)))
	}
	if err := d.Remove(s.Pointer); err != nil {
		return err
	}
	return in.save(e, d, fmt.Sprintf("removed %s from %s", in.name, printable.Line(file)))
}

// save writes the changed file of a host and prints what was done, or prints the difference with
// --dry-run.
func (in *installation) save(e *kit.Env, d *hosts.Document, done string) error {
	if in.dryRun {
		return printDiff(e, d, new(bool))
	}
	if err := saveDocument(d); err != nil {
		return err
	}
	fmt.Fprintf(e.Stderr, "mcpwire: the file as it was: %s\n", printable.Line(d.Backup()))
	fmt.Fprintf(e.Stderr, "mcpwire: restart the host for this to take effect\n")
	_, err := fmt.Fprintln(e.Stdout, done)
	return err
}

// isMcpwire reports whether a command of a host's entry is this program.
func isMcpwire(command string) bool {
	if own, err := kit.OwnPath(); err == nil && command == own {
		return true
	}
	base := strings.ToLower(path.Base(strings.ReplaceAll(command, `\`, "/")))
	return strings.TrimSuffix(base, ".exe") == "mcpwire"
}

// run adds the entry to the file of a host.
func (in *installation) run(e *kit.Env, host string) error {
	if strings.Trim(in.name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") != "" || in.name == "" {
		return exit.Usagef("install: invalid value %q for flag --name: want letters, digits, - and _", in.name)
	}
	command := []string{in.command, "mcp"}
	if in.command == "" {
		program, err := kit.OwnPath()
		if err != nil {
			return fmt.Errorf("find the path of this program: %w (--command PROGRAM sets it)", err)
		}
		command[0] = program
	}
	if in.allowCalls {
		command = append(command, "--allow-calls")
	}
	if in.allowUnredacted {
		command = append(command, "--allow-unredacted")
	}
	d, file, err := openUserFile(host)
	if err != nil {
		return err
	}
	switch err := d.Add(host, in.name, command); {
	case errors.Is(err, hosts.ErrExists):
		return exit.Fail(exit.Unexpected, "exists", "edit it there, or choose another name with --name", err)
	case err != nil:
		return err
	}
	return in.save(e, d, fmt.Sprintf("added %s to %s", in.name, printable.Line(file)))
}
