package mock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"mcpwire/cmd/internal/trace/filter"
	"mcpwire/internal/era"
	"mcpwire/internal/text/clip"
	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// An action is the effect of a fault.
type action string

const (
	actDelay     action = "delay"
	actDrop      action = "drop"
	actDuplicate action = "duplicate"
	actTruncate  action = "truncate"
	actGarbage   action = "garbage"
	actStray     action = "stray"
	actExit      action = "exit"
	actStatus    action = "status"
	actID        action = "id"
	actError     action = "error"
)

// Actions lists the actions of faults, for messages.
const Actions = "delay=TIME, drop, duplicate, truncate[=BYTES], garbage, stray=TEXT, exit[=CODE], status=CODE, id=swap, error=CODE:MESSAGE"

// A FaultError describes an error in the text of a fault, and its remedy.
type FaultError struct {
	Text   string
	Reason string
}

func (e *FaultError) Error() string { return fmt.Sprintf("fault %q: %s", e.Text, e.Reason) }

// A Fault injects an error into some requests. Use [ParseFault] to create one. Its settings are
// immutable.
type Fault struct {
	filter *filter.Filter
	act    action
	delay  time.Duration
	// n is the number of bytes to keep, or half of them if negative; or an exit or HTTP status.
	n    int
	text string
	err  *jsonrpc.Error

	every, first int
	// chance is a probability. Zero means always.
	chance float64

	// seen counts the requests that match the filter. Each Server counts in its own copy.
	seen int
}

// ParseFault parses "FILTER ACTION [every=N] [first=N] [p=SHARE]". FILTER is a filter of package
// filter, possibly empty; ACTION is one of [Actions]. Quote a word of the filter that is spelled
// like an action. The error is a *[FaultError].
func ParseFault(text string) (*Fault, error) {
	bad := func(format string, args ...any) (*Fault, error) {
		return nil, &FaultError{text, fmt.Sprintf(format, args...)}
	}
	from, to := findAction(text)
	if from < 0 {
		return bad("missing action: %s", Actions)
	}
	f := &Fault{n: -1}
	where := strings.TrimSpace(text[:from])
	if term := unknownTerm(where); term != "" {
		return bad("%s is unknown before the response: use terms about the request, such as tool:, method:, id: or n:", term)
	}
	var err error
	if f.filter, err = filter.Parse(where); err != nil {
		return bad("%v", err)
	}
	rest, err := f.options(strings.TrimSpace(text[to:]))
	if err != nil {
		return bad("%v", err)
	}
	name, value, has := strings.Cut(text[from:to], "=")
	f.act = action(name)
	switch {
	case rest != "" && (f.act == actStray || f.act == actError):
		value += " " + rest
	case rest != "":
		return bad("unexpected %q after the action: every=N, first=N and p=SHARE select requests", rest)
	}
	if err := f.setValue(value, has); err != nil {
		return bad("%v", err)
	}
	return f, nil
}

// findAction returns the bounds of the first word that is an action, outside quotes and
// parentheses.
func findAction(text string) (from, to int) {
	quoted, depth, begin := byte(0), 0, -1
	for i := 0; i <= len(text); i++ {
		var c byte = ' '
		if i < len(text) {
			c = text[i]
		}
		switch {
		case quoted != 0:
			if c == '\\' {
				i++
			} else if c == quoted {
				quoted = 0
			}
		case c == '"':
			quoted = c
			if begin < 0 {
				begin = i
			}
		case c == '(':
			depth++
			begin = i
		case c == ')':
			depth--
		case c == ' ' || c == '\t':
			if begin >= 0 && depth == 0 && isAction(text[begin:i]) {
				return begin, i
			}
			begin = -1
		case begin < 0:
			begin = i
		}
	}
	return -1, -1
}

func isAction(word string) bool {
	name, _, has := strings.Cut(word, "=")
	switch action(name) {
	case actDelay, actStray, actStatus, actError, actID:
		return has
	case actDrop, actDuplicate, actGarbage:
		return !has
	case actTruncate, actExit:
		return true
	}
	return false
}

// options parses the options at the end of a text, and returns the text before them.
func (f *Fault) options(text string) (rest string, err error) {
	for text != "" {
		i := strings.LastIndexAny(text, " \t") + 1
		name, value, _ := strings.Cut(text[i:], "=")
		switch name {
		case "every":
			f.every, err = positive(name, value)
		case "first":
			f.first, err = positive(name, value)
		case "p":
			f.chance, err = strconv.ParseFloat(value, 64)
			if err != nil || !(f.chance > 0 && f.chance <= 1) {
				err = fmt.Errorf("p=%s must be greater than 0 and at most 1, such as p=0.1", value)
			}
		default:
			return text, nil
		}
		if err != nil {
			return "", err
		}
		text = strings.TrimSpace(text[:i])
	}
	return "", nil
}

