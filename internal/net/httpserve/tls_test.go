package httpserve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mcpwire/internal/test/buffer"
)

// writeCert writes a certificate for the loopback address and its key, with the given modification
// time.
func writeCert(t *testing.T, certFile, keyFile string, serial int64, at time.Time) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), at)
	if keyFile != "" {
		writeFile(t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), at)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return pool
}

func writeFile(t *testing.T, name string, b []byte, at time.Time) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
}

// get sends one request and returns the HTTP version of the response.
func get(t *testing.T, url string, tr *http.Transport) (proto string) {
	t.Helper()
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "hello" {
		t.Errorf("%q, %v", b, err)
	}
	return resp.Proto
}

func TestServeTLS(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pool := writeCert(t, certFile, keyFile, 1, time.Now())
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int32
	for name, o := range map[string]*Options{
		"files":  {CertFile: certFile, KeyFile: keyFile},
		"config": {TLS: &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS10}},
		"both":   {CertFile: certFile, KeyFile: keyFile, TLS: &tls.Config{MinVersion: tls.VersionTLS13}},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, hello(&n), o)
			for _, h2 := range []bool{false, true} {
				tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: h2}
				if got := get(t, "https://"+s.addr, tr); (got == "HTTP/2.0") != h2 {
					t.Errorf("HTTP/2 %v: %s", h2, got)
				}
			}
			if c, err := tls.Dial("tcp", s.addr, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}); err == nil {
				c.Close()
				t.Error("TLS 1.1 is spoken")
			}
			c, r := s.dial(getHello)
			if resp, _ := readResponse(t, r); resp.StatusCode != http.StatusBadRequest {
				t.Errorf("without TLS: status %d", resp.StatusCode)
			}
			c.Close()
			if err := s.stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestServeTLSOptions(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	writeCert(t, certFile, keyFile, 1, time.Now())
	for want, o := range map[string]*Options{
		"both CertFile and KeyFile":    {CertFile: certFile},
		"CertFile and KeyFile":         {KeyFile: keyFile},
		"needs a certificate":          {TLS: &tls.Config{}},
		"already has certificates":     {CertFile: certFile, KeyFile: keyFile, TLS: &tls.Config{GetCertificate: new(certFiles).certificate}},
		"H2C is HTTP/2 without TLS":    {CertFile: certFile, KeyFile: keyFile, H2C: true},
		"load the certificate: open ":  {CertFile: certFile + "x", KeyFile: keyFile},
		"load the certificate: tls: f": {CertFile: keyFile, KeyFile: keyFile},
	} {
		if err := ListenAndServe(t.Context(), "", http.NotFoundHandler(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

func TestServeTLSReload(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	at := time.Now().Add(-time.Hour)
	writeCert(t, certFile, keyFile, 1, at)
	log := new(buffer.Buffer)
	f, err := newCertFiles(certFile, keyFile, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	check := func(want int64, errors int) {
		t.Helper()
		for range 3 {
			cert, err := f.certificate(nil)
			if err != nil {
				t.Fatal(err)
			}
			leaf, err := x509.ParseCertificate(cert.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			if got := leaf.SerialNumber.Int64(); got != want {
				t.Errorf("the certificate has the number %d, want %d", got, want)
			}
		}
		if got := strings.Count(log.String(), "level=ERROR"); got != errors {
			t.Errorf("%d errors were logged, want %d:\n%s", got, errors, log)
		}
	}
	check(1, 0)
	// the key file still belongs to the old certificate
	writeCert(t, certFile, "", 2, at.Add(time.Minute))
	check(1, 1)
	writeCert(t, certFile, keyFile, 3, at.Add(2*time.Minute))
	check(3, 1)
	if err := os.Remove(keyFile); err != nil {
		t.Fatal(err)
	}
	check(3, 2)
	writeCert(t, certFile, keyFile, 4, at.Add(3*time.Minute))
	check(4, 2)
}

func TestServeH2C(t *testing.T) {
	var n atomic.Int32
	for _, on := range []bool{false, true} {
		s := serve(t, hello(&n), &Options{H2C: on})
		if got := get(t, "http://"+s.addr, &http.Transport{}); got != "HTTP/1.1" {
			t.Errorf("an HTTP/1.1 client got %s", got)
		}
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetUnencryptedHTTP2(true)
		if on {
			if got := get(t, "http://"+s.addr, tr); got != "HTTP/2.0" {
				t.Errorf("an HTTP/2 client got %s", got)
			}
		} else if resp, err := (&http.Client{Transport: tr}).Get("http://" + s.addr); err == nil {
			resp.Body.Close()
			t.Error("got HTTP/2 without H2C")
		}
		tr.CloseIdleConnections()
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	}
}
