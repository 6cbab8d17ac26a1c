// Package challenge parses the WWW-Authenticate headers of HTTP responses.
package challenge

import (
	"errors"
	"strings"
)

// Limits of the headers of a response. Anything beyond is not read.
const (
	maxBytes      = 16 << 10
	maxChallenges = 16
	maxParams     = 32
)

const (
	alphanumeric = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	// TokenCharacters are the characters of tokens, such as names of headers (RFC 9110, section
	// 5.6.2).
	TokenCharacters   = "!#$%&'*+-.^_`|~" + alphanumeric
	token68Characters = "-._~+/" + alphanumeric
)

// ErrMalformed is the error of [Parse] for text that is not a list of challenges.
var ErrMalformed = errors.New("malformed WWW-Authenticate")

// A Challenge is one authentication scheme that a server offers, with its parameters. See
// https://www.rfc-editor.org/rfc/rfc9110#section-11.6.1.
type Challenge struct {
	// Scheme is in lower case, for example "bearer".
	Scheme string
	// Token is the token68 text that a challenge may have instead of parameters.
	Token string
	// Params maps the lower-case names of the parameters to their unquoted values. The first of
	// several values counts.
	Params map[string]string
}

// Parse parses the values of a response's WWW-Authenticate headers. If a part is malformed or
// beyond the limits (16 KiB, 16 challenges, 32 parameters each), it returns the challenges before
// it and [ErrMalformed]. The result does not alias values.
//
// Parse also reads some forms that servers send against the RFC, and returns ErrMalformed with the
// whole list: URLs without quotes, values in single quotes, and spaces between parameters.
func Parse(values []string) ([]Challenge, error) {
	var p parser
	left := maxBytes
	for _, v := range values {
		if len(v) > left {
			return p.list, ErrMalformed
		}
		left -= len(v)
		p.rest = v
		if err := p.run(); err != nil {
			return p.list, err
		}
	}
	if p.odd {
		return p.list, ErrMalformed
	}
	return p.list, nil
}

type parser struct {
	rest string
	list []Challenge
	// odd means that a part is malformed and was read nevertheless.
	odd bool
}

// run parses a list in which commas separate challenges and also their parameters. The text after a
// comma starts a challenge unless it is "name=value".
func (p *parser) run() error {
	for {
		p.skip(" \t,")
		if p.rest == "" {
			return nil
		}
		name := p.token()
		if name == "" {
			return ErrMalformed
		}
		if len(p.list) > 0 && p.isParam() {
			if err := p.param(name); err != nil {
				return err
			}
		} else if err := p.challenge(name); err != nil {
			return err
		}
		for p.skip(" \t"); p.rest != "" && p.rest[0] != ','; p.skip(" \t") {
			p.odd = true // only a parameter may follow without a comma
			if name = p.token(); name == "" || !p.isParam() {
				return ErrMalformed
			}
			if err := p.param(name); err != nil {
				return err
			}
		}
	}
}

// isParam reports whether "=" comes next, as after the name of a parameter and never after a
// scheme.
func (p *parser) isParam() bool {
	return strings.HasPrefix(strings.TrimLeft(p.rest, " \t"), "=")
}

// challenge parses the text after a scheme, up to the first comma.
func (p *parser) challenge(scheme string) error {
	if len(p.list) == maxChallenges {
		return ErrMalformed
	}
	c := Challenge{Scheme: strings.ToLower(scheme), Params: map[string]string{}}
	if p.rest != "" && p.rest[0] != ' ' && p.rest[0] != '\t' && p.rest[0] != ',' {
		return ErrMalformed
	}
	p.skip(" \t")
	if p.rest == "" || p.rest[0] == ',' {
		p.list = append(p.list, c)
		return nil
	}
	if text, ok := p.token68(); ok {
		c.Token = text
		p.list = append(p.list, c)
		return nil
	}
	name := p.token()
	if name == "" || !p.isParam() {
		return ErrMalformed // neither a parameter nor a token68
	}
	p.list = append(p.list, c)
	return p.param(name)
}

// param parses "=value" into the last challenge.
func (p *parser) param(name string) error {
	p.skip(" \t")
	p.rest = p.rest[1:] // "="
	p.skip(" \t")
	value, ok := p.value()
	last := p.list[len(p.list)-1]
	if !ok || len(last.Params) == maxParams || last.Token != "" {
		return ErrMalformed
	}
	name = strings.ToLower(name)
	if _, twice := last.Params[name]; !twice {
		last.Params[name] = value
	}
	return nil
}

// value parses a token or a quoted string, or a value with other characters of URLs.
func (p *parser) value() (string, bool) {
	if p.rest == "" || p.rest[0] != '"' {
		t := p.token()
		if end := strings.IndexAny(p.rest+",", ", \t\""); end > 0 {
			t, p.rest, p.odd = t+p.rest[:end], p.rest[end:], true
		}
		if unquoted := strings.TrimPrefix(t, "'"); len(unquoted) > 1 && strings.HasSuffix(unquoted, "'") && unquoted != t {
			t, p.odd = unquoted[:len(unquoted)-1], true
		}
		return t, t != ""
	}
	var b strings.Builder
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; c {
		case '"':
			p.rest = p.rest[i+1:]
			return b.String(), true
		case '\\':
			i++
			if i == len(p.rest) {
				return "", false
			}
			b.WriteByte(p.rest[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", false
}

// token68 parses a token68, if nothing else comes before the next comma.
func (p *parser) token68() (string, bool) {
	end := strings.IndexByte(p.rest, ',')
	if end < 0 {
		end = len(p.rest)
	}
	text := strings.TrimRight(p.rest[:end], " \t")
	body := strings.TrimRight(text, "=")
	if body == "" || strings.Trim(body, token68Characters) != "" {
		return "", false
	}
	p.rest = p.rest[end:]
	return text, true
}

func (p *parser) skip(set string) { p.rest = strings.TrimLeft(p.rest, set) }

// token parses the longest token, which may be empty.
func (p *parser) token() string {
	before := p.rest
	p.skip(TokenCharacters)
	return before[:len(before)-len(p.rest)]
}
