package capture

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"mcpwire/internal/text/lazyregexp"
)

// A secretKind lists what marks the secrets of a kind.
type secretKind struct {
	// label is the kind in the placeholder.
	label string
	// ends are the ends of names whose values are secrets, and names are entire names. All are
	// normalized, see [appendNormal].
	ends, names string
	// opaque are entire names with other meanings too, and opaqueEnds are ends of such names: the
	// value is a secret if it mixes letters and digits. With random, it must look random.
	opaque, opaqueEnds, random string
	// params are entire names only of parameters of a URL or a form.
	params string
	// number reports that a number can be the secret too.
	number bool
	// keys are prefixes of the issuers of keys, each with the least length of the rest after a
	// colon. After an exclamation mark, the rest must have a digit, because prose could begin with
	// the prefix.
	keys string
}

// secretKinds are the kinds of secrets that have names or prefixes. Other kinds are recognized by
// their shape or place: see [scanner] and [walker].
var secretKinds = []secretKind{
	{label: "password", number: true,
		ends: "password passwd passphrase passcode pwd kennwort passwort senha contraseña contrasena motdepasse wachtwoord " +
			"lösenord hasło пароль 密码 密碼 パスワード 비밀번호",
		names: "pass userpass dbpass pgpass pin pincode otp totp pw dbpw userpw"},
	{label: "token", ends: "token jwt bearer assertion codeverifier csrf xsrf samlresponse samlrequest", names: "pat", opaque: "refresh", params: "ticket"},
	{label: "key", number: true,
		ends: "apikey accesskey accesskeyid secretkey privatekey signingkey encryptionkey sharedkey masterkey accountkey servicekey " +
			"subscriptionkey authkey sessionkey sshkey keymaterial serviceaccountjson serviceaccountkey licensekey licencekey",
		opaque: "license licence", random: "key", params: "key xamzcredential",
		keys: "sk-:16! sk_live_:8 sk_test_:8 rk_live_:8 rk_test_:8 pk_live_:8 whsec_:8 ghp_:8 gho_:8 ghu_:8 ghs_:8 ghr_:8 github_pat_:8 " +
			"glpat-:8 gldt-:8 glrt-:8 glptt-:8 xoxb-:8 xoxa-:8 xoxp-:8 xoxr-:8 xoxs-:8 xoxe-:8 xoxe.:8 xoxc-:8 xoxd-:8 xapp-:8 " +
			"AKIA:16 ASIA:16 AIza:30 ya29.:12 GOCSPX-:8 npm_:20! pypi-:30 dop_v1_:16 SG.:20 hf_:20 gsk_:20 shpat_:16 shpss_:16 " +
			"lin_api_:16 ntn_:20 secret_:30! figd_:16 pplx-:20! r8_:20! xai-:20! tvly-:16 nvapi-:16 sntrys_:16 sbp_:20! PMAK-:16 " +
			"rnd_:16! vercel_:20! dckr_pat_:8 hvs.:20 hvb.:20 AGE-SECRET-KEY-:8 atlasv1.:20 ATATT:30 sq0atp-:8 sq0csp-:8 EAAA:40! key-:32!"},
	{label: "secret", number: true, ends: "secret secretid mnemonic seedphrase", opaque: "seed"},
	{label: "credential", number: true, ends: "credential creds connectionstring connstring connstr databaseurl webhookurl", names: "dsn", random: "login"},
	{label: "auth", number: true, ends: "authorization basicauth", names: "auth httpauth proxyauth xauth"},
	{label: "cookie", number: true, ends: "cookie cookiejar"},
	{label: "session", number: true, ends: "sessionid sessid", names: "connectsid", opaque: "session", params: "sid session"},
	{label: "signature", number: true, ends: "sasurl", names: "sas sig", opaqueEnds: "signature", params: "signature"},
	{label: "code", number: true, ends: "recoverycode backupcode authorizationcode authcode devicecode", random: "code nonce", params: "code state nonce"},
	{label: "hook", opaque: "webhook"},
}

// A secretPlace is a notation in which a value without a name is a secret.
type secretPlace struct {
	label string
	// words come before the value. Behind a dash and a letter, it may be in the same word. The case
	// of other words is ignored.
	words []string
	// before matches the text before the word, if it is not nil. The value is the group of value
	// that matches the text behind the word, if isSecret reports so.
	before, value func() *regexp.Regexp
	isSecret      func(value []byte) bool
}

