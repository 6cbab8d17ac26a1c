package capture

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// Text is judged in one pass over its words. What is a secret is told by its own shape (prefixes that issuers of keys use, three parts of a JWT, a PEM block), by the
// word before it ("Bearer"), or by the name it is the value of ("password: …", "?token=…", "--api-key …").

// wordByte tells the bytes of a name or a key.
var wordByte = func() (t [256]bool) {
	for c := range t {
		t[c] = c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
	}
	return t
}()

// A shape is how keys of one issuer begin, and how many more bytes they have at least.
type keyShape struct {
	prefix string
	tail   int
	digit  bool // there must be a digit, since prose could begin so
}

var keyShapes = []keyShape{
	{"sk-", 16, true}, {"sk_live_", 8, false}, {"sk_test_", 8, false}, {"rk_live_", 8, false}, {"rk_test_", 8, false}, {"pk_live_", 8, false},
	{"whsec_", 8, false}, {"ghp_", 8, false}, {"gho_", 8, false}, {"ghu_", 8, false}, {"ghs_", 8, false}, {"ghr_", 8, false},
	{"github_pat_", 8, false}, {"glpat-", 8, false}, {"gldt-", 8, false}, {"glrt-", 8, false}, {"glptt-", 8, false},
	{"xoxb-", 8, false}, {"xoxa-", 8, false}, {"xoxp-", 8, false}, {"xoxr-", 8, false}, {"xoxs-", 8, false}, {"xoxe-", 8, false}, {"xoxe.", 8, false}, {"xoxc-", 8, false}, {"xoxd-", 8, false}, {"xapp-", 8, false},
	{"AKIA", 16, false}, {"ASIA", 16, false}, {"AIza", 30, false}, {"ya29.", 12, false}, {"GOCSPX-", 8, false}, {"1//", 20, false},
	{"npm_", 20, true}, {"pypi-", 30, false}, {"dop_v1_", 16, false}, {"SG.", 20, false}, {"hf_", 20, false}, {"gsk_", 20, false},
	{"shpat_", 16, false}, {"shpss_", 16, false}, {"lin_api_", 16, false}, {"ntn_", 20, false}, {"secret_", 30, true}, {"figd_", 16, false}, {"pplx-", 20, true}, {"r8_", 20, true},
	{"xai-", 20, true}, {"tvly-", 16, false}, {"nvapi-", 16, false}, {"sntrys_", 16, false}, {"sbp_", 20, true}, {"PMAK-", 16, false}, {"rnd_", 16, true}, {"vercel_", 20, true}, {"dckr_pat_", 8, false},
	{"hvs.", 20, false}, {"hvb.", 20, false}, {"AGE-SECRET-KEY-", 8, false}, {"atlasv1.", 20, false}, {"ATATT", 30, false}, {"sq0atp-", 8, false}, {"sq0csp-", 8, false}, {"EAAA", 40, true}, {"key-", 32, true},
}

// keyShapesByFirst finds the shapes by their first byte.
var keyShapesByFirst = func() (t [256][]keyShape) {
	for _, s := range keyShapes {
		t[s.prefix[0]] = append(t[s.prefix[0]], s)
	}
	return t
}()

// A scan says how a text is judged.
type textMode struct {
	// prose passes over names with values: the text describes them. Only the shape of a key tells.
	prose bool
	// depth counts the encodings that were taken off.
	depth int
}

// scanText adds the edits that hide the secrets in a text to e; they are settled. Nothing else of e is touched.
func (r *Redactor) scanText(e *edits, text []byte) { r.scan(e, text, textMode{}) }

