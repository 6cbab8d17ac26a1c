package capture_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
	"mcpwire/internal/test/soak"
)

// Keys that look real are concatenated here so that no secret scanner reports this file.
var (
	fakeGitHub = "ghp" + "_" + "16C7e42F292c6912E7710c838347Ae178B4a"
	fakeAWS    = "AKIA" + "IOSFODNN7EXAMPLE"
	fakeOpenAI = "sk" + "-proj-abcd1234efgh5678ijkl"
	fakeSlack  = "xoxb" + "-123456789012-abcdefGHIJKL"
	fakeGoogle = "AIza" + "SyA1234567890abcdefghijklmnopqrstuv"
	fakeJWT    = "eyJhbGciOiJIUzI1NiJ9" + "." + "eyJzdWIiOiIxMjM0In0" + "." + "c2lnbmF0dXJlLXN0dWZm"
	fakePEM    = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEowIBAAKCAQEA1234567890\nabcdefghijklmnop=\n-----END RSA " + "PRIVATE KEY-----"
	fakeBasic  = base64.StdEncoding.EncodeToString([]byte("aladdin:opensesame"))
)

var placeholder = regexp.MustCompile(`~redacted:([a-z]+):[0-9a-f]{12}:(\d+)~`)

// legible makes placeholders short: <kind:size>.
func legible(s string) string { return placeholder.ReplaceAllString(s, "<$1:$2>") }

