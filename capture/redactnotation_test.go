package capture_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"mcpwire/capture"
)

// TestRedactNotations shows that a secret without a recognizable form is found by the notation
// around it.
func TestRedactNotations(t *testing.T) {
	b64 := base64.StdEncoding.EncodeToString
	for _, tt := range []struct{ name, in, want string }{
		{"index", `os.environ['DB_PASSWORD'] = 'hunter2'`, `os.environ['DB_PASSWORD'] = '<password:8>'`},
		{"index in PHP", `$_ENV["API_KEY"]="hunter2";`, `$_ENV["API_KEY"]="<key:8>";`},
		{"attributes", `<add key="password" value="hunter2"/>`, `<add key="password" value="<password:8>"/>`},
		{"attributes the other way round", `<input value='hunter2' name='csrf_token'>`, `<input value='<token:8>' name='csrf_token'>`},
		{"an element", `<entry key="password">hunter2</entry>`, `<entry key="password"><password:8></entry>`},
		{"other attributes", `<add key="user" value="hunter2"/><label id="password">Password</label>`, ""},
		{"character references", `{&quot;password&quot;:&quot;hunter2&quot;}`, `{&quot;password&quot;:&quot;<password:8>&quot;}`},
		{"numeric references", `password&#61;&#x22;hunter2&#x22; x`, `password&#61;&#x22;<password:8>&#x22; x`},
		{"percent-encoded", `a=1&b=%22password%22%3A%22hunter2%22`, `a=1&b=%22password%22%3A%22<password:8>%22`},
		{"percent-encoded separator", `see password%3Ahunter2 there`, `see password%3A<password:8> there`},
		{"percent-encoded URL", `go https%3A%2F%2Fu%3Ap4ss%40h%2F%3Faccess_token%3Dabc%26x%3D1`, `go https%3A%2F%2F<userinfo:8>%40h%2F%3Faccess_token%3D<token:8>%26x%3D1`},
		{"percent-encoded twice", `u=https%253A%252F%252Fh%252F%253Faccess_token%253Dabc%2526x`, `u=https%253A%252F%252Fh%252F%253Faccess_token%253D<token:8>%2526x`},
		{"percent-encoded name", `api%5Fkey=hunter2`, `api%5Fkey=<key:8>`},
		{"percent-encoded key", "x ghp%5F" + fakeGitHub[4:], "x <key:64>"},
		{"percent signs", "100% of 50%20of 5%de", ""},
		{"YAML, next line", "user: me\npassword:\n  hunter2\nhost: h", "user: me\npassword:\n  <password:8>\nhost: h"},
		{"YAML, block", "a:\n  password: |-\n    hunter2\n    more of it\n  host: h", "a:\n  password: |-\n    <password:32>\n  host: h"},
		{"YAML, list", "a_secret:\n- abc\n- def\nx: y", "a_secret:\n<secret:16>\nx: y"},
		{"YAML, mapping", "credentials:\n  user: me\n  host: h", ""},
		{"YAML, prose", "Password:\n  The password of the user.\n", ""},
		{"JSON, next line", "x {\"password\":\n  \"hunter2\",", "x {\"password\":\n  \"<password:8>\","},
		{"netrc", "machine example.com login me password hunter2\nmachine b login c", "machine example.com login me password <password:8>\nmachine b login c"},
		{"netrc, lines", "machine example.com\n  login me\n  password hunter2\n", "machine example.com\n  login me\n  password <password:8>\n"},
		{"netrc, default", "default login me password hunter2", "default login me password <password:8>"},
		{"no netrc", "machine learning needs a password manager; by default login and password", ""},
		{"curl", "curl -sS -u me:hunter2 https://h", "curl -sS -u <userinfo:16> https://h"},
		{"curl, quoted", `curl https://h --user "me:hunter2"`, `curl https://h --user "<userinfo:16>"`},
		{"curl, twice", "curl -x p -U me:hunter2 --user you:hunter3\ndocker run -u 1000:1000", "curl -x p -U <userinfo:16> --user <userinfo:16>\ndocker run -u 1000:1000"},
		{"mysql", "mysql -uroot -p'hunt er' -P3306 -h db\nrm -phunter2", "mysql -uroot -p'<password:8>' -P3306 -h db\nrm -phunter2"},
		{"curl, one word", `curl -ume:hunter2 h`, `curl -u<userinfo:16> h`},
		{"no curl", "docker run -u 1000:1000 x", ""},
		{"SQL", `CREATE USER 'a'@'%' IDENTIFIED BY 'hunter2';`, `CREATE USER 'a'@'%' IDENTIFIED BY '<password:8>';`},
		{"SQL with a plugin", `identified with x by "hunter2"`, `identified with x by "<password:8>"`},
		{"SQL without quotes", `IDENTIFIED BY hunter2;`, `IDENTIFIED BY <password:8>;`},
		{"webhook without a scheme", "post it to hooks.slack.com/services/T0/B0/xyz or to hooks.slack.com/help", "post it to hooks.slack.com/services/<hook:16> or to hooks.slack.com/help"},
		{"SQL with a hash", `IDENTIFIED BY PASSWORD '*A4B6157319038724E3560894F7F932C8886EBFCF'`, `IDENTIFIED BY PASSWORD '<password:64>'`},
		{"SQL, role", `ALTER ROLE a WITH PASSWORD 'hunter2'`, `ALTER ROLE a WITH PASSWORD '<password:8>'`},
		{"no SQL", `written by 'me'`, ""},
		{"spaces", "password\u00a0=\u00a0hunter2 x", "password\u00a0=\u00a0<password:8> x"},
		{"no width", "pass\u200bword: hunter2", "pass\u200bword: <password:8>"},
		{"wide signs", "密码：hunter2", "密码：<password:8>"},
		{"other languages", "пароль: hunter2 Kennwort=hunter2 contraseña: hunter2 senha=hunter2 密码=hunter2 ПАРОЛЬ=hunter2",
			"пароль: <password:8> Kennwort=<password:8> contraseña: <password:8> senha=<password:8> 密码=<password:8> ПАРОЛЬ=<password:8>"},
		{"other words", "параметр: hunter2 año: 2 密=3 — naïve=4", ""},
		{"form-data", "--b\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\nhunter2\r\n--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\ny\r\n--b--",
			"--b\r\nContent-Disposition: form-data; name=\"password\"\r\n\r\n<password:8>\r\n--b\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\ny\r\n--b--"},
		{"form-data with a type", "--b\nContent-Disposition: form-data; filename=\"a\"; name=code\nContent-Type: text/plain\n\nhunter2\n--b--",
			"--b\nContent-Disposition: form-data; filename=\"a\"; name=code\nContent-Type: text/plain\n\n<code:8>\n--b--"},
		{"data URL", "src=data:text/plain;base64," + b64([]byte("password=hunter2")) + " x", "src=data:text/plain;base64,<blob:32> x"},
		{"harmless data URL", "src=data:text/plain;base64," + b64([]byte("nothing in it at all")) + " x", ""},
		{"CSV", "user,password,mail\nme,hunter2,a@b\nyou,hunter3,c@d\n", "user,password,mail\nme,<password:8>,a@b\nyou,<password:8>,c@d\n"},
		{"CSV, quoted", "Users:\n\"user\",\"API Key\"\n\"me\",\"hun,\"\"ter2\"\r\n\"x\", \"abc\ndefg\"", "Users:\n\"user\",\"API Key\"\n\"me\",\"<key:16>\"\r\n\"x\", \"<key:8>\""},
		{"CSV, last column", "user;token\r\nme;hunter2\r\n", "user;token\r\nme;<token:8>\r\n"},
		{"TSV", "password\tuser\nhunter2\tme", "password\tuser\n<password:8>\tme"},
		{"CSV, end of the table", "user,token\nme,hunter2\n\nwell, done, all", "user,token\nme,<token:8>\n\nwell, done, all"},
		{"CSV, row with a name in it", "kind,text\nfield,password\nvalue,other", ""},
		{"CSV, nothing to hide", "user,password\nme,\nyou,true\n", ""},
		{"prose with commas", "Give the name, the password\nand, if it is there, a code.", ""},
		{"list in code", "\"user\", \"password\",\n\"token\", \"mail\",\n", ""},
		{"Markdown", "| User | Password |\n|------|:--------:|\n| me | hunter2 |\n| you | a\\|b12345 |\n\nend", "| User | Password |\n|------|:--------:|\n| me | <password:8> |\n| you | <password:16> |\n\nend"},
		{"Markdown without borders", "a | secret\n--|--\nb | hunter2\n", "a | secret\n--|--\nb | <secret:8>\n"},
		{"table of a database's shell", "+----+----------+\n| id | password |\n+----+----------+\n|  1 | hunter2  |\n+----+----------+\n", "+----+----------+\n| id | password |\n+----+----------+\n|  1 | <password:8>  |\n+----+----------+\n"},
		{"psql", " id | token \n----+-------\n  1 | hunter2\n(1 row)\n", " id | token \n----+-------\n  1 | <token:8>\n(1 row)\n"},
		{"bars", "a | password | b\nc | words | d\n", ""},
		{"transcript of a stream", "event: x\ndata: token=AAAA\ndata: BBBB\n\nid: 1", "event: x\ndata: token=<token:8>\n\nid: 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == "" {
				tt.want = tt.in
			}
			r := capture.NewRedactor(nil)
			out, _ := r.Message(nil, []byte(tt.in))
			if diff := cmp.Diff(tt.want, legible(string(out))); diff != "" {
				t.Errorf("as text (-want +got):\n%s", diff)
			}
			message, _ := json.Marshal(map[string]string{"text": tt.in})
			out, _ = r.Message(nil, message)
			var got struct{ Text string }
			if err := json.Unmarshal(out, &got); err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			if diff := cmp.Diff(tt.want, legible(got.Text)); diff != "" {
				t.Errorf("in JSON (-want +got):\n%s", diff)
			}
			if again, _ := r.Message(nil, out); string(again) != string(out) {
				t.Errorf("redacted twice: %s, then %s", out, again)
			}
		})
	}
}

