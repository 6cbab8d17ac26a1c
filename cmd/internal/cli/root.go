// Package cli is the mcpwire command: it builds the tree of commands. The packages below have the
// commands, one file each, with its flags and output. Data goes to stdout, everything else to
// stderr.
package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/build"
	"mcpwire/cmd/internal/cli/call"
	"mcpwire/cmd/internal/cli/check"
	"mcpwire/cmd/internal/cli/connect"
	"mcpwire/cmd/internal/cli/doctor"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/record"
	"mcpwire/cmd/internal/cli/servers"
	"mcpwire/cmd/internal/cli/show"
	"mcpwire/cmd/internal/exit"
	"mcpwire/internal/base/wait"
)

// Run runs the command line args, without the program's name, and returns the exit status.
func Run(ctx context.Context, args []string, stdin *os.File, stdout, stderr io.Writer) int {
	e := &kit.Env{
		Stdin: stdin, Stdout: stdout, Stderr: stderr, Prompter: &kit.Prompter{In: stdin, Out: stderr},
		Errors: exit.FormatOf(args), JSON: exit.AsksForJSON(args),
	}
	root := newRoot(e, args)
	root.SetArgs(args)
	help := &helpWriter{w: stdout}
	root.SetOut(help)
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = help.err
	}
	status := signalled(root)
	if status == 0 && ctx.Err() != nil {
		status = exit.Interrupted
	}
	return exit.Report(stderr, e.Errors, err, status)
}

// A helpWriter remembers write errors, which cobra ignores.
type helpWriter struct {
	w   io.Writer
	err error
}

func (h *helpWriter) Write(p []byte) (int, error) {
	n, err := h.w.Write(p)
	if err != nil {
		h.err = err
	}
	return n, err
}

// The groups that the help lists commands in.
const (
	groupRead    = "read"
	groupHand    = "hand"
	groupConnect = "connect"
	groupBuild   = "build"
)

// newRoot returns the root command with the subcommands that the command line args needs.
func newRoot(e *kit.Env, args []string) *cobra.Command {
	cobra.EnableCommandSorting = false
	root := &cobra.Command{
		Use:           "mcpwire",
		Short:         "work with the Model Context Protocol at the wire level",
		Long:          "mcpwire speaks the Model Context Protocol at the wire level: it taps, records,\nshows, checks, calls, mocks and bridges any server, in any language.",
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, args []string) error { return runRoot(cmd, e, args) },
	}
	root.Flags().Bool("version", false, "print the version")
	root.Flags().BoolP("help", "h", false, "print this help")
	root.PersistentFlags().Var(new(exit.FormatFlag), "errors", "format of errors: `text` or json")
	root.SetIn(e.Stdin)
	root.SetErr(e.Stderr)
	root.SetFlagErrorFunc(kit.FlagError)
	root.SetHelpFunc(func(c *cobra.Command, _ []string) { _ = writeHelp(c.OutOrStdout(), c) })
	root.SetUsageFunc(func(c *cobra.Command) error { return writeHelp(c.OutOrStderr(), c) })
	root.AddGroup(
		&cobra.Group{ID: groupRead, Title: "Read and debug:"},
		&cobra.Group{ID: groupHand, Title: "By hand and in scripts:"},
		&cobra.Group{ID: groupConnect, Title: "Connect:"},
		&cobra.Group{ID: groupBuild, Title: "Build:"},
	)
	needed := commandsFor(args)
	for _, n := range needed {
		c := n.build(e)
		c.GroupID = n.group
		root.AddCommand(c)
	}
	if len(needed) > 1 {
		root.SetHelpCommand(newHelpCommand())
		addCompletion(root)
		root.AddCommand(newManCommand())
	} else {
		root.CompletionOptions.DisableDefaultCmd = true
	}
	for _, c := range root.Commands() {
		finish(c)
	}
	return root
}

