package streamable

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// tlsConfig returns the configuration of TLS, nil if there is to be none.
func (o *ServeOptions) tlsConfig() (*tls.Config, error) {
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
		return nil, errors.New("TLS has certificates of its own: leave out CertFile and KeyFile")
	}
	files, err := newCertFiles(o.CertFile, o.KeyFile, o.Logger)
	if err != nil {
		return nil, err
	}
	config.GetCertificate = files.certificate
	return config, nil
}

// certFiles are a certificate and its key in files. Whether they have changed is looked up at each handshake, which takes a thousand times as long as that.
type certFiles struct {
	certFile, keyFile string
	log               *slog.Logger

	mu    sync.Mutex
	cert  *tls.Certificate // the last that could be read
	state [2]fileState     // of the files when that was last tried
}

// fileState is what changes when a file does.
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

// stat returns the state of both files; that of one that cannot be seen is zero.
func (f *certFiles) stat() (s [2]fileState) {
	for i, name := range [...]string{f.certFile, f.keyFile} {
		if info, err := os.Stat(name); err == nil {
			s[i] = fileState{changed: info.ModTime(), size: info.Size()}
		}
	}
	return s
}

// certificate is for [tls.Config.GetCertificate]. The state is taken before the files are read, so that a change meanwhile is seen the next time; and two
// files that do not go together are looked at again only when one of them has changed, as they will while they are being replaced.
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
		f.log.Error("the certificate has changed and cannot be loaded; the one before is used on", "file", f.certFile, "error", err)
		return f.cert, nil
	}
	f.cert = &cert
	f.log.Info("the certificate has changed and was loaded", "file", f.certFile)
	return f.cert, nil
}
