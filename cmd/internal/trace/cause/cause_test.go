package cause

import (
	"cmp"
	"strings"
	"testing"
)

// TestFind has the output of servers that did not start.
func TestFind(t *testing.T) {
	for _, tt := range []struct {
		name, output string
		// what and fix must be contained.
		what, fix, variable string
		known               bool
	}{
		{"a variable read by the line shown", "file:///x.mjs:1\nconst n = process.env.WEATHER_KEY.length;\n                      ^\n\nTypeError: Cannot read properties of undefined (reading 'length')\n    at file:///x.mjs:1:5", "WEATHER_KEY is missing", "--env", "WEATHER_KEY", true},
		{"KeyError", "Traceback (most recent call last):\n  File \"x.py\", line 2\n    key = os.environ['TOKEN']\nKeyError: 'TOKEN'", "TOKEN is missing", "--env", "TOKEN", true},
		{"the name only", "Missing GITHUB_TOKEN", "GITHUB_TOKEN is missing", "--env", "GITHUB_TOKEN", true},
		{"several names", "Error: AWS_REGION and VAULT_NAME must be set", "AWS_REGION and VAULT_NAME must be set", "it mentions AWS_REGION, VAULT_NAME", "", false},
		{"an invalid value", "Error: VAULT_PORT must be a number", "VAULT_PORT must be a number", "check the value of the environment variable VAULT_PORT", "", false},
		{"an optional variable", "Error: no vault found\nSet VAULT_COLOR to use other colors (optional)", "no vault found", "", "", false},
		{"the code of an error", "Error: CERT_HAS_EXPIRED", "the certificate of a service has expired", "renew", "", true},
		{"a symbol of glibc", "x: /lib/libc.so.6: version `GLIBC_2.38' not found (required by x)", "GLIBC_2.38", "newer system", "", true},
		{"nothing read", "file:///x.mjs:2\nconsole.error(`with ${key.length}`);\n\nTypeError: Cannot read properties of undefined (reading 'length')", "TypeError: Cannot read properties of undefined", "perhaps a bug", "", false},
		{"a variable that is there", "using process.env.DEBUG_LEVEL\nError: the port is taken", "the port is taken", "", "", false},
		{"a program", "Traceback (most recent call last):\nFileNotFoundError: [Errno 2] No such file or directory: 'ruff'", "does not exist: ruff", "full one", "", true},
		{"a program, Node.js", "Error: spawn gh ENOENT", "the program gh is not installed", "PATH", "", true},
		{"no network", "TypeError: fetch failed\n    at x (/y.js:1:1)\n  [cause]: Error: getaddrinfo ENOTFOUND docs.example.com", "it cannot reach the network", "DNS", "", true},
		{"version 1 of the SDK", "    from mcp.server.fastmcp import FastMCP\nModuleNotFoundError: No module named 'mcp.server.fastmcp'. This is mcp 2.x, where FastMCP was renamed", "it needs version 1 of the Python SDK", "mcp<2", "", true},
		{"version 1, the low-level server", "AttributeError: 'Server' object has no attribute 'list_resources'", "AttributeError: 'Server'", "perhaps it needs version 1", "", false},
		{"a package", "ModuleNotFoundError: No module named 'requests'", "the Python module requests is missing", "interpreter", "", true},
		{"a native addon", "Error: Cannot find module '../build/Release/keytar.node'", "a native addon is missing", "npm rebuild", "", true},
		{"a file", "Error: Cannot find module '/x/index.js'", "the file /x/index.js does not exist", "built", "", true},
		{"bad JSON", `SyntaxError: Unexpected token 'h', "hello" is not valid JSON`, "not valid JSON", "correct it", "", true},
		{"argparse", "usage: duck [-h] --db-path DB_PATH\n            [--readonly]\nduck: error: the following arguments are required: --db-path", "an argument is missing: --db-path", "add it", "", true},
		{"a usage", "Error: Redis URL is required\nUsage: npx server-redis redis://host:port", "Redis URL is required", "its usage is: npx server-redis redis://host:port", "", false},
		{"the usage of cobra", "Error: no current context\nUsage:\n  server [flags]", "no current context", "", "", false},
		{"a structured log", `{"level":"info","msg":"starting"}` + "\n" + `{"level":"error","msg":"cannot start","err":"dial tcp 127.0.0.1:5432: connect: connection refused"}`, "127.0.0.1:5432", "start the service", "", true},
		{"a log in key=value form", `time=2026-11-28T06:00:00Z level=ERROR msg="cannot start" err="open /etc/x.yaml: no such file or directory"`, "/etc/x.yaml", "path", "", true},
		{"named in the next line", "Error: No access token was provided.\nRun it, or pass `--access-token` / `SENTRY_ACCESS_TOKEN`.\n  --provider   The AGENT_PROVIDER is required", "SENTRY_ACCESS_TOKEN is missing", "--env", "SENTRY_ACCESS_TOKEN", true},
		{"named in the usage", "Error: bad port\nOptions:\n  MY_PORT must be set", "bad port", "", "", false},
		{"nothing but usage", "Usage: server <folder>", "it only prints its usage", "its usage is: server <folder>", "", true},
		{"source code before it", "node:internal/x\n    err = new Error(\n          ^\nError: no such table: notes", "no such table", "migrations", "", true},
		{"chatter before it", "Checking for env file: .env\nERROR: a database is required.", "a database is required.", "", "", false},
		{"a warning before it", "Warning: cannot read /srv/docs, skipping\nError: no folder is left", "Warning: cannot read /srv/docs, skipping Error: no folder is left", "", "", false},
		{"lines after a colon", "Invalid values:\n  Argument: channel, Given: \"x\"", "an argument has a wrong value: channel", "args", "", true},
		{"what the program suggests", "one\ntwo\nthree\nfour\nfive\nsix\n[x] Error: no valid seat found\n[x] 1. Run x-mcp init to get one", "no valid seat found", "it says: Run x-mcp init to get one", "", false},
		{"a long output", "one\ntwo\nthree\nfour\nfive\nsix\nError: no folder is left", "no folder is left", "", "", false},
		{"the input of an error", "TypeError: Invalid URL\n    at new URL (node:internal/url:806:29) {\n  code: 'ERR_INVALID_URL',\n  input: 'localhost/x'\n}", "a URL in its configuration is malformed", "with its scheme", "", true},
		{"a code", "Error [ERR_MODULE_NOT_FOUND]: Cannot find module 'x' required by y", "the Node.js package x is missing", "npm install", "", true},
		{"a daemon", "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "Docker is not running", "start Docker", "", true},
		{"a program that bundler lacks", "bundler: command not found: puma", "the program puma", "install puma", "", true},
		{"a script of Bun", "error: Module not found \"src/index.ts\"", "the script src/index.ts", "path", "", true},
		{"a package of Bun", "error: Cannot find module \"@acme/sdk/x.js\" from \"/srv/app/index.ts\"", "@acme/sdk/x.js is missing", "bun install", "", true},
		{"a task group", "Traceback (most recent call last):\n  + Exception Group Traceback (most recent call last):\n  |   File \"/srv/x.py\", line 1\n  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n  +-+---------------- 1 ----------------\n    | Traceback (most recent call last):\n    |   File \"/srv/y.py\", line 3, in f\n    | httpx.ConnectError: [Errno -2] Name or service not known\n    +------------------------------------", "Name or service not known", "DNS", "", true},
		{"the hint of a panic", "thread 'main' panicked at src/main.rs:14:10:\nFailed to bind: Os { code: 98, kind: AddrInUse, message: \"Address already in use\" }\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace", "its port is in use", "end the other", "", true},
		{"a placeholder of clap", "error: the following required arguments were not provided:\n  <DATABASE_URL>\n\nUsage: pg-mcp <DATABASE_URL>", "an argument is missing: <DATABASE_URL>", "args", "", true},
		{"either of two", "ValueError: Either JIRA_API_TOKEN or JIRA_PERSONAL_TOKEN must be provided", "Either JIRA_API_TOKEN", "it mentions JIRA_API_TOKEN, JIRA_PERSONAL_TOKEN", "", false},
		{"Python's own library", "Fatal Python error: init_fs_encoding: failed to get the Python codec\nModuleNotFoundError: No module named 'encodings'", "does not find its own library", "PYTHONHOME", "", true},
		{"an old Node.js", "SyntaxError: The requested module 'node:util' does not provide an export named 'styleText'", "it needs a newer Node.js: styleText", "current version", "", true},
		{"a company's authority", "urllib3.exceptions.MaxRetryError: HTTPSConnectionPool: Max retries exceeded (Caused by SSLError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed'))", "does not trust the certificate", "NODE_EXTRA_CA_CERTS", "", true},
		{"a log with brackets", "[2026-11-28 06:00:00] ERROR - config - Environment variable DATABASE_URL not found", "DATABASE_URL is missing", "--env", "DATABASE_URL", true},
		{"pydantic's input", "pydantic_core.ValidationError: 1 validation error for S\n  Value error, 'a' excludes 'b' [type=value_error, input_value={'MY_URL': 'required'}, input_type=dict]", "'a' excludes 'b'", "", "", false},
		{"an import without its extension", "Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/x/node_modules/@acme/sdk/server/mcp' imported from /x/a.js\n    at f (node:x:1:1)", "lacks the extension .js: @acme/sdk/server/mcp", "mcp.js", "", true},
		{"an import that Node.js corrects", "Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/x/node_modules/acme/lib/y' imported from /x/a.js\nDid you mean to import \"acme/lib/y.js\"?\n    at f (node:x:1:1)", "acme/lib/y.js", "correct the import", "", true},
		{"a file of a package", "Error [ERR_MODULE_NOT_FOUND]: Cannot find module '/x/node_modules/acme/dist/y.js' imported from /x/a.js\n    at f (node:x:1:1)", "dist/y.js does not exist", "path", "", true},
		{"a file that hides a package", "ModuleNotFoundError: No module named 'mcp.server'; 'mcp' is not a package", "mcp.py, hides", "rename mcp.py", "", true},
		{"System.CommandLine", "Required command was not provided.\nUnrecognized command or argument 'start'.", "argument start", "args", "", true},
		{"a complaint above a usage", "APP_HOST should only contain a name.\nSee it.\nUsage: app [--host=<host>]", "should only contain a name", "its usage is", "", false},
		{"a description above a usage", "A server for notes.\nIt is small.\nUsage: app [--host=<host>]", "it only prints its usage", "its usage is", "", true},
		{"a union of zod", "ZodError: [\n  {\n    \"code\": \"invalid_union\",\n    \"errors\": [[{\"values\": [\"a\"], \"path\": [], \"message\": \"expected a\"}], [{\"values\": [\"b\", 7], \"path\": []}]],\n    \"path\": [\n      \"mode\", 0\n    ],\n    \"message\": \"Invalid input\"\n  }\n]", "mode.0 (Invalid input: expected one of a, b, 7)", "args", "", true},
		{"options of a usage", "usage: t [-h] [--local-timezone Z] [--max N]\nt: error: unrecognized arguments: --timezone=UTC", "--timezone=UTC", "similar: --local-timezone", "", true},
		{"no similar option", "usage: t [-h] [--local-timezone Z] [--max N]\nt: error: unrecognized arguments: --port 3", "--port 3", "its usage has --local-timezone, --max", "", true},
		{"options of Go", "flag provided but not defined: -readonly\nUsage of x:\n  -read-only\n    \tdo not write", "-readonly", "similar: -read-only", "", true},
		{"subcommands", "Usage: t COMMAND\n\nCommands:\n  init   Create it\n  serve  Serve", "usage", "its usage has init, serve", "", true},
		{"a choice of subcommands", "usage: t [-h] {serve,init} ...\nt: error: argument command: invalid choice: 'start' (choose from 'serve', 'init')", "invalid choice: 'start'", "serve", "", true},
		{"values of clap", "error: invalid value 'http' for '--transport <T>'\n  [possible values: stdio, sse]\n\nFor more information, try '--help'.", "http", "possible values: stdio, sse", "", true},
		{"what the program suggests", "error: unknown option '--prot'\n(Did you mean --port?)", "--prot", "Did you mean --port?", "", true},
		{"one of several ways", "ValueError: Log in with x login, or set ACME_TOKEN in the environment", "Log in with x login", "one of the ways", "", false},
		{"a list of ways", "ImportError: The key must be specified in one of the following ways:\n    - in the file\n    - via $ACME_KEY", "The key must be specified", "one of the ways", "", false},
		{"an npm package for uv", "error: Invalid version request: @acme/mcp", "@acme/mcp is the name of an npm package", "npx -y @acme/mcp", "", true},
		{"issues of zod as an object", "Invalid environment: [\n  {\n    path: [ 'API_URL' ],\n    message: 'Required'\n  }\n]", "API_URL is missing", "--env", "API_URL", true},
		{"killed", "Killed", "it was killed", "limits", "", true},
		{"one line without an error", "up and running", "up and running", "", "", false},
		{"lines without an error", "up\nand\nrunning", "", "", "", false},
	} {
		got := Find(Ended, strings.Split(tt.output, "\n"), nil)
		if !strings.Contains(got.What+" "+got.Said, tt.what) || !strings.Contains(got.Fix, tt.fix) || tt.what == "" && got.What != "" || tt.fix == "" && got.Fix != "" || got.Variable != tt.variable || got.Known != tt.known {
			t.Errorf("%s: got %+v; want %q, %q, variable %q, known %v", tt.name, got, tt.what, tt.fix, tt.variable, tt.known)
		}
	}
	got := Find(Ended, []string{"Error: WEATHER_KEY is required"}, []string{"WEATHER_KEY"})
	if got.Known || got.Variable != "" || !strings.Contains(got.Fix, "it does not accept the value of WEATHER_KEY") {
		t.Errorf("a variable that is set: got %+v", got)
	}
}

// TestFindSilent has the output of servers that run and do not respond.
func TestFindSilent(t *testing.T) {
	for _, tt := range []struct{ name, output, what string }{
		{"a service", "Connection lost, reconnecting", "it waits for something"},
		{"a wrong password", "[Redis Error] Error: WRONGPASS invalid username-password pair\nConnection lost, attempting to reconnect", "rejects the user or the password"},
		{"a database that does not exist", "error: database \"shop\" does not exist\nretrying in 5s", "the database shop does not exist"},
		{"a certificate", "retrying in 5s\nError: certificate has expired", "certificate of a service has expired"},
	} {
		if got := Find(Silent, strings.Split(tt.output, "\n"), nil); !got.Known || !strings.Contains(got.What, tt.what) {
			t.Errorf("%s: got %+v; want %q", tt.name, got, tt.what)
		}
	}
}

// TestTables shows that the data files are well formed.
func TestTables(t *testing.T) {
	for _, b := range causes() {
		if len(b.match) == 0 || b.fix == "" {
			t.Errorf("%s: match or fix is missing", b.name)
		}
	}
	for _, f := range forms() {
		if f.begin == nil {
			t.Errorf("%s: begin is missing", f.name)
		}
	}
}

// TestConcerns shows which lines of a server that works are about credentials that it lacks or
// cannot use. Ordinary log lines are not.
func TestConcerns(t *testing.T) {
	for _, tt := range []struct{ line, what string }{
		{"Failed to parse OPENAPI_MCP_HEADERS environment variable: SyntaxError: Expected property name or '}' in JSON at position 1", "OPENAPI_MCP_HEADERS is not valid JSON, so the server ignores it"},
		{"Error: could not parse EXTRA_HEADERS as JSON", "EXTRA_HEADERS is not valid JSON, so the server ignores it"},
		{"EXTRA_HEADERS is not valid JSON", "EXTRA_HEADERS is not valid JSON, so the server ignores it"},
		{"Warning: BRAVE_API_KEY is not set", "BRAVE_API_KEY is missing, as the server says"},
		{"\x1b[33mwarn\x1b[0m: GITHUB_TOKEN not set, using anonymous access", "GITHUB_TOKEN is missing, as the server says"},
		{"2026-11-28 10:00:00 WARNING root Missing environment variable SLACK_BOT_TOKEN", "SLACK_BOT_TOKEN is missing, as the server says"},
		{"Please set the OPENAI_API_KEY environment variable", "OPENAI_API_KEY is missing, as the server says"},
		{"No API key found, calls will fail", "No API key found, calls will fail"},
		{"[error] Authentication failed: check your settings", "[error] Authentication failed: check your settings"},
		{`{"level":50,"msg":"the access token has expired"}`, "error: the access token has expired"},
		{"credentials not found in ~/.config/x", "credentials not found in ~/.config/x"},

		{"Secure MCP Filesystem Server running on stdio", ""},
		{"INFO using BRAVE_API_KEY from the environment", ""},
		{"Loaded 3 credentials", ""},
		{"API key: ****1234", ""},
		{"DEBUG: GITHUB_TOKEN not set", ""},
		{"GITHUB_TOKEN is optional and not set", ""},
		{"GITHUB_TOKEN is not required for public repositories", ""},
		{"LOG_LEVEL not set, using info", ""},
		{"SyntaxError: Unexpected token } in JSON at position 3", ""},
		{"Warning: SSE is deprecated", ""},
		{"(node:1) ExperimentalWarning: CommonJS module is loading an ES module", ""},
		{"error: cannot open the cache, continuing without it", ""},
		{"token count: 0 missing", ""},
		{"Authentication: none", ""},
		{"the server listens without authentication", ""},
	} {
		got := ""
		for _, c := range Concerns([]string{"starting", tt.line}) {
			if got += cmp.Or(c.What, c.Line); c.Fix == "" {
				t.Errorf("%q: no remedy", tt.line)
			}
		}
		if got != tt.what {
			t.Errorf("%q: %q, want %q", tt.line, got, tt.what)
		}
	}
	twice := Concerns([]string{"A_TOKEN is not set", "A_TOKEN is not set", "B_TOKEN is not set"})
	if len(twice) != 2 {
		t.Errorf("%d concerns of three lines, two of them equal, want 2", len(twice))
	}
}

// TestFindNothing has outputs that look like those of a known cause.
func TestFindNothing(t *testing.T) {
	for _, tt := range []struct{ stderr, not string }{
		{"Error: API key not found in environment variables", "a file or a program"},
		{"Error: API key missing: set ACME_API_KEY", "a file or a program"},
		{"Error: Environment variable 'ACME_KEY' not found", "a file or a program"},
		{"Error: Model 'gpt-9' not found", "a file or a program"},
		{"Error: Authentication failed for Jira: check your email and API token", "database"},
		{"httpx.RemoteProtocolError: Server disconnected without sending a response.", "TLS"},
		{"Error: HTTP_REQUEST_TIMEOUT is required", "TLS"},
		{"Error: checksum of model.bin doesn't match expected value", "certificate"},
		{`Error: exec: "kubectl": executable file not found in $PATH`, "image"},
		{"Error: SSL_CERT_PATH is required", "database"},
		{"remote error: tls: certificate required", "database"},
		{"Error: token has invalid claims: token is expired", "AWS"},
		{"Error: accepts 1 arg(s), received 2", "missing"},
		{"/srv/start.sh: line 3: [: too many arguments", "argument"},
		{"TypeError: value.replaceAll is not a function", "Node.js"},
		{"SyntaxError: Unexpected token '{'", "newer Node.js"},
		{"SyntaxError: The requested module './types.js' does not provide an export named 'Note'", "version of a package"},
		{"ImportError: cannot import name 'a' from partially initialized module 'b' (most likely due to a circular import)", "packages"},
		{"remote: Repository not found.\nfatal: repository 'https://github.com/acme/notes/' not found", "image"},
		{"PHP Warning: file_get_contents(notes.txt): failed to open stream: No such file or directory", "dependencies"},
		{"java.net.BindException: Permission denied", "in use"},
		{"git@github.com: Permission denied (publickey).", "file or folder git@github.com"},
	} {
		if c := Find(Ended, strings.Split(tt.stderr, "\n"), nil); c.Known && strings.Contains(c.What, tt.not) {
			t.Errorf("%q: %q", tt.stderr, c.What)
		}
	}
	for _, tt := range []struct {
		r   Response
		not string
	}{
		{Response{Status: 404, Host: "notes.up.railway.app", Body: `{"detail":"Not Found"}`}, "Railway"},
		{Response{Status: 502, Body: "<style>body { text-rendering: auto }</style>"}, "Render"},
		{Response{Status: 500, Body: "at System.Runtime.CompilerServices.TaskAwaiter.Throw()"}, "function"},
		{Response{Status: 500, Body: `{"message":"Internal server error"}`}, "function"},
		{Response{Status: 403, Body: `{"message":"Forbidden resource","error":"Forbidden","statusCode":403}`}, "AWS"},
		{Response{Status: 404, Host: "localhost:1033"}, "Cloudflare"},
	} {
		if c := tt.r.Find(); c.Known && strings.Contains(c.What, tt.not) {
			t.Errorf("%d %s: %q", tt.r.Status, tt.r.Body, c.What)
		}
		if c := tt.r.Who(); c.Known && strings.Contains(c.What, tt.not) {
			t.Errorf("%d %s: %q", tt.r.Status, tt.r.Body, c.What)
		}
	}
}

// TestAbsent checks that an argument that is the path of no file is the cause only if nothing else
// is certain, and the statement is about a file.
func TestAbsent(t *testing.T) {
	const path = "/srv/x/log.txt"
	for _, tt := range []struct{ stderr, want string }{
		{"error: No such file or directory (os error 2)", "there is no file or folder " + path},
		{"Error: path not found", "there is no file or folder " + path},
		{"ModuleNotFoundError: No module named 'requests'", "the Python module requests is missing"},
		{"Error: user not found", "Error: user not found"},
		{"Error: cannot read /srv/x/log.txt: file not found", "/srv/x/log.txt"},
	} {
		p := Process{Stderr: []string{tt.stderr}, Absent: []string{path}, Command: []string{"server", path}}
		if c := p.Find(); !strings.Contains(c.What, tt.want) || strings.Contains(c.What, "there is no") != strings.Contains(tt.want, "there is no") {
			t.Errorf("%q: %q, want %q", tt.stderr, c.What, tt.want)
		}
	}
}