// addCompletion adds cobra's completion command, with our own text and examples.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, err := root.Find([]string{"completion"})
	if err != nil {
		return // cobra has renamed it
	}
	c.Short = "generate a completion script for bash, zsh, fish or powershell"
	c.Example = "  mcpwire completion bash --help\n  mcpwire completion bash > ~/.local/share/bash-completion/completions/mcpwire"
	examples := map[string]string{
		"bash":       "  source <(mcpwire completion bash)\n  mcpwire completion bash > ~/.local/share/bash-completion/completions/mcpwire",
		"zsh":        "  source <(mcpwire completion zsh)\n  mcpwire completion zsh > \"${fpath[1]}/_mcpwire\"",
		"fish":       "  mcpwire completion fish | source\n  mcpwire completion fish > ~/.config/fish/completions/mcpwire.fish",
		"powershell": "  mcpwire completion powershell | Out-String | Invoke-Expression\n  mcpwire completion powershell > mcpwire.ps1",
	}
	var shells []string
	for _, shell := range c.Commands() {
		shell.Example = examples[shell.Name()]
		shells = append(shells, shell.Name())
	}
	unknown := func(args []string) error {
		return exit.Usagef("completion: unknown shell %q: want %s", args[0], strings.Join(shells, ", "))
	}
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknown(args)
		}
		return cmd.Help()
	}
	c.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if args := cmd.Flags().Args(); cmd == c && len(args) > 0 {
			return unknown(args)
		}
		return kit.FlagError(cmd, err)
	})
}

// finish sets what all commands have in common.
func finish(c *cobra.Command) {
	c.DisableFlagsInUseLine = true
	if c.Args == nil {
		c.Args = cobra.ArbitraryArgs // each command checks its own
	}
	c.Flags().BoolP("help", "h", false, "print this help")
	if run := c.RunE; run != nil && c.Flags().Lookup("redact") != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			if err := applyRedact(cmd); err != nil {
				return err
			}
			return run(cmd, args)
		}
	}
	if _, own := c.Annotations[kit.OwnSignals]; !own && c.RunE != nil {
		handleSignals(c)
	}
	for _, sub := range c.Commands() {
		finish(sub)
	}
}

// runRoot handles a command line without a command or with an unknown one.
func runRoot(cmd *cobra.Command, e *kit.Env, args []string) error {
	if v, _ := cmd.Flags().GetBool("version"); v && len(args) == 0 {
		_, err := io.WriteString(e.Stdout, build.Text())
		return err
	}
	if len(args) > 0 {
		return kit.UnknownCommand(cmd, args[0])
	}
	cmd.SetOut(e.Stderr)
	if err := cmd.Help(); err != nil {
		return err
	}
	return exit.Usagef("missing command: see above, or start with: mcpwire demo")
}

func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND | targets]",
		Short: "show help for a command, or for the flags that reach a server",
		Example: `  mcpwire help tap
  mcpwire help targets
  mcpwire help captures prune`,
		Args: cobra.ArbitraryArgs,
		ValidArgsFunction: func(c *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			names := []string{"targets\tthe flags that reach a server"}
			for _, sub := range c.Root().Commands() {
				if sub.IsAvailableCommand() {
					names = append(names, sub.Name()+"\t"+sub.Short)
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "targets" {
				return writeTargetHelp(c.OutOrStdout())
			}
			found, rest, err := c.Root().Find(args)
			if err != nil || len(rest) > 0 && !found.HasParent() {
				return kit.UnknownCommand(c, args[0])
			}
			if len(rest) > 0 {
				return exit.Usagef("help: unexpected argument %q (help takes one command)", rest[0])
			}
			return writeFullHelp(c.OutOrStdout(), found)
		},
	}
}

// signalKey is the annotation of the root command that holds the exit status for a received signal.
const signalKey = "signal"

// gracePeriod is the grace period of a command after a signal. Commands that wait for a file or a
// pipe may not notice that their context ended.
const gracePeriod = 5 * time.Second

// signalStatus returns the exit status of a command that a signal ended, as in shells.
func signalStatus(s os.Signal) int {
	if s == syscall.SIGTERM {
		return exit.Terminated
	}
	return exit.Interrupted
}

