package config

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v4"

	"mcpwire/schema/fullschema"
)

// validFiles are valid for the loader and the schema.
var validFiles = map[string]string{
	"one command": `
upstreams:
  files: {command: [npx, -y, server, /data]}`,
	"a program alone": `
upstreams:
  files: {command: mcp-files}`,
	"an anchor": `
upstreams:
  a: {command: a, timeouts: &t {call: 10s}}
  b: {command: b, timeouts: *t}`,
	"json": `{"upstreams": {"files": {"command": ["mcp-files"]}}}`,
	"everything": `
listen: {address: "0.0.0.0:8443", path: /gw, sse: true, tls: {cert: file:tls.crt, key: tls.key}, hosts: [mcp.example.com], origins: ["https://app.example.com"], behind: [10.0.0.0/8, "::1"], sessions: 50, streams: 60, perCaller: 7, sessionTimeout: 1h, maxMessage: 16M}
auth: {resource: "https://mcp.example.com/gw", scopes: [mcp], issuers: [{url: "https://idp.example.com", audience: mcp, jwks: "https://idp.example.com/keys"}, {url: "https://old.example.com", introspection: {endpoint: "https://old.example.com/introspect", clientId: gw, clientSecret: "env:SECRET"}}]}
login: {url: "https://mcp.example.com/", address: "0.0.0.0:8444", identity: {issuer: "https://idp.example.com", id: gw, secret: "env:WEB_SECRET", claim: oid, scopes: [profile]}, store: logins}
upstreams:
  files: {command: [mcp-files], args: [/data], env: {LOG_LEVEL: debug, API_KEY: "env:KEY"}, inherit: [HTTPS_PROXY], cwd: /data, framing: header, isolation: client, idle: 5m, rename: {read_file: read}, tools: {allow: ["read_*"], deny: ["delete_*"]}, prompts: {deny: ["*"]}, resources: {allow: ["file://*"]}, pin: hide, timeouts: {connect: 5s, call: 1m, restart: 2s}, limits: {rate: 5.5, burst: 10, concurrent: 4, processes: 3, processesPerCaller: 1}}
  github: {url: "https://api.example.com/mcp/", transport: http, era: modern, credentials: {exchange: {issuer: "https://idp.example.com", id: gw, secret: "file:secret", audience: github, resource: "https://api.example.com/", scopes: [read]}}}
  legacy: {url: "env:LEGACY_URL", transport: sse, headers: {X-Api-Key: "env:LEGACY_KEY", X-Tenant: blue}, tls: {ca: ca.pem}}
  client: {url: "https://c.example.com/mcp", credentials: {client: {issuer: "https://idp.example.com", id: gw, secret: "env:S"}}}
  token: {url: "https://t.example.com/mcp", credentials: {token: "env:T"}, disabled: true}
  login: {url: "https://l.example.com/mcp", credentials: {login: {issuer: "https://as.example.com", id: gw, secret: "env:S", scopes: [read], authorizationEndpoint: "https://as.example.com/authorize", tokenEndpoint: "https://as.example.com/token"}}}
  easy: {url: "https://e.example.com/mcp", credentials: {login: {}}}
  sock: {socket: "unix:/run/mcp.sock", framing: line, isolation: shared}
views: [{match: {claims: {team: support, roles: [a, b]}, scopes: [read], principals: ["ada*"]}, allow: ["github__*"], deny: ["github__delete_*"]}, {allow: ["*"]}]
limits: {perCaller: {rate: 20, burst: 40, concurrent: 16}, upstream: {concurrent: 256}}
keys: ["file:new.key", "env:OLD_KEY"]
audit: stderr
pins: pins.json
admin: {address: "0.0.0.0:9090", allowRemote: true}
capture: captures
instructions: Be nice.
labelElicitations: always
listWait: 4s
drain: 5s`,
}

