package capture

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"hash/maphash"
	"math/bits"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"mcpwire/internal/json/jsonwire"
	"mcpwire/internal/text/lazyregexp"
)

// A Redaction adds to the default redaction, which the package comment describes. A nil *Redaction
// is the default alone.
type Redaction struct {
	// Off turns redaction off, so that a capture is as secret as the traffic. The other fields then
	// have no effect. A [Redactor] ignores it.
	Off bool
	// Key is the HMAC key of the placeholders: captures with the same key have equal placeholders
	// for equal secrets. Keep it secret. It needs at least 16 bytes; a shorter one is ignored. Nil
	// means a random key for each capture, which is not stored.
	Key []byte
	// Names are additional names whose values are hidden: names of members, headers, parameters and
	// variables. Case, and characters other than letters and digits, are ignored.
	Names []string
	// Headers are additional names of HTTP headers whose values are shown.
	Headers []string
	// Secrets are texts to hide wherever they occur. Texts of less than 4 bytes are ignored.
	Secrets []string
}

// A Redactor hides secrets in the events of a capture. It is not safe for concurrent use.
type Redactor struct {
	mac   hash.Hash
	label RedactionMode
	// custom has the names of the Redaction, normalized, and ends has their ends, too.
	custom map[string]*secretName
	ends   *wordEnds
	// headers are those of the Redaction, in lower case.
	headers []string
	// known are texts to hide wherever they occur: first, up to fixed, those of the Redaction and
	// of variables, and then those of headers.
	known []string
	fixed int
	// These have texts in which nothing was hidden: fields of events, and raw strings of messages.
	cleanFields, cleanStrings cleanTexts
	// open has the streams of text in which a secret may continue.
	open map[textStream]openText

	// The rest is scratch space for texts that are strings.
	field      []byte
	fieldEdits edits
}

// NewRedactor returns a Redactor. r may be nil.
func NewRedactor(r *Redaction) *Redactor {
	d := &Redactor{open: map[textStream]openText{}, label: redactionDefault, ends: secretNames().ends}
	var key [32]byte
	rand.Read(key[:]) // never fails
	secret := key[:]
	if r != nil {
		d.label = redactionCustom
		if len(r.Key) >= 16 {
			secret = slices.Clone(r.Key)
		}
		if len(r.Names) > 0 {
			ends := *d.ends
			d.custom, d.ends = map[string]*secretName{}, &ends
		}
		for _, n := range r.Names {
			norm := string(appendNormal(nil, []byte(n)))
			d.custom[norm] = &secretName{text: norm, label: "custom", number: true, proof: provenAlways}
			d.ends.add(norm)
		}
		for _, n := range r.Headers {
			d.headers = append(d.headers, strings.ToLower(n))
		}
		for _, s := range r.Secrets {
			d.learn(s, 4, true)
		}
	}
	d.mac = hmac.New(sha256.New, secret)
	return d
}

// placeholder returns the placeholder of a secret: its kind, a keyed hash, and the power of two
// that its length does not exceed. No character of it needs escaping in JSON, a URL or an HTTP
// header.
func (r *Redactor) placeholder(kind string, secret []byte) string {
	if isPlaceholder(secret) {
		return string(secret)
	}
	r.mac.Reset()
	r.mac.Write(secret)
	dst := append(make([]byte, 0, 64), "~redacted:"+kind+":"...)
	dst = hex.AppendEncode(dst, r.mac.Sum(nil)[:6])
	size := 8
	if n := len(secret); n > 8 {
		size = 1 << bits.Len(uint(n-1))
	}
	dst = strconv.AppendInt(append(dst, ':'), int64(size), 10)
	return string(append(dst, '~'))
}

// An edit replaces text[start:end].
type edit struct {
	start, end int
	text       string
}

// edits are changes to a text, sorted and without overlap once normalized.
type edits struct{ list []edit }

func (e *edits) reset() {
	if e.list = e.list[:0]; cap(e.list) > 1<<14 {
		e.list = nil
	}
}

// hide replaces text[start:end], which stands for secret, by a placeholder.
func (e *edits) hide(r *Redactor, start, end int, kind string, secret []byte) {
	if len(secret) > 0 && !isPlaceholder(secret) {
		e.list = append(e.list, edit{start, end, r.placeholder(kind, secret)})
	}
}