// TestRedactMessage checks which secrets are found in JSON: by name, by form, in strings of JSON,
// and in strings with escapes; and which values are not secrets.
func TestRedactMessage(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"nothing", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":{"q":"tokens per key"}}}`, ""},
		{"by name", `{"password":"hunter2","apiKey":"k","API_KEY_2":"k2","db-password":"p","x":{"clientSecret":"s"}}`,
			`{"password":"<password:8>","apiKey":"<key:8>","API_KEY_2":"<key:8>","db-password":"<password:8>","x":{"clientSecret":"<secret:8>"}}`},
		{"escaped name", `{"pass\u0077ord":"hunter2"}`, `{"pass\u0077ord":"<password:8>"}`},
		{"name with a character without width", `{"pass\u200bword":"hunter2"}`, `{"pass\u200bword":"<password:8>"}`},
		{"numbers", `{"pin":1234,"token":1234,"otp":-1.5e3,"password":true,"secret":null}`, `{"pin":0,"token":1234,"otp":0,"password":true,"secret":null}`},
		{"below a name", `{"credentials":{"user":"u","list":["a",{"b":"c"}]},"after":"d"}`, `{"credentials":{"user":"<credential:8>","list":["<credential:8>",{"b":"<credential:8>"}]},"after":"d"}`},
		{"empty", `{"password":"","token":[]}`, ""},
		{"environment", `{"env":{"HOME":"/root","N":1},"environment":["A=b","C"],"envVars":[{"name":"A","value":"b"}]}`,
			`{"env":{"HOME":"<env:8>","N":1},"environment":["A=<env:8>","<env:8>"],"envVars":[{"name":"A","value":"<env:8>"}]}`},
		{"name and value", `[{"name":"X-Api-Key","value":"v"},{"value":"v","key":"password"},{"name":"Accept","value":"v"}]`,
			`[{"name":"X-Api-Key","value":"<key:8>"},{"value":"<password:8>","key":"password"},{"name":"Accept","value":"v"}]`},
		{"a value with escapes, judged by its neighbor", `{"value":"a\n` + fakeGitHub + `","name":"password"}`, `{"value":"<password:64>","name":"password"}`},
		{"pairs", `{"headers":[["Cookie","a=b"],["Accept","c"]]}`, `{"headers":[["Cookie","<cookie:8>"],["Accept","c"]]}`},
		{"flags", `{"args":["--token","abc","--verbose","--password=x y","-v"]}`, `{"args":["--token","<token:8>","--verbose","--password=<password:8> y","-v"]}`},
		{"by shape", `["` + fakeGitHub + `","x ` + fakeAWS + `.","` + fakeOpenAI + `","` + fakeSlack + `","` + fakeGoogle + `","` + fakeJWT + `"]`,
			`["<key:64>","x <key:32>","<key:32>","<key:32>","<key:64>","<jwt:64>"]`},
		{"as a name", `{"` + fakeGitHub + `":1}`, `{"<key:64>":1}`},
		{"as an id", `{"id":"` + fakeGitHub + `"}`, `{"id":"<key:64>"}`},
		{"schemes", `{"a":"Bearer abcdefgh12345678","b":"basic ` + fakeBasic + `","c":"Basic authentication","d":"bearer token required"}`,
			`{"a":"Bearer <bearer:16>","b":"basic <basic:32>","c":"Basic authentication","d":"bearer token required"}`},
		{"key in a text", `{"text":` + quoted("key:\n"+fakePEM+"\nend") + `}`, `{"text":"key:\n<pem:128>\nend"}`},
		{"key without an end", `{"text":` + quoted(fakePEM[:60]) + `}`, `{"text":"<pem:64>"}`},
		{"JSON in a string", `{"text":` + quoted(`{"password":"hunter2","n":1}`) + `}`, `{"text":"{\"password\":\"<password:8>\",\"n\":1}"}`},
		{"JSON in JSON in a string", `{"text":` + quoted(`{"a":`+quoted(`{"token":"abc"}`)+`}`) + `}`, `{"text":"{\"a\":\"{\\\"token\\\":\\\"<token:8>\\\"}\"}"}`},
		{"broken JSON in a string", `{"text":` + quoted(`{"password":"hunter2", "a":`) + `}`, `{"text":"{\"password\":\"<password:8>\", \"a\":"}`},
		{"variables in a string", `{"text":"DB_PASSWORD=p,w;x\nHOME=/root\nexport API_KEY='a b'"}`, `{"text":"DB_PASSWORD=<password:8>\nHOME=/root\nexport API_KEY='<key:8>'"}`},
		{"variables with keys", `{"OPENAI_KEY":"a","GH_PAT":"b","SSH_PUBLIC_KEY":"c","primary_key":"d","text":"STRIPE_KEY=e"}`,
			`{"OPENAI_KEY":"<key:8>","GH_PAT":"<key:8>","SSH_PUBLIC_KEY":"c","primary_key":"d","text":"STRIPE_KEY=<key:8>"}`},
		{"YAML in a string", `{"text":"user: me\napi key: abc\npassword: \"x y\""}`, `{"text":"user: me\napi key: <key:8>\npassword: \"<password:8>\""}`},
		{"header in a string", `{"text":"Authorization: Digest a b c\nCookie: a=b; c=d\nAccept: x"}`, `{"text":"Authorization: <auth:16>\nCookie: <cookie:8>\nAccept: x"}`},
		{"command in a string", `{"text":"curl -H 'Authorization: Token abc' --api-key k https://x"}`, `{"text":"curl -H 'Authorization: <auth:16>' --api-key <key:8> https://x"}`},
		{"XML in a string", `{"text":"<password>a b</password>"}`, `{"text":"<password><password:8></password>"}`},
		{"URL", `{"uri":"https://u:p@h/x?access_token=abc&q=1&code=xyz#id_token=t"}`, `{"uri":"https://<userinfo:8>@h/x?access_token=<token:8>&q=1&code=<code:8>#id_token=<token:8>"}`},
		{"database", `{"u":"postgres://u:p/w#x@h/db"}`, `{"u":"postgres://<userinfo:8>@h/db"}`},
		{"user alone", `{"a":"git+https://gho4st@h/x","b":"libsql://a1b2c3d4e5f6a7b8c9d0@h","c":"ssh://:p@h"}`, `{"a":"git+https://<userinfo:8>@h/x","b":"libsql://<userinfo:32>@h","c":"ssh://<userinfo:8>@h"}`},
		{"no user", `{"a":"ssh://git@h/x","b":"docs://readme/@scope/name","c":"docs://api@{version}.json"}`, ""},
		{"hook", `{"u":"https://hooks.slack.com/services/T0/B0/xyz"}`, `{"u":"https://hooks.slack.com/services/<hook:16>"}`},
		{"variable names", `{"a":"token=${TOKEN}","token":"x"}`, `{"a":"token=${TOKEN}","token":"<token:8>"}`},
		{"the protocol's own", `{"params":{"_meta":{"progressToken":"abc"},"cursor":"x","maxTokens":100,"requestState":"s"},"nextCursor":"y","usage":{"inputTokens":5}}`, ""},
		{"metadata", `{"token_endpoint":"https://a/t","authorization_endpoint":"https://a/a","authorization_servers":["x"],"token_type":"Bearer"}`, ""},
		{"schema", `{"result":{"tools":[{"name":"login","inputSchema":{"type":"object","properties":{"password":{"type":"string","minLength":8},"token":true},"required":["password","token"]}}]}}`, ""},
		{"values in a schema", `{"result":{"tools":[{"inputSchema":{"properties":{"password":{"default":"hunter2","examples":["x"],"description":"a"}},"x":{"default":"y"}}}]}}`,
			`{"result":{"tools":[{"inputSchema":{"properties":{"password":{"default":"<password:8>","examples":["<password:8>"],"description":"a"}},"x":{"default":"y"}}}]}}`},
		{"no schema", `{"params":{"arguments":{"inputSchema":{"properties":{"password":{"a":"b"}}}}}}`, `{"params":{"arguments":{"inputSchema":{"properties":{"password":{"a":"<password:8>"}}}}}}`},
		{"schema in a batch", `[{"params":{"requestedSchema":{"properties":{"password":{"type":"string"}}}}}]`, ""},
		{"not JSON", `{"password":"hunter2",`, `{"password":"<password:8>",`},
		{"form", "grant_type=refresh_token&refresh_token=abc&client_secret=def", "grant_type=refresh_token&refresh_token=<token:8>&client_secret=<secret:8>"},
		{"form that begins with it", "code=abc&x=1", "code=<code:8>&x=1"},
		{"UTF-16", "p\x00a\x00s\x00s\x00w\x00o\x00r\x00d\x00=\x00x\x00y\x00", "<binary:32>"},
		{"invalid UTF-8", "\xff password=hunter2", "\xff password=<password:8>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := capture.NewRedactor(nil)
			if tt.want == "" {
				tt.want = tt.in
			}
			out, _ := r.Message(nil, []byte(tt.in))
			if diff := cmp.Diff(tt.want, legible(string(out))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if json.Valid([]byte(tt.in)) && !json.Valid(out) {
				t.Errorf("no longer JSON: %s", out)
			}
		})
	}
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return strings.NewReplacer(`\u003c`, "<", `\u003e`, ">").Replace(string(b))
}

