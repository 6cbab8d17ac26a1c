package detail

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"mcpwire/capture"
	"mcpwire/internal/printable"
)

// A target is the server, as commands name it.
type target struct {
	url     string
	headers []capture.Header
	command []string
	dir     string
	notes   []string
}

// target finds out which server a command has to name.
func (d *Detail) target(l *shellLine) (*target, error) {
	if d.isHTTP() {
		address, note := d.address()
		if address == "" {
			return nil, fmt.Errorf("%w: the capture does not say at which URL the server is", ErrNoCommand)
		}
		t := &target{url: address}
		if note != "" {
			t.notes = append(t.notes, note)
		}
		if d.requestHead != nil {
			t.headers = credentials(d.requestHead.Headers)
		}
		return t, nil
	}
	if d.start == nil || len(d.start.Command) == 0 {
		return nil, fmt.Errorf("%w: the capture does not say how the server is started", ErrNoCommand)
	}
	t := &target{command: d.start.Command, dir: d.start.Dir}
	if len(d.start.Env) > 0 {
		t.notes = append(t.notes, "the server may need what is in the environment it was recorded with; the capture has only the names of the variables")
	}
	return t, nil
}

// address returns the URL of the server, "" if that is not known, and what there is to know about it.
func (d *Detail) address() (address, note string) {
	server := d.url
	if server == "" {
		server = d.snapshot.Session.URL
	}
	return requestAddress(server, d.requestHead)
}

// requestAddress returns the URL that a request went to. head may be nil.
func requestAddress(server string, head *capture.Request) (address, note string) {
	request := ""
	if head != nil {
		request = head.URL
	}
	if base, err := url.Parse(server); server != "" && err == nil && base.Host != "" {
		if to, err := url.Parse(request); request != "" && err == nil { // a tap has the paths of the server's whole origin
			return base.ResolveReference(&url.URL{Path: to.Path, RawPath: to.RawPath, RawQuery: to.RawQuery}).String(), ""
		}
		return server, ""
	}
	if head == nil {
		return "", ""
	}
	for _, h := range head.Headers {
		if strings.EqualFold(h.Name, "Host") && h.Value != "" && strings.HasPrefix(request, "/") {
			return "http://" + h.Value + request, "the URL is the one that the client has used, which may be a tap's"
		}
	}
	return "", ""
}

// writeURL writes a target that is a URL.
func (ta *target) writeURL(l *shellLine) {
	if ta.url != "" {
		l.word(ta.url)
	}
}

// writeFlags writes the flags, and a target that is a command.
func (ta *target) writeFlags(l *shellLine) {
	for _, h := range ta.headers {
		l.writeHeader(h)
	}
	if ta.dir != "" {
		l.word("--cwd=" + ta.dir)
	}
	if ta.command != nil {
		l.word("--")
		for _, c := range ta.command {
			l.word(c)
		}
	}
	l.notes = append(l.notes, ta.notes...)
}

// writeHeader writes a header for a command of this program, which expands ${VARIABLES} itself, so that secrets are in no list of processes.
func (l *shellLine) writeHeader(h capture.Header) {
	if strings.Contains(h.Value, "${") || !pasteable(h.Value) {
		l.note("the header " + printable.Line(h.Name) + " is left out: its value cannot stand in a command line")
		return
	}
	value := placeholder.ReplaceAllStringFunc(h.Value, func(p string) string {
		return "${" + l.variable(p, placeholder.FindStringSubmatch(p)[1], h.Name) + "}"
	})
	l.words = append(l.words, "-H", singleQuoted(h.Name+": "+value))
}

// credentials are the headers that a client of ours would not send by itself, and that may be needed to be let in.
func credentials(list []capture.Header) (own []capture.Header) {
	for _, h := range list {
		name := strings.ToLower(h.Name)
		if name == "authorization" || strings.HasPrefix(name, "x-") && !strings.HasPrefix(name, "x-forwarded-") && name != "x-real-ip" {
			if isToken(h.Name) && !slices.ContainsFunc(own, func(o capture.Header) bool { return strings.EqualFold(o.Name, h.Name) }) {
				own = append(own, h)
			}
		}
	}
	return own
}

// isToken reports whether a text can be the name of a header (https://www.rfc-editor.org/rfc/rfc9110#section-5.6.2).
func isToken(s string) bool {
	return s != "" && strings.Trim(s, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}