// TestRedactBase64 shows that Base64 in a message is checked by the data that it encodes.
func TestRedactBase64(t *testing.T) {
	env := "HOME=/root\nDB_PASSWORD=hunter2\n"
	std := base64.StdEncoding.EncodeToString([]byte(env))
	far := strings.Repeat("nothing here\n", 20_000) + env
	image := append([]byte("\x89PNG\r\n\x1a\n\x00"), bytes.Repeat([]byte("\x00\xff pw=secret12 \xfe"), 1000)...)
	for _, tt := range []struct {
		name, value string
		hidden      bool
	}{
		{"standard", std, true},
		{"without padding", strings.TrimRight(std, "="), true},
		{"URL", base64.URLEncoding.EncodeToString([]byte("~~~???>>> password=hunter2")), true},
		{"lines", std[:20] + "\n" + std[20:], true},
		{"far behind", base64.StdEncoding.EncodeToString([]byte(far)), true},
		{"twice", base64.StdEncoding.EncodeToString([]byte(`{"a":"data:text/plain;base64,` + std + `"}`)), true},
		{"a key in an image", base64.StdEncoding.EncodeToString(append(image, " "+fakeGitHub+" "...)), true},
		{"names in an image", base64.StdEncoding.EncodeToString(image), false},
		{"nothing", base64.StdEncoding.EncodeToString([]byte("nothing in it at all")), false},
		{"a word", "abcdefghijklmnopqrstuvwxyz", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			value, _ := json.Marshal(tt.value)
			in := `{"jsonrpc":"2.0","id":1,"result":{"contents":[{"uri":"file:///.env","blob":` + string(value) + `}]}}`
			out, at := capture.NewRedactor(nil).Message(nil, []byte(in))
			if hidden := !strings.Contains(string(out), string(value)); hidden != tt.hidden {
				t.Fatalf("hidden: %v, want %v: %.300s", hidden, tt.hidden, out)
			}
			if want := []string{"/result/contents/0/blob"}; tt.hidden && !cmp.Equal(at, want) {
				t.Errorf("hidden at %q, want %q", at, want)
			}
		})
	}
}