// secretPlaces are the places of secrets without a name.
var secretPlaces = []secretPlace{
	{"bearer", []string{"bearer", "dpop"}, nil, credentialPattern, isBearer},
	{"basic", []string{"basic"}, nil, credentialPattern, isBasic},
	// Anyone who knows the address of a webhook can use it.
	{"hook", []string{"hooks.slack.com", "discord.com", "discordapp.com", "mcp.zapier.com", "hooks.zapier.com"}, nil,
		lazyregexp.New(`^/(?:services|api/webhooks|api/mcp/s|hooks/catch)/([\w./-]+)`), hasAlnum},
	// curl -u user:password
	{"userinfo", []string{"-u", "-U", "--user", "--proxy-user"}, lazyregexp.New(`curl[^\n]*$`), lazyregexp.New(`^[ \t=]*` + token), isUserPassword},
	// mysql -ppassword
	{"password", []string{"-p"}, lazyregexp.New(`(?:mysql|mariadb)[^\n]*$`), lazyregexp.New(`^` + token), hasAlnum},
	// SQL: IDENTIFIED BY 'password', PASSWORD 'password' and PASSWORD('password')
	{"password", []string{"by"}, lazyregexp.New(`IDENTIFIED\s(?:[^;]{0,64}\s)?$`), identifiedPattern, hasAlnum},
	{"password", []string{"by"}, lazyregexp.New(`identified\s(?:[^;]{0,64}\s)?$`), identifiedPattern, hasAlnum},
	{"password", []string{"password"}, nil, lazyregexp.New(`^(?:\s+|\s*\()'([^']+)`), hasAlnum},
	// .netrc: machine host login user password password
	{"password", []string{"password"}, lazyregexp.New(`\b(?:machine\s+\S+|default)\s+(?:(?:login|user|account)\s+\S+\s+)*$`), lazyregexp.New(`^\s+` + token), hasAlnum},
}

// token matches a word of a command, without its quotes.
const (
	token  = `(?:` + quoted + `|([^\s"']+))`
	quoted = `"((?:[^"\\]|\\.)+)|'((?:[^'\\]|\\.)+)`
)

// identifiedPattern matches the password after IDENTIFIED BY.
var identifiedPattern = lazyregexp.New(`^\s*(?i:password\s+)?(?:` + quoted + `|([^\s"';]+))`)

// credentialPattern matches the credentials after a scheme, but no parameter of a challenge.
var credentialPattern = lazyregexp.New("^[ \\t]+(?:([\\w.~+/-]+=+)(?:$|[\\s'`),;\\]}<&])|([\\w.~+/-]+)(?:$|[^\\w.~+/=-]))")

func isBearer(cred []byte) bool {
	return len(cred) >= 8 && (len(cred) >= 16 || hasDigit(cred) || mixedCase(cred)) && standIn(cred) < len(cred)
}

func isBasic(cred []byte) bool {
	plain, err := base64.RawStdEncoding.DecodeString(string(bytes.TrimRight(cred, "=")))
	return err == nil && bytes.IndexByte(plain, ':') >= 0
}

func isUserPassword(cred []byte) bool {
	_, password, ok := bytes.Cut(cred, []byte{':'})
	return ok && standIn(password) < len(password)
}

func hasAlnum(value []byte) bool {
	return bytes.ContainsFunc(value, unicode.IsLetter) || hasDigit(value)
}

// A proof says what a value must look like to be a secret, given its name.
type proof uint8

const (
	provenByName proof = iota
	// provenAlways holds for names that the user gave, and for known contexts.
	provenAlways
	provenIfOpaque
	provenIfRandom
)

// A secretName is a name in the table of kinds.
type secretName struct {
	// text is normalized.
	text string
	// label is empty for a harmless name.
	label string
	// whole requires that text is the entire name, not its end.
	whole, number bool
	proof         proof
}

// A keyPrefix is the prefix of an issuer's keys.
type keyPrefix struct {
	text string
	// rest is the least length of the rest.
	rest  int
	digit bool
}

