package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Fingerprint returns a text that identifies how the gateway connects to an upstream: two upstreams
// with the same fingerprint can use the same connections. It covers the values of secrets that are
// read once per connection, and not what applies to each call, such as filters and rates. It
// returns an [*Error] if a secret cannot be read.
func (c *Config) Fingerprint(u *Upstream) (string, error) {
	own := *u
	own.Rename, own.Tools, own.Prompts, own.Resources, own.Pin, own.Disabled = nil, Filter{}, Filter{}, Filter{}, "", false
	own.Limits.Rate, own.Limits.Burst, own.Limits.Concurrent = 0, 0, 0
	path := join("upstreams", u.Name) + "."
	text, err := json.Marshal(&Config{Upstreams: Upstreams{&own}})
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	hash.Write(text)
	if len(u.Command) > 0 {
		fmt.Fprintf(hash, "%q", c.Inherited(u)) // another reference may take a variable away
	}
	add := func(key string, r Reference) error {
		if r.IsZero() {
			return nil
		}
		secret, err := r.Resolve()
		if err != nil {
			return c.Errorf(path+key, "%s%s: %v", path, key, err)
		}
		fmt.Fprintf(hash, "%q%q", key, secret.Reveal())
		return nil
	}
	for _, name := range sortedKeys(u.Env) {
		if err := add(join("env", name), u.Env[name].Reference); err != nil {
			return "", err
		}
	}
	if err := add("url", u.URL.Reference); err != nil {
		return "", err
	}
	if cr := u.Credentials; cr != nil && cr.Client != nil {
		if err := add("credentials.client.secret", cr.Client.Secret); err != nil {
			return "", err
		}
	}
	if cr := u.Credentials; cr != nil && cr.Exchange != nil {
		if err := add("credentials.exchange.secret", cr.Exchange.Secret); err != nil {
			return "", err
		}
	}
	if cr := u.Credentials; cr != nil && cr.Login != nil {
		if err := add("credentials.login.secret", cr.Login.Secret); err != nil {
			return "", err
		}
	}
	if u.TLS != nil && u.TLS.CA != "" {
		text, err := readLimited(string(u.TLS.CA), maxCertificates)
		if err != nil {
			return "", c.Errorf(path+"tls.ca", "%stls.ca: %v", path, err)
		}
		hash.Write(text)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// maxCertificates limits the size of a file of certificates, in bytes.
const maxCertificates = 4 << 20