// normalize sorts the edits with an index of at least from, and merges overlapping ones into the
// first.
func (e *edits) normalize(from int) {
	list := e.list[from:]
	slices.SortStableFunc(list, func(a, b edit) int { return cmp.Or(a.start-b.start, b.end-a.end) })
	n := 0
	for _, d := range list {
		if n > 0 && d.start < list[n-1].end {
			list[n-1].end = max(list[n-1].end, d.end)
			continue
		}
		list[n] = d
		n++
	}
	e.list = e.list[:from+n]
}

// apply yields the pieces of the edited text.
func (e *edits) apply(text []byte, put func([]byte)) {
	at := 0
	for _, d := range e.list {
		put(text[at:d.start])
		put([]byte(d.text))
		at = d.end
	}
	put(text[at:])
}

func (e *edits) append(dst, text []byte) []byte {
	e.apply(text, func(piece []byte) { dst = append(dst, piece...) })
	return dst
}

const (
	maxFixed   = 256
	maxLearned = 64
	maxSecret  = 16 << 10 // bytes
)

// learn adds a secret of at least so many bytes to those that are known, also as it is
// percent-encoded. A secret that is not fixed replaces the oldest such one.
func (r *Redactor) learn(secret string, atLeast int, fixed bool) {
	for _, s := range slices.Compact([]string{secret, url.QueryEscape(secret)}) {
		switch {
		case len(s) < atLeast || len(s) > maxSecret || slices.Contains(r.known, s) || isPlaceholder(s):
			continue
		case fixed && r.fixed < maxFixed:
			r.known = slices.Insert(r.known, r.fixed, s)
			r.fixed++
		default:
			if r.known = append(r.known, s); len(r.known) > r.fixed+maxLearned {
				r.known = slices.Delete(r.known, r.fixed, r.fixed+1)
			}
		}
		r.cleanFields, r.cleanStrings = cleanTexts{}, cleanTexts{}
	}
}

// A textStream identifies a stream of text in which a secret may span several events.
type textStream struct {
	session uint64
	kind    Kind
	dir     Dir
}

// redactFields replaces fields of e with secrets, other than headers, by redacted copies, and lists
// them.
func (r *Redactor) redactFields(e *Event, p *pointers) {
	set := func(s *string, t, pointer string) {
		if t != *s {
			*s = t
			p.add(pointer)
		}
	}
	redact := func(s *string, pointer string) { set(s, r.Text(*s), pointer) }
	redact(&e.Prefix, "/pre")
	redact(&e.Encoding, "/enc")
	// Another program wrote the capture that is being copied.
	redact((*string)(&e.Kind), "/k")
	redact((*string)(&e.Dir), "/dir")
	redact((*string)(&e.Framing), "/frame")
	if h := clone(&e.Head); h != nil {
		redact(&h.ID, "/id")
		redact(&h.Name, "/name")
		redact(&h.Tool, "/tool")
		redact((*string)(&h.Transport), "/transport")
		set(&h.URL, r.URL(h.URL), "/url")
	}
	if s := clone(&e.Start); s != nil {
		r.redactStart(s, p)
		redact(&s.Dir, "/cwd")
	}
	if x := clone(&e.Exit); x != nil {
		redact(&x.Signal, "/signal")
	}
	if q := clone(&e.Request); q != nil {
		redact(&q.Method, "/req/method")
		redact(&q.Proto, "/req/proto")
		redact(&q.Remote, "/req/remote")
		set(&q.URL, r.URL(q.URL), "/req/url")
	}
	if s := clone(&e.Response); s != nil {
		redact(&s.Proto, "/res/proto")
	}
	if x := clone(&e.Translation); x != nil {
		redact(&x.Rule, "/rule")
	}
	if g := clone(&e.Gap); g != nil {
		redact((*string)(&g.Why), "/why")
	}
	if s := clone(&e.SSE); s != nil {
		redact(&s.ID, "/sse/id")
		redact(&s.Event, "/sse/event")
		redact(&s.Comment, "/sse/comment")
	}
}

