package cli

import "github.com/spf13/cobra"

// A commandGroup is a heading of the help and the commands below it.
type commandGroup struct {
	id       string
	commands []*cobra.Command
}

// commandGroups returns all commands in the order of the help.
func commandGroups(e *env) []commandGroup {
	return []commandGroup{
		{groupRead, []*cobra.Command{
			newTapCommand(e),
			newWatchCommand(e),
			newShowCommand(e),
			newGrepCommand(e),
			newStatsCommand(e),
			newCheckCommand(e),
			newDoctorCommand(e),
			newDiffCommand(e),
			newCapturesCommand(e),
			newExportCommand(e),
			newImportCommand(e),
			newServersCommand(e),
			newWrapCommand(e),
			newUnwrapCommand(e),
			newSpecCommand(e),
			newMCPCommand(e),
			newInstallCommand(e),
			newUninstallCommand(e),
		}},
		{groupHand, []*cobra.Command{
			newInfoCommand(e),
			newListCommand(e),
			newCallCommand(e),
			newReadCommand(e),
			newPromptCommand(e),
			newCompleteCommand(e),
			newPingCommand(e),
			newSendCommand(e),
			newShellCommand(e),
			newAuthCommand(e),
		}},
		{groupConnect, []*cobra.Command{
			newBridgeCommand(e),
			newGatewayCommand(e),
			newMockCommand(e),
			newReplayCommand(e),
		}},
		{groupBuild, []*cobra.Command{
			newDemoCommand(e),
			newServeCommand(e),
			newConfigCommand(e),
			newVersionCommand(e),
		}},
	}
}
