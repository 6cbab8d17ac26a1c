package cli

import (
	"bytes"
	"encoding/json"
	"strings"

	"mcpwire/internal/text/lazyregexp"
)

// A strayKind is a guess about the writer of a line that is not a message.
type strayKind struct {
	what, hint string
}

const toStderr = "write it to standard error: console.error, print(…, file=sys.stderr), log.SetOutput(os.Stderr), eprintln!"

var (
	timestamped = lazyregexp.New(`^\[?\d{2,4}[-/:]\d\d[-/:]\d\d`)
	levelled    = lazyregexp.New(`(?i)^[\[(]?(trace|debug|info|notice|warn|warning|error|fatal)[\])]?[: ]`)
)

// classifyStray guesses what wrote a line to standard output.
func classifyStray(line []byte) strayKind {
	text := strings.TrimSpace(string(line))
	lower := strings.ToLower(text)
	has := func(parts ...string) bool {
		for _, p := range parts {
			if strings.Contains(lower, p) {
				return true
			}
		}
		return false
	}
	begins := func(parts ...string) bool {
		for _, p := range parts {
			if strings.HasPrefix(lower, p) {
				return true
			}
		}
		return false
	}
	switch {
	case bytes.HasPrefix(line, []byte("\xef\xbb\xbf")):
		return strayKind{"a byte order mark before the text", "write UTF-8 without a byte order mark"}
	case bytes.HasPrefix(line, []byte("\xff\xfe")), bytes.HasPrefix(line, []byte("\xfe\xff")), bytes.Count(line, []byte{0}) > len(line)/3:
		return strayKind{"text in UTF-16, as PowerShell writes it", "set the encoding of the output to UTF-8"}
	case text == "":
		return strayKind{"an empty line, as console.log() or print() writes it", toStderr}
	case begins("content-length:"):
		return strayKind{"a header of the Language Server Protocol", "MCP has one message per line, without headers"}
	case begins("<!doctype", "<html", "<head"):
		return strayKind{"a web page", "the program prints fetched data: print nothing, or to standard error"}
	case has("dotenv@") || begins("[dotenv"):
		return strayKind{"the banner of dotenv", "load it quietly: dotenv.config({ quiet: true }), or set DOTENV_CONFIG_QUIET=true"}
	case begins("npm ", "npm:", "need to install the following", "added ", "up to date", "> ") && (begins("npm", "need") || has("package", "@", "node ")):
		return strayKind{"npm or npx, not the server", "install the package in advance, and run node on its file; or use npx -y, and npm --silent instead of npm run"}
	case begins("yarn run", "$ ", "done in", "pnpm"):
		return strayKind{"yarn or pnpm, not the server", "run the program itself, not a package script"}
	case begins("resolved ", "installed ", "downloading ", "building "):
		return strayKind{"a package manager, not the server", "install the package in advance, or make the package manager quiet"}
	case begins("traceback (most recent", "file \""):
		return strayKind{"a Python traceback", toStderr}
	case json.Valid(line) && bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")):
		return strayKind{"JSON that is not a message, probably a structured log (pino, zap, slog)", "send the log to standard error"}
	case bytes.IndexByte(line, 0x1b) >= 0:
		return strayKind{"color codes: a logger, or a banner for terminals", "send the log to standard error, and turn colors off (NO_COLOR=1)"}
	case timestamped().MatchString(text), levelled().MatchString(text):
		return strayKind{"a log line", "send the log to standard error"}
	case begins("{") || text == "}" || begins(`"`):
		return strayKind{"JSON that spans several lines, or is cut off", "write each message on one line: JSON.stringify(message) without indentation"}
	case strings.ContainsAny(text, "═─╔╭┌│█"):
		return strayKind{"a banner", toStderr}
	}
	return strayKind{"console.log, print or similar, in the code or in a library", toStderr}
}
