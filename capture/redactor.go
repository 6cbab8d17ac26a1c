package capture

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"math/bits"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"mcpwire/internal/json/jsonwire"
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
	mac hash.Hash
	// names are normalized.
	names []string
	// endings has those of all names of secrets.
	endings nameEndings
	// headers are in lower case.
	headers []string
	known   knownSecrets
	// openPEM has the streams that are inside a private key, with the number of its lines that may
	// still come.
	openPEM map[textStream]int
	label   RedactionMode
	// plain is scratch space for decoded base64.
	plain []byte
	// copies is scratch space for redactFields.
	copies eventCopies

	// pendingNames are the streams of text whose last line ended in the name of a secret.
	pendingNames map[textStream]pendingName

	// nameClasses caches the classes of names.
	nameClasses map[string]nameClass
	clean       cleanTexts
	members     cleanMembers
	// placeholders caches the placeholders of short secrets.
	placeholders map[placeholderKey]string
}

// NewRedactor returns a Redactor. r may be nil.
func NewRedactor(r *Redaction) *Redactor {
	d := &Redactor{openPEM: map[textStream]int{}, pendingNames: map[textStream]pendingName{}, label: RedactionDefault, nameClasses: map[string]nameClass{}, endings: secretEndings}
	var key [32]byte
	rand.Read(key[:]) // never fails
	secret := key[:]
	if r != nil {
		d.label = RedactionCustom
		if len(r.Key) >= 16 {
			secret = slices.Clone(r.Key)
		}
		for _, n := range r.Names {
			norm := string(appendNormal(nil, n))
			d.names = append(d.names, norm)
			d.endings.add(norm)
		}
		for _, n := range r.Headers {
			d.headers = append(d.headers, lower(n))
		}
		for _, s := range r.Secrets {
			d.known.add(s, 4, true)
		}
	}
	d.mac = hmac.New(sha256.New, secret)
	return d
}

// appendPlaceholder appends the placeholder of a secret: its kind, a keyed hash, and the power of
// two that its length does not exceed. No character of it needs escaping in JSON, a URL or an HTTP
// header.
func (r *Redactor) appendPlaceholder(dst []byte, kind string, secret []byte) []byte {
	if text, ok := r.placeholders[placeholderKey{kind, string(secret)}]; ok {
		return append(dst, text...)
	}
	at := len(dst)
	dst = r.appendNewPlaceholder(dst, kind, secret)
	if len(secret) <= maxCleanValue {
		if r.placeholders == nil || len(r.placeholders) >= maxPlaceholders {
			r.placeholders = map[placeholderKey]string{}
		}
		r.placeholders[placeholderKey{kind, string(secret)}] = string(dst[at:])
	}
	return dst
}

// A placeholderKey identifies a placeholder.
type placeholderKey struct{ kind, secret string }

// maxPlaceholders limits the placeholders that are remembered, because sessions repeat theirs. They
// are forgotten when there are more.
const maxPlaceholders = 256

func (r *Redactor) appendNewPlaceholder(dst []byte, kind string, secret []byte) []byte {
	var sum [sha256.Size]byte
	r.mac.Reset()
	r.mac.Write(secret)
	dst = append(dst, "~redacted:"...)
	dst = append(dst, kind...)
	dst = append(dst, ':')
	dst = hex.AppendEncode(dst, r.mac.Sum(sum[:0])[:6])
	dst = append(dst, ':')
	class := 8
	if n := len(secret); n > 8 {
		class = 1 << bits.Len(uint(n-1))
	}
	dst = strconv.AppendInt(dst, int64(class), 10)
	return append(dst, '~')
}

// An edit replaces a part of a text by bytes in the arena of its list.
type edit struct {
	// start and end are indexes in the text.
	start, end int
	// from and to are indexes in the arena.
	from, to int
}

// edits are changes to a text, sorted and without overlap once normalized.
type edits struct {
	list  []edit
	arena []byte
}

func (e *edits) reset() {
	e.list, e.arena = e.list[:0], e.arena[:0]
	if cap(e.arena) > 1<<20 {
		e.arena = nil
	}
	if cap(e.list) > 1<<14 {
		e.list = nil
	}
}

