// Package build says which version of the program this is, and what it was built from.
package build

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"mcpwire/mcp"
)

// Version is the version of the program. tools/release/build sets it, and the next two, when it
// links.
var Version = "0.1.0-dev"

// commit is the commit that the program was built from, and date its day. If they are empty, Go may
// have recorded them.
var commit, date string

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
	return fmt.Sprintf("mcpwire %s%s\nMCP %s\n%s %s/%s\n", Version, built, strings.Join(dates, ", "), runtime.Version(), runtime.GOOS, runtime.GOARCH)
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
