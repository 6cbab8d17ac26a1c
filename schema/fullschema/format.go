package fullschema

import (
	"net/netip"
	"net/url"
	"strings"
	"time"

	"mcpwire/internal/text/lazyregexp"
)

// formats are the values of format that drafts before 2019-09 assert. Other values, and regex,
// which depends on the compiler, are not here.
var formats = map[string]func(string) bool{
	"date-time":             isDateTime,
	"date":                  func(s string) bool { _, err := time.Parse(time.DateOnly, s); return err == nil },
	"time":                  func(s string) bool { return isDateTime(time.DateOnly + "T" + s) },
	"duration":              func(s string) bool { return s != "P" && !strings.HasSuffix(s, "T") && durations().MatchString(s) },
	"email":                 isEmail,
	"hostname":              isHostname,
	"ipv4":                  func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is4() },
	"ipv6":                  func(s string) bool { a, err := netip.ParseAddr(s); return err == nil && a.Is6() && a.Zone() == "" },
	"uri":                   func(s string) bool { return isURI(s, true) && isASCII(s) },
	"uri-reference":         func(s string) bool { return isURI(s, false) && isASCII(s) },
	"iri":                   func(s string) bool { return isURI(s, true) },
	"iri-reference":         func(s string) bool { return isURI(s, false) },
	"uri-template":          func(s string) bool { return templates().MatchString(s) },
	"uuid":                  func(s string) bool { return uuids().MatchString(s) },
	"json-pointer":          func(s string) bool { return pointers().MatchString(s) },
	"relative-json-pointer": func(s string) bool { return relativePointers().MatchString(s) },
}

var (
	durations        = lazyregexp.New(`^P([0-9]+W|([0-9]+Y)?([0-9]+M)?([0-9]+D)?(T([0-9]+H)?([0-9]+M)?([0-9]+S)?)?)$`)
	uuids            = lazyregexp.New(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
	pointers         = lazyregexp.New(`^(/([^~/]|~[01])*)*$`)
	relativePointers = lazyregexp.New(`^(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)$`)
	dateTimes        = lazyregexp.New(`^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`)
	templates        = lazyregexp.New(`^([^\x00-\x20"'<>\\^` + "`" + `{|}%]|%[0-9A-Fa-f]{2}|\{[+#./;?&=,!@|]?` + variable + `(,` + variable + `)*\})*$`)
	labels           = lazyregexp.New(`^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?$`)
	mailNames        = lazyregexp.New("^([A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*|\"([^\"\\\\]|\\\\.)*\")$")
)

// variable matches a variable of a URI template, RFC 6570.
const variable = `([A-Za-z0-9_]|%[0-9A-Fa-f]{2})(\.?([A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*(:[1-9][0-9]{0,3}|\*)?`

// isDateTime reports whether s is a date-time of RFC 3339. Leap seconds are at the end of a day in
// UTC.
func isDateTime(s string) bool {
	if !dateTimes().MatchString(s) {
		return false
	}
	s = strings.ToUpper(s)
	leap := s[17:19] == "60"
	if leap {
		s = s[:17] + "59" + s[19:]
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return false
	}
	t = t.UTC()
	return !leap || t.Hour() == 23 && t.Minute() == 59
}

// isEmail reports whether s is an address of RFC 5321.
func isEmail(s string) bool {
	at := strings.LastIndexByte(s, '@')
	if at < 1 || at > 64 || !mailNames().MatchString(s[:at]) {
		return false
	}
	host := s[at+1:]
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(strings.TrimPrefix(inner, "IPv6:"))
		return ok && err == nil && a.Is6() == strings.HasPrefix(inner, "IPv6:")
	}
	return isHostname(host)
}

// isHostname reports whether s is a host name of RFC 1123.
func isHostname(s string) bool {
	if len(s) > 253 {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if !labels().MatchString(label) {
			return false
		}
	}
	return true
}

// isURI reports whether s is a URI reference and, if absolute is set, has a scheme.
func isURI(s string, absolute bool) bool {
	u, err := url.Parse(s)
	if err != nil || absolute && !u.IsAbs() || strings.ContainsAny(s, " \\<>{}|^`\"") {
		return false
	}
	host := u.Hostname()
	return strings.HasPrefix(u.Host, "[") || !strings.Contains(host, ":")
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}