// hide replaces text[start:end], which stands for secret, by a placeholder.
func (r *Redactor) hide(e *edits, start, end int, kind string, secret []byte) {
	if isPlaceholder(secret) {
		return
	}
	from := len(e.arena)
	e.arena = r.appendPlaceholder(e.arena, kind, secret)
	e.list = append(e.list, edit{start, end, from, len(e.arena)})
}

// replace replaces text[start:end] by other text.
func (e *edits) replace(start, end int, text []byte) {
	from := len(e.arena)
	e.arena = append(e.arena, text...)
	e.list = append(e.list, edit{start, end, from, len(e.arena)})
}

// remove removes the edits within [start, end).
func (e *edits) remove(start, end int) {
	e.list = slices.DeleteFunc(e.list, func(d edit) bool { return d.start >= start && d.end <= end })
}

// normalize sorts the edits with an index of at least from, and merges overlapping ones into the
// first.
func (e *edits) normalize(from int) {
	list := e.list[from:]
	less := func(a, b edit) int {
		if a.start != b.start {
			return a.start - b.start
		}
		return b.end - a.end
	}
	if !slices.IsSortedFunc(list, less) {
		slices.SortStableFunc(list, less)
	}
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
		put(e.arena[d.from:d.to])
		at = d.end
	}
	put(text[at:])
}

func appendEdited(dst, text []byte, list []edit, arena []byte) []byte {
	at := 0
	for _, d := range list {
		dst = append(dst, text[at:d.start]...)
		dst = append(dst, arena[d.from:d.to]...)
		at = d.end
	}
	return append(dst, text[at:]...)
}

// knownSecrets holds texts to hide wherever they occur.
type knownSecrets struct {
	// fixed has the secrets of a Redaction.
	fixed []string
	// recent has secrets from headers. A new one replaces the oldest.
	recent []string
	next   int
	// changes counts the secrets that were added.
	changes uint64
}

const (
	maxFixed   = 256
	maxLearned = 64
	maxSecret  = 16 << 10 // bytes
)

func (ks *knownSecrets) add(secret string, atLeast int, fixed bool) {
	ks.addText(secret, atLeast, fixed)
	if q := url.QueryEscape(secret); q != secret {
		ks.addText(q, atLeast, fixed)
	}
}

func (ks *knownSecrets) addText(s string, atLeast int, fixed bool) {
	if len(s) < atLeast || len(s) > maxSecret || slices.Contains(ks.fixed, s) || slices.Contains(ks.recent, s) {
		return
	}
	if isPlaceholder(s) {
		return
	}
	ks.changes++
	switch {
	case fixed && len(ks.fixed) < maxFixed:
		ks.fixed = append(ks.fixed, s)
	case len(ks.recent) < maxLearned:
		ks.recent = append(ks.recent, s)
	default:
		ks.recent[ks.next%maxLearned] = s
		ks.next++
	}
}

func (ks *knownSecrets) all(yield func(string) bool) {
	for _, list := range [2][]string{ks.fixed, ks.recent} {
		for _, s := range list {
			if !yield(s) {
				return
			}
		}
	}
}

// A textStream identifies a stream of text in which a private key may span several events.
type textStream struct {
	session uint64
	kind    Kind
	dir     Dir
}

const (
	maxStreams  = 256
	maxPEMLines = 400
)

// eventCopies has the parts of an event whose fields are redacted.
type eventCopies struct {
	head        Head
	exit        Exit
	request     Request
	response    Response
	translation Translation
	gap         Gap
	sse         SSE
}

