package hosts

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// An Env describes the machine, so that tests can replace it. It is not modified and may be shared.
type Env struct {
	// GOOS is the operating system, as in [runtime.GOOS]. "" means runtime.GOOS.
	GOOS string
	// Home is the user's home folder. With "", only Dir is searched.
	Home string
	// Dir is the working directory, an absolute path. The search for projects starts here.
	Dir string
	// Lookup returns an environment variable. nil means an empty environment.
	Lookup func(name string) (string, bool)
}

// Current returns the environment of this process. Without a home folder, Home is "". It returns
// the error of [os.Getwd].
func Current() (*Env, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = ""
	}
	return &Env{GOOS: runtime.GOOS, Home: home, Dir: dir, Lookup: os.LookupEnv}, nil
}

func (e *Env) goos() string {
	return cmp.Or(e.GOOS, runtime.GOOS)
}

func (e *Env) get(name string) string {
	if e.Lookup == nil {
		return ""
	}
	v, _ := e.Lookup(name)
	return v
}

// folder returns the folder that an environment variable names, or else the one below the home
// folder, or "". Relative paths in the variable are ignored
// (https://specifications.freedesktop.org/basedir-spec/latest/).
func (e *Env) folder(variable string, below ...string) string {
	if v := e.get(variable); v != "" && (filepath.IsAbs(v) || e.goos() == "windows") {
		return v
	}
	return e.home(below...)
}

// home returns a path below the home folder, or "".
func (e *Env) home(below ...string) string {
	return join(e.Home, below...)
}

// config returns the folder for settings of desktop applications.
func (e *Env) config() string {
	switch e.goos() {
	case "windows":
		return e.folder("APPDATA", "AppData", "Roaming")
	case "darwin":
		return e.home("Library", "Application Support")
	default:
		return e.folder("XDG_CONFIG_HOME", ".config")
	}
}

// State returns the folder for backups and records of edits, or "". It is below $MCPWIRE_HOME, or
// else below the system's folder for program state.
func (e *Env) State() string {
	if v := e.get("MCPWIRE_HOME"); v != "" {
		if !filepath.IsAbs(v) {
			v = filepath.Join(e.Dir, v)
		}
		return filepath.Join(v, "hosts")
	}
	var base string
	switch e.goos() {
	case "windows":
		base = e.folder("LOCALAPPDATA", "AppData", "Local")
	case "darwin":
		base = e.home("Library", "Application Support")
	default:
		base = e.folder("XDG_STATE_HOME", ".local", "state")
	}
	return join(base, "mcpwire", "hosts")
}

// join is like filepath.Join but returns "" if base is "".
func join(base string, below ...string) string {
	if base == "" {
		return ""
	}
	return filepath.Join(append([]string{base}, below...)...)
}