// clone replaces what p points to by a copy, and returns the copy.
func clone[T any](p **T) *T {
	if *p != nil {
		c := **p
		*p = &c
	}
	return *p
}

// Text returns the text with its secrets hidden.
func (r *Redactor) Text(text string) string {
	if len(text) < 4 {
		return text
	}
	clean := r.cleanFields.slot([]byte(text))
	if string(*clean) == text {
		return text
	}
	out := r.edited(text, textMode{})
	if out == text && len(text) <= maxClean {
		*clean = append((*clean)[:0], text...)
	}
	return out
}

// cleanTexts remembers texts in which nothing was hidden, because traffic repeats most of them, and
// a proxy records messages on both sides. BenchmarkCall takes 1.8 times as long without it.
type cleanTexts [256][]byte

// maxClean is the length of the longest text that is remembered.
const maxClean = 4 << 10

var cleanSeed = maphash.MakeSeed()

// slot returns the place of a text.
func (c *cleanTexts) slot(text []byte) *[]byte { return &c[maphash.Bytes(cleanSeed, text)%256] }

// edited returns the text with its secrets hidden. It allocates nothing if there are none.
func (r *Redactor) edited(text string, how textMode) string {
	if r.field = append(r.field[:0], text...); cap(r.field) > 1<<20 {
		defer func() { r.field = nil }()
	}
	r.fieldEdits.reset()
	if r.scan(&r.fieldEdits, r.field, how); len(r.fieldEdits.list) == 0 {
		return text
	}
	return string(r.fieldEdits.append(nil, r.field))
}

// Prose returns a text that describes names, such as help or a list of tools. It hides secrets that
// have the shape of one. Text after the name of a secret stays: in "login(password: string)",
// nothing is secret.
func (r *Redactor) Prose(text string) string { return r.edited(text, textMode{prose: true}) }

// Message appends a message to dst with its secrets hidden. It also returns the JSON pointers of
// the hidden values, or nil if the message cannot be stored as JSON. msg may be any bytes.
func (r *Redactor) Message(dst, msg []byte) (out []byte, hidden []string) {
	var p payload
	p.prepare(&Event{Kind: KindMessage, Data: msg}, r)
	for i, h := range p.hidden.list {
		_, p.hidden.list[i], _ = strings.Cut(h[1:], "/")
		p.hidden.list[i] = "/" + p.hidden.list[i]
	}
	if len(p.edits.list) == 0 {
		return append(dst, msg...), nil
	}
	if p.form != formMessage {
		p.hidden.list = nil
	}
	return p.edits.append(dst, msg), p.hidden.list
}

// redactStart hides the values of variables and the secrets among the arguments.
func (r *Redactor) redactStart(s *Start, p *pointers) {
	s.Env = slices.Clone(s.Env)
	for i, v := range s.Env {
		name, value, _ := strings.Cut(v, "=")
		s.Env[i] = name
		// These are folders, though their names look like those of passwords.
		if name != "PWD" && name != "OLDPWD" && r.classify([]byte(name), false).hides([]byte(value)) {
			r.learn(value, 6, true)
		}
	}
	shown := r.Args(s.Command)
	for i, a := range shown {
		if a != s.Command[i] {
			p.add("/cmd/" + strconv.Itoa(i))
		}
	}
	s.Command = shown
}

// Args returns a copy of the arguments of a command with their secrets hidden.
func (r *Redactor) Args(args []string) []string {
	args = slices.Clone(args)
	before := ""
	var name *secretName // what the previous argument says about this one
	mysql := len(args) > 0 && (strings.Contains(args[0], "mysql") || strings.Contains(args[0], "mariadb"))
	for i, a := range args {
		out := r.Text(a)
		switch {
		case name.hides([]byte(a)):
			out = r.placeholder(name.label, []byte(a))
			r.learn(a, 6, true)
		case before == "-u" && strings.Contains(a, ":"):
			out = r.placeholder("userinfo", []byte(a))
		case mysql && len(a) > 2 && a[:2] == "-p":
			out = "-p" + r.placeholder("password", []byte(a[2:]))
		case strings.Contains(a, "://"):
			out = r.Text(r.URL(a))
		case isToken(a):
			out = r.placeholder("argument", []byte(a))
		}
		name = nil
		if len(a) > 2 && a[0] == '-' && !strings.Contains(a, "=") {
			name = r.classify([]byte(a), false)
		}
		args[i], before = out, a
	}
	return args
}