func (r *Redactor) scan(e *edits, text []byte, how textMode) {
	from := len(e.list)
	r.scanKnown(e, text)
	r.scanPEM(e, text)
	encoded := false // something stands for another character
	triedTo := 0     // names with letters beyond ASCII were looked at up to here
	tablesTo := 0    // first lines of tables were looked for up to here
	for i := 0; i < len(text); {
		if c := text[i]; !wordByte[c] {
			if specialByte[c] {
				encoded = encoded || isEncoded(text[i:])
				switch {
				case c == '~':
					if end := placeholderEnd(text, i); end > i {
						i = end
						continue
					}
				case how.prose:
				case c == '<':
					r.scanTag(e, text, i)
				case c >= 0x80 && i >= triedTo:
					if end := nameEnd(text, i); end > i {
						triedTo = end
						i = max(i+1, r.scanNonASCII(e, text, i, end))
						continue
					}
				}
			}
			i++
			continue
		}
		start := i
		for i++; i < len(text) && wordByte[text[i]]; i++ {
		}
		r.scanWord(e, text, start, i)
		if how.prose {
			r.scanProse(e, text, start, i)
			continue
		}
		if end := r.scanValue(e, text, start, i); end > i {
			i = end
		} else if end := r.scanPhrase(e, text, start, i, how); end > i {
			i = end
		} else if i < len(text) && text[i] >= 0x80 && i >= triedTo {
			if end := nameEnd(text, i); end > i {
				triedTo = end
				i = max(i, r.scanNonASCII(e, text, start, end))
			}
		} else if i >= tablesTo && i < len(text) && cellEndByte[text[i]] {
			tablesTo = r.scanTable(e, text, start, i)
		}
	}
	if encoded && how.depth < maxEncodings {
		r.scanEncoded(e, text, how)
	}
	if len(e.list) > from {
		e.normalize(from)
	}
}

// scanKnown hides what is known to be secret.
func (r *Redactor) scanKnown(e *edits, text []byte) {
	for s := range r.known.all {
		for at := 0; ; {
			k := bytes.Index(text[at:], []byte(s))
			if k < 0 {
				break
			}
			at += k
			r.hide(e, at, at+len(s), "known", text[at:at+len(s)])
			at += len(s)
		}
	}
}

// hasKnown reports whether something known to be secret is in the text as it stands.
func (r *Redactor) hasKnown(text []byte) bool {
	for s := range r.known.all {
		if bytes.Contains(text, []byte(s)) {
			return true
		}
	}
	return false
}

var (
	pemBegin = []byte("-----BEGIN")
	pemEnd   = []byte("-----END")
	pemKey   = []byte("PRIVATE KEY")
	dashes   = []byte("-----")
)

// scanPEM hides private keys. It reports whether the last of them has no end in the text.
func (r *Redactor) scanPEM(e *edits, text []byte) (open bool) {
	for at := 0; ; {
		k := bytes.Index(text[at:], pemBegin)
		if k < 0 {
			return false
		}
		start := at + k
		at = start + len(pemBegin)
		if head := text[at:min(at+64, len(text))]; !bytes.Contains(head, pemKey) {
			continue
		}
		end := len(text)
		if k := bytes.Index(text[at:], pemEnd); k >= 0 {
			end = pemEndOf(text, at+k)
		} else {
			open = true
		}
		r.hide(e, start, end, "pem", text[start:end])
		if at = end; open {
			return true
		}
	}
}

// pemEndOf returns the index behind the line that begins with the "-----END" at i.
func pemEndOf(text []byte, i int) int {
	i += len(pemEnd)
	if k := bytes.Index(text[i:], dashes); k >= 0 && k < 64 {
		return i + k + len(dashes)
	}
	return len(text)
}

// scanWord hides keys that show by their shape what they are.
func (r *Redactor) scanWord(e *edits, text []byte, start, end int) {
	if end-start < 12 {
		return
	}
	w := text[start:end]
	in := wordParts{digit: start + bytes.LastIndexAny(w, "0123456789")}
	if k := bytes.LastIndexByte(w, '.'); k >= 0 {
		in.dot = start + bytes.LastIndexByte(w[:k], '.')
	}
	// Behind a backslash the first letter may be the end of an escape, in JSON that is quoted twice.
	if start > 0 && text[start-1] == '\\' && r.shapeAt(e, text, start+1, end, in) {
		return
	}
	for i := start; i < end; i++ {
		if (i == start || !alnum(text[i-1])) && r.shapeAt(e, text, i, end, in) {
			return
		}
		for i+1 < end && alnum(text[i]) { // to the next byte that is no letter or digit
			i++
		}
	}
}