// redactFields replaces fields of e with secrets, other than headers, by redacted copies, which are
// valid until the next call, and lists them.
func (r *Redactor) redactFields(e *Event, p *pointers) {
	redact := func(s *string, pointer string) {
		if t := r.redactText(*s); t != *s {
			*s = t
			p.add(pointer)
		}
	}
	redact(&e.Prefix, "/pre")
	redact(&e.Encoding, "/enc")
	// Another program wrote the capture that is being copied.
	if len(e.Kind)+len(e.Dir)+len(e.Framing) > 16 {
		redact((*string)(&e.Kind), "/k")
		redact((*string)(&e.Dir), "/dir")
		redact((*string)(&e.Framing), "/frame")
	}
	if h := clone(&e.Head, &r.copies.head); h != nil {
		redact(&h.ID, "/id")
		redact(&h.Name, "/name")
		redact(&h.Tool, "/tool")
		redact((*string)(&h.Transport), "/transport")
		if u := r.repeatedURL(h.URL); u != h.URL {
			h.URL = u
			p.add("/url")
		}
	}
	if e.Start != nil {
		e.Start = r.redactStart(e.Start, p)
	}
	if x := clone(&e.Exit, &r.copies.exit); x != nil {
		redact(&x.Signal, "/signal")
	}
	if q := clone(&e.Request, &r.copies.request); q != nil {
		redact(&q.Method, "/req/method")
		redact(&q.Proto, "/req/proto")
		redact(&q.Remote, "/req/remote")
		if u := r.repeatedURL(q.URL); u != q.URL {
			q.URL = u
			p.add("/req/url")
		}
	}
	if s := clone(&e.Response, &r.copies.response); s != nil {
		redact(&s.Proto, "/res/proto")
	}
	if x := clone(&e.Translation, &r.copies.translation); x != nil {
		redact(&x.Rule, "/rule")
	}
	if g := clone(&e.Gap, &r.copies.gap); g != nil {
		redact((*string)(&g.Why), "/why")
	}
	if s := clone(&e.SSE, &r.copies.sse); s != nil {
		redact(&s.ID, "/sse/id")
		redact(&s.Event, "/sse/event")
		redact(&s.Comment, "/sse/comment")
	}
}

// clone copies what p points to, makes p point to the copy, and returns the copy.
func clone[T any](p **T, dst *T) *T {
	if *p == nil {
		return nil
	}
	*dst = **p
	*p = dst
	return dst
}

// Text returns the text with its secrets hidden.
func (r *Redactor) Text(text string) string { return r.redactText(text) }

func (r *Redactor) redactText(text string) string {
	if len(text) < 4 || r.clean.has(cleanText, text, &r.known) {
		return text
	}
	var e edits
	b := []byte(text)
	if r.scanText(&e, b); len(e.list) == 0 {
		r.clean.add(cleanText, text, &r.known)
		return text
	}
	return string(appendEdited(nil, b, e.list, e.arena))
}

// Prose returns a text that describes names, such as help or a list of tools. It hides secrets that
// have the shape of one. Text after the name of a secret stays: in "login(password: string)",
// nothing is secret.
func (r *Redactor) Prose(text string) string {
	var e edits
	b := []byte(text)
	if r.scan(&e, b, textMode{prose: true}); len(e.list) == 0 {
		return text
	}
	return string(appendEdited(nil, b, e.list, e.arena))
}

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
	return appendEdited(dst, msg, p.edits.list, p.edits.arena), p.hidden.list
}

// redactStart hides the values of variables and the secrets among the arguments.
func (r *Redactor) redactStart(s *Start, p *pointers) *Start {
	c := *s
	c.Env = slices.Clone(s.Env)
	for i, v := range c.Env {
		name, value, ok := strings.Cut(v, "=")
		if !ok {
			continue
		}
		c.Env[i] = name
		// This is a folder, though the name looks like that of a password.
		if name == "PWD" || name == "OLDPWD" {
			continue
		}
		if r.classify([]byte(name), false) != nil {
			r.known.add(value, 6, true)
		}
	}
	c.Command = r.Args(s.Command)
	for i, a := range c.Command {
		if a != s.Command[i] {
			p.add("/cmd/" + strconv.Itoa(i))
		}
	}
	if d := r.redactText(c.Dir); d != c.Dir {
		c.Dir = d
		p.add("/cwd")
	}
	return &c
}

// Args returns a copy of the arguments of a command with their secrets hidden.
func (r *Redactor) Args(args []string) []string {
	args = slices.Clone(args)
	before := ""
	var name *secretName // what the previous argument says about this one
	for i, a := range args {
		out := r.redactText(a)
		switch {
		case name.hides([]byte(a)):
			out = r.placeholder(name.kind, a)
			r.known.add(a, 6, true)
		case before == "-u" && strings.Contains(a, ":"):
			out = r.placeholder("userinfo", a)
		case strings.Contains(a, "://"):
			out = r.redactText(r.URL(a))
		case isToken(a):
			out = r.placeholder("argument", a)
		}
		name = nil
		if len(a) > 2 && a[0] == '-' && !strings.Contains(a, "=") {
			name = r.classify([]byte(a), false)
		}
		args[i], before = out, a
	}
	return args
}

