package cli

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// bridging holds a function for each script that stops the bridge it started last.
var bridging sync.Map

// cmdBridging starts "mcpwire bridge" with these arguments, waits until it listens, and sets
// BRIDGE: bridging ARGS... The process ends with the script, or by unbridge.
func cmdBridging(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: bridging ARGS...")
	}
	stop := listen(ts, "BRIDGE", append([]string{"bridge"}, args...)...)
	bridging.Store(ts, stop)
	ts.Defer(func() { stop() })
}

// cmdUnbridge stops the bridge, checks that its exit status is 0, and prints what it wrote to
// standard error: unbridge
func cmdUnbridge(ts *testscript.TestScript, neg bool, args []string) {
	stop, ok := bridging.Load(ts)
	if neg || len(args) > 0 || !ok {
		ts.Fatalf("usage: unbridge, after bridging")
	}
	log, err := stop.(func() (string, error))()
	ts.Stderr().Write([]byte(log))
	ts.Check(err)
}

// cmdCertificate writes a certificate for this machine's loopback, and its key: certificate CERT
// KEY
func cmdCertificate(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: certificate CERT KEY")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ts.Check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	ts.Check(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o600))
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}