// keyPrefixes has the prefixes by their first byte.
var keyPrefixes = func() (list [256][]keyPrefix) {
	for _, k := range secretKinds {
		for _, key := range strings.Fields(k.keys) {
			key, digit := strings.CutSuffix(key, "!")
			text, rest, _ := strings.Cut(key, ":")
			n, _ := strconv.Atoi(rest)
			list[text[0]] = append(list[text[0]], keyPrefix{text, n, digit})
		}
	}
	return
}()

// A nameTable has the names of secrets by their texts.
type nameTable struct {
	names, params map[string]*secretName
	// ends has the ends of the names, and of other words that the scanner handles. Most words end
	// differently.
	ends *wordEnds
}

// secretNames returns the names of secretKinds.
var secretNames = sync.OnceValue(func() *nameTable {
	t := &nameTable{names: map[string]*secretName{}, params: map[string]*secretName{}, ends: new(wordEnds)}
	for _, k := range secretKinds {
		add := func(to map[string]*secretName, names string, like secretName) {
			for text := range strings.FieldsSeq(names) {
				like.text, like.label, like.number = text, k.label, k.number && like.proof != provenIfOpaque
				s := like
				to[text] = &s
				t.ends.add(text)
				if s.proof != provenIfRandom && text != "token" { // The name "tokens" counts them.
					to[text+"s"] = &s
					t.ends.add(text + "s")
				}
			}
		}
		add(t.params, k.params, secretName{whole: true})
		add(t.names, k.ends, secretName{})
		add(t.names, k.names, secretName{whole: true})
		add(t.names, k.opaque, secretName{whole: true, proof: provenIfOpaque})
		add(t.names, k.opaqueEnds, secretName{proof: provenIfOpaque})
		add(t.names, k.random, secretName{whole: true, proof: provenIfRandom})
	}
	for _, h := range harmlessTokens {
		t.names[h] = new(secretName)
	}
	words := slices.Concat(qualifiers, nameAttributes, []string{"base64"})
	for _, p := range secretPlaces {
		words = append(words, p.words...)
	}
	for _, w := range words {
		t.ends.add(w)
	}
	return t
})

// find returns the meaning of a normalized name, also with qualifiers behind it, or nil.
func (t *nameTable) find(norm []byte, param bool) *secretName {
	if s := t.params[string(norm)]; s != nil && param {
		return s
	}
	for i := range norm {
		if s := t.names[string(norm[i:])]; s != nil && (i == 0 || !s.whole) {
			return s
		}
	}
	for _, q := range qualifiers {
		if name, ok := bytes.CutSuffix(norm, []byte(q)); ok {
			if s := t.find(name, param); s != nil && s.proof != provenIfRandom {
				return s
			}
		}
	}
	return nil
}

// wordEnds has the last three bytes of words.
type wordEnds [1 << 15]bool

// add adds the end of a word. Beyond ASCII, the cases of a letter differ in more than one bit.
func (e *wordEnds) add(word string) {
	e[endOf([]byte(word))], e[endOf([]byte(strings.ToUpper(word)))] = true, true
}

// endOf returns a number for the last three bytes of a name, without case, separators, and digits
// behind it.
func endOf(name []byte) (end int) {
	n := 0
	for i := len(name) - 1; i >= 0 && n < 3; i-- {
		if c := name[i]; c == '_' || c == '-' || c == '.' || n == 0 && c >= '0' && c <= '9' {
			continue
		}
		end = end<<5 | int(name[i]&31)
		n++
	}
	return end
}

// qualifiers may follow the name of a secret without changing its meaning.
var qualifiers = []string{"value", "hash", "base", "text", "raw", "plain", "header", "string"}

// harmlessTokens are ends of names that end like those of secrets. Hiding their values would break
// up the traffic.
var harmlessTokens = strings.Fields("progresstoken pagetoken nexttoken continuationtoken synctoken resumptiontoken cancellationtoken canceltoken " +
	"stoptoken eostoken bostoken padtoken unktoken counttoken maxtoken mintoken inputtoken outputtoken totaltoken prompttoken completiontoken pertoken")

// appendNormal appends the letters and digits of a name, in lower case, for comparison.
func appendNormal(dst, name []byte) []byte {
	for len(name) > 0 {
		c, n := utf8.DecodeRune(name)
		if name = name[n:]; unicode.IsLetter(c) || c >= '0' && c <= '9' {
			dst = utf8.AppendRune(dst, unicode.ToLower(c))
		}
	}
	return dst
}

