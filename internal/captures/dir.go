package captures

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// HomeVariable names the environment variable that says where everything is kept that belongs to the user, instead of the usual folder.
const HomeVariable = "MCPWIRE_HOME"

// Dir returns the folder for captures: $MCPWIRE_HOME/captures, or else the usual place for a user's state: below $XDG_STATE_HOME or ~/.local/state
// (https://specifications.freedesktop.org/basedir-spec/latest/), ~/Library/Application Support, or %LocalAppData%. It need not exist.
func Dir() (string, error) {
	if home := os.Getenv(HomeVariable); home != "" {
		abs, err := filepath.Abs(home)
		return filepath.Join(abs, "captures"), err
	}
	state, err := stateDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(state, "mcpwire", "captures"), nil
}

func stateDir() (string, error) {
	switch runtime.GOOS {
	case "windows":
		if dir := os.Getenv("LocalAppData"); dir != "" {
			return dir, nil
		}
		return "", errors.New("no folder for captures: neither " + HomeVariable + " nor LocalAppData is set")
	case "darwin", "ios":
		return os.UserConfigDir()
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) { // others are to be ignored
		return dir, nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state"), nil
}