func (r *Redactor) placeholder(kind, secret string) string {
	if isPlaceholder(secret) {
		return secret
	}
	return string(r.appendPlaceholder(nil, kind, []byte(secret)))
}

// isToken reports whether a text looks like a key: long, with letters and digits, and without
// characters of paths or sentences.
func isToken(s string) bool {
	digits, letters := 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9':
			digits++
		case alnum(c):
			letters++
		case c != '-' && c != '_' && c != '+' && c != '=':
			return false
		}
	}
	return len(s) >= 20 && digits >= 3 && letters >= 3
}

// URL returns a URL or request target without the secrets in its user, path and parameters.
func (r *Redactor) URL(u string) string {
	u, fragment, hasFragment := strings.Cut(u, "#")
	path, query, hasQuery := strings.Cut(u, "?")
	path = r.redactText(path)
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segment, params, hasParams := strings.Cut(s, ";")
		if isToken(segment) {
			segment = r.placeholder("path", segment)
		}
		if hasParams {
			segment += ";" + r.pathParams(params)
		}
		segments[i] = segment
	}
	out := strings.Join(segments, "/")
	if hasQuery {
		out += "?" + r.query(query)
	}
	if hasFragment {
		out += "#" + r.query(fragment)
	}
	return out
}

// repeatedURL is URL for one that may occur often.
func (r *Redactor) repeatedURL(u string) string {
	if r.clean.has(cleanURL, u, &r.known) {
		return u
	}
	out := r.URL(u)
	if out == u {
		r.clean.add(cleanURL, u, &r.known)
	}
	return out
}

// pathParams hides the parameters of a path segment unless their names are harmless.
func (r *Redactor) pathParams(params string) string {
	list := strings.Split(params, ";")
	for i, p := range list {
		name, value, ok := strings.Cut(p, "=")
		switch {
		case p == "" || isPlaceholder(value) || isPlaceholder(p):
		case !ok:
			list[i] = r.placeholder("path", p)
		case isToken(value):
			list[i] = name + "=" + r.placeholder("path", value)
		default:
			list[i] = r.query(p)
		}
	}
	return strings.Join(list, ";")
}

func (r *Redactor) query(q string) string {
	pairs := strings.Split(q, "&")
	for i, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(name)
		if err != nil {
			plain = name
		}
		if s := r.classify([]byte(plain), true); ok && s != nil && value != "" {
			pairs[i] = name + "=" + r.placeholder(s.kind, value)
			continue
		}
		clean := r.redactText(pair)
		if v, err := url.QueryUnescape(value); err == nil && clean == pair && v != value && r.redactText(v) != v {
			clean = name + "=" + r.placeholder("value", value)
		}
		pairs[i] = clean
	}
	return strings.Join(pairs, "&")
}

// textStreamOf returns the stream of an event, and whether a private key may continue in it.
func textStreamOf(e *Event) (textStream, bool) {
	switch e.Kind {
	case KindStderr, KindMessage, KindInvalid, KindNote, KindSSE:
		return textStream{e.Session, e.Kind, e.Dir}, true
	}
	return textStream{}, false
}

// redactLines hides the secrets in text that may be one line of many.
func (r *Redactor) redactLines(e *Event, out *edits) {
	s, ok := textStreamOf(e)
	text := e.Data
	if left := r.openPEM[s]; ok && left > 0 {
		if k := bytes.Index(text, pemEnd); k >= 0 {
			delete(r.openPEM, s)
			end := pemEndOf(text, k)
			r.hide(out, 0, end, "pem", text[:end])
		} else if pemLine(text) && len(text) > 0 {
			r.openPEM[s] = left - 1
			r.hide(out, 0, len(text), "pem", text)
			return
			// Other text came in between.
		} else if r.openPEM[s] = left - 1; left == 1 {
			delete(r.openPEM, s)
		}
	}
	if ok {
		r.redactAnnounced(s, out, text)
	}
	r.scanText(out, text)
	if e.SSE != nil || bytes.Contains(text, streamLine) {
		r.scanJoined(out, text, e.SSE != nil)
	}
	var scratch edits
	if ok && len(r.openPEM) < maxStreams && r.scanPEM(&scratch, text) {
		r.openPEM[s] = maxPEMLines
	}
}