func TestRedactedPointers(t *testing.T) {
	_, got := capture.NewRedactor(nil).Message(nil, []byte(`{"params":{"arguments":{"a/b~c":[{"password":"x"},{"pin":3}],"`+fakeGitHub+`":{"token":"y"}}}}`))
	for i := range got {
		got[i] = regexp.MustCompile(`[0-9a-f]{12}`).ReplaceAllString(got[i], "HASH")
	}
	want := []string{"/params/arguments/a~1b~0c/0/password", "/params/arguments/a~1b~0c/1/pin", "/params/arguments/~0redacted:key:HASH:64~0", "/params/arguments/~0redacted:key:HASH:64~0/token"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestRedactHeader(t *testing.T) {
	r := capture.NewRedactor(&capture.Redaction{Headers: []string{"X-Trace"}, Names: []string{"Tenant-Code"}})
	for _, tt := range []struct{ name, value, want string }{
		{"Content-Type", "application/json", "application/json"},
		{"ACCEPT", "text/event-stream", "text/event-stream"},
		{"Authorization", "Bearer abcdefgh12345678", "Bearer <bearer:16>"},
		{"authorization", "abcdefgh12345678", "<auth:16>"},
		{"Proxy-Authorization", "Digest a=b, c=d", "Digest <auth:8>"},
		{"Cookie", "sid=abcdefghij; theme=dark; flag", "sid=<cookie:16>; theme=<cookie:8>;<cookie:8>"},
		{"Set-Cookie", "sid=abcdefghij; Path=/; HttpOnly", "sid=<cookie:16>; Path=/; HttpOnly"},
		{"Mcp-Session-Id", "1868a90c-5f2e", "<session:16>"},
		{"X-Api-Key", "k", "<key:8>"},
		{"X-Unknown", "v", "<header:8>"},
		{"X-Trace", "v", "v"},
		{"Mcp-Param-Region", "eu", "eu"},
		{"Mcp-Param-Password", "eu", "<password:8>"},
		{"Mcp-Param-Tenant-Code", "eu", "<custom:8>"},
		{"Mcp-Param-Note", "=?base64?" + base64.StdEncoding.EncodeToString([]byte(fakeGitHub)) + "?=", "<value:128>"},
		{"Mcp-Name", "https://h/?token=abc", "https://h/?token=<token:8>"},
		{"Location", "https://h/cb?code=abc&state=d", "https://h/cb?code=<code:8>&state=<code:8>"},
		{"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		{"WWW-Authenticate", `Bearer resource_metadata="https://h/.well-known/x", error="invalid_token"`, `Bearer resource_metadata="https://h/.well-known/x", error="invalid_token"`},
		{"Empty", "", ""},
	} {
		if got := legible(r.Header(tt.name, tt.value)); got != tt.want {
			t.Errorf("%s: %s: got %s, want %s", tt.name, tt.value, got, tt.want)
		}
	}
}

func TestRedactURL(t *testing.T) {
	r := capture.NewRedactor(nil)
	for _, tt := range []struct{ in, want string }{
		{"/mcp", "/mcp"},
		{"/mcp?x=1&y", "/mcp?x=1&y"},
		{"/messages?sessionId=abc", "/messages?sessionId=<session:8>"},
		{"/x?api%5Fkey=abc&sig=a%2Bb", "/x?api%5Fkey=<key:8>&sig=<signature:8>"},
		{"/s/ZjQ4YTk0NWMtMWE2Yi00/mcp", "/s/<path:32>/mcp"},
		{"https://u:p@h/?q=" + "ghp%5F" + fakeGitHub[4:], "https://<userinfo:8>@h/?q=<key:64>"},
		{"/servers/my-long-server-name-with-words/mcp", "/servers/my-long-server-name-with-words/mcp"},
	} {
		if got := legible(r.URL(tt.in)); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.in, got, tt.want)
		}
	}
}

// TestRedactLearns shows that a value that was secret in a header is secret in bodies, also in
// other spellings, and that equal secrets get the same replacement.
func TestRedactLearns(t *testing.T) {
	r := capture.NewRedactor(nil)
	first := r.Header("Mcp-Session-Id", "plain-session/1")
	if second := r.Header("Mcp-Session-Id", "plain-session/1"); first != second {
		t.Errorf("the same session is %s and %s", first, second)
	}
	if other := r.Header("Mcp-Session-Id", "plain-session/2"); first == other {
		t.Errorf("two sessions are %s", first)
	}
	out, _ := r.Message(nil, []byte(`{"a":"in plain-session/1.","b":"plain\u002dsession\/1","plain-session/1":1,"c":"?x=plain-session%2F1"}`))
	want := `{"a":"in <known:16>.","b":"<known:16>","<known:16>":1,"c":"?x=<known:32>"}`
	if diff := cmp.Diff(want, legible(string(out))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if a, b := capture.NewRedactor(nil).Header("X", "abc"), capture.NewRedactor(nil).Header("X", "abc"); a == b {
		t.Errorf("two captures redact a secret as %s", a)
	}
	key := &capture.Redaction{Key: bytes.Repeat([]byte("k"), 16)}
	if a, b := capture.NewRedactor(key).Header("X", "abc"), capture.NewRedactor(key).Header("X", "abc"); a != b {
		t.Errorf("two captures with one key redact a secret as %s and %s", a, b)
	}
}

// planted returns events with secrets in every place.
func planted() (events []capture.Event, secrets []string) {
	env := "environment-secret-value"
	secrets = []string{fakeGitHub, fakeAWS, fakeOpenAI, fakeSlack, fakeJWT, fakeBasic, "MIIEowIBAAKCAQEA1234567890", "abcdefghijklmnop=", "opensesame", "hunter2",
		"s3ss10n-1d-value", "c00kie-value", "argument-value", env, "query-value", "half-a-sec", "fragment-of-it"}
	events = []capture.Event{
		{Kind: capture.KindStart, Start: &capture.Start{
			Command: []string{"srv", "--token", "argument-value", "--key=" + fakeSlack, "-H", "Authorization: Bearer " + fakeJWT, "-u", "aladdin:opensesame", "https://h/?key=query-value"},
			Env:     []string{"GITHUB_TOKEN=" + env, "HOME=/root"}, Dir: "/srv/" + fakeGitHub,
		}},
		{Kind: capture.KindRequest, Dir: capture.ToServer, Exchange: 1, Request: &capture.Request{Method: "POST", URL: "/mcp?access_token=query-value", Headers: []capture.Header{
			{Name: "Authorization", Value: "Bearer " + fakeJWT}, {Name: "Mcp-Session-Id", Value: "s3ss10n-1d-value"}, {Name: "Cookie", Value: "sid=c00kie-value"},
			{Name: "X-Anything", Value: "hunter2"}, {Name: "User-Agent", Value: "x " + fakeAWS}, {Name: fakeGitHub, Value: "v"},
		}}},
		{Kind: capture.KindResponse, Dir: capture.ToClient, Exchange: 1, Response: &capture.Response{Status: 200, Headers: []capture.Header{
			{Name: "Set-Cookie", Value: "sid=c00kie-value; Path=/"}, {Name: "Location", Value: "/cb?code=query-value"},
		}}},
		{Kind: capture.KindMessage, Dir: capture.ToServer, Data: []byte(`{"jsonrpc":"2.0","id":"` + fakeGitHub + `","method":"tools/call","params":{"name":"x","arguments":{"apiKey":"argument-value","text":"use ` + fakeOpenAI + `","session":"s3ss10n-1d-value"}}}`)},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte(`{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":` + quoted(`{"password":"hunter2"}`) + `}],"structuredContent":{"password":"hunter2"}}}`)},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte(`{"password":"hunter2","a":1,"a":2}`)},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte("{\"password\":\n\"hunter2\"}")},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte(`{"text":"half-a-sec`), Cut: true, Len: 1 << 20},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte(`{"value":"hunter2","na`), Cut: true, Len: 1 << 20},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte("stray text half-a-sec"), Cut: true, Len: 1 << 20},
		{Kind: capture.KindMessage, Dir: capture.ToClient, Data: []byte("stray password: hunter2 \xff")},
		{Kind: capture.KindMessage, Dir: capture.ToServer, Framing: capture.FramingHeader, Prefix: "X-Api-Key: hunter2\r\nContent-Length: 2\r\n\r\n", Data: []byte("{}")},
		{Kind: capture.KindBody, Dir: capture.ToServer, Data: []byte("grant_type=x&client_secret=hunter2&code=query-value")},
		{Kind: capture.KindBody, Dir: capture.ToClient, Data: []byte(`{"access_token":"hunter2","expires_in":1}`)},
		{Kind: capture.KindBody, Dir: capture.ToClient, Data: []byte("fragment-of-it"), Part: 2},
		{Kind: capture.KindBody, Dir: capture.ToClient, Data: []byte("fragment-of-it"), Encoding: "br"},
		{Kind: capture.KindSSE, Dir: capture.ToClient, Data: []byte("/messages?sessionId=query-value"), SSE: &capture.SSE{Event: "endpoint", ID: fakeGitHub, HasID: true, Comment: "token=hunter2", HasComment: true, HasData: true}},
		{Kind: capture.KindStderr, Data: []byte("starting with " + env + " and s3ss10n-1d-value and c00kie-value")},
		{Kind: capture.KindStderr, Data: []byte(`{"level":"info","headers":{"authorization":"Basic ` + fakeBasic + `"}}`)},
		{Kind: capture.KindNote, Data: []byte("password=hunter2")},
		{Kind: capture.KindEnd, Data: []byte("dial https://aladdin:opensesame@h: refused")},
		{Kind: capture.KindTranslate, Translation: &capture.Translation{Of: 1, Rule: "token=hunter2"}},
	}
	// a key, line by line, with another line between
	for line := range strings.SplitSeq(fakePEM, "\n") {
		events = append(events, capture.Event{Kind: capture.KindStderr, Data: []byte(line)})
		if strings.HasPrefix(line, "---") {
			events = append(events, capture.Event{Kind: capture.KindStderr, Data: []byte("[info] hello")})
		}
	}
	return events, secrets
}