// invalidFiles are files and their errors.
var invalidFiles = []struct {
	name, text string
	want       []string
	// valid means that the schema cannot detect the error.
	valid bool
}{
	{"empty", "", []string{"1:1: the file is empty: it needs at least upstreams"}, false},
	{"a comment", "# a comment\n", []string{"1:1: the file is empty: it needs at least upstreams"}, false},
	{"a list without an end", "upstreams:\n  a: [1\nb\n", []string{"4:1: not YAML: did not find expected ',' or ']', while parsing a flow sequence that begins at 2:6"}, false},
	{"an error in the first line", "upstreams: @a\n", []string{"1:12: not YAML: found character that cannot start any token"}, false},
	{"a tab", "upstreams:\n\ta: {command: a}\n", []string{"2:1: not YAML: found character that cannot start any token"}, false},
	{"wrong indentation", "upstreams:\n  a: {command: a}\n b: {command: b}\n", []string{"3:2: not YAML: did not find expected key, while parsing a block mapping that begins at 1:1"}, false},
	{"two values", "upstreams:\n  a: {command: é}: b\n", []string{"2:18: not YAML: mapping values are not allowed in this context"}, false},
	{"a text without an end", "upstreams:\n  a: {command: \"a}\n", []string{"3:1: not YAML: found unexpected end of stream, while scanning a quoted scalar that begins at 2:16"}, false},
	{"an unknown anchor", "upstreams:\n  a: *b\n", []string{"2:6: not YAML: unknown anchor 'b' referenced"}, false},
	{"a control character", "upstreams:\n  a: {command: é\x01}\n", []string{"2:17: not YAML: control characters are not allowed (value: 1)"}, false},
	{"not UTF-8", "upstreams:\n  a: {command: \xff}\n", []string{"2:16: not YAML: invalid leading UTF-8 octet (value: 255)"}, false},
	{"an error in a second document", "upstreams: {a: {command: a}}\n---\na: @\n", []string{"3:4: not YAML: found character that cannot start any token"}, true},
	{"two documents", "upstreams: {a: {command: a}}\n---\nupstreams: {}\n", []string{"2:1: the file has more than one document"}, true},
	{"a list", "- a\n", []string{"1:1: the configuration is a list: want a mapping of keys to values"}, false},
	{"no upstreams", "listen: 127.0.0.1:1\n", []string{`1:1: missing key "upstreams"`}, false},
	{"empty upstreams", "upstreams: {}\n", []string{`1:12: upstreams has no upstream: add one, such as files: {command: [npx, -y, "@modelcontextprotocol/server-filesystem", /data]}`}, false},
	{"no value", "upstreams:\n", []string{"1:11: upstreams has no value: give one or remove the key"}, false},
	{"unknown keys", "upstreams:\n  a: {comand: a, command: a}\nlisten: {adress: x}\nxyz: 1\n", []string{
		`2:7: unknown key "comand" in upstreams.a: did you mean "command"?`,
		`3:10: unknown key "adress" in listen: did you mean "address"?`,
		`4:1: unknown key "xyz"`,
	}, false},
	{"duplicate key", "upstreams:\n  a: {command: a}\n  a: {command: b}\n", []string{`3:3: duplicate key "a" in upstreams: the first is in line 2`}, false},
	{"merge key", "upstreams:\n  a: &a {command: a}\n  b: {<<: *a}\n", []string{"3:3: upstream b needs a command, a url or a socket", "3:7: merge keys (<<) are not supported: repeat the keys"}, true},
	{"a key that is not a text", "upstreams:\n  a: {command: a}\n? [x]\n: 1\n", []string{"3:3: a key is a list: want a text"}, false},
	{"wrong types", "upstreams:\n  a: {command: a, args: x, idle: 5, disabled: yes, limits: {concurrent: few}}\n  b: {command: [1]}\n", []string{
		`2:25: upstreams.a.args is a text: want a list`,
		`2:34: upstreams.a.idle is the number 5: want a time with a unit, such as 10s`,
		`2:47: upstreams.a.disabled is a text: want true or false`,
		`2:73: upstreams.a.limits.concurrent is a text: want a whole number`,
		`3:17: upstreams.b.command[0] is the number 1: want a text (write "1")`,
	}, false},
	{"a bad duration", "upstreams: {a: {command: a, idle: 5 minutes}}\n", []string{`1:35: upstreams.a.idle is "5 minutes": want a time with a unit, such as 500ms, 10s or 5m`}, false},
	{"a bad size", "upstreams: {a: {command: a}}\nlisten: {maxMessage: 4MB}\n", []string{`2:22: listen.maxMessage is a text: want a number of bytes, such as 65536, 64K or 16M`}, false},
	{"too small", "upstreams: {a: {command: a, idle: 1ms, limits: {concurrent: 0, rate: -1}}}\nlisten: {maxMessage: 2}\n", []string{
		"1:35: upstreams.a.idle is too small: want at least 1s",
		"1:61: upstreams.a.limits.concurrent is too small: want at least 1",
		"1:70: upstreams.a.limits.rate is too small: want at least 0.001",
		"2:22: listen.maxMessage is too small: want at least 1K",
	}, false},
	{"a rename of nothing", "upstreams: {a: {command: a, rename: {\"\": b}}}\n", []string{`1:38: upstreams.a.rename."" has no name to replace`}, true},
	{"rates", "limits: {perCaller: {rate: .inf}, upstream: {burst: 2}}\nupstreams: {a: {command: a, limits: {rate: .nan}}, b: {command: b, limits: {burst: 1}}, c: {command: c, limits: {rate: 1, burst: -1}}}\n", []string{
		"1:28: limits.perCaller.rate is the number .inf: want a number",
		"1:46: limits.upstream.burst needs a rate",
		"2:44: upstreams.a.limits.rate is the number .nan: want a number",
		"2:77: upstreams.b.limits.burst needs a rate",
		"2:130: upstreams.c.limits.burst is too small: want at least 1",
	}, false},
	{"a duration that is too small", "upstreams: {a: {command: a, idle: 1ms}}\n", []string{"1:35: upstreams.a.idle is too small: want at least 1s"}, true},
	{"an enum", "upstreams: {a: {command: a, isolation: shard}}\n", []string{`1:40: upstreams.a.isolation is "shard": want client, principal or shared: did you mean "shared"?`}, false},
	{"no kind of upstream", "upstreams: {a: {era: auto}}\n", []string{"1:13: upstream a needs a command, a url or a socket"}, false},
	{"two kinds of upstream", "upstreams: {a: {command: a, url: \"http://localhost/\"}}\n", []string{"1:29: upstream a has command and url: want only one of them"}, false},
	{"keys of another kind", "upstreams: {a: {command: a, headers: {X: y}}, b: {url: \"http://localhost/\", env: {A: b}}}\n", []string{
		"1:29: headers does not apply to an upstream with a command",
		"1:77: env does not apply to an upstream with a url",
	}, false},
	{"names", "upstreams:\n  a__b: {command: a}\n  \"\": {command: a}\n", []string{
		`2:3: "a__b" cannot be the name of an upstream: want up to 32 letters, digits, hyphens and single underscores, such as files`,
		`3:3: "" cannot be the name of an upstream: want up to 32 letters, digits, hyphens and single underscores, such as files`,
	}, false},
	{"names that differ in case", "upstreams:\n  Files: {command: a}\n  files: {command: a}\n", []string{`3:3: the names of upstreams "Files" and "files" differ in case only: rename one`}, true},
	{"renames", "upstreams: {a: {command: a, rename: {x: z, y: z, v: b__z, w: a b}}, b: {command: b, rename: {x: z}}}\n", []string{
		"1:47: upstreams.a.rename.x and upstreams.a.rename.y are both renamed to z",
		"1:53: upstreams.a.rename.v is b__z, which looks like a name of upstream b: use a name without two underscores",
		`1:62: upstreams.a.rename.w is "a b": want up to 96 letters, digits, underscores, hyphens and dots`,
		"1:97: upstreams.a.rename.y and upstreams.b.rename.x are both renamed to z",
	}, true},
	{"a secret in plain text", "upstreams:\n  a: {url: \"https://x.example/mcp\", credentials: {token: ghp_123456}}\nauth: {token: hunter2}\n", []string{
		"2:58: upstreams.a.credentials.token is a secret in plain text: put it into an environment variable and write env:NAME, or into a file and write file:PATH",
		"3:15: auth.token is a secret in plain text: put it into an environment variable and write env:NAME, or into a file and write file:PATH",
	}, false},
	{"values that look like secrets", "upstreams:\n  a: {command: a, env: {API_KEY: abcdef, HOME: /x, KEY_PASSWORD: /run/key}}\n  b: {url: \"https://x.example/mcp?api_key=abcdef\", headers: {Authorization: Bearer abcdef, X-Tenant: t}}\n", []string{
		"2:34: upstreams.a.env.API_KEY looks like a secret in plain text: put it into an environment variable and write env:NAME, or into a file and write file:PATH",
		"3:12: upstreams.b.url looks like it has a secret in it: put the URL into an environment variable and write env:NAME",
		"3:77: upstreams.b.headers.Authorization looks like a secret in plain text: put it into an environment variable and write env:NAME, or into a file and write file:PATH",
	}, true},
	{"references", "upstreams: {a: {command: a, env: {A: \"env:\", B: \"file:\"}}}\n", []string{
		"1:38: upstreams.a.env.A: env: is followed by the name of a variable, such as env:API_KEY",
		"1:49: upstreams.a.env.B: file: is followed by a path, such as file:/run/secrets/key",
	}, true},
	{"secrets in arguments", "upstreams:\n  u0: {command: [docker, run, -e, GITHUB_PAT=Zq8Lx0Tn4Vb7Kd2Rw5Yc, img]}\n  u1: {command: [sh, -c, \"DB_PASSWORD=Zq8Lx0Tn4Vb7Kd2Rw5Yc exec srv\"]}\n  u2: {command: [srv, --api-key, Zq8Lx0Tn4Vb7Kd2Rw5Yc]}\n  u3: {command: [srv, --api-key=Zq8Lx0Tn4Vb7Kd2Rw5Yc]}\n  u4: {command: [srv, --password, hunter2]}\n  u5: {command: [srv, --header, \"Authorization: Bearer Zq8Lx0Tn4Vb7Kd2Rw5Yc\"]}\n  u6: {command: [srv, -H, \"X-Key: Zq8Lx0Tn4Vb7Kd2Rw5Yc\"]}\n  u7: {command: [srv, \"postgres://me:Zq8Lx0Tn4Vb7Kd2Rw5Yc@db/x\"]}\n  u8: {command: [srv, \"https://x.example/?api_key=Zq8Lx0Tn4Vb7Kd2Rw5Yc\"]}\n  ok0: {command: [srv, --token-file, /run/token]}\n  ok1: {command: [srv, --token, ./token]}\n  ok2: {command: [srv, --auth, none]}\n  ok3: {command: [srv, --max-tokens, n4096]}\n  ok4: {command: [srv, --header, \"Authorization: Bearer ${TOKEN}\"]}\n  ok5: {command: [srv, --header, \"X-Tenant: blue\"]}\n  ok6: {command: [docker, run, -e, GITHUB_PAT, img]}\n  ok7: {command: [sh, -c, \"TOKEN=$TOKEN exec srv\"]}\n  ok8: {command: [npx, -y, \"@scope/server-2025@1.2.3\"]}\n  ok9: {command: [srv, 550e8400-e29b-41d4-a716-446655440000]}\n  split: {command: [srv, --token], args: [Zq8Lx0Tn4Vb7Kd2Rw5Yc]}\n", []string{
		"2:35: upstreams.u0.command[3] looks like a secret, and every user of this machine can read arguments: put it into env, and have the command read it from there",
		"3:26: upstreams.u1.command[2] looks like a secret, and every user of this machine can read arguments: put it into env, and have the command read it from there",
		"4:34: upstreams.u2.command[2] looks like a secret, and every user of this machine can read arguments: put it into env, and have the command read it from there",
		"5:23: upstreams.u3.command[1] looks like a secret, and every user of this machine can read arguments: put it into env, and have the command read it from there",
		"6:35: upstreams.u4.command[2] looks like a secret, and every user of this machine can read arguments: put it into env, and have the command read it from there",
		"7:33: upstreams.u5.command[2] looks like a secret, and every user of this machine can read arguments: put it into env, and have the command read it from there",
		"8:27: upstreams.u6.command[2] looks like a secret, and every user of this machine can read arguments: put it into env, and have the command read it from there",
		"9:23: upstreams.u7.command[1] looks like a secret, and every user of this machine can read arguments: put it into env, and have the command read it from there",
		"10:23: upstreams.u8.command[1] looks like a secret, and every user of this machine can read arguments: put it into env, and have the command read it from there",
		"21:43: upstreams.split.args[0] looks like a secret, and every user of this machine can read arguments: put it into env, and have the command read it from there",
	}, true},
	{"inherited variables", "auth: {token: \"env:TOKEN\"}\nupstreams:\n  a: {command: a, inherit: [HTTPS_PROXY, AWS_*, \"*\", TOKEN, A=b, \"*_KEY\", OTEL_EXPORTER_OTLP_HEADERS]}\n  b: {url: \"https://x.example/mcp\", inherit: [A]}\n", []string{
		`3:54: upstreams.a.inherit[3]: TOKEN has a secret of the gateway, which servers do not inherit: if this one needs it, write env: {TOKEN: "env:TOKEN"}`,
		`3:61: "A=b" is neither the name of a variable nor the beginning of names and *, such as AWS_*`,
		`3:66: "*_KEY" is neither the name of a variable nor the beginning of names and *, such as AWS_*`,
		`3:75: upstreams.a.inherit[6]: OTEL_EXPORTER_OTLP_HEADERS has a secret of the gateway, which servers do not inherit: if this one needs it, write env: {OTEL_EXPORTER_OTLP_HEADERS: "env:OTEL_EXPORTER_OTLP_HEADERS"}`,
		"4:37: inherit does not apply to an upstream with a url",
	}, true},
	{"headers", "upstreams:\n  a: {url: \"https://x.example/mcp\", headers: {\"a b\": c, mcp-name: d, X-A: e, x-a: f}}\n  b: {url: \"https://x.example/mcp\", headers: {authorization: \"env:H\"}, credentials: {token: \"env:T\"}}\n", []string{
		`2:47: "a b" cannot be the name of a header`,
		"2:57: upstreams.a.headers.mcp-name: the protocol itself has this header",
		"2:78: X-A and x-a are the same header",
		"3:47: upstreams.b.headers.authorization and credentials exclude each other",
	}, true},
	{"an address that other machines can reach", "listen: 0.0.0.0:80\nadmin: \":9090\"\nupstreams: {a: {command: a}}\n", []string{
		"1:9: other machines can reach 0.0.0.0:80 without a token: add auth, listen at 127.0.0.1, or set listen.allowRemote",
	}, true},
	{"a socket with options of HTTP", "listen: {address: \"unix:/x\", sse: true}\nauth: {token: \"env:T\"}\nupstreams: {a: {command: a}}\n", []string{
		"1:30: listen.sse is for HTTP, and listen.address is unix:/x",
		"2:1: auth is for HTTP, and listen.address is unix:/x",
	}, true},
	{"addresses", "listen: nowhere\nadmin: {address: \"x:y\"}\nupstreams: {a: {socket: x}}\n", []string{
		`1:9: listen.address is "nowhere": want HOST:PORT, such as 127.0.0.1:8080`,
		`2:18: admin.address is "x:y": want HOST:PORT, such as 127.0.0.1:8080`,
		`3:25: upstreams.a.socket is "x": want unix:PATH or tcp:HOST:PORT`,
	}, true},
	{"auth without a token or issuers", "auth: {resource: \"https://x.example/\"}\nupstreams: {a: {command: a}}\n", []string{"1:7: auth needs a token or issuers"}, false},
	{"auth without a resource", "auth: {issuers: [{url: \"https://x.example/\"}]}\nupstreams: {a: {command: a}}\n", []string{"1:7: auth.issuers needs auth.resource, the public URL of the gateway"}, false},
	{"an issuer without TLS", "auth: {resource: \"https://x.example/\", issuers: [{url: \"http://x.example/\"}]}\nupstreams: {a: {command: a}}\n", []string{
		"1:56: auth.issuers[0].url needs https: over http anyone on the network path could read secrets",
	}, true},
	{"views without auth", "views: [{match: {scopes: [a]}, allow: [\"*\"]}, {}]\nupstreams: {a: {command: a}}\n", []string{
		"1:10: views[0].match needs auth: without it, callers have neither claims nor scopes",
		`1:47: views[1] neither allows nor denies anything: add allow, such as ["*"]`,
	}, false},
	{"credentials", "upstreams:\n  a: {url: \"http://x.example/mcp\", credentials: {token: \"env:T\"}}\n  b: {url: \"https://x.example/mcp\", credentials: {}}\n  c: {url: \"https://x.example/mcp\", credentials: {exchange: {issuer: \"https://i.example\", id: a}}}\n  d: {url: \"https://x.example/mcp\", credentials: {token: \"env:T\", client: {issuer: \"https://i.example\", id: a, secret: \"env:S\"}}}\n", []string{
		"2:49: upstreams.a.credentials needs an https URL: over http anyone on the network path could read the token",
		"3:50: upstreams.b.credentials needs a token, client, exchange or login",
		"4:51: upstreams.c.credentials.exchange needs auth.issuers: without them, callers have no token to exchange",
		"4:61: upstreams.c.credentials.exchange: id and secret need each other",
		"5:67: upstreams.d.credentials has token and client: want only one of them",
	}, false},
	{"logins without an identity", "auth: {resource: \"https://x.example/mcp\", issuers: [{url: \"https://i.example\"}]}\nupstreams: {a: {url: \"https://x.example/mcp\", credentials: {login: {}}}}\n", []string{
		"1:7: credentials.login needs login.identity with auth.issuers, so that nobody can log in for somebody else: add login: {identity: {issuer: ..., id: ...}}",
	}, true},
	{"logins of other machines", "listen: {address: \"0.0.0.0:80\", allowRemote: true}\nupstreams: {a: {url: \"https://x.example/mcp\", credentials: {login: {}}}}\n", []string{
		"1:19: credentials.login needs auth.issuers and login.identity where other machines can connect, so that nobody can log in for somebody else",
	}, true},
	{"logins at a public URL with a shared token", "auth: {token: \"env:T\", resource: \"https://x.example/mcp\"}\nlogin: {store: memory}\nupstreams: {a: {url: \"https://x.example/mcp\", credentials: {login: {}}}}\n", []string{
		"2:8: credentials.login needs auth.issuers and login.identity if the gateway has a public URL, so that nobody can log in for somebody else",
	}, true},
	{"an identity of another issuer", "auth: {resource: \"https://x.example/mcp\", issuers: [{url: \"https://i.example\"}]}\nlogin: {url: \"https://x.example/gw\", address: \"0.0.0.0:1\", identity: {issuer: \"https://j.example\", id: a}}\nupstreams: {a: {command: a}}\n", []string{
		"2:14: login.url has a path or a query: want only the beginning, such as https://mcp.example.com",
		"2:79: login.identity.issuer is none of auth.issuers: callers and browsers must log in at the same one",
	}, true},
	{"incomplete logins", "login: {address: \"0.0.0.0:1\", url: \"http://x.example\"}\nupstreams:\n  a: {url: \"https://x.example/mcp\", credentials: {login: {id: a}}}\n  b: {url: \"https://x.example/mcp\", credentials: {login: {secret: \"env:S\", tokenEndpoint: \"https://i.example\"}}}\n  c: {command: c, credentials: {login: {}}}\n", []string{
		"1:18: other machines can reach 0.0.0.0:1: add login.identity, or listen at 127.0.0.1",
		"1:36: login.url needs https: over http anyone on the network path could read secrets",
		"1:36: credentials.login needs auth.issuers and login.identity if the gateway has a public URL, so that nobody can log in for somebody else",
		"3:59: upstreams.a.credentials.login.id needs issuer: an id belongs to one authorization server",
		"4:59: upstreams.b.credentials.login.secret needs id",
		"5:19: credentials does not apply to an upstream with a command",
	}, false},
	{"a command line as one text", "upstreams: {a: {command: npx -y server}}\n", []string{"1:26: upstreams.a.command is one program with a space in its name: write a list, such as [node, server.js]"}, true},
}

