package doctor

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"mcpwire/internal/era"
	"mcpwire/internal/text/lazyregexp"
)

// An outputKind is a guess about the writer of a line that is not a message.
type outputKind struct {
	what, hint string
	// garbles reports that it keeps clients from reading messages.
	garbles bool
}

const toStderr = "write it to standard error: console.error, print(…, file=sys.stderr), log.SetOutput(os.Stderr), eprintln!"

var (
	timestamped = lazyregexp.New(`^\[?\d{2,4}[-/:]\d\d[-/:]\d\d`)
	levelled    = lazyregexp.New(`(?i)^[\[(]?(trace|debug|info|notice|warn|warning|error|fatal)[\])]?[: ]`)
)

// severalValues reports whether a line has more than one JSON object, and nothing else.
func severalValues(line []byte) bool {
	n, d := 0, json.NewDecoder(bytes.NewReader(line))
	for {
		var object map[string]json.RawMessage
		switch err := d.Decode(&object); {
		case err == io.EOF:
			return n > 1
		case err != nil:
			return false
		}
		n++
	}
}

// classifyOutput guesses what wrote a line to standard output.
func classifyOutput(line []byte) outputKind {
	text := strings.TrimSpace(string(line))
	lower := strings.ToLower(text)
	has := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(lower, p) })
	}
	begins := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(p string) bool { return strings.HasPrefix(lower, p) })
	}
	switch {
	case bytes.HasPrefix(line, []byte("\xef\xbb\xbf")):
		return outputKind{"a byte order mark before the text", "write UTF-8 without a byte order mark", true}
	case bytes.HasSuffix(bytes.TrimSpace(line), []byte{0}) && json.Valid(bytes.TrimRight(line, "\x00\r\n\t ")):
		return outputKind{"a NUL character after a message", "end each message with a line feed only", true}
	case severalValues(line):
		return outputKind{"several messages on one line", "write a line feed after each message", true}
	case bytes.HasPrefix(line, []byte("\xff\xfe")), bytes.HasPrefix(line, []byte("\xfe\xff")), bytes.Count(line, []byte{0}) > len(line)/3:
		return outputKind{"text in UTF-16, as PowerShell writes it", "set the encoding of the output to UTF-8", true}
	case text == "":
		return outputKind{"an empty line, as console.log() or print() writes it", toStderr, false}
	case begins("content-length:"):
		return outputKind{"a header of the Language Server Protocol", "MCP has one message per line, without headers", false}
	case begins("<!doctype", "<html", "<head"):
		return outputKind{"a web page", "the program prints fetched data: print nothing, or to standard error", false}
	case has("dotenv@") || begins("[dotenv"):
		return outputKind{"the banner of dotenv", "load it quietly: dotenv.config({ quiet: true }), or set DOTENV_CONFIG_QUIET=true", false}
	case begins("npm ", "npm:", "need to install the following", "added ", "up to date", "> ") && (begins("npm", "need") || has("package", "@", "node ")):
		return outputKind{"npm or npx, not the server", "install the package in advance, and run node on its file; or use npx -y, and npm --silent instead of npm run", false}
	case begins("yarn run", "$ ", "done in", "pnpm"):
		return outputKind{"yarn or pnpm, not the server", "run the program itself, not a package script", false}
	case begins("> task :", "compiling ", "finished ", "unable to find image", "latest: pulling", "[info] scanning for projects"):
		return outputKind{"a build tool (Maven, Gradle, cargo) or Docker, not the server", "build or pull it in advance, and start the result; or make the tool quiet (gradle -q, mvn -q, cargo run -q)", false}
	case begins("resolved ", "installed ", "downloading ", "building "):
		return outputKind{"a package manager, not the server", "install the package in advance, or make the package manager quiet", false}
	case begins("traceback (most recent", "file \""):
		return outputKind{"a Python traceback", toStderr, false}
	case json.Valid(line) && has(`"result"`, `"error"`) && string(era.Lookup(line, "jsonrpc")) == `"2.0"`:
		return outputKind{"a response whose id is null, missing or no id, so that no client finds the request", sameID, true}
	case json.Valid(line) && has(`"result"`, `"error"`) && has(`"id"`):
		return outputKind{"a response that is no message, probably because its member jsonrpc is missing or wrong", `each message must have "jsonrpc": "2.0"`, true}
	case begins("{'"):
		return outputKind{"a response in single quotes, which is no JSON (a dict of Python)", "write json.dumps(message), with double quotes", true}
	case json.Valid(line) && bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")):
		return outputKind{"JSON that is not a message, probably a structured log (pino, zap, slog)", "send the log to standard error", false}
	case bytes.IndexByte(line, 0x1b) >= 0:
		return outputKind{"color codes: a logger, or a banner for terminals", "send the log to standard error, and turn colors off (NO_COLOR=1)", false}
	case has("deprecat"):
		return outputKind{"a notice that something is deprecated", "use what it names instead, or update; the server must write such notices to standard error", false}
	case begins("warning", "(node:"), has("warning:"):
		return outputKind{"a warning", "remove its reason; the server must write warnings to standard error", false}
	case timestamped().MatchString(text), levelled().MatchString(text):
		return outputKind{"a log line", "send the log to standard error", false}
	case begins("{") || text == "}" || begins(`"`):
		return outputKind{"JSON that spans several lines, or is cut off", "write each message on one line: JSON.stringify(message) without indentation", true}
	case strings.ContainsAny(text, "═─╔╭┌│█"), strings.Trim(text, "*=-_#~+./\\ ") == "" || strings.Contains(text, "____"):
		return outputKind{"a banner", toStderr, false}
	}
	return outputKind{"console.log, print or similar, in the code or in a library", toStderr, false}
}
