package mock

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"mcpwire/internal/filter"
	"mcpwire/jsonrpc"
)

// An action is what a fault does.
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

// Actions lists what a fault can do, for messages.
const Actions = "delay=TIME, drop, duplicate, truncate[=BYTES], garbage, stray=TEXT, exit[=CODE], status=CODE, id=swap, error=CODE:MESSAGE"

// A FaultError says what is wrong with the text of a fault, and how to mend it.
type FaultError struct {
	Text   string
	Reason string
}

func (e *FaultError) Error() string { return fmt.Sprintf("fault %q: %s", e.Text, e.Reason) }

// A Fault is something that goes wrong with some requests. Make one with [ParseFault]; it does not change.
type Fault struct {
	filter *filter.Filter
	act    action
	delay  time.Duration
	n      int // bytes that are left, below 0 is half; the status of the exit or of HTTP
	text   string
	err    *jsonrpc.Error

	every, first int
	chance       float64 // 0 is always

	seen int // requests that the filter holds for; of a Server's own copy
}

// ParseFault reads "FILTER ACTION [every=N] [first=N] [p=SHARE]". FILTER is one of package filter's, and may be empty; ACTION is one of [Actions]. A word of the filter that is spelt as an
// action must be in quotes. The error is a *[FaultError].
func ParseFault(text string) (*Fault, error) {
	bad := func(format string, args ...any) (*Fault, error) {
		return nil, &FaultError{text, fmt.Sprintf(format, args...)}
	}
	from, to := findAction(text)
	if from < 0 {
		return bad("there is no action: %s", Actions)
	}
	f := &Fault{n: -1}
	where := strings.TrimSpace(text[:from])
	if term := unknownTerm(where); term != "" {
		return bad("%s cannot be known before there is an answer: use terms about the request, such as tool:, method:, id: or n:", term)
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
		return bad("%q is unexpected behind the action: every=N, first=N and p=SHARE say which of the requests", rest)
	}
	if err := f.setValue(value, has); err != nil {
		return bad("%v", err)
	}
	return f, nil
}

// findAction returns where the first word is that is an action, outside of quotes and parentheses.
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

// options reads the options at the end of a text, and returns what is before them.
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
				err = fmt.Errorf("p=%s must be above 0 and not above 1, such as p=0.1", value)
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
		return 0, fmt.Errorf("%s=%s must be a number from 1", name, value)
	}
	return n, nil
}

// setValue reads the value of the action.
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
			return fmt.Errorf("status=%s must be one from 400 to 599, such as 401, 404 or 500", value)
		}
	case actID:
		if value != "swap" {
			return fmt.Errorf("id=%s: id=swap is all there is", value)
		}
	case actStray:
		f.text = strings.Trim(value, `"`)
		if f.text == "" || strings.ContainsAny(f.text, "\r\n") {
			return fmt.Errorf("stray needs a text of one line")
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

// unknownTerm returns the first term of a filter that is about what is not known when a request comes; "" if there is none.
func unknownTerm(text string) string {
	unquoted := text
	for {
		i := strings.IndexByte(unquoted, '"')
		if i < 0 {
			break
		}
		j := strings.IndexByte(unquoted[i+1:], '"')
		if j < 0 {
			break
		}
		unquoted = unquoted[:i] + unquoted[i+j+2:]
	}
	for _, word := range strings.FieldsFunc(unquoted, func(r rune) bool { return strings.ContainsRune(" \t()|", r) }) {
		word = strings.TrimLeft(word, "-!")
		for _, field := range []string{"status", "lint", "dur", "size"} {
			if rest, ok := strings.CutPrefix(strings.ToLower(word), field); ok && rest != "" && strings.ContainsRune(":<>=", rune(rest[0])) {
				return field
			}
		}
	}
	return ""
}

// HTTPOnly reports whether the fault is of HTTP.
func (f *Fault) HTTPOnly() bool { return f.act == actStatus }

// StreamOnly reports whether the fault is of standard input and output, or of a socket.
func (f *Fault) StreamOnly() bool { return f.act == actStray }

// OnMessages reports whether the fault concerns messages as a whole, not their text on the wire: such ones may be behind a translation.
func (f *Fault) OnMessages() bool {
	return f.act == actDelay || f.act == actDrop || f.act == actError || f.act == actExit
}

// hasDelay reports whether it takes time.
func (f *Fault) hasDelay() bool { return f.act == actDelay || f.act == actDrop }

// String returns the name of what the fault does.
func (f *Fault) String() string { return string(f.act) }

// clone returns a copy that has met nothing.
func (f *Fault) clone() *Fault {
	c := *f
	c.seen = 0
	return &c
}