// URL returns a URL or request target without the secrets in its user, path and parameters.
func (r *Redactor) URL(u string) string {
	path, rest := u, ""
	if k := strings.IndexAny(u, "?#"); k >= 0 {
		path, rest = u[:k], u[k:]
	}
	return mapFields(r.Text(path), "/", r.segment) + mapFields(rest, "?#&", r.param)
}

// mapFields applies f to the fields between separators.
func mapFields(s, separators string, f func(string) string) string {
	var b strings.Builder
	for len(s) > 0 {
		k := strings.IndexAny(s, separators)
		if k < 0 {
			k = len(s)
		}
		b.WriteString(f(s[:k]))
		b.WriteString(s[k:min(k+1, len(s))])
		s = s[min(k+1, len(s)):]
	}
	return b.String()
}

// segment hides a segment of a path if it looks like a key, and its parameters unless they have
// harmless names.
func (r *Redactor) segment(s string) string {
	first := true
	return mapFields(s, ";", func(p string) string {
		name, value, named := strings.Cut(p, "=")
		isPath := first
		switch first = false; {
		case p == "" || isPath && !isToken(p) || isPlaceholder(value):
			return p
		case isPath || !named:
			return r.placeholder("path", []byte(p))
		case isToken(value):
			return name + "=" + r.placeholder("path", []byte(value))
		}
		return r.param(p)
	})
}

// param hides the value of a parameter of a URL.
func (r *Redactor) param(pair string) string {
	name, value, _ := strings.Cut(pair, "=")
	plain, err := url.QueryUnescape(name)
	if err != nil {
		plain = name
	}
	if s := r.classify([]byte(plain), true); s.marks([]byte(value)) {
		return name + "=" + r.placeholder(s.label, []byte(value))
	}
	clean := r.Text(pair)
	if v, err := url.QueryUnescape(value); err == nil && clean == pair && v != value && r.Text(v) != v {
		return name + "=" + r.placeholder("value", []byte(value))
	}
	return clean
}

// redactLines hides the secrets in text that may be one line of many.
func (r *Redactor) redactLines(e *Event, out *edits) {
	switch e.Kind {
	case KindStderr, KindMessage, KindInvalid, KindNote, KindSSE:
		stream := textStream{e.Session, e.Kind, e.Dir}
		open := r.scanLine(out, e.Data, r.open[stream])
		if open == (openText{}) {
			delete(r.open, stream)
		} else if len(r.open) < maxStreams {
			r.open[stream] = open
		}
	default:
		r.scan(out, e.Data, textMode{})
	}
	r.scanJoined(out, e.Data, e.SSE != nil)
}

// redactAll hides a whole payload.
func (r *Redactor) redactAll(e *edits, text []byte, kind string) {
	e.reset()
	e.hide(r, 0, len(text), kind, text)
}

// redactPayload redacts a payload that is not JSON. err is the syntax error at pos, if JSON was
// expected.
func (r *Redactor) redactPayload(e *Event, err error, out *edits, pos int) {
	text := e.Data
	cut := e.Cut && !isPlaceholder(text[max(0, bytes.LastIndex(text, []byte("~redacted:"))):])
	if syntax, ok := errors.AsType[*jsonwire.SyntaxError](err); ok && cut && syntax.Offset == len(text) {
		// It is JSON up to here; the rest may be half a secret.
		out.hide(r, min(pos, len(text)), len(text), "cut", text[min(pos, len(text)):])
		out.normalize(0)
		return
	}
	r.redactLines(e, out)
	if cut {
		from := bytes.LastIndexAny(text, " \t\r\n") + 1
		if from < len(text) {
			out.hide(r, from, len(text), "cut", text[from:])
		}
	}
	if bytes.IndexByte(text, 0) >= 0 || !utf8.Valid(text) {
		// This is UTF-16 or has stray bytes. Scan the text that a lenient reader would see.
		var other edits
		plain := bytes.Map(func(c rune) rune {
			if c == 0 || c == utf8.RuneError {
				return -1
			}
			return c
		}, text)
		if r.scan(&other, plain, textMode{}); len(other.list) > len(out.list) {
			r.redactAll(out, text, "binary")
		}
	}
	out.normalize(0)
}

