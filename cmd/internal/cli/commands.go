package cli

import (
	"slices"

	"github.com/spf13/cobra"
)

// A command is a subcommand of mcpwire that is not built yet.
type command struct {
	name string
	// group is the heading of the help that the command is below.
	group string
	build func(*env) *cobra.Command
}

// commands returns all commands in the order of the help.
func commands() []command {
	return []command{
		{"tap", groupRead, newTapCommand},
		{"watch", groupRead, newWatchCommand},
		{"show", groupRead, newShowCommand},
		{"grep", groupRead, newGrepCommand},
		{"stats", groupRead, newStatsCommand},
		{"check", groupRead, newCheckCommand},
		{"doctor", groupRead, newDoctorCommand},
		{"diff", groupRead, newDiffCommand},
		{"captures", groupRead, newCapturesCommand},
		{"export", groupRead, newExportCommand},
		{"import", groupRead, newImportCommand},
		{"servers", groupRead, newServersCommand},
		{"wrap", groupRead, newWrapCommand},
		{"unwrap", groupRead, newUnwrapCommand},
		{"spec", groupRead, newSpecCommand},
		{"mcp", groupRead, newMCPCommand},
		{"install", groupRead, newInstallCommand},
		{"uninstall", groupRead, newUninstallCommand},
		{"info", groupHand, newInfoCommand},
		{"list", groupHand, newListCommand},
		{"call", groupHand, newCallCommand},
		{"read", groupHand, newReadCommand},
		{"prompt", groupHand, newPromptCommand},
		{"complete", groupHand, newCompleteCommand},
		{"skills", groupHand, newSkillsCommand},
		{"ping", groupHand, newPingCommand},
		{"send", groupHand, newSendCommand},
		{"shell", groupHand, newShellCommand},
		{"auth", groupHand, newAuthCommand},
		{"bridge", groupConnect, newBridgeCommand},
		{"gateway", groupConnect, newGatewayCommand},
		{"mock", groupConnect, newMockCommand},
		{"replay", groupConnect, newReplayCommand},
		{"demo", groupBuild, newDemoCommand},
		{"serve", groupBuild, newServeCommand},
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
