package hosts

import (
	"path"
	"slices"
	"strings"
)

// The fields of an entry that matter to a tap, where they are.
type fields struct {
	object  *node // that command and args are members of
	command *member
	args    *member
	argv    bool // command is a list, with the arguments in it
}

// fieldsOf finds them. Zed had them in a table that was called command, with the program as path.
func fieldsOf(n *node) fields {
	f := fields{object: n, command: n.get("command")}
	name := "command"
	if f.command != nil && f.command.value.kind == kindObject && f.command.value.get("path") != nil {
		f.object, name = f.command.value, "path"
		f.command = f.object.get(name)
	}
	f.args = f.object.get("args")
	f.argv = f.command != nil && f.command.value.kind == kindArray
	return f
}

// unwrapped returns the command and the arguments that a tap stands before, and whether one does: mcpwire with the command tap,
// or any other program with exactly the arguments that Wrap writes.
func unwrapped(command string, args []string) ([]string, bool) {
	i := wrappedCommandIndex(args)
	if i < 0 || i == len(args) {
		return nil, false
	}
	base := strings.ToLower(path.Base(strings.ReplaceAll(command, `\`, "/")))
	if strings.TrimSuffix(base, ".exe") != "mcpwire" && (i != 4 || args[1] != "--name") {
		return nil, false
	}
	return args[i:], true
}

// wrappedCommandIndex returns which of the arguments of a tap is the command behind it, -1 if they are none of a tap.
func wrappedCommandIndex(args []string) int {
	from := 1
	if len(args) > 2 && args[1] == "--name" {
		from = 3 // the name may be anything, -- too
	}
	if len(args) <= from || args[0] != "tap" {
		return -1
	}
	i := slices.Index(args[from:], "--")
	if i < 0 {
		return -1
	}
	return from + i + 1
}
