package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"mcpwire/cmd/internal/cli/call"
	"mcpwire/cmd/internal/cli/check"
	"mcpwire/cmd/internal/cli/connect"
	"mcpwire/cmd/internal/cli/doctor"
	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/record"
	"mcpwire/cmd/internal/cli/servers"
	"mcpwire/cmd/internal/cli/show"
)

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
