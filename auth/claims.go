package auth

import (
	"encoding/base64"
	"encoding/json"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	josejson "github.com/go-jose/go-jose/v4/json"
)

// rawBase64 is the encoding of tokens and proofs. Strict: one value has one text.
var rawBase64 = base64.RawURLEncoding.Strict()

// decodeSegment decodes a part of a compact serialization, which has no line breaks, whatever encoding/base64 thinks of them.
func decodeSegment(part string) ([]byte, bool) {
	if strings.ContainsAny(part, "\r\n") {
		return nil, false
	}
	b, err := rawBase64.DecodeString(part)
	return b, err == nil
}

// claimSet is a JSON object by the names of its members.
type claimSet map[string]json.RawMessage

// parseObject reads a JSON object. Names count by case, and a repeated one is an error: what is checked and what is used later must be the same. It uses
// the JSON reader of the library that checks the signatures, so that both read the same.
func parseObject(text []byte) (claimSet, bool) {
	if !utf8.Valid(text) {
		return nil, false
	}
	var members map[string]josejson.RawMessage
	if err := josejson.Unmarshal(text, &members); err != nil || members == nil {
		return nil, false
	}
	set := make(claimSet, len(members))
	for name, value := range members {
		set[name] = json.RawMessage(value)
	}
	return set, true
}

// has tells whether there is a member, null included.
func (c claimSet) has(name string) bool { _, ok := c[name]; return ok }

// str returns a member that is a string; ok is false if it is missing or anything else.
func (c claimSet) str(name string) (s string, ok bool) {
	raw := c[name]
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// strs returns a member that is a string or an array of strings.
func (c claimSet) strs(name string) (list []string, ok bool) {
	if s, ok := c.str(name); ok {
		return []string{s}, true
	}
	raw := c[name]
	if len(raw) == 0 || raw[0] != '[' {
		return nil, false
	}
	var elements []*string // pointers, to tell null from ""
	if err := json.Unmarshal(raw, &elements); err != nil {
		return nil, false
	}
	for _, e := range elements {
		if e == nil {
			return nil, false
		}
		list = append(list, *e)
	}
	return list, true
}

// A numeric date that a time.Time of four-digit years can hold.
const maxDate = 253402300799

// date returns a member that is a NumericDate (https://www.rfc-editor.org/rfc/rfc7519#section-2). If it is missing, the date is zero and ok true.
func (c claimSet) date(name string) (t time.Time, ok bool) {
	raw, found := c[name]
	if !found {
		return time.Time{}, true
	}
	if len(raw) == 0 || raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
		return time.Time{}, false
	}
	var seconds float64
	if err := json.Unmarshal(raw, &seconds); err != nil || !(seconds >= 0 && seconds <= maxDate) {
		return time.Time{}, false
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)), true
}

// checkDates returns why a token is not valid now, or "". exp counts to the second; the others allow for clocks that differ by leeway.
func (c claimSet) checkDates(now time.Time, leeway time.Duration) (expires time.Time, reason string) {
	exp, ok := c.date("exp")
	if !ok {
		return exp, "exp is no date"
	}
	if c.has("exp") && !now.Before(exp) {
		return exp, "it has expired"
	}
	for _, name := range []string{"nbf", "iat"} {
		if t, ok := c.date(name); !ok || t.After(now.Add(leeway)) {
			return exp, name + " is in the future, or no date"
		}
	}
	return exp, ""
}

// scopes returns what the token was granted, from scope (https://www.rfc-editor.org/rfc/rfc9068#section-2.2.3) or scp, which some issuers use. Both
// are taken as a text of several scopes or as an array.
func (c claimSet) scopes() []string {
	list, ok := c.strs("scope")
	if !ok {
		list, _ = c.strs("scp")
	}
	var scopes []string
	for _, s := range list {
		for scope := range strings.SplitSeq(s, " ") {
			if validScope(scope) {
				scopes = append(scopes, scope)
			}
		}
	}
	return unique(scopes)
}

// confirmation returns the thumbprint of the key that the token is bound to, "" if it is bound to none. A token that is bound in another way, or in two,
// is not valid here, since nobody would check that.
func (c claimSet) confirmation() (jkt string, ok bool) {
	raw, found := c["cnf"]
	if !found {
		return "", true
	}
	cnf, ok := parseObject(raw)
	if !ok || len(cnf) != 1 {
		return "", false
	}
	jkt, ok = cnf.str("jkt")
	return jkt, ok && validDigest(jkt)
}

// validDigest tells whether s is a SHA-256 in base64url.
func validDigest(s string) bool {
	b, ok := decodeSegment(s)
	return ok && len(b) == 32
}