func positive(name, value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s=%s must be a number of at least 1", name, value)
	}
	return n, nil
}

// setValue parses the value of the action.
func (f *Fault) setValue(value string, has bool) (err error) {
	switch f.act {
	case actDelay:
		if f.delay, err = time.ParseDuration(value); err != nil || f.delay < 0 {
			return fmt.Errorf("delay=%s must be a duration, such as delay=2s", value)
		}
	case actTruncate:
		if has {
			if f.n, err = strconv.Atoi(value); err != nil || f.n < 0 {
				return fmt.Errorf("truncate=%s must be a number of bytes", value)
			}
		}
	case actExit:
		f.n = 1
		if has {
			if f.n, err = strconv.Atoi(value); err != nil || f.n < 0 || f.n > 255 {
				return fmt.Errorf("exit=%s must be a status from 0 to 255", value)
			}
		}
	case actStatus:
		if f.n, err = strconv.Atoi(value); err != nil || f.n < 400 || f.n > 599 {
			return fmt.Errorf("status=%s must be from 400 to 599, such as 401, 404 or 500", value)
		}
	case actID:
		if value != "swap" {
			return fmt.Errorf("id=%s is invalid: want id=swap", value)
		}
	case actStray:
		f.text = strings.Trim(value, `"`)
		if f.text == "" || strings.ContainsAny(f.text, "\r\n") {
			return fmt.Errorf("stray needs text of one line")
		}
	case actError:
		return f.setError(value)
	}
	return nil
}

func (f *Fault) setError(value string) error {
	number, message, ok := strings.Cut(value, ":")
	code, err := strconv.ParseInt(number, 10, 32)
	if !ok || err != nil {
		return fmt.Errorf("error=%s must be a code and a message, such as error=-32603:out of memory", value)
	}
	f.err = &jsonrpc.Error{Code: jsonrpc.Code(code), Message: strings.Trim(strings.TrimSpace(message), `"`)}
	return nil
}

// unknownTerm returns the first term of a filter that needs the response to a request, or "".
func unknownTerm(text string) string {
	unquoted := ""
	for i, part := range strings.Split(text, `"`) {
		if i%2 == 0 {
			unquoted += part
		}
	}
	for _, word := range strings.FieldsFunc(unquoted, func(r rune) bool { return strings.ContainsRune(" \t()|", r) }) {
		word = strings.TrimLeft(word, "-!")
		for _, field := range []string{"status", "finding", "dur", "size"} {
			if rest, ok := strings.CutPrefix(strings.ToLower(word), field); ok && rest != "" && strings.ContainsRune(":<>=", rune(rest[0])) {
				return field
			}
		}
	}
	return ""
}

// HTTPOnly reports whether the fault applies only to HTTP.
func (f *Fault) HTTPOnly() bool { return f.act == actStatus }

// StreamOnly reports whether the fault applies only to standard input and output or a socket.
func (f *Fault) StreamOnly() bool { return f.act == actStray }

// OnMessages reports whether the fault affects whole messages, not their text on the wire. Such a
// fault also works behind a translator.
func (f *Fault) OnMessages() bool {
	return f.act == actDelay || f.act == actDrop || f.act == actError || f.act == actExit
}

// hasDelay reports whether the fault delays the response.
func (f *Fault) hasDelay() bool { return f.act == actDelay || f.act == actDrop }

// String returns the name of the action.
func (f *Fault) String() string { return string(f.act) }

// matchFaults returns the faults that apply to a request.
func (s *Server) matchFaults(r *responder, m *jsonrpc.Message) []*Fault {
	if len(s.opts.Faults) == 0 {
		return nil
	}
	sub := &subject{responder: r, text: jsonrpc.AppendRequest(nil, m.ID, string(m.Method), m.Params), params: m.Params}
	var met []*Fault
	for _, f := range s.opts.Faults {
		if f.filter.Match(s.ctx, sub) && s.triggers(f) {
			s.opts.Logger.Info("fault", "what", f.String(), "method", clip.String(r.method, 128), "id", clip.String(string(r.id), 64))
			met = append(met, f)
		}
	}
	return met
}