// handleSignals makes SIGINT and SIGTERM cancel the command's context. A second signal ends the
// process at once, and so does the end of the grace period.
func handleSignals(c *cobra.Command) {
	run := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithCancel(cmd.Context())
		defer cancel()
		signals := make(chan os.Signal, 1)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		done := make(chan struct{})
		var waiting sync.WaitGroup
		waiting.Go(func() {
			defer signal.Stop(signals)
			select {
			case <-done:
				return
			case s := <-signals:
				signal.Stop(signals)
				status := signalStatus(s)
				cmd.Root().Annotations = map[string]string{signalKey: strconv.Itoa(status)}
				cancel()
				if !wait.Closed(done, gracePeriod) {
					os.Exit(status)
				}
			}
		})
		cmd.SetContext(ctx)
		err := run(cmd, args)
		close(done)
		waiting.Wait()
		return err
	}
}

// signalled returns the exit status for the signal that was received, or 0 if there was none.
func signalled(root *cobra.Command) int {
	status, err := strconv.Atoi(root.Annotations[signalKey])
	if err != nil {
		return 0
	}
	return status
}

// A command is a subcommand of mcpwire that is not built yet.
type command struct {
	name string
	// group is the heading of the help that the command is below.
	group string
	build func(*kit.Env) *cobra.Command
}

// commands returns all commands in the order of the help.
func commands() []command {
	return []command{
		{"tap", groupRead, record.NewTapCommand},
		{"watch", groupRead, show.NewWatchCommand},
		{"show", groupRead, show.NewCommand},
		{"grep", groupRead, show.NewGrepCommand},
		{"stats", groupRead, show.NewStatsCommand},
		{"check", groupRead, check.NewCommand},
		{"doctor", groupRead, doctor.NewCommand},
		{"diff", groupRead, check.NewDiffCommand},
		{"captures", groupRead, show.NewCapturesCommand},
		{"export", groupRead, show.NewExportCommand},
		{"import", groupRead, record.NewImportCommand},
		{"servers", groupRead, servers.NewCommand},
		{"wrap", groupRead, servers.NewWrapCommand},
		{"unwrap", groupRead, servers.NewUnwrapCommand},
		{"spec", groupRead, newSpecCommand},
		{"mcp", groupRead, newMCPCommand},
		{"install", groupRead, servers.NewInstallCommand},
		{"uninstall", groupRead, servers.NewUninstallCommand},
		{"info", groupHand, call.NewInfoCommand},
		{"list", groupHand, call.NewListCommand},
		{"call", groupHand, call.NewCommand},
		{"read", groupHand, call.NewReadCommand},
		{"prompt", groupHand, call.NewPromptCommand},
		{"complete", groupHand, call.NewCompleteCommand},
		{"skills", groupHand, call.NewSkillsCommand},
		{"ping", groupHand, call.NewPingCommand},
		{"send", groupHand, call.NewSendCommand},
		{"shell", groupHand, call.NewShellCommand},
		{"auth", groupHand, call.NewAuthCommand},
		{"bridge", groupConnect, connect.NewBridgeCommand},
		{"gateway", groupConnect, connect.NewGatewayCommand},
		{"mock", groupConnect, connect.NewMockCommand},
		{"replay", groupConnect, connect.NewReplayCommand},
		{"demo", groupBuild, newDemoCommand},
		{"serve", groupBuild, connect.NewServeCommand},
		{"config", groupBuild, newConfigCommand},
		{"version", groupBuild, newVersionCommand},
	}
}

// commandsFor returns the commands that a command line needs: the one that it names, since building
// all of them takes longer than most commands run, or all.
func commandsFor(args []string) []command {
	all := commands()
	if len(args) > 0 {
		if i := slices.IndexFunc(all, func(c command) bool { return c.name == args[0] }); i >= 0 {
			return all[i : i+1]
		}
	}
	return all
}
