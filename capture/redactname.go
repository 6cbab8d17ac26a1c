package capture

import (
	"bytes"
	"slices"
	"strings"
)

// appendNormal appends the letters and digits of a name, in lower case, for comparison.
func appendNormal[T string | []byte](dst []byte, name T) []byte {
	for i := range len(name) {
		if name[i] >= 0x80 {
			return appendLower(dst, strings.ToLower(string(name)))
		}
	}
	return appendLower(dst, name)
}

func appendLower[T string | []byte](dst []byte, name T) []byte {
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

// A secretName is the suffix of a name whose value is a secret.
type secretName struct {
	suffix string
	// kind is the kind in the placeholder.
	kind string
	// whole requires that the suffix is the entire name.
	whole bool
	// number reports that a number can be the secret too.
	number bool
	// opaque reports that the name has other meanings: only a value that looks random is a secret.
	opaque bool
}

// hides reports whether a value with that name is a secret. It reports false if s is nil.
func (s *secretName) hides(value []byte) bool {
	return s != nil && (!s.opaque || isOpaque(value, s.suffix))
}

// isOpaque reports whether a value with an ambiguous name looks like a credential: no spaces,
// letters and digits mixed, and not a date, the name of a license or an expression.
func isOpaque(v []byte, suffix string) bool {
	switch suffix {
	case "webhook":
		if k := bytes.Index(v, []byte("://")); k > 0 && bytes.IndexByte(v[k+3:], '/') > 0 {
			return true // anyone who knows the address can use it
		}
	case "seed":
		if bytes.Count(v, []byte{' '}) >= 11 {
			return true // the words of a recovery phrase
		}
	case "license", "licence":
		for _, p := range licenses {
			if len(v) >= len(p) && bytes.EqualFold(v[:len(p)], []byte(p)) {
				return false
			}
		}
	}
	if len(v) < 8 || len(v) >= 10 && v[4] == '-' && v[7] == '-' && len(bytes.Trim(v[:4], digits)) == 0 {
		return false
	}
	letters, numbers := 0, 0
	for _, c := range v {
		switch {
		case c <= ' ', c == '(', c == ')', c == '<', c == '>', c == '{', c == '}', c == '[', c == ']', c == '"', c == '\'':
			return false
		case c >= '0' && c <= '9':
			numbers++
		case alnum(c):
			letters++
		}
	}
	return letters > 0 && (numbers > 0 || len(v) >= 16 && mixedCase(v))
}

const digits = "0123456789"

// licenses are prefixes of license names (https://spdx.org/licenses).
var licenses = []string{
	"mit", "apache", "gpl", "lgpl", "agpl", "bsd", "0bsd", "mpl", "isc", "cc0", "cc-", "epl", "eupl", "ofl", "zlib", "artistic",
	"unlicense", "wtfpl", "bsl", "python-", "postgresql", "licenseref", "proprietary", "see ",
}

var secretNames = []secretName{
	{"password", "password", false, true, false},
	{"passwd", "password", false, true, false},
	{"passphrase", "password", false, true, false},
	{"passcode", "password", false, true, false},
	{"pwd", "password", false, true, false},
	{"pass", "password", true, true, false},
	{"userpass", "password", true, true, false},
	{"dbpass", "password", true, true, false},
	{"pgpass", "password", true, true, false},
	{"pin", "password", true, true, false},
	{"pincode", "password", true, true, false},
	{"otp", "password", true, true, false},
	{"totp", "password", true, true, false},
	{"secret", "secret", false, true, false},
	{"token", "token", false, false, false},
	{"jwt", "token", false, false, false},
	{"bearer", "token", false, false, false},
	{"assertion", "token", false, false, false},
	{"codeverifier", "token", false, false, false},
	{"pat", "token", true, false, false},
	{"apikey", "key", false, true, false},
	{"accesskey", "key", false, true, false},
	{"accesskeyid", "key", false, true, false},
	{"secretkey", "key", false, true, false},
	{"privatekey", "key", false, true, false},
	{"signingkey", "key", false, true, false},
	{"encryptionkey", "key", false, true, false},
	{"sharedkey", "key", false, true, false},
	{"masterkey", "key", false, true, false},
	{"accountkey", "key", false, true, false},
	{"servicekey", "key", false, true, false},
	{"subscriptionkey", "key", false, true, false},
	{"authkey", "key", false, true, false},
	{"sessionkey", "key", false, true, false},
	{"sshkey", "key", false, true, false},
	{"keymaterial", "key", false, true, false},
	{"serviceaccountjson", "key", false, true, false},
	{"serviceaccountkey", "key", false, true, false},
	{"credential", "credential", false, true, false},
	{"creds", "credential", false, true, false},
	{"authorization", "auth", false, true, false},
	{"auth", "auth", true, true, false},
	{"basicauth", "auth", false, true, false},
	{"httpauth", "auth", true, true, false},
	{"proxyauth", "auth", true, true, false},
	{"cookie", "cookie", false, true, false},
	{"cookiejar", "cookie", false, true, false},
	{"sessionid", "session", false, true, false},
	{"sessid", "session", false, true, false},
	{"connectsid", "session", true, true, false},
	{"connectionstring", "credential", false, true, false},
	{"connstring", "credential", false, true, false},
	{"connstr", "credential", false, true, false},
	{"databaseurl", "credential", false, true, false},
	{"webhookurl", "credential", false, true, false},
	{"dsn", "credential", true, true, false},
	{"secretid", "secret", false, true, false},
	{"mnemonic", "secret", false, true, false},
	{"seedphrase", "secret", false, true, false},
	{"recoverycode", "code", false, true, false},
	{"backupcode", "code", false, true, false},
	{"authorizationcode", "code", false, true, false},
	{"authcode", "code", false, true, false},
	{"devicecode", "code", false, true, false},
	{"pw", "password", true, true, false},
	{"dbpw", "password", true, true, false},
	{"userpw", "password", true, true, false},
	{"csrf", "token", false, true, false},
	{"xsrf", "token", false, true, false},
	{"xauth", "auth", true, true, false},
	{"sas", "signature", true, true, false},
	{"sasurl", "signature", false, true, false},
	{"sig", "signature", true, true, false},
	{"samlresponse", "token", false, true, false},
	{"samlrequest", "token", false, true, false},
	{"licensekey", "key", false, true, false},
	{"licencekey", "key", false, true, false},
	// Languages other than English.
	{"kennwort", "password", false, true, false},
	{"passwort", "password", false, true, false},
	{"senha", "password", false, true, false},
	{"contraseña", "password", false, true, false},
	{"contrasena", "password", false, true, false},
	{"motdepasse", "password", false, true, false},
	{"wachtwoord", "password", false, true, false},
	{"lösenord", "password", false, true, false},
	{"hasło", "password", false, true, false},
	{"пароль", "password", false, true, false},
	{"密码", "password", false, true, false},
	{"密碼", "password", false, true, false},
	{"パスワード", "password", false, true, false},
	{"비밀번호", "password", false, true, false},
	// Names with other meanings too.
	{"signature", "signature", false, false, true},
	{"session", "session", true, false, true},
	{"refresh", "token", true, false, true},
	{"license", "key", true, false, true},
	{"licence", "key", true, false, true},
	{"webhook", "hook", true, false, true},
	{"seed", "secret", true, false, true},
}

// queryNames are names of secrets only for parameters of a URL or a form.
var queryNames = []secretName{
	{"code", "code", true, true, false},
	{"state", "code", true, true, false},
	{"key", "key", true, true, false},
	{"sig", "signature", true, true, false},
	{"signature", "signature", false, true, false},
	{"xamzcredential", "key", true, true, false},
	{"sid", "session", true, true, false},
	{"session", "session", true, true, false},
	{"ticket", "token", true, true, false},
	{"nonce", "code", true, true, false},
}

// harmlessNames end like names of secrets but are not. Hiding their values would break up the
// traffic.
var harmlessNames = []string{
	"progresstoken", "pagetoken", "nexttoken", "continuationtoken", "synctoken", "resumptiontoken", "cancellationtoken", "canceltoken",
	"stoptoken", "eostoken", "bostoken", "padtoken", "unktoken", "counttoken", "maxtoken", "mintoken", "inputtoken", "outputtoken", "totaltoken", "prompttoken",
	"completiontoken", "pertoken",
}

// qualifiers may follow the name of a secret without changing its meaning.
var qualifiers = []string{"value", "hash", "base64", "b64", "text", "raw", "plain", "header", "string", "s"}

// nameEndings is a set of the last three letters of names. Most names that are not those of secrets
// have an ending that is not in the set.
type nameEndings [26*26*26/64 + 1]uint64

// secretEndings has the endings of the names in the lists, also with qualifiers, and of variables
// with a key.
var secretEndings = func() (ne nameEndings) {
	for _, s := range slices.Concat(secretNames, queryNames) {
		ne.add(s.suffix)
		ne.add(s.suffix + "s")
	}
	for _, q := range qualifiers {
		ne.add(q)
	}
	ne.add("KEY")
	ne.add("PAT")
	return ne
}()

// endingOf returns the number of a name's ending. It reports false if the name does not end in
// three ASCII letters.
func endingOf[T string | []byte](name T) (n int, ok bool) {
	if len(name) < 3 {
		return 0, false
	}
	for i := len(name) - 3; i < len(name); i++ {
		c := name[i] | 0x20
		if c < 'a' || c > 'z' {
			return 0, false
		}
		n = n*26 + int(c-'a')
	}
	return n, true
}

func (ne *nameEndings) add(name string) {
	if n, ok := endingOf(name); ok {
		ne[n/64] |= 1 << (n % 64)
	}
}

// exclude reports whether the name is certainly not that of a secret.
func (ne *nameEndings) exclude(name []byte) bool {
	n, ok := endingOf(name)
	return ok && ne[n/64]&(1<<(n%64)) == 0
}

// maxNames limits the cache of classified names.
const maxNames = 4096

// A nameClass has the results of classifyName.
type nameClass struct{ name, queryName *secretName }

// classify returns the kind of secret that a name stands for, or nil. query means that it is a
// parameter of a URL or a form.
func (r *Redactor) classify(name []byte, query bool) *secretName {
	if r.endings.exclude(name) {
		return nil
	}
	if len(name) > 64 {
		name = name[len(name)-64:]
	}
	v, ok := r.nameClasses[string(name)]
	if !ok {
		if len(r.nameClasses) >= maxNames {
			clear(r.nameClasses)
		}
		v.name = r.classifyName(name, false)
		v.queryName = r.classifyName(name, true)
		r.nameClasses[string(name)] = v
	}
	if query {
		return v.queryName
	}
	return v.name
}

func (r *Redactor) classifyName(name []byte, query bool) *secretName {
	norm := string(appendNormal(nil, name))
	if slices.Contains(r.names, norm) {
		return &secretName{norm, "custom", true, true, false}
	}
	norm = strings.TrimRight(norm, digits)
	if len(norm) < 2 {
		return nil
	}
	if s := matchName(norm, query); s != nil {
		return s
	}
	if isVariable(name) {
		return &secretName{"key", "key", false, true, false}
	}
	for _, q := range qualifiers {
		rest, ok := strings.CutSuffix(norm, q)
		if !ok {
			continue
		}
		// The name "tokens" counts them.
		if s := matchName(rest, query); s != nil && (q != "s" || s.suffix != "token") {
			return s
		}
	}
	return nil
}

// isVariable reports whether a name is that of an environment variable with a key, such as
// OPENAI_KEY or GH_PAT. In other spellings, most names with that end mean something else.
func isVariable(name []byte) bool {
	s := string(name)
	if strings.ToUpper(s) != s || strings.HasSuffix(s, "PUBLIC_KEY") || strings.HasSuffix(s, "PRIMARY_KEY") || strings.HasSuffix(s, "FOREIGN_KEY") {
		return false
	}
	return strings.HasSuffix(s, "_KEY") || strings.HasSuffix(s, "_PAT")
}

// matchName searches the lists. norm is normalized and has no trailing digits.
func matchName(norm string, query bool) *secretName {
	find := func(list []secretName) *secretName {
		for i := range list {
			if s := &list[i]; strings.HasSuffix(norm, s.suffix) && (!s.whole || norm == s.suffix) {
				return s
			}
		}
		return nil
	}
	if slices.ContainsFunc(harmlessNames, func(p string) bool { return strings.HasSuffix(norm, p) }) {
		return nil
	}
	if query {
		if s := find(queryNames); s != nil {
			return s
		}
	}
	return find(secretNames)
}

// isEnvironment reports whether a member with that name holds the environment of a process, whose
// values are all hidden.
func isEnvironment(name []byte) bool {
	var scratch [32]byte
	if len(name) > len(scratch) || len(name) > 0 && alnum(name[0]) && name[0]|0x20 != 'e' {
		return false
	}
	switch string(appendNormal(scratch[:0], name)) {
	case "env", "environ", "environment", "envvars", "environmentvariables":
		return true
	}
	return false
}