// triggers counts a request that matches a fault's filter, and reports whether the fault applies to
// it.
func (s *Server) triggers(f *Fault) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.seen++
	if f.every > 0 && f.seen%f.every != 0 || f.first > 0 && f.seen > f.first {
		return false
	}
	return f.chance == 0 || s.chance.Float64() < f.chance
}

// refuseHTTP sends the HTTP status of a fault, if there is one, and reports whether it did.
func (r *responder) refuseHTTP() bool {
	for _, f := range r.faults {
		if f.act == actStatus && r.faultWriter != nil && r.faultWriter.writeStatus(f.n) {
			return true
		}
	}
	return false
}

// faultError returns the error from a fault, or nil.
func (r *responder) faultError() *jsonrpc.Error {
	for _, f := range r.faults {
		if f.act == actError {
			return f.err
		}
	}
	return nil
}

// garbage is a message that no parser accepts.
const garbage = `{"jsonrpc": garbage`

// injectFaults applies the faults to a response, in order. It returns an error
// to send nothing.
func (r *responder) injectFaults(answer []byte) ([]byte, error) {
	for _, f := range r.faults {
		switch f.act {
		case actID:
			r.swapID()
		case actDelay:
			if err := r.wait(f.delay); err != nil {
				return nil, err
			}
		case actDrop:
			r.waitDone()
			return nil, errEnded
		case actExit:
			r.conn.srv.cancel(&ExitError{f.n})
			if r.faultWriter != nil {
				r.faultWriter.abort()
			}
			return nil, errEnded
		}
	}
	answer = r.withFaultID(answer)
	for _, f := range r.faults {
		switch f.act {
		case actGarbage:
			if !r.conn.stream {
				answer = append([]byte(garbage+" "), answer...)
				continue
			}
			_ = r.out.Send([]byte(garbage)) // the client may be gone
		case actStray:
			if r.conn.stream {
				_ = r.out.Send([]byte(f.text)) // the client may be gone
			}
		case actDuplicate:
			answer = r.duplicate(answer)
		case actTruncate:
			answer = r.truncate(answer, f.n)
		}
	}
	return answer, nil
}

// duplicate sends a response twice, as two messages if possible.
func (r *responder) duplicate(answer []byte) []byte {
	if r.noPreceding {
		return append(append(answer, ' '), answer...)
	}
	_ = r.out.Send(answer) // the client may be gone
	return answer
}

// truncate keeps n bytes of a response, or half of it if n is negative. Over HTTP the connection
// breaks there.
func (r *responder) truncate(answer []byte, n int) []byte {
	if n < 0 {
		n = len(answer) / 2
	}
	if r.faultWriter != nil {
		r.faultWriter.abortAfter(n)
		return answer
	}
	return answer[:min(n, len(answer))]
}

// swapID exchanges the id of a response with that of another pending request. Without one, it turns
// a number into a string, or changes the string.
func (r *responder) swapID() {
	p := r.conn
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.swappedID != nil {
		return // another request swapped it
	}
	for b := range p.responders {
		if b != r && b.swappedID == nil && !b.id.Equal(r.id) {
			r.swappedID, b.swappedID = b.id, r.id
			return
		}
	}
	if text, isString := r.id.Text(); isString {
		r.swappedID = jsonrpc.StringID(text + "~")
	} else {
		r.swappedID = jsonrpc.StringID(string(r.id))
	}
}

// withFaultID returns a response with the id that a fault set.
func (r *responder) withFaultID(answer []byte) []byte {
	r.conn.mu.Lock()
	id := r.swappedID
	r.conn.mu.Unlock()
	if id == nil {
		return answer
	}
	return withMember(answer, id, "id")
}

// A subject is a request as filters see it: the facts known when it arrives.
type subject struct {
	responder *responder
	text      []byte
	params    []byte
}

// MatchField implements filter.Subject.
func (s *subject) MatchField(f filter.Field, match func(string) bool) bool {
	a := s.responder
	switch f {
	case filter.Tool:
		return a.method == mcp.MethodToolsCall && match(targetOf(a.method, s.params))
	case filter.Target:
		t := targetOf(a.method, s.params)
		return t != "" && match(t)
	case filter.Method:
		return match(a.method)
	case filter.ID:
		return match(string(a.id))
	case filter.Dir:
		return match("c2s")
	case filter.Kind:
		return match("request")
	case filter.Server:
		return match(a.conn.srv.recording.Name)
	case filter.Task:
		id := era.LookupString(s.params, "taskId")
		return id != "" && match(id)
	case filter.Session:
		return a.exchange != nil && a.exchange.session != nil && match(strconv.FormatUint(a.exchange.session.number, 10))
	case filter.Era:
		if a.modern {
			return match("modern")
		}
		return match("legacy")
	case filter.Revision:
		return s.revision(match)
	}
	return false
}

