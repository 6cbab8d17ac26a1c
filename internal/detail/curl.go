package detail

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/jsonwire"
	"mcpwire/internal/printable"
)

// hopByHop are the headers of the connection and not of the request (https://www.rfc-editor.org/rfc/rfc9110#section-7.6.1), and those that curl makes of the rest.
var hopByHop = []string{
	"connection", "keep-alive", "proxy-connection", "proxy-authorization", "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings",
	"content-length", "host", "expect", "accept-encoding",
}

// CurlCommand returns the request as a command line of curl.
func CurlCommand(d *Detail) (*Command, error) {
	if !d.isHTTP() {
		return nil, fmt.Errorf("%w, but over a pipe", ErrNotHTTP)
	}
	if d.requestHead == nil {
		return nil, fmt.Errorf("%w: its HTTP request is not in the capture, or belongs to another row", ErrNoCommand)
	}
	address, note := d.address()
	c, err := curlCommand(d.requestHead, address, d.Request != nil, d.body)
	if err == nil && note != "" {
		c.Notes = append(c.Notes, note)
	}
	return c, err
}

// CurlRequest returns any HTTP request as a command line of curl. server is the URL that the capture says the server is at, "" if it does not; a body that is nil although there was one
// cannot be sent. The error wraps [ErrNoCommand].
func CurlRequest(server string, head *capture.Request, hasBody bool, body []byte) (*Command, error) {
	address, note := requestAddress(server, head)
	c, err := curlCommand(head, address, hasBody, body)
	if err == nil && note != "" {
		c.Notes = append(c.Notes, note)
	}
	return c, err
}

func curlCommand(head *capture.Request, address string, hasBody bool, body []byte) (*Command, error) {
	if address == "" {
		return nil, fmt.Errorf("%w: the capture does not say at which URL the server is", ErrNoCommand)
	}
	l := newShellLine()
	for _, w := range []string{"curl", "--include", "--no-buffer", "--globoff", "--request"} {
		l.word(w)
	}
	l.word(head.Method)
	l.word("--url")
	l.word(address)
	l.curlHeaders(head.Headers, hasBody)
	if hasBody {
		if err := l.curlBody(body); err != nil {
			return nil, err
		}
	}
	return l.command()
}

// curlHeaders writes the headers in their order.
func (l *shellLine) curlHeaders(list []capture.Header, body bool) {
	var has []string
	for _, h := range list {
		name := strings.ToLower(h.Name)
		has = append(has, name)
		switch {
		case slices.Contains(hopByHop, name):
			if name == "accept-encoding" {
				l.words = append(l.words, "--compressed")
			}
			continue
		case !isToken(h.Name) || !pasteable(h.Value):
			l.note("the header " + printable.Line(h.Name) + " is left out: it cannot stand in a command line")
			continue
		case strings.TrimSpace(h.Value) == "":
			l.words = append(l.words, "--header", singleQuoted(h.Name+";")) // with a colon, curl would leave it out
			continue
		}
		l.words = append(l.words, "--header", l.quote(h.Name+": "+h.Value, h.Name))
	}
	own := []string{"User-Agent", "Accept"} // what curl adds by itself
	if body {
		own = append(own, "Content-Type")
	}
	for _, name := range own {
		if !slices.Contains(has, strings.ToLower(name)) {
			l.words = append(l.words, "--header", singleQuoted(name+":"))
		}
	}
}

// curlBody writes the body.
func (l *shellLine) curlBody(body []byte) error {
	l.word("--data-raw") // of all ways, the one in which no first character has a meaning
	switch {
	case body == nil:
		return fmt.Errorf("%w: the body is too long for a command line, or not in the capture in full: save its payload, and use curl --data-binary @FILE", ErrNoCommand)
	case jsonwire.Valid(body, 0) == nil:
		if trimmed := bytes.TrimSpace(body); jsonwire.HasSpace(trimmed) && bytes.ContainsAny(trimmed, "\t\r\n") {
			l.note("white space between the tokens of the JSON is left out")
		} else if pasteable(string(trimmed)) {
			l.words = append(l.words, l.quote(string(trimmed), ""))
			return nil
		}
		l.json(body)
	case pasteable(string(body)):
		l.word(string(body))
	default:
		return fmt.Errorf("%w: the body has bytes in it that no command line should have: save its payload, and use curl --data-binary @FILE", ErrNoCommand)
	}
	return nil
}
