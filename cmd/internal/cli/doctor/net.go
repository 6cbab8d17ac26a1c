package doctor

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"mcpwire/cmd/internal/cli/kit"
	"mcpwire/cmd/internal/cli/targets"
	"mcpwire/cmd/internal/text/safe"
	"mcpwire/internal/net/loopback"
)

// network examines the network path to the server and reports whether it works.
func (doc *doctor) network(ctx context.Context, u *url.URL) bool {
	s := doc.report.section("Network")
	request := &http.Request{URL: u}
	proxy, err := http.ProxyFromEnvironment(request)
	switch {
	case err != nil:
		s.bad("the proxy of the environment cannot be used: %s", safe.Clip(err.Error(), 200)).hint("fix HTTPS_PROXY or HTTP_PROXY")
		return false
	case proxy != nil:
		s.note("requests go through the proxy %s, set in the environment", targets.SafeURL(proxy.String())).hint("NO_PROXY=%s bypasses it", safe.Line(u.Hostname()))
		return true
	}
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)])
	addresses, ok := doc.resolve(ctx, s, u.Hostname())
	if !ok {
		return false
	}
	if !doc.reach(ctx, s, addresses, port) {
		return false
	}
	if strings.EqualFold(u.Scheme, "https") {
		return doc.certificate(ctx, s, net.JoinHostPort(u.Hostname(), port), u.Hostname())
	}
	if !loopback.IsHost(u.Hostname()) {
		s.odd("http without TLS to another machine: anyone on the network path can read and change the traffic").hint("use https://")
	}
	return true
}

// resolve returns the addresses of a host.
func (doc *doctor) resolve(ctx context.Context, s *doctorSection, host string) ([]string, bool) {
	if net.ParseIP(host) != nil {
		return []string{host}, true
	}
	limited, cancel := context.WithTimeout(ctx, doc.connect)
	defer cancel()
	start := time.Now()
	addresses, err := net.DefaultResolver.LookupHost(limited, host)
	if err != nil {
		if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
			s.bad("the name %s is unknown", safe.Line(host)).hint("check its spelling, and whether it needs a VPN")
		} else {
			s.bad("the name %s cannot be looked up: %s", safe.Line(host), safe.Clip(err.Error(), 200))
		}
		doc.report.nextOnce("after fixing that", doc.mcpwire("doctor")...)
		return nil, false
	}
	s.good("%s is %s, looked up in %s", safe.Line(host), safe.Line(strings.Join(addresses[:min(len(addresses), 4)], ", ")), kit.ShortTime(time.Since(start)))
	return addresses, true
}

// reach connects to the addresses and reports whether one works. It warns about the others, which
// cost time.
func (doc *doctor) reach(ctx context.Context, s *doctorSection, addresses []string, port string) bool {
	works := 0
	var last error
	const most = 4
	for _, a := range addresses[:min(len(addresses), most)] {
		limited, cancel := context.WithTimeout(ctx, doc.connect)
		start := time.Now()
		conn, err := new(net.Dialer).DialContext(limited, "tcp", net.JoinHostPort(a, port))
		cancel()
		if err != nil {
			last = err
			continue
		}
		conn.Close()
		if works++; works == 1 {
			s.good("connected to %s port %s in %s", safe.Line(a), safe.Line(port), kit.ShortTime(time.Since(start)))
		}
	}
	switch {
	case works == 0:
		why := safe.Clip(kit.Innermost(last).Error(), 200)
		hint := "check that the server runs, and uses this port"
		if errors.Is(last, context.DeadlineExceeded) {
			why, hint = "no response", "a firewall drops packets, or the machine is off"
		}
		s.bad("no connection to port %s: %s", safe.Line(port), why).hint("%s", hint)
		doc.report.nextOnce("after the server runs", doc.mcpwire("doctor")...)
		return false
	case last != nil:
		s.odd("only %[2]d of its %[1]d addresses accept connections: %[3]s", min(len(addresses), most), works, safe.Clip(kit.Innermost(last).Error(), 200)).hint("programs that try ::1 first do not find a server that only listens on 127.0.0.1")
	}
	return true
}

// certificate examines the server's certificate and reports whether TLS works.
func (doc *doctor) certificate(ctx context.Context, s *doctorSection, address, host string) bool {
	conf, err := doc.d.Flags.TLS()
	if err != nil {
		s.bad("%s", safe.Line(err.Error()))
		return false
	}
	if conf == nil {
		conf = new(tls.Config)
	}
	conf = conf.Clone()
	conf.ServerName = host
	limited, cancel := context.WithTimeout(ctx, doc.connect)
	defer cancel()
	start := time.Now()
	conn, err := (&tls.Dialer{Config: conf}).DialContext(limited, "tcp", address)
	if err != nil {
		what, hint := explainTLS(err)
		s.bad("%s", what).hint("%s", hint)
		doc.tlsNext(err)
		return false
	}
	defer conn.Close()
	state := conn.(*tls.Conn).ConnectionState()
	s.good("%s, in %s", tls.VersionName(state.Version), kit.ShortTime(time.Since(start)))
	if len(state.PeerCertificates) > 0 {
		end := state.PeerCertificates[0].NotAfter
		if left := time.Until(end); left < 14*24*time.Hour && left > 0 {
			s.odd("the certificate expires in %d days", int(left.Hours()/24)).hint("renew it")
		}
	}
	return true
}

// explainTLS describes a TLS error and returns a hint.
func explainTLS(err error) (what, hint string) {
	var unknown x509.UnknownAuthorityError
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		if c := unknown.Cert; c != nil && c.Issuer.String() == c.Subject.String() {
			return "the certificate is self-signed", "trust it with --cacert FILE, or skip the check with --insecure; for hosts on Node.js, set NODE_EXTRA_CA_CERTS=FILE"
		}
		return "the certificate is signed by an unknown authority", "trust the authority with --cacert FILE; for hosts on Node.js, set NODE_EXTRA_CA_CERTS=FILE. The server may also have omitted an intermediate certificate"
	case errors.As(err, &name):
		return "the certificate is for another host name: " + safe.Clip(name.Error(), 200), "use the name in the certificate, or get a certificate for this name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the certificate is not valid now: " + safe.Clip(invalid.Error(), 200), "renew it, or check the clock of this machine"
	case errors.As(err, &record):
		return "the server does not speak TLS at this port", "try http:// in the URL"
	}
	return "TLS fails: " + safe.Clip(kit.Innermost(err).Error(), 200), "the server may require a client certificate, or an older version of TLS"
}

// tlsNext suggests a command after TLS failed.
func (doc *doctor) tlsNext(err error) {
	var unknown x509.UnknownAuthorityError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknown):
		doc.report.nextOnce("with the certificate in FILE", doc.mcpwire("doctor", "--cacert", "FILE")...)
	case errors.As(err, &record):
		// The URL was parsed before.
		plain, _ := url.Parse(doc.d.Target.URL)
		plain.Scheme = "http"
		doc.report.next(doc.elsewhereArgs(plain.String(), "doctor")...)
	default:
		doc.report.next(doc.mcpwire("doctor", "--insecure")...)
	}
}
