// Package build says which version of the program this is, and what it was built from.
package build

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"

	"mcpwire/mcp"
)

// These are what tools/release/build sets when it links: the version of the program, the commit
// that it was built from, and the day of the commit. If they are empty, Go may have recorded them.
var version, commit, date string

// Version returns the version of the program, without a leading v. A program that Go downloaded to
// build it has the version of its module, and one from a checkout a version for developers.
var Version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	switch {
	case version != "":
		return version
	case ok && info.Main.Sum != "":
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	return "0.1.0-dev"
})

// Text returns the output of version and --version.
func Text() string {
	var dates []string
	for _, r := range mcp.Revisions() {
		dates = append(dates, r.String())
	}
	built := ""
	if revision, day := From(); revision != "" {
		built = strings.TrimSuffix(" ("+revision+" "+day, " ") + ")"
	}
	return fmt.Sprintf("mcpwire %s%s\nMCP %s\n%s %s/%s\n", Version(), built, strings.Join(dates, ", "), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// From returns the first 12 digits of the commit and its day, or "" if they are unknown.
func From() (revision, day string) {
	revision, day = commit, date
	if revision == "" {
		revision, day = setting("vcs.revision"), setting("vcs.time")
	}
	if len(revision) < 12 {
		return "", ""
	}
	day, _, _ = strings.Cut(day, "T")
	return revision[:12], day
}

// setting returns a setting that Go recorded in the program, or "".
func setting(key string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}