// wordParts are what shapes ask of a word, found once so that long words take linear time.
type wordParts struct {
	digit int // index of the last digit
	dot   int // index of the last dot but one
}

func alnum(c byte) bool { return wordByte[c] && c != '_' && c != '-' && c != '.' }

// shapeAt hides the key that begins at i, if one does. The word ends at end.
func (r *Redactor) shapeAt(e *edits, text []byte, i, end int, in wordParts) bool {
	tok := text[i:end]
	for _, s := range keyShapesByFirst[text[i]] {
		if len(tok) >= len(s.prefix)+s.tail && string(tok[:len(s.prefix)]) == s.prefix && (!s.digit || in.digit >= i+len(s.prefix)) {
			r.hide(e, i, end, "key", tok)
			return true
		}
	}
	if len(tok) >= 20 && string(tok[:3]) == "eyJ" && in.dot > i {
		r.hide(e, i, end, "jwt", tok)
		return true
	}
	return false
}

func hasDigit(b []byte) bool {
	return bytes.ContainsAny(b, "0123456789")
}

// scanScheme hides the credentials behind the name of an HTTP authentication scheme, which is text[start:end]. It returns where they end, or end.
func (r *Redactor) scanScheme(e *edits, text []byte, start, end int) int {
	var basic bool
	switch name := text[start:end]; {
	case bytes.EqualFold(name, []byte("bearer")), bytes.EqualFold(name, []byte("dpop")):
	case bytes.EqualFold(name, []byte("basic")):
		basic = true
	default:
		return end
	}
	from := end
	for from < len(text) && (text[from] == ' ' || text[from] == '\t') {
		from++
	}
	if from == end {
		return end
	}
	to := from
	for to < len(text) && (wordByte[text[to]] || text[to] == '~' || text[to] == '+' || text[to] == '/' || text[to] == '=') {
		to++
	}
	cred := text[from:to]
	if k := bytes.IndexByte(cred, '='); k >= 0 && (len(bytes.Trim(cred[k:], "=")) > 0 || to < len(text) && text[to] == '"') {
		return end // a parameter of a challenge
	}
	if basic {
		plain, err := base64.RawStdEncoding.AppendDecode(nil, bytes.TrimRight(cred[:min(len(cred), 4096)], "="))
		if len(cred) < 4 || err != nil || !bytes.Contains(plain, []byte{':'}) {
			return end
		}
		r.hide(e, from, to, "basic", cred)
		return to
	}
	if len(cred) < 8 || len(cred) < 16 && !hasDigit(cred) && !mixedCase(cred) {
		return end
	}
	r.hide(e, from, to, "bearer", cred)
	return to
}

func mixedCase(b []byte) bool {
	return !bytes.Equal(b, bytes.ToLower(b)) && !bytes.Equal(b, bytes.ToUpper(b))
}

// placeholderEnd returns where the placeholder that begins at i ends, or i.
func placeholderEnd(text []byte, i int) int {
	const longest = 64
	rest := text[i+1 : min(len(text), i+longest)]
	if k := bytes.IndexByte(rest, '~'); k >= 0 && isPlaceholder(text[i:i+k+2]) {
		return i + k + 2
	}
	return i
}

// isPlaceholder reports whether a text is one and nothing else.
func isPlaceholder[T string | []byte](s T) bool {
	const head = "~redacted:"
	if len(s) > 64 || len(s) < len(head)+16 || string(s[:len(head)]) != head || s[len(s)-1] != '~' {
		return false
	}
	kind, rest, _ := strings.Cut(string(s[len(head):len(s)-1]), ":")
	sum, size, ok := strings.Cut(rest, ":")
	return ok && len(sum) == 12 && strings.Trim(sum, "0123456789abcdef") == "" && strings.Trim(kind, lowercase) == "" &&
		size != "" && strings.Trim(size, "0123456789") == ""
}

const lowercase = "abcdefghijklmnopqrstuvwxyz"
