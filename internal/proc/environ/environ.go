// Package environ selects the environment variables that a child process inherits.
package environ

import (
	"os"
	"runtime"
	"strings"
)

// Inherit returns the variables of this process that allow has and deny does not have, as
// "NAME=VALUE". In both lists, "LC_*" stands for all names with that prefix. A nil allow has all
// names. The result is never nil.
func Inherit(allow, deny []string) []string {
	env := []string{}
	for _, entry := range os.Environ() {
		if name := Name(entry); (allow == nil || Match(name, allow)) && !Match(name, deny) {
			env = append(env, entry)
		}
	}
	return env
}

// Names returns the names of the variables of [Inherit].
func Names(allow, deny []string) []string {
	list := Inherit(allow, deny)
	for i, entry := range list {
		list[i] = Name(entry)
	}
	return list
}

// Name returns the name of the variable of "NAME=VALUE". On Windows, names of entries such as
// "=C:=C:\dir" begin with '='.
func Name(entry string) string {
	first := min(1, len(entry))
	name, _, _ := strings.Cut(entry[first:], "=")
	return entry[:first] + name
}

// Match reports whether a list has a name, as the operating system compares them.
func Match(name string, list []string) bool {
	for _, pattern := range list {
		if runtime.GOOS == "windows" {
			name, pattern = strings.ToUpper(name), strings.ToUpper(pattern)
		}
		if prefix, ok := strings.CutSuffix(pattern, "*"); ok && strings.HasPrefix(name, prefix) || name == pattern {
			return true
		}
	}
	return false
}
