package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// An Env is the machine as this package sees it, so that tests can be on any other. It is not changed, and may be shared.
type Env struct {
	// GOOS is the operating system whose places are searched, as in [runtime.GOOS], which "" stands for.
	GOOS string
	// Home is the user's home folder. "" is none: then only Dir is searched.
	Home string
	// Dir is the working directory, an absolute path. Projects are searched from here.
	Dir string
	// Lookup returns an environment variable. nil is an empty environment.
	Lookup func(name string) (string, bool)
}

// Current returns the environment of this process. The error is that of [os.Getwd]; a user without a home is none.
func Current() (*Env, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find out the working directory: %w", err)
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = ""
	}
	return &Env{GOOS: runtime.GOOS, Home: home, Dir: dir, Lookup: os.LookupEnv}, nil
}

func (e *Env) goos() string {
	if e.GOOS == "" {
		return runtime.GOOS
	}
	return e.GOOS
}

// get returns an environment variable, "" if it is not set.
func (e *Env) get(name string) string {
	if e.Lookup == nil {
		return ""
	}
	v, _ := e.Lookup(name)
	return v
}

// folder returns the folder that an environment variable names, or the one below the home folder. A relative one does not count
// (https://specifications.freedesktop.org/basedir-spec/latest/). "" is none.
func (e *Env) folder(variable string, below ...string) string {
	if v := e.get(variable); v != "" && (filepath.IsAbs(v) || e.goos() == "windows") {
		return v
	}
	return e.home(below...)
}

// home returns a path below the home folder, "" if there is none.
func (e *Env) home(below ...string) string {
	if e.Home == "" {
		return ""
	}
	return filepath.Join(append([]string{e.Home}, below...)...)
}

// config returns the folder that applications with windows keep their settings below.
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

// State returns the folder in which backups and records of edits are kept: below $MCPWIRE_HOME, or below the folder of the system
// for the state of programs. "" is none.
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

// join is filepath.Join, but nothing is below no folder.
func join(base string, below ...string) string {
	if base == "" {
		return ""
	}
	return filepath.Join(append([]string{base}, below...)...)
}