// TestRedactDescriptions shows that descriptions in a list are not secrets, but that a key in one
// is.
func TestRedactDescriptions(t *testing.T) {
	hook := "Create a monitor. `webhookUrl`: **optional** webhook URL, `https://example.com/webhooks/firecrawl`. " +
		`Example: {"Authorization": "Bearer token"}, --token abc, postgres://user:password@localhost/db`
	for _, tt := range []struct{ name, in, want string }{
		{"a tool", `{"result":{"tools":[{"name":"x","description":` + quoted(hook) + `,"title":"password: yours"}]}}`, ""},
		{"a property", `{"result":{"tools":[{"inputSchema":{"properties":{"password":{"description":"password: your password"},"headers":{"description":` + quoted(hook) + `}}}}]}}`, ""},
		{"a property called description", `{"result":{"tools":[{"inputSchema":{"properties":{"description":{"default":"token=abc"}}}}]}}`,
			`{"result":{"tools":[{"inputSchema":{"properties":{"description":{"default":"token=<token:8>"}}}}]}}`},
		{"a batch", `[{"result":{"prompts":[{"description":"token: one","arguments":[{"name":"token","description":"the token: a text"}]}]}}]`, ""},
		{"resources", `{"result":{"resources":[{"description":"pin: 1"}],"resourceTemplates":[{"description":"password=x"}]}}`, ""},
		{"instructions", `{"result":{"instructions":"Set password: yours\nand apiKey=…","serverInfo":{"description":"token: x"}}}`, ""},
		{"a key", `{"result":{"tools":[{"description":"token: ` + fakeGitHub + `, Bearer abcdefgh12345678abcd, postgres://u:h4nt3r2hunter@h/db"}]}}`,
			`{"result":{"tools":[{"description":"token: <key:64>, Bearer <bearer:32>, postgres://<userinfo:16>@h/db"}]}}`},
		{"no list", `{"result":{"content":[{"description":"token: one"}],"structuredContent":{"description":"token: one"}}}`,
			`{"result":{"content":[{"description":"token: <token:8>"}],"structuredContent":{"description":"token: <token:8>"}}}`},
		{"of a call", `{"params":{"arguments":{"description":"token: one"}}}`, `{"params":{"arguments":{"description":"token: <token:8>"}}}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.want == "" {
				tt.want = tt.in
			}
			out, _ := capture.NewRedactor(nil).Message(nil, []byte(tt.in))
			if diff := cmp.Diff(tt.want, legible(string(out))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRedactNames checks names that always belong to secrets, and names that do only sometimes.
func TestRedactNames(t *testing.T) {
	const secret = "PL4nted-s3cret"
	for _, name := range []string{
		"pw", "signature", "sig", "sas", "x-auth", "X_AUTH", "session", "csrf", "csrfToken", "refresh", "license", "license_key", "licenseKey", "webhook", "seed",
		"SAMLResponse", "kennwort", "Passwort", "senha", "contraseña", "CONTRASEÑA", "пароль", "Пароль", "密码", "db_pw", "vercel_signature",
	} {
		for _, in := range []string{`{"` + name + `":"` + secret + `"}`, name + "=" + secret, name + ": " + secret, `{"name":"` + name + `","value":"` + secret + `"}`} {
			if out, _ := capture.NewRedactor(nil).Message(nil, []byte(in)); strings.Contains(string(out), secret) {
				t.Errorf("%s", out)
			}
		}
	}
	for _, in := range []string{
		`{"seed":42}`, `{"seed":"42"}`, `{"session":{"name":"x"}}`, `{"license":"Apache-2.0"}`, `{"license":"MIT"}`, `{"license":"BSD-3-Clause"}`, `{"refresh":true}`,
		`{"refresh":"2026-11-23T07:10:40Z"}`, `{"signature":"func (a *T) Read(p []byte) (int, error)"}`, `{"webhook":"enabled"}`, `license: GPL-3.0-or-later`,
		`session: started`, `signature: valid`,
	} {
		if out, _ := capture.NewRedactor(nil).Message(nil, []byte(in)); string(out) != in {
			t.Errorf("%s became %s", in, out)
		}
	}
}

// TestRedactEvents checks parameters in the path of a URL, and values that continue in another line
// of the same stream.
func TestRedactEvents(t *testing.T) {
	r := capture.NewRedactor(nil)
	for in, want := range map[string]string{
		"/mcp;SECRET":                  "/mcp;<path:8>",
		"/a/mcp;jsessionid=abc?y":      "/a/mcp;jsessionid=<session:8>?y",
		"/mcp;v=1":                     "/mcp;v=1",
		"/mcp;k=ZjQ4YTk0NWMtMWE2Yi00x": "/mcp;k=<path:32>",
	} {
		if got := legible(r.URL(in)); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
	text := func(kind capture.Kind, data string) capture.Event {
		e := capture.Event{Kind: kind, Dir: capture.ToClient, Data: []byte(data)}
		if kind == capture.KindSSE {
			e.SSE = &capture.SSE{HasData: true}
		}
		return e
	}
	got := read(t, record(t, nil,
		text(capture.KindSSE, "token=AAAA\nBBBB"), text(capture.KindSSE, "one\ntwo\nx=3"), text(capture.KindSSE, "ghp_\n"+fakeGitHub[4:]),
		text(capture.KindStderr, "config:"), text(capture.KindStderr, "  password:"), text(capture.KindStderr, "    hunter2"), text(capture.KindStderr, "    host"),
		text(capture.KindStderr, "secret: |"), text(capture.KindStderr, "  some words"), text(capture.KindStderr, "  more"), text(capture.KindStderr, "done"),
		text(capture.KindStderr, "enter password:"), text(capture.KindStderr, "server started"),
	), nil)
	var lines []string
	for _, e := range got[1 : len(got)-1] {
		lines = append(lines, legible(string(e.Data)))
	}
	want := []string{
		"token=<token:8>", "one\ntwo\nx=3", "<key:64>", "config:", "  password:", "    <password:8>", "    <password:8>",
		"secret: |", "  <secret:16>", "  <secret:8>", "done", "enter password:", "server started",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