var streamLine = []byte("\ndata:")

// A pendingName is a line of YAML that ends in the name of a secret, with the value below it.
type pendingName struct {
	indent int
	// block marks a value of several lines.
	block bool
	kind  string
}

// redactAnnounced hides a line that is the value of the name on the previous line of the stream. It
// also notes whether this line ends in such a name.
func (r *Redactor) redactAnnounced(s textStream, out *edits, text []byte) {
	value := bytes.TrimSpace(text)
	a, ok := r.pendingNames[s]
	if ok && len(value) > 0 {
		if indent(text) > a.indent && (a.block || !bytes.ContainsAny(value, " \t") && value[len(value)-1] != ':') {
			from := bytes.Index(text, value)
			r.hide(out, from, from+len(value), a.kind, value)
			return
		}
		delete(r.pendingNames, s)
	}
	head := bytes.TrimRight(value, " +-"+digits)
	block := len(head) > 0 && (head[len(head)-1] == '|' || head[len(head)-1] == '>')
	if block {
		value = bytes.TrimRight(head[:len(head)-1], " ")
	}
	name, ends := bytes.CutSuffix(value, []byte(":"))
	if !ends || len(r.pendingNames) >= maxStreams {
		return
	}
	name = bytes.Trim(name, `"'`)
	if k := bytes.LastIndexAny(name, " \t\"'"); k >= 0 {
		name = name[k+1:]
	}
	if c := r.classify(name, false); c != nil && !c.opaque {
		r.pendingNames[s] = pendingName{indent(text), block, c.kind}
	}
}

// pemLine reports whether a line may belong to a private key or its headers, after any prefix of a
// logger.
func pemLine(line []byte) bool {
	line = bytes.TrimRight(line, "\r\n\t \"',;\\")
	if bytes.HasPrefix(line, []byte("Proc-Type:")) || bytes.HasPrefix(line, []byte("DEK-Info:")) || len(line) == 0 {
		return true
	}
	i := len(line)
	for i > 0 && (alnum(line[i-1]) || line[i-1] == '+' || line[i-1] == '/' || line[i-1] == '=') {
		i--
	}
	return i == 0 || len(line)-i >= 16
}

// redactAll hides a whole payload.
func (r *Redactor) redactAll(e *edits, text []byte, kind string) {
	e.reset()
	if len(text) > 0 {
		r.hide(e, 0, len(text), kind, text)
	}
}

// decodeHeaderText decodes a header value of the form =?base64?…?=
// (https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http).
func decodeHeaderText(value string) (string, bool) {
	v, begins := strings.CutPrefix(value, "=?base64?")
	v, ends := strings.CutSuffix(v, "?=")
	if !begins || !ends {
		return "", false
	}
	plain, err := base64.StdEncoding.DecodeString(v)
	return string(plain), err == nil
}

// endsWithPlaceholder reports whether a text ends in a placeholder.
func endsWithPlaceholder(text []byte) bool {
	k := bytes.LastIndex(text, []byte("~redacted:"))
	return k >= 0 && isPlaceholder(text[k:])
}

