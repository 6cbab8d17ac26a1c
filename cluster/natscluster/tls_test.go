package natscluster_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/cluster"
	"mcpwire/cluster/natscluster"
)

// An authority issues certificates for 127.0.0.1.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{cert, key, x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a
}

// config returns the configuration of a core node that trusts another authority.
func (a *authority) config(t *testing.T, trusted *authority) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: trusted.pool}
}

// TestTLS checks that core nodes accept the certificates of their authority only.
func TestTLS(t *testing.T) {
	t.Parallel()
	ours, foreign := newAuthority(t), newAuthority(t)
	dir, routes := t.TempDir(), freePorts(t, 3)
	open := func(ctx context.Context, i int, config *tls.Config, limit time.Duration) (*natscluster.Backend, error) {
		o := core(t, dir, routes, i)
		o.Embed.TLS = config
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return natscluster.Open(ctx, o)
	}
	// One node has a certificate of ours; two nodes trust ours and have another one. They are there
	// until the first one has reported what is wrong.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for i, config := range []*tls.Config{ours.config(t, ours), foreign.config(t, ours), foreign.config(t, ours)} {
		wg.Go(func() {
			limit := time.Minute
			if i == 0 {
				limit = 3 * time.Second
				defer cancel()
			}
			b, err := open(ctx, i, config, limit)
			if err == nil {
				b.Close()
			}
			if i == 0 && (err == nil || !strings.Contains(err.Error(), "certificates")) {
				t.Errorf("opened with nodes of another authority: %v", err)
			}
		})
	}
	wg.Wait()
	dir = t.TempDir()
	nodes := make([]*natscluster.Backend, 3)
	for i := range nodes {
		wg.Go(func() {
			var err error
			if nodes[i], err = open(t.Context(), i, ours.config(t, ours), 30*time.Second); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	defer wg.Wait()
	for _, b := range nodes {
		if b != nil {
			defer wg.Go(b.Close)
		}
	}
	if t.Failed() {
		return
	}
	r, err := nodes[2].Records(t.Context(), "test", cluster.RecordsOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// While the stream is new and gets a leader, a write that is carried out may fail so.
	if _, err := r.Put(t.Context(), "key", nil, 0); err != nil && !errors.Is(err, cluster.ErrConflict) {
		t.Error(err)
	}
}