// compileSchema compiles the published schema.
func compileSchema(t *testing.T) func(text string) error {
	t.Helper()
	validate, err := fullschema.Engine(Schema)
	if err != nil {
		t.Fatal(err)
	}
	return func(text string) error {
		var v any
		if err := yaml.Unmarshal([]byte(text), &v); err != nil {
			return err
		}
		data, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return validate(data)
	}
}

func TestValidFiles(t *testing.T) {
	validate := compileSchema(t)
	for name, text := range validFiles {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse("gateway.yaml", []byte(text)); err != nil {
				t.Errorf("the loader returned\n%v", err)
			}
			if err := validate(text); err != nil {
				t.Errorf("the schema returned %v", err)
			}
		})
	}
}

func TestInvalidFiles(t *testing.T) {
	validate := compileSchema(t)
	for _, tt := range invalidFiles {
		t.Run(tt.name, func(t *testing.T) {
			var want strings.Builder
			for i, line := range tt.want {
				if i > 0 {
					want.WriteByte('\n')
				}
				want.WriteString("gateway.yaml:" + line)
			}
			c, err := Parse("gateway.yaml", []byte(tt.text))
			if err == nil || c != nil {
				t.Fatalf("got %v, %v, want an error", c, err)
			}
			if diff := cmp.Diff(want.String(), err.Error()); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if err := validate(tt.text); (err == nil) != tt.valid {
				t.Errorf("the schema returned %v, want valid %v", err, tt.valid)
			}
		})
	}
}

