package capture

import (
	"strings"
	"testing"
)

// TestNames checks that each name in the table is found in its spellings, also with a qualifier.
func TestNames(t *testing.T) {
	r := NewRedactor(&Redaction{Names: []string{"Tenant Code", "pi", "Straße"}})
	find := func(name string, param bool, label string) {
		t.Helper()
		for _, spelling := range []string{name, strings.ToUpper(name), strings.ToUpper(name[:1]) + name[1:], "my_" + name, name + "_2", name[:1] + "-" + name[1:]} {
			if strings.HasPrefix(spelling, "my_") && r.classify([]byte(name), param).whole || name[0] >= 0x80 && spelling != name {
				continue
			}
			if s := r.classify([]byte(spelling), param); s == nil || s.label != label && !param {
				t.Errorf("%q, parameter %v: got %+v, want %s", spelling, param, s, label)
			}
		}
	}
	for _, k := range secretKinds {
		for _, name := range strings.Fields(k.ends + " " + k.names) {
			find(name, false, k.label)
			for _, q := range qualifiers {
				if s := r.classify([]byte(name+"_"+q), false); s == nil {
					t.Errorf("%s_%s: not found", name, q)
				}
			}
		}
		for _, name := range strings.Fields(k.params) {
			find(name, true, k.label)
		}
	}
	for _, name := range []string{"tenant-code", "PI", "Straße"} {
		if s := r.classify([]byte(name), false); s == nil || s.label != "custom" {
			t.Errorf("%s: got %+v, want a custom name", name, s)
		}
	}
	for _, name := range append(strings.Fields("tokens maxTokens author monkey keyboard public_key primary_key spin compass tokenizer 7 a"), harmlessTokens...) {
		if s := r.classify([]byte(name), true); s != nil {
			t.Errorf("%s: got %+v, want nil", name, s)
		}
	}
}

// TestStandIns checks which values stand in the place of a secret, and which texts are code.
func TestStandIns(t *testing.T) {
	for _, text := range strings.Split("null|none|not set|(not configured)|<none>|[REDACTED]|{{ token }}|${TOKEN}|${TOKEN:-}|${{ secrets.X }}|$TOKEN|%TOKEN%|********|xxxxxx|•••••|"+
		"your-api-key|YOUR_API_KEY_HERE|your api key|${input:key}|{API_KEY}|...", "|") {
		if n := standIn([]byte(text)); n != len(text) {
			t.Errorf("standIn(%q) = %d, want %d", text, n, len(text))
		}
	}
	for _, text := range strings.Split("hunter2|nullable1|none-of-it|xx|$ecret|$1abc|${TOKEN:-hunter2}|(hunter2)|<b>2|example!1|yourself1|value1|***a|%41", "|") {
		if n := standIn([]byte(text)); n > 0 {
			t.Errorf("standIn(%q) = %d, want 0", text, n)
		}
	}
	for _, text := range strings.Split("await f()|new Secret(x)|os.Getenv(\"X\")|input()|string;|str) -> bool|process.env.X;|self.password|data[0]|a::b(c)|&str,|this.token)", "|") {
		if !isCode([]byte(text)) {
			t.Errorf("%q is no code", text)
		}
	}
	for _, text := range strings.Split("hunter2(x)|newpass|str1ng|correct horse|abc.def|config|selfie|Tr0ub4dor(3)|Pass(word)1|string1", "|") {
		if isCode([]byte(text)) {
			t.Errorf("%q is code", text)
		}
	}
}

// TestIsRandom checks which words look random.
func TestIsRandom(t *testing.T) {
	for word, want := range map[string]bool{
		"Zq8Lx0Tn4Vb7Kd2Rw5Yc": true, "c2VjcmV0LXRva2VuLTEyMzQ": true, "x509.ParsePKCS8PrivateKey": false, "DecryptPKCS1v15SessionKey": false,
		"550e8400-e29b-41d4-a716-446655440000": false, "9f86d081884c7d659a2feaa0c55ad015": false, "Html5CanvasElementFactory": false, "Ab1Cd2": false,
	} {
		if got := isRandom([]byte(word)); got != want {
			t.Errorf("isRandom(%q) = %v, want %v", word, got, want)
		}
	}
}
