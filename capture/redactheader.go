package capture

import (
	"slices"
	"strconv"
	"strings"
)

// shownHeaders are the headers whose values say how the protocol works, and hold no secrets. What is in no such list is hidden: a list of what to hide is never complete.
var shownHeaders = []string{
	"accept", "accept-encoding", "accept-language", "accept-ranges", "access-control-allow-credentials", "access-control-allow-headers",
	"access-control-allow-methods", "access-control-allow-origin", "access-control-expose-headers", "access-control-max-age",
	"access-control-request-headers", "access-control-request-method", "age", "allow", "alt-svc", "cache-control", "connection", "content-encoding",
	"content-language", "content-length", "content-type", "date", "expect", "expires", "host", "keep-alive", "last-event-id", "last-modified", "location",
	"mcp-method", "mcp-name", "mcp-protocol-version", "origin", "pragma", "retry-after", "sec-fetch-dest", "sec-fetch-mode", "sec-fetch-site",
	"server", "strict-transport-security", "te", "traceparent", "trailer", "transfer-encoding", "upgrade", "user-agent", "vary", "via", "www-authenticate",
	"x-accel-buffering", "x-content-type-options",
}

// redactHeaders returns the headers with their secrets hidden.
func (r *Redactor) redactHeaders(list []Header, at string, p *pointers) []Header {
	list = slices.Clone(list)
	for i, h := range list {
		if name := r.redactText(h.Name); name != h.Name {
			list[i].Name = name
			p.add(at + strconv.Itoa(i) + "/0")
		}
		if value := r.Header(h.Name, h.Value); value != h.Value {
			list[i].Value = value
			p.add(at + strconv.Itoa(i) + "/1")
		}
	}
	return list
}

// Header returns the value of an HTTP header with what is secret about it hidden: all of it, unless the header is known to hold no secret. Of
// credentials the scheme is left, of cookies their names and attributes. What was in Authorization, in cookies, in session ids and in other headers with the name of
// a secret is hidden wherever it comes up later, too.
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
	kind, secret := r.classify([]byte(param), false)
	if isParam && !secret {
		return r.redactShown(value) // the arguments of a tool, which are in the body as well
	}
	if secret {
		r.known.add(value, 8, false)
		return r.placeholder(kind.kind, value)
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