func TestPlantedSecrets(t *testing.T) {
	events, secrets := planted()
	text := string(record(t, &capture.Options{Name: "n " + fakeGitHub, Tool: "t", URL: "https://aladdin:opensesame@h/mcp?api_key=query-value&a=b"}, events...))
	for _, s := range secrets {
		for line := range strings.SplitSeq(text, "\n") {
			if strings.Contains(line, s) {
				t.Errorf("%q is in the capture: %s", s, line)
			}
		}
		for _, coded := range []string{base64.StdEncoding.EncodeToString([]byte(s))} {
			if strings.Contains(text, coded[:len(coded)-4]) {
				t.Errorf("%q is in the capture in base64", s)
			}
		}
	}
	got := read(t, []byte(text), nil)
	if len(got) != len(events)+2 {
		t.Fatalf("%d events, want %d", len(got), len(events)+2)
	}
	for i, e := range events {
		g := got[i+1]
		if e.Kind == capture.KindMessage && json.Valid(e.Data) != json.Valid(g.Data) {
			t.Errorf("event %d is JSON only before or only after redaction: %s", i+1, g.Data)
		}
		if e.Data != nil && g.Len != max(e.Len, int64(len(e.Data))) {
			t.Errorf("event %d: length %d, want %d", i+1, g.Len, len(e.Data))
		}
		if string(g.Data) != string(e.Data) && len(g.Redacted) == 0 {
			t.Errorf("event %d was changed without a record of it: %s", i+1, g.Data)
		}
	}
	if n := strings.Count(text, "[info] hello"); n != 2 {
		t.Errorf("got %d lines around the key, want 2", n)
	}
}

