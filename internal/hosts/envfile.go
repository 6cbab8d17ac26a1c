package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// Limits on files of variables.
const (
	MaxEnvFileBytes = 1 << 20
	MaxVariables    = 10_000
)

func itoa(n int) string { return strconv.Itoa(n) }

// ReadEnvFile reads a file of lines NAME=VALUE, as envFile of VS Code and Cursor names one. Empty lines and those that begin with #
// do not count, and neither does export before a name. A value in single quotes is taken as it is; in double quotes, \n, \r, \t,
// \" and \\ have their meaning, and it may go over several lines; without quotes it ends before a # that follows a space. There are
// no references. The map belongs to the caller. Errors are a *ParseError, or those of the file system.
func ReadEnvFile(path string) (map[string]string, error) {
	data, err := readFile(path)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("envFile: %w", err)
		}
		return nil, err
	}
	if len(data) > MaxEnvFileBytes {
		return nil, &ParseError{Path: path, Reason: fmt.Sprintf("the file is larger than %d MiB", MaxEnvFileBytes>>20)}
	}
	vars, err := parseEnv(bytes.TrimPrefix(data, bom))
	return vars, withPath(err, path)
}

// parseEnv reads the text of a file of variables.
func parseEnv(data []byte) (map[string]string, error) {
	vars := map[string]string{}
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	for line := 1; text != ""; {
		this, rest, _ := strings.Cut(text, "\n")
		lines := 1
		if trimmed := strings.TrimSpace(this); trimmed != "" && trimmed[0] != '#' {
			name, value, ok := strings.Cut(this, "=")
			name = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(name), "export "))
			if !ok || !isValidName(name) {
				return nil, &ParseError{Line: line, Column: 1, Reason: "want NAME=VALUE"}
			}
			if value = strings.TrimLeft(value, " \t"); strings.HasPrefix(value, `"`) || strings.HasPrefix(value, "'") {
				from := len(this) - len(value)
				v, end, ok := quotedValue(text[from:])
				if !ok {
					return nil, &ParseError{Line: line, Column: from + 1, Reason: "the quote is not closed"}
				}
				lines += strings.Count(text[:from+end], "\n")
				_, rest, _ = strings.Cut(text[from+end:], "\n")
				value = v
			} else {
				value = unquotedValue(value)
			}
			if vars[name] = value; len(vars) > MaxVariables {
				return nil, &ParseError{Line: line, Column: 1, Reason: fmt.Sprintf("more than %d variables", MaxVariables)}
			}
		}
		text = rest
		line += lines
	}
	return vars, nil
}

func isValidName(name string) bool {
	return name != "" && !strings.ContainsAny(name, " \t\"'\x00")
}

// unquotedValue is a value without quotes.
func unquotedValue(v string) string {
	if strings.HasPrefix(v, "#") {
		return ""
	}
	for i := 1; i < len(v); i++ {
		if v[i] == '#' && (v[i-1] == ' ' || v[i-1] == '\t') {
			v = v[:i]
		}
	}
	return strings.TrimSpace(v)
}

var unescapeEnv = strings.NewReplacer(`\n`, "\n", `\r`, "\r", `\t`, "\t", `\"`, `"`, `\\`, `\`)

// quotedValue returns the value of the quote that text begins with, and where it ends.
func quotedValue(text string) (value string, end int, ok bool) {
	quote := text[0]
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote == '"':
			i++
		case text[i] == quote && quote == '"':
			return unescapeEnv.Replace(text[1:i]), i + 1, true
		case text[i] == quote:
			return text[1:i], i + 1, true
		}
	}
	return "", 0, false
}