// TestParse checks the values of a file with all keys, and that each key sets a field.
func TestParse(t *testing.T) {
	c, err := Parse(filepath.Join("dir", "gateway.yaml"), []byte(validFiles["everything"]))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, u := range c.Upstreams {
		names = append(names, u.Name)
	}
	if diff := cmp.Diff([]string{"files", "github", "legacy", "client", "token", "login", "easy", "sock"}, names); diff != "" {
		t.Errorf("order of upstreams (-want +got):\n%s", diff)
	}
	files := c.Upstream("files")
	want := &Upstream{
		Name: "files", Command: Texts{"mcp-files"}, Args: []string{"/data"}, Cwd: "/data", Framing: "header", Isolation: "client", Idle: Duration(5 * time.Minute),
		Env: Values{"LOG_LEVEL": {Text: "debug"}, "API_KEY": {Reference: Reference{Env: "KEY"}}}, Inherit: []string{"HTTPS_PROXY"},
		Tools: Filter{Allow: []string{"read_*"}, Deny: []string{"delete_*"}}, Rename: map[string]string{"read_file": "read"},
		Prompts: Filter{Deny: []string{"*"}}, Resources: Filter{Allow: []string{"file://*"}}, Pin: "hide",
		Timeouts: Timeouts{Connect: Duration(5 * time.Second), Call: Duration(time.Minute), Restart: Duration(2 * time.Second)},
		Limits:   UpstreamLimits{Rate: 5.5, Burst: 10, Concurrent: 4, Processes: 3, ProcessesPerCaller: 1},
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got, want := c.Listen.TLS.Key, Path(filepath.Join("dir", "tls.key")); got != want {
		t.Errorf("listen.tls.key = %q, want %q", got, want)
	}
	if got, want := c.Upstream("github").Credentials.Exchange.Secret.File, filepath.Join("dir", "secret"); got != want {
		t.Errorf("path of the secret: got %q, want %q", got, want)
	}
	if got, want := c.Listen.MaxMessage, Size(16<<20); got != want {
		t.Errorf("listen.maxMessage = %d, want %d", got, want)
	}
	checkAllSet(t, "", reflect.ValueOf(*c), map[string]bool{
		"Auth.Token": true, "Auth.Issuers[0].Introspection": true, "Auth.Issuers[1].Audience": true, "Auth.Issuers[1].JWKS": true,
		"Views[1].Match": true, "Views[1].Deny": true,
		"Listen.AllowRemote": true, "Limits.Upstream.Rate": true, "Limits.Upstream.Burst": true, "Limits.Upstream.Processes": true, "Limits.Upstream.ProcessesPerCaller": true,
	})
}

// checkAllSet reports fields without a value, except for those of upstreams and of unset.
func checkAllSet(t *testing.T, path string, v reflect.Value, unset map[string]bool) {
	t.Helper()
	switch {
	case v.Type() == reflect.TypeFor[Upstreams](), unset[path]:
	case v.IsZero():
		t.Errorf("%s has no value", path)
	case v.Kind() == reflect.Pointer:
		checkAllSet(t, path, v.Elem(), unset)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			checkAllSet(t, fmt.Sprintf("%s[%d]", path, i), v.Index(i), unset)
		}
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[Reference]():
		for i := range v.NumField() {
			if f := v.Type().Field(i); keyOf(f) != "" {
				checkAllSet(t, strings.TrimPrefix(path+"."+f.Name, "."), v.Field(i), unset)
			}
		}
	}
}