func (s *subject) revision(match func(string) bool) bool {
	if s.responder.modern {
		return match(revisionOf(s.params).String())
	}
	p := s.responder.conn
	p.mu.Lock()
	f := p.features
	p.mu.Unlock()
	return f != nil && match(f.Revision.String())
}

// HasEventIn implements filter.Subject. The numbers are those of the recorded request and response.
func (s *subject) HasEventIn(from, to uint64) bool {
	e := s.responder.exchange
	return e != nil && (e.n >= from && e.n <= to || e.hasResponse && e.responseN >= from && e.responseN <= to)
}

// Elapsed implements filter.Subject.
func (s *subject) Elapsed() (time.Duration, bool) { return 0, false }

// Bytes implements filter.Subject.
func (s *subject) Bytes() int64 { return int64(len(s.text)) }

// Payloads implements filter.Subject.
func (s *subject) Payloads() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) { yield(s.text) }
}

// A faultWriter is the HTTP response to a request that may get a fault. Only a fault hijacks its
// connection.
type faultWriter struct {
	http.ResponseWriter
	*http.ResponseController

	mu      sync.Mutex
	started bool
	// refused discards further output.
	refused bool
	aborted bool
	// left is the number of bytes until the connection is cut. A negative value means never.
	left int
}

type faultWriterKey struct{}

func faultWriterFrom(ctx context.Context) *faultWriter {
	w, _ := ctx.Value(faultWriterKey{}).(*faultWriter)
	return w
}

// serveWithFaults serves a request so that faults can change its response.
func (s *Server) serveWithFaults(h http.Handler, rw http.ResponseWriter, r *http.Request) {
	if len(s.opts.Faults) == 0 {
		h.ServeHTTP(rw, r)
		return
	}
	w := &faultWriter{ResponseWriter: rw, ResponseController: http.NewResponseController(rw), left: -1}
	h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), faultWriterKey{}, w)))
}

var errAborted = errors.New("mock: a fault has cut the connection")

// WriteHeader implements http.ResponseWriter.
func (fw *faultWriter) WriteHeader(status int) {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	if !fw.refused && !fw.aborted {
		fw.started = true
		fw.ResponseWriter.WriteHeader(status)
	}
}

// Write implements http.ResponseWriter.
func (fw *faultWriter) Write(b []byte) (int, error) {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	switch {
	case fw.aborted:
		return 0, errAborted
	case fw.refused:
		return len(b), nil
	}
	fw.started = true
	if fw.left < 0 || fw.left >= len(b) {
		if fw.left > 0 {
			fw.left -= len(b)
		}
		return fw.ResponseWriter.Write(b)
	}
	n, err := fw.ResponseWriter.Write(b[:fw.left])
	fw.abortLocked()
	return n, errors.Join(errAborted, err)
}

// FlushError supports http.ResponseController.
func (fw *faultWriter) FlushError() error {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	switch {
	case fw.aborted:
		return errAborted
	case fw.refused:
		return nil
	}
	return fw.Flush()
}

// Hijack hides that of the response, which would take the connection away from faults.
func (*faultWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, http.ErrNotSupported
}

// abortAfter cuts the connection after n more bytes.
func (fw *faultWriter) abortAfter(n int) {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	fw.left = max(n, 0)
}

// abort cuts the connection now.
func (fw *faultWriter) abort() {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	fw.abortLocked()
}

func (fw *faultWriter) abortLocked() {
	if fw.aborted {
		return
	}
	fw.aborted = true
	if fw.started {
		_ = fw.Flush() // shows the client what was sent
	}
	if conn, _, err := fw.ResponseController.Hijack(); err == nil {
		conn.Close()
	}
}

// writeStatus answers with a status, if nothing was sent yet, and reports whether it did.
func (fw *faultWriter) writeStatus(status int) bool {
	fw.mu.Lock()
	defer fw.mu.Unlock()
	if fw.started || fw.refused || fw.aborted {
		return false
	}
	fw.refused, fw.started = true, true
	h := fw.Header()
	clear(h)
	h.Set("Content-Type", "text/plain; charset=utf-8")
	if status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	fw.ResponseWriter.WriteHeader(status)
	_, _ = fw.ResponseWriter.Write([]byte(http.StatusText(status) + "\n")) // the client may be gone
	return true
}