// TestRedactHostileText shows that texts that could take quadratic time are scanned in linear time:
// each has many beginnings without an end. The test would time out otherwise.
func TestProse(t *testing.T) {
	r, key := capture.NewRedactor(nil), fakeOpenAI
	for _, tt := range []struct{ text, want string }{
		{"login(user: string, password: string)", "login(user: string, password: string)"},
		{"--token VALUE, --api-key=VALUE", "--token VALUE, --api-key=VALUE"},
		{"password: " + key + ", or\nthe key " + key, "password: HIDDEN, or\nthe key HIDDEN"},
		{"", ""},
	} {
		got := regexp.MustCompile(`~redacted:[^~]*~`).ReplaceAllString(r.Prose(tt.text), "HIDDEN")
		if got != tt.want {
			t.Errorf("Prose(%q) = %q, want %q", tt.text, got, tt.want)
		}
	}
}

// TestRedactHostileText redacts long texts in which a secret may begin everywhere. Redaction that is
// not linear would not end within the time of a test.
func TestRedactHostileText(t *testing.T) {
	for _, unit := range []string{"eyJ-", "eyJ.", "sk-", "-----BEGIN ", "token={", "token=\"{", "token=${", "\\", "\\\"", "password='", "://", "http://a@", "<password>", "auth:", "--token ", "key ", "basic ", "{\"", "[", "{\"name\":\"token\",\"value\":\"", "~redacted:", "%41", "%25", "&#38;", "<a name=\"password\" value=\"", "<", "é", "é:", "machine a password ", "machine ", "curl -u ", "-u a:", "password:\n  ", "password: |\n  a\n", "data: a\ndata:",
		"form-data; name=\"password\"\n\n", "form-data; ", "identified by ", "password '", "data:;base64,", "QUJD", "\u00a0", "token=~redacted:a:0123456789ab:8~"} {
		text := strings.Repeat(unit, soak.Choose(256<<10, 64<<10)/len(unit))
		r := capture.NewRedactor(nil)
		r.Message(nil, []byte(text))
		r.Message(nil, []byte(`{"a":`+quoted(text)+`}`))
		r.Text(text)
	}
}

