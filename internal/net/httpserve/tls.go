package httpserve

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// tlsConfig returns the TLS configuration, or nil to serve without TLS.
func (o *Options) tlsConfig() (*tls.Config, error) {
	switch {
	case (o.CertFile == "") != (o.KeyFile == ""):
		return nil, errors.New("TLS needs both CertFile and KeyFile")
	case o.CertFile == "" && o.TLS == nil:
		return nil, nil
	case o.H2C:
		return nil, errors.New("H2C is HTTP/2 without TLS: with TLS there is HTTP/2 anyway")
	}
	config := o.TLS.Clone()
	if config == nil {
		config = new(tls.Config)
	}
	config.MinVersion = max(config.MinVersion, tls.VersionTLS12)
	given := len(config.Certificates) > 0 || config.GetCertificate != nil || config.GetConfigForClient != nil
	if o.CertFile == "" {
		if !given {
			return nil, errors.New("TLS needs a certificate: set CertFile and KeyFile, or TLS.Certificates")
		}
		return config, nil
	}
	if given {
		return nil, errors.New("TLS already has certificates: omit CertFile and KeyFile")
	}
	files, err := newCertFiles(o.CertFile, o.KeyFile, o.Logger)
	if err != nil {
		return nil, err
	}
	config.GetCertificate = files.certificate
	return config, nil
}

// certFiles loads a certificate and its key from files. Each handshake checks whether they have
// changed, which takes a thousandth of the handshake's time.
type certFiles struct {
	certFile, keyFile string
	log               *slog.Logger

	mu sync.Mutex
	// cert is the last valid certificate.
	cert *tls.Certificate
	// state is that of the files at the last attempt to load them.
	state [2]fileState
}

// A fileState changes when a file does.
type fileState struct {
	changed time.Time
	size    int64
}

func newCertFiles(certFile, keyFile string, log *slog.Logger) (*certFiles, error) {
	f := &certFiles{certFile: certFile, keyFile: keyFile, log: log}
	f.state = f.stat()
	cert, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("load the certificate: %w", err)
	}
	f.cert = &cert
	return f, nil
}

// stat returns the state of both files, zero for one that cannot be read.
func (f *certFiles) stat() (s [2]fileState) {
	for i, name := range [...]string{f.certFile, f.keyFile} {
		if info, err := os.Stat(name); err == nil {
			s[i] = fileState{changed: info.ModTime(), size: info.Size()}
		}
	}
	return s
}

// certificate implements [tls.Config.GetCertificate]. It takes the state before it reads the files,
// so that the next handshake sees a concurrent change. After a failure it reads files that do not
// match only when one has changed again, as happens while they are being replaced.
func (f *certFiles) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := f.stat()
	if state == f.state {
		return f.cert, nil
	}
	f.state = state
	cert, err := tls.LoadX509KeyPair(f.certFile, f.keyFile)
	if err != nil {
		f.log.Error("the certificate has changed and cannot be loaded; still using the previous one", "file", f.certFile, "error", err)
		return f.cert, nil
	}
	f.cert = &cert
	f.log.Info("loaded the changed certificate", "file", f.certFile)
	return f.cert, nil
}