// redactPayload redacts a payload that is not JSON. err is the syntax error at pos, if JSON was
// expected.
func (r *Redactor) redactPayload(e *Event, err error, out *edits, pos int) {
	text := e.Data
	cut := e.Cut && !endsWithPlaceholder(text)
	if syntax, ok := errors.AsType[*jsonwire.SyntaxError](err); ok && cut && syntax.Offset == len(text) {
		// It is JSON up to here; the rest may be half a secret.
		r.hide(out, min(pos, len(text)), len(text), "cut", text[min(pos, len(text)):])
		out.normalize(0)
		return
	}
	r.redactLines(e, out)
	if cut {
		from := bytes.LastIndexAny(text, " \t\r\n") + 1
		if from < len(text) {
			r.hide(out, from, len(text), "cut", text[from:])
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
		if r.scanText(&other, plain); len(other.list) > len(out.list) {
			r.redactAll(out, text, "binary")
		}
	}
	out.normalize(0)
}

// shownHeaders are the headers whose values describe the protocol and hold no secrets. All other
// headers are hidden, since a list of secret headers would never be complete.
var shownHeaders = []string{
	"accept", "accept-encoding", "accept-language", "accept-ranges", "access-control-allow-credentials", "access-control-allow-headers",
	"access-control-allow-methods", "access-control-allow-origin", "access-control-expose-headers", "access-control-max-age",
	"access-control-request-headers", "access-control-request-method", "age", "allow", "alt-svc", "cache-control", "connection", "content-encoding",
	"content-language", "content-length", "content-type", "date", "expect", "expires", "host", "keep-alive", "last-event-id", "last-modified", "location",
	"mcp-method", "mcp-name", "mcp-protocol-version", "origin", "pragma", "retry-after", "sec-fetch-dest", "sec-fetch-mode", "sec-fetch-site",
	"server", "strict-transport-security", "te", "traceparent", "trailer", "transfer-encoding", "upgrade", "user-agent", "vary", "via", "www-authenticate",
	"x-accel-buffering", "x-content-type-options",
}

// redactHeader returns the header with index i of the list at a pointer, with its secrets hidden,
// and lists them.
func (r *Redactor) redactHeader(h Header, at string, i int, p *pointers) Header {
	name, value := r.redactText(h.Name), r.Header(h.Name, h.Value)
	if name != h.Name {
		p.add(at + strconv.Itoa(i) + "/0")
	}
	if value != h.Value {
		p.add(at + strconv.Itoa(i) + "/1")
	}
	return Header{name, value}
}

// Header returns the value of an HTTP header with its secrets hidden. It hides the whole value
// unless the header is known to hold no secret. It shows the scheme of credentials, and the names
// and attributes of cookies. Values of Authorization, cookies, session ids and other headers with
// the name of a secret are also hidden wherever they occur later.
func (r *Redactor) Header(name, value string) string {
	if value == "" {
		return ""
	}
	name = lower(name)
	switch name {
	case "authorization", "proxy-authorization":
		return r.authorization(value)
	case "cookie":
		parts := strings.Split(value, ";")
		for i := range parts {
			parts[i] = r.cookie(parts[i])
		}
		return strings.Join(parts, ";")
	case "set-cookie":
		first, attributes, found := strings.Cut(value, ";")
		if first = r.cookie(first); found {
			return first + ";" + r.redactText(attributes)
		}
		return first
	case "location":
		return r.URL(value)
	}
	if slices.Contains(r.headers, name) || slices.Contains(shownHeaders, name) {
		return r.redactShown(value)
	}
	param, isParam := strings.CutPrefix(name, "mcp-param-")
	secret := r.classify([]byte(param), false)
	if isParam && secret == nil {
		// These are arguments of a tool, which the body has too.
		return r.redactShown(value)
	}
	if secret != nil {
		r.known.add(value, 8, false)
		return r.placeholder(secret.kind, value)
	}
	return r.placeholder("header", value)
}

func (r *Redactor) redactShown(value string) string {
	if plain, ok := decodeHeaderText(value); ok && r.redactText(plain) != plain {
		return r.placeholder("value", value)
	}
	return r.redactText(value)
}

func (r *Redactor) authorization(value string) string {
	scheme, cred, ok := strings.Cut(value, " ")
	if !ok || len(scheme) > 16 || strings.Trim(lower(scheme), lowercase+"-") != "" {
		r.known.add(value, 8, false)
		return r.placeholder("auth", value)
	}
	cred = strings.TrimSpace(cred)
	r.known.add(cred, 8, false)
	kind := "auth"
	if s := lower(scheme); s == "bearer" || s == "basic" || s == "dpop" {
		kind = s
	}
	return scheme + " " + r.placeholder(kind, cred)
}

// cookie hides the value of one cookie.
func (r *Redactor) cookie(pair string) string {
	name, value, ok := strings.Cut(pair, "=")
	if !ok {
		if strings.TrimSpace(pair) == "" {
			return pair
		}
		name, value = "", pair
	}
	if value == "" {
		return pair
	}
	r.known.add(strings.Trim(value, `"`), 8, false)
	hidden := r.placeholder("cookie", value)
	if !ok {
		return hidden
	}
	return r.redactText(name) + "=" + hidden
}