// TestWorkingDirectory shows that the values of PWD and OLDPWD are not secrets, and that a name
// like DB_PWD, or a member pwd, is that of a password.
func TestWorkingDirectory(t *testing.T) {
	var file bytes.Buffer
	w := capture.NewWriter(&file, nil)
	w.Record(&capture.Event{Kind: capture.KindStart, Start: &capture.Start{
		Command: []string{"server"}, Dir: "/srv/project", Env: []string{"PWD=/srv/project", "OLDPWD=/home/somebody", "DB_PWD=planted-one"},
	}})
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"result":{"path":"/srv/project/a","old":"/home/somebody","x":"planted-one"}}`,
		`{"jsonrpc":"2.0","id":2,"result":{"pwd":"planted-two"}}`,
	} {
		w.Record(&capture.Event{Kind: capture.KindMessage, Dir: capture.ToClient, Framing: capture.FramingLF, Data: []byte(text)})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	got := file.String()
	for _, want := range []string{`"cwd":"/srv/project"`, `"/srv/project/a"`, `"old":"/home/somebody"`, `"pwd":"~redacted:password:`} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %s in\n%s", want, got)
		}
	}
	for _, secret := range []string{"planted-one", "planted-two"} {
		if strings.Contains(got, secret) {
			t.Errorf("%s is in\n%s", secret, got)
		}
	}
}

// TestArgs checks that secrets in arguments are hidden, and the arguments themselves unchanged.
func TestArgs(t *testing.T) {
	args := []string{"docker", "run", "-e", "GITHUB_PAT=Zq8Lx0Tn4Vb7Kd2Rw5Yc", "--api-key", "Zq8L", "img", "-u", "me:pw", "--level", "debug"}
	before := slices.Clone(args)
	got := capture.NewRedactor(nil).Args(args)
	for i, hidden := range []bool{false, false, false, true, false, true, false, false, true, false, false} {
		if (got[i] != args[i]) != hidden {
			t.Errorf("%q: got %q", args[i], got[i])
		}
	}
	if !slices.Equal(args, before) {
		t.Errorf("the arguments were changed: %q", args)
	}
}