// TestUpstreamKeys checks that the file with all keys has each key of an upstream.
func TestUpstreamKeys(t *testing.T) {
	c, err := Parse("gateway.yaml", []byte(validFiles["everything"]))
	if err != nil {
		t.Fatal(err)
	}
	of := reflect.TypeFor[Upstream]()
	for i := range of.NumField() {
		set := false
		for _, u := range c.Upstreams {
			set = set || !reflect.ValueOf(*u).Field(i).IsZero()
		}
		if !set {
			t.Errorf("no upstream sets %s", of.Field(i).Name)
		}
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"secret": " abc\n", "empty": "\n", "tls.crt": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GATEWAY_TEST_SET", "x")
	text := `
listen: {address: 127.0.0.1:1, tls: {cert: tls.crt, key: tls.key}}
upstreams:
  a: {command: no-such-program-here, cwd: nowhere, env: {A: "env:GATEWAY_TEST_SET", B: "env:GATEWAY_TEST_UNSET", C: "file:secret", D: "file:empty"}}
  b: {command: [./no-such-program]}
  c: {url: "env:GATEWAY_TEST_SET"}
  d: {command: no-such-program-here, env: {A: "env:GATEWAY_TEST_UNSET"}, disabled: true}
`
	path := filepath.Join(dir, "gateway.yaml")
	c, err := Parse(path, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range c.Check() {
		got = append(got, strings.ReplaceAll(strings.TrimPrefix(e.Error(), path+":"), dir, "DIR"))
		got[len(got)-1] = strings.ReplaceAll(got[len(got)-1], here, "HERE")
	}
	want := []string{
		"2:58: listen.tls.key: stat DIR/tls.key: no such file or directory",
		"4:16: upstreams.a.command: the program no-such-program-here is not in the PATH: install it, or use its full path",
		"4:43: upstreams.a.cwd: DIR/nowhere is not a folder",
		"4:88: upstreams.a.env.B: the environment variable GATEWAY_TEST_UNSET is not set",
		"4:135: upstreams.a.env.D: file:DIR/empty is empty",
		`5:16: upstreams.b.command: ./no-such-program is not a program that can be run: exec: "HERE/no-such-program": stat HERE/no-such-program: no such file or directory`,
		"6:12: upstreams.c.url: the text of env:GATEWAY_TEST_SET is not a URL",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	secret, err := c.Upstream("a").Env["C"].Resolve()
	if secret != "abc" || err != nil {
		t.Errorf("secret of a file: got %q, %v, want abc", secret, err)
	}
}

func TestWatcher(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to string) {
		t.Helper()
		if err := os.Symlink(to, filepath.Join(dir, "new")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "gateway.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	write("a", "one")
	write("b", "two")
	link("a")
	w := NewWatcher(filepath.Join(dir, "gateway.yaml"))
	polls := func(want ...bool) {
		t.Helper()
		for i, want := range want {
			if got := w.Changed(); got != want {
				t.Errorf("call %d: Changed = %v, want %v", i+1, got, want)
			}
		}
	}
	polls(false, false)
	link("b")
	polls(false, true, false)
	write("b", "a longer text")
	polls(false)
	write("b", "a text that is longer still")
	polls(false, true, false)
	if err := os.Remove(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	polls(false, false)
	write("b", "a new file")
	polls(false, true, false)
	write("b", "known")
	w.Forget()
	polls(false, false)
}

// TestReferenceHidesSecrets checks that errors about secrets do not contain them.
func TestReferenceHidesSecrets(t *testing.T) {
	const secret = "hunter2-and-more"
	for _, text := range []string{
		"upstreams: {a: {url: \"https://x.example/mcp\", credentials: {token: " + secret + "}}}",
		"upstreams: {a: {url: \"https://x.example/mcp\", headers: {Authorization: Bearer " + secret + "}}}",
		"upstreams: {a: {url: \"https://u:" + secret + "@x.example/mcp\"}}",
		"upstreams: {a: {command: a, env: {API_KEY: " + secret + "}}}",
		"upstreams: {a: {command: a}}\nauth: {token: [" + secret + "]}",
	} {
		_, err := Parse("gateway.yaml", []byte(text))
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: got %v, want an error without the secret", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range validFiles {
		f.Add(text)
	}
	for _, tt := range invalidFiles {
		f.Add(tt.text)
	}
	f.Add("upstreams: &a {a: *a}")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("gateway.yaml", []byte(text))
		if (c == nil) == (err == nil) {
			t.Errorf("Parse returned %v, %v", c, err)
		}
	})
}
