package capture

import (
	"slices"
	"strings"
)

// appendNormal appends the letters and digits of a name, letters in lower case: what is left to compare.
func appendNormal[T string | []byte](dst []byte, name T) []byte {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'A' && c <= 'Z':
			dst = append(dst, c+'a'-'A')
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c >= 0x80:
			dst = append(dst, c)
		}
	}
	return dst
}

func lower(s string) string { return strings.ToLower(s) }

// A secretName is how a name ends that has a secret for its value.
type secretName struct {
	suffix string
	kind   string // what the placeholder calls it
	whole  bool   // the name must be that and nothing more
	number bool   // even a number is a secret
}

var secretNames = []secretName{
	{"password", "password", false, true},
	{"passwd", "password", false, true},
	{"passphrase", "password", false, true},
	{"passcode", "password", false, true},
	{"pwd", "password", false, true},
	{"pass", "password", true, true},
	{"userpass", "password", true, true},
	{"dbpass", "password", true, true},
	{"pgpass", "password", true, true},
	{"pin", "password", true, true},
	{"pincode", "password", true, true},
	{"otp", "password", true, true},
	{"totp", "password", true, true},
	{"secret", "secret", false, true},
	{"token", "token", false, false},
	{"jwt", "token", false, false},
	{"bearer", "token", false, false},
	{"assertion", "token", false, false},
	{"codeverifier", "token", false, false},
	{"pat", "token", true, false},
	{"apikey", "key", false, true},
	{"accesskey", "key", false, true},
	{"accesskeyid", "key", false, true},
	{"secretkey", "key", false, true},
	{"privatekey", "key", false, true},
	{"signingkey", "key", false, true},
	{"encryptionkey", "key", false, true},
	{"sharedkey", "key", false, true},
	{"masterkey", "key", false, true},
	{"accountkey", "key", false, true},
	{"servicekey", "key", false, true},
	{"subscriptionkey", "key", false, true},
	{"authkey", "key", false, true},
	{"sessionkey", "key", false, true},
	{"sshkey", "key", false, true},
	{"keymaterial", "key", false, true},
	{"serviceaccountjson", "key", false, true},
	{"serviceaccountkey", "key", false, true},
	{"credential", "credential", false, true},
	{"creds", "credential", false, true},
	{"authorization", "auth", false, true},
	{"auth", "auth", true, true},
	{"basicauth", "auth", false, true},
	{"httpauth", "auth", true, true},
	{"proxyauth", "auth", true, true},
	{"cookie", "cookie", false, true},
	{"cookiejar", "cookie", false, true},
	{"sessionid", "session", false, true},
	{"sessid", "session", false, true},
	{"connectsid", "session", true, true},
	{"connectionstring", "credential", false, true},
	{"connstring", "credential", false, true},
	{"connstr", "credential", false, true},
	{"databaseurl", "credential", false, true},
	{"webhookurl", "credential", false, true},
	{"dsn", "credential", true, true},
	{"secretid", "secret", false, true},
	{"mnemonic", "secret", false, true},
	{"seedphrase", "secret", false, true},
	{"recoverycode", "code", false, true},
	{"backupcode", "code", false, true},
	{"authorizationcode", "code", false, true},
	{"authcode", "code", false, true},
	{"devicecode", "code", false, true},
}

// queryNames are names that mean a secret only where they are parameters of a URL or a form.
var queryNames = []secretName{
	{"code", "code", true, true},
	{"state", "code", true, true},
	{"key", "key", true, true},
	{"sig", "signature", true, true},
	{"signature", "signature", false, true},
	{"xamzcredential", "key", true, true},
	{"sid", "session", true, true},
	{"session", "session", true, true},
	{"ticket", "token", true, true},
	{"nonce", "code", true, true},
}

// plainNames end like secrets and are none. Hiding them would break the traffic apart.
var plainNames = []string{
	"progresstoken", "pagetoken", "nexttoken", "continuationtoken", "synctoken", "resumptiontoken", "cancellationtoken", "canceltoken",
	"stoptoken", "eostoken", "bostoken", "padtoken", "unktoken", "counttoken", "maxtoken", "mintoken", "inputtoken", "outputtoken", "totaltoken", "prompttoken",
	"completiontoken", "pertoken",
}

// qualifiers may stand behind the name of a secret without making it another.
var qualifiers = []string{"value", "hash", "base64", "b64", "text", "raw", "plain", "header", "string", "s"}

// maxNames is how many names a Redactor remembers its verdict on.
const maxNames = 4096

type verdict struct {
	plain, query     secretName
	isPlain, isQuery bool
}

// classify tells whether a name is that of a secret; query says that it is a parameter of a URL or a form.
func (r *Redactor) classify(name []byte, query bool) (secretName, bool) {
	if len(name) > 64 {
		name = name[len(name)-64:]
	}
	v, ok := r.verdicts[string(name)]
	if !ok {
		if len(r.verdicts) >= maxNames {
			clear(r.verdicts)
		}
		v.plain, v.isPlain = r.judge(name, false)
		v.query, v.isQuery = r.judge(name, true)
		r.verdicts[string(name)] = v
	}
	if query {
		return v.query, v.isQuery
	}
	return v.plain, v.isPlain
}

func (r *Redactor) judge(name []byte, query bool) (secretName, bool) {
	norm := string(appendNormal(nil, name))
	if slices.Contains(r.names, norm) {
		return secretName{norm, "custom", true, true}, true
	}
	norm = strings.TrimRight(norm, "0123456789")
	if len(norm) < 3 {
		return secretName{}, false
	}
	if s, ok := match(norm, query); ok {
		return s, true
	}
	if isVariable(name) {
		return secretName{"key", "key", false, true}, true
	}
	for _, q := range qualifiers {
		rest, ok := strings.CutSuffix(norm, q)
		if !ok {
			continue
		}
		if s, ok := match(rest, query); ok && (q != "s" || s.suffix != "token") { // "tokens" counts them
			return s, true
		}
	}
	return secretName{}, false
}

// isVariable reports whether a name is that of an environment variable with a key: OPENAI_KEY, GH_PAT. In other spellings most names that end so are of something else.
func isVariable(name []byte) bool {
	s := string(name)
	if strings.ToUpper(s) != s || strings.HasSuffix(s, "PUBLIC_KEY") || strings.HasSuffix(s, "PRIMARY_KEY") || strings.HasSuffix(s, "FOREIGN_KEY") {
		return false
	}
	return strings.HasSuffix(s, "_KEY") || strings.HasSuffix(s, "_PAT")
}

// match compares with the lists. norm is normalised and has no digits at its end.
func match(norm string, query bool) (secretName, bool) {
	find := func(list []secretName) (secretName, bool) {
		for _, s := range list {
			if strings.HasSuffix(norm, s.suffix) && (!s.whole || norm == s.suffix) {
				return s, true
			}
		}
		return secretName{}, false
	}
	if slices.ContainsFunc(plainNames, func(p string) bool { return strings.HasSuffix(norm, p) }) {
		return secretName{}, false
	}
	s, ok := find(secretNames)
	if !ok && query {
		return find(queryNames)
	}
	return s, ok
}

// isEnvironment reports whether a member of that name holds the environment of a process, whose values are nobody's business.
func isEnvironment(name []byte) bool {
	var scratch [32]byte
	if len(name) > len(scratch) {
		return false
	}
	switch string(appendNormal(scratch[:0], name)) {
	case "env", "environ", "environment", "envvars", "environmentvariables":
		return true
	}
	return false
}