// classify returns what a name says about its value, or nil. param means that it is a parameter of
// a URL or a form.
func (r *Redactor) classify(name []byte, param bool) *secretName {
	if !r.ends[endOf(name)] && len(r.custom) == 0 {
		return nil
	}
	var scratch [64]byte
	norm := appendNormal(scratch[:0], name[max(0, len(name)-64):])
	if s := r.custom[string(norm)]; s != nil {
		return s
	}
	s := secretNames().find(bytes.TrimRight(norm, digits), param)
	if (s == nil || s.proof == provenIfRandom) && isKeyVariable(name) {
		return &keyVariable
	}
	if s != nil && s.label == "" {
		return nil
	}
	return s
}

var keyVariable = secretName{text: "key", label: "key", number: true}

// isKeyVariable reports whether a name is that of an environment variable with a key, such as
// OPENAI_KEY or GH_PAT. In other spellings, most names with that end mean something else.
func isKeyVariable(name []byte) bool {
	if !bytes.HasSuffix(name, []byte("_KEY")) && !bytes.HasSuffix(name, []byte("_PAT")) || bytes.ContainsFunc(name, unicode.IsLower) {
		return false
	}
	return !bytes.HasSuffix(name, []byte("PUBLIC_KEY")) && !bytes.HasSuffix(name, []byte("PRIMARY_KEY")) && !bytes.HasSuffix(name, []byte("FOREIGN_KEY"))
}

// environmentPattern matches the names of members that hold the environment of a process, whose
// values are all hidden.
var environmentPattern = lazyregexp.New(`^(?i:env|environ|environment|env[-_ ]?vars|environment[-_ ]?variables)$`)

func isEnvironment(name []byte) bool {
	return len(name) >= 3 && name[0]|0x20 == 'e' && environmentPattern().Match(name)
}

// hides reports whether a value with that name, without its quotes, is a secret. It reports false
// if s is nil.
func (s *secretName) hides(value []byte) bool {
	switch {
	case s == nil || len(value) == 0 || isPlaceholder(value):
		return false
	case s.proof == provenAlways:
		return true
	case s.proof == provenIfOpaque:
		return isOpaque(value, s.text)
	case s.proof == provenIfRandom:
		return isRandom(value)
	}
	return standIn(value) < len(value) && (s.number || len(value) > 5 || len(bytes.Trim(value, digits)) > 0)
}

// marks reports whether a value with that name, in a place for values of any kind, is a secret.
func (s *secretName) marks(value []byte) bool {
	return s != nil && len(value) > 0 && (s.proof != provenIfRandom || isRandom(value))
}

// hidesCode is hides for a value without quotes, which is the beginning of rest. In the source of a
// program, the value may be an expression.
func (s *secretName) hidesCode(value, rest []byte) bool {
	if !s.hides(value) {
		return false
	}
	if s.proof > provenByName {
		return true
	}
	// The value may be the name itself, as in login(password=password).
	norm := appendNormal(nil, value)
	return standIn(rest) == 0 && !isCode(rest) && (string(norm) != s.text || len(norm) == len(value))
}

// closing may follow a value.
const closing = "(?:$|[\\s,;)\\]}>|&<\"'`\\\\]|[.](?:$|\\s))"

