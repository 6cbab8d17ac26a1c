package streamable

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// An access decides which requests may come in by where they say that they are for, and where they come from. It protects servers that a browser can reach:
// a page that the user happens to have open must not get at them, whether it asks across origins or has its own name point at this machine (DNS rebinding).
// Who the caller is, is for package auth. An access does not change but for what it remembers, and may be used by many goroutines at once.
type accessPolicy struct {
	hosts    map[hostName]struct{} // besides the loopback's; with port 0 on any port
	origins  map[webOrigin]struct{}
	lastHost atomic.Pointer[string] // Host header that was good; most requests have the same
}

// newAccessPolicy returns an access for [Options.Hosts] and [Options.Origins]. What is wrong with an entry is an error: something that never matches is as likely
// a mistake as something that always does.
func newAccessPolicy(hosts, origins []string) (*accessPolicy, error) {
	a := &accessPolicy{hosts: make(map[hostName]struct{}, len(hosts)), origins: make(map[webOrigin]struct{}, len(origins))}
	for _, s := range hosts {
		h, ok := parseHost(s)
		if !ok {
			return nil, fmt.Errorf("%.100q is not a host: it takes a name or an address, exactly one, with or without a port, such as mcp.example.com or [2001:db8::1]:8080", s)
		}
		a.hosts[h] = struct{}{}
	}
	for _, s := range origins {
		o, ok := parseOrigin(s)
		if !ok {
			return nil, fmt.Errorf("%.100q is not an origin: it takes a scheme and a host, exactly one, with or without a port, and nothing behind them, such as https://app.example.com", s)
		}
		a.origins[o] = struct{}{}
	}
	return a, nil
}

// A refusal of an access is a whole body: nothing of the request is in it.
const (
	forbiddenHost = `{"jsonrpc":"2.0","error":{"code":-32600,"message":"the Host header is neither localhost nor an address of the loopback. ` +
		`If this server is meant to be reached under that name, its operator has to add it to the allowed hosts (Options.Hosts)."}}` + "\n"
	forbiddenOrigin = `{"jsonrpc":"2.0","error":{"code":-32600,"message":"web pages of this origin may not use the server. ` +
		`If they are meant to, its operator has to add the origin to the allowed ones (Options.Origins)."}}` + "\n"
	forbiddenSite = `{"jsonrpc":"2.0","error":{"code":-32600,"message":"the browser says that another site asks for this. ` +
		`If its pages are meant to use the server, its operator has to add their origin to the allowed ones (Options.Origins)."}}` + "\n"
)

// check reports whether the request may be handled. If not, it has been answered. It also adds the headers that let pages of allowed origins see the answer,
// and answers their preflight requests, so it has to come before everything that looks at who is asking: a preflight request has no credentials.
func (a *accessPolicy) check(w http.ResponseWriter, r *http.Request) bool {
	values := r.Header["Origin"]
	host, ok := a.host(r, values == nil)
	if !ok {
		return forbid(w, forbiddenHost)
	}
	if len(a.origins) > 0 {
		addVary(w.Header())
	}
	if len(values) == 0 {
		if r.Header["Sec-Fetch-Site"] != nil && !isSameOriginFetch(r) {
			return forbid(w, forbiddenSite)
		}
		return true
	}
	o, ok := parseOrigin(values[0])
	if !ok || len(values) > 1 {
		return forbid(w, forbiddenOrigin)
	}
	if _, allowed := a.origins[o]; allowed {
		return a.writeCORS(w, r)
	}
	if !o.isSameOrigin(host, r.TLS != nil) {
		return forbid(w, forbiddenOrigin)
	}
	if r.Header["Sec-Fetch-Site"] != nil && !isSameOriginFetch(r) {
		return forbid(w, forbiddenSite)
	}
	return true
}

// host returns the host that the request says it is for, and whether the server may be reached as that. Where the request is plain, without an Origin, it is not
// needed and, if it is known to be good, not looked at.
func (a *accessPolicy) host(r *http.Request, noOrigin bool) (host hostName, ok bool) {
	last := a.lastHost.Load()
	known := last != nil && *last == r.Host
	if known && noOrigin {
		return hostName{}, true
	}
	if host, ok = parseHost(r.Host); !ok || !a.allowsHost(host) {
		return hostName{}, false
	}
	if !known {
		name := strings.Clone(r.Host) // it may be part of a large header
		a.lastHost.Store(&name)
	}
	return host, true
}

// allowsHost reports whether the server may be reached as h.
func (a *accessPolicy) allowsHost(h hostName) bool {
	if h.isLocal() {
		return true
	}
	if len(a.hosts) == 0 {
		return false
	}
	ports := [...]uint16{0, h.port, h.port}
	if h.port == 0 {
		ports = [...]uint16{0, portHTTP, portHTTPS} // whichever the scheme implies: TLS may end before this process
	}
	for _, port := range ports {
		h.port = port
		if _, ok := a.hosts[h]; ok {
			return true
		}
	}
	return false
}

// isSameOrigin reports whether the origin is that of the server itself, as which it was asked. Where TLS ends in this process, what came without it is of another
// origin; elsewhere the scheme cannot be told.
func (o webOrigin) isSameOrigin(host hostName, secure bool) bool {
	implied := impliedPort(o.scheme)
	if implied == 0 || secure && o.scheme != "https" {
		return false
	}
	if host.port == 0 {
		host.port = implied
	}
	return o.host == host
}

// isSameOriginFetch reports whether the browser says that the request comes from the server's own pages, or from the user. It is a second layer: browsers omit Origin where a
// page cannot see the answer, and what it did would be done all the same (https://www.w3.org/TR/fetch-metadata/#sec-fetch-site-header).
func isSameOriginFetch(r *http.Request) bool {
	v := r.Header["Sec-Fetch-Site"]
	return len(v) == 1 && (v[0] == "same-origin" || v[0] == "none")
}

// forbid answers with 403 and returns false.
func forbid(w http.ResponseWriter, body string) bool {
	h := w.Header()
	setHeader(h, jsonType)
	h["X-Content-Type-Options"] = noSniff
	w.WriteHeader(http.StatusForbidden)
	io.WriteString(w, body) // whoever does not want to read it need not
	return false
}

// noSniff is shared by responses; nobody changes it.
var noSniff = []string{"nosniff"}