// shownHeaders are the headers whose values describe the protocol and hold no secrets. All other
// headers are hidden, since a list of secret headers would never be complete.
var shownHeaders = func() map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq("accept accept-encoding accept-language accept-ranges access-control-allow-credentials access-control-allow-headers " +
		"access-control-allow-methods access-control-allow-origin access-control-expose-headers access-control-max-age " +
		"access-control-request-headers access-control-request-method age allow alt-svc cache-control connection content-encoding " +
		"content-language content-length content-type date expect expires host keep-alive last-event-id last-modified location " +
		"mcp-method mcp-name mcp-protocol-version origin pragma retry-after sec-fetch-dest sec-fetch-mode sec-fetch-site " +
		"server strict-transport-security te traceparent trailer transfer-encoding upgrade user-agent vary via www-authenticate " +
		"x-accel-buffering x-content-type-options") {
		m[name] = true
	}
	return m
}()

// redactHeader returns the header with index i of the list at a pointer, with its secrets hidden,
// and lists them.
func (r *Redactor) redactHeader(h Header, at string, i int, p *pointers) Header {
	shown := Header{r.Text(h.Name), r.Header(h.Name, h.Value)}
	if shown.Name != h.Name {
		p.add(at + strconv.Itoa(i) + "/0")
	}
	if shown.Value != h.Value {
		p.add(at + strconv.Itoa(i) + "/1")
	}
	return shown
}

// Header returns the value of an HTTP header with its secrets hidden. It hides the whole value
// unless the header is known to hold no secret. It shows the scheme of credentials, and the names
// and attributes of cookies. Values of Authorization, cookies, session ids and other headers with
// the name of a secret are also hidden wherever they occur later.
func (r *Redactor) Header(name, value string) string {
	if value == "" {
		return ""
	}
	lower := strings.ToLower(name)
	switch lower {
	case "authorization", "proxy-authorization":
		return r.authorization(value)
	case "cookie":
		return mapFields(value, ";", r.cookie)
	case "set-cookie":
		first, attributes, _ := strings.Cut(value, ";")
		return r.cookie(first) + value[len(first):len(value)-len(attributes)] + r.Text(attributes)
	case "location":
		return r.URL(value)
	}
	param, isParam := strings.CutPrefix(lower, "mcp-param-")
	secret := r.classify([]byte(param), false)
	switch {
	case shownHeaders[lower], slices.Contains(r.headers, lower),
		isParam && !secret.marks([]byte(value)): // an argument of a tool, which the body has too
		// https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
		if b64, ok := strings.CutPrefix(value, "=?base64?"); ok {
			if plain, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(b64, "?=")); err == nil && r.Text(string(plain)) != string(plain) {
				return r.placeholder("value", []byte(value))
			}
		}
		return r.Text(value)
	case secret.marks([]byte(value)):
		r.learn(value, 8, false)
		return r.placeholder(secret.label, []byte(value))
	}
	return r.placeholder("header", []byte(value))
}

var authorizationPattern = lazyregexp.New(`^(?i:([a-z-]{1,16})) +(.*\S)`)

func (r *Redactor) authorization(value string) string {
	m := authorizationPattern().FindStringSubmatch(value)
	if m == nil {
		r.learn(value, 8, false)
		return r.placeholder("auth", []byte(value))
	}
	r.learn(m[2], 8, false)
	kind := strings.ToLower(m[1])
	if kind != "bearer" && kind != "basic" && kind != "dpop" {
		kind = "auth"
	}
	return m[1] + " " + r.placeholder(kind, []byte(m[2]))
}

// cookie hides the value of one cookie.
func (r *Redactor) cookie(pair string) string {
	name, value, ok := strings.Cut(pair, "=")
	if !ok {
		name, value = "", strings.TrimSpace(pair)
	}
	if value == "" {
		return pair
	}
	r.learn(strings.Trim(value, `"`), 8, false)
	if !ok {
		return r.placeholder("cookie", []byte(pair))
	}
	return r.Text(name) + "=" + r.placeholder("cookie", []byte(value))
}