// standInPattern matches what stands in the place of a value: a word such as "null", a mask, a
// variable, words in brackets. codePattern matches a type, a call, a field, or a keyword with an
// operand, in the source of a program. A text that begins with a digit is neither.
var (
	standInPattern = lazyregexp.New(`^((?i:null|nil|none|undefined|unset|n/a|not (?:set|configured|provided|specified|available)|value|example|missing|required|optional|` +
		`empty|expired|hidden|redacted|omitted|unknown|true|false|your[-_][a-z_-]+|your( [a-z]+)+|x{3,}|[*]{3,}|•{3,}|[.]{3,}|#{3,}|-{3,}|…+)` +
		`|[|>][-+0-9]*|[$][A-Z_][A-Z0-9_]+|[$][{][\w.]+(?::[-?=+]*)?[}]|[$][{](?:input|env|config|file|secrets?):[\w.:-]+[}]|%\w+%|[$]?[{][{][\w .-]+[}][}]|[{][A-Za-z_]{1,20}[}]|[<(\[][A-Za-z _.-]+[>)\]])` + closing)
	codePattern = lazyregexp.New(`^[=&*?!]*(?:(?i:str|string|int|integer|number|float|bool|boolean|bytes?|any|object|unknown|void|text|varchar|uuid|buffer|secretstr)(?:[?=]|` + closing + `)` +
		`|(?:new|await|async|lambda|function|func|typeof|yield|if|not) \w|[A-Za-z_]+[(\[]|[A-Za-z_]\w*(?:(?:\.|::|\?\.|->)[A-Za-z_]\w*)+[(\[]` +
		`|(?:process\.env\.\w+|(?:import|os|self|this|config|cfg|conf|settings|env|args|options|opts|props|req|request|ctx|secrets|vars?|local|data|module)(?:\.[A-Za-z_]+)+)` + closing + `)`)
	// dates and licenses are not opaque.
	notOpaquePattern = lazyregexp.New("^[0-9]{4}-[0-9]{2}-|[\x00-\x20()<>{}\\[\\]\"']")
	licensePattern   = lazyregexp.New(`^(?i:mit|apache|[al]?gpl|0?bsd|mpl|isc|cc0|cc-|epl|eupl|ofl|zlib|artistic|unlicense|wtfpl|bsl|python-|postgresql|licenseref|proprietary|see )`)
)

// standIn returns the length of what a text begins with in place of a value, or 0 if the text may
// begin with a value.
func standIn(text []byte) int {
	if bytes.HasPrefix(text, []byte("$(")) { // a command
		return 2
	}
	if m := standInPattern().FindSubmatchIndex(text[:min(len(text), 256)]); m != nil {
		return m[3]
	}
	return 0
}

func isCode(text []byte) bool {
	text = text[:min(len(text), 256)]
	k := bytes.IndexByte(text, ')')
	return codePattern().Match(text) && (k < 0 || k+1 == len(text) || !alnum(text[k+1]))
}

// isOpaque reports whether a value with an ambiguous name looks like a credential: no spaces,
// letters and digits mixed, and not a date, the name of a license or an expression.
func isOpaque(v []byte, name string) bool {
	switch {
	case name == "webhook" && bytes.Contains(v, []byte("://")):
		// Anyone who knows the address can use it.
		return bytes.IndexByte(v[bytes.Index(v, []byte("://"))+3:], '/') > 0
	case name == "seed" && bytes.Count(v, []byte{' '}) >= 11: // the words of a recovery phrase
		return true
	case strings.HasPrefix(name, "licen") && licensePattern().Match(v):
		return false
	}
	letters := bytes.ContainsFunc(v, unicode.IsLetter)
	return len(v) >= 8 && letters && (hasDigit(v) || len(v) >= 16 && mixedCase(v)) && !notOpaquePattern().Match(v)
}

// isRandom reports whether a text looks random: at least 16 letters of both cases and digits, which
// change often.
func isRandom(v []byte) bool {
	if len(v) < 16 || len(v) > 512 {
		return false
	}
	var count [3]int
	changes, last := 0, -1
	for _, c := range v {
		class := 0
		switch {
		case c >= 'a' && c <= 'z':
		case c >= 'A' && c <= 'Z':
			class = 1
		case c >= '0' && c <= '9':
			class = 2
		case base64Byte[c]:
			continue
		default:
			return false
		}
		if count[class]++; class != last {
			changes++
		}
		last = class
	}
	return min(count[0], count[1], count[2]) >= 2 && 2*changes >= len(v)
}

// isToken reports whether a text looks like a key: long, with letters and digits, and without
// characters of paths or sentences.
func isToken[T string | []byte](s T) bool {
	numbers, letters := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			numbers++
		case alnum(c):
			letters++
		case c != '-' && c != '_' && c != '+' && c != '=':
			return false
		}
	}
	return len(s) >= 20 && numbers >= 3 && letters >= 3
}

const digits = "0123456789"

func hasDigit(b []byte) bool { return bytes.ContainsAny(b, digits) }

// mixedCase reports whether a text has letters of both cases, other than a capital at its start.
func mixedCase(b []byte) bool {
	b = b[min(1, len(b)):]
	return !bytes.Equal(b, bytes.ToLower(b)) && !bytes.Equal(b, bytes.ToUpper(b))
}
