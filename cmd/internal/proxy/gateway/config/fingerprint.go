package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"reflect"
	"slices"
	"strings"
)

// Values of the tag reload: how a change of a field is applied. A field without the tag is like the
// struct that it belongs to.
const (
	// reloadLive is applied to the running gateway.
	reloadLive = "live"
	// reloadConnect is applied to an upstream by new connections.
	reloadConnect = "connect"
	// reloadReread is reloadConnect, but the secret itself is read again for each request.
	reloadReread = "reread"
	// reloadRestart needs a restart of the gateway.
	reloadRestart = "restart"
	// reloadPresence is reloadLive, but if the field appears or disappears, that needs a restart.
	reloadPresence = "presence"
)

// NeedsRestart returns an [*Error] if a field differs from old in a way that only a restart of the
// gateway applies.
func (c *Config) NeedsRestart(old *Config) error {
	before, now := reflect.ValueOf(*old), reflect.ValueOf(*c)
	for i := range now.NumField() {
		field, a, b := now.Type().Field(i), before.Field(i), now.Field(i)
		tag := field.Tag.Get("reload")
		if tag == reloadPresence && a.IsZero() != b.IsZero() || tag == reloadRestart && !reflect.DeepEqual(a.Interface(), b.Interface()) {
			key := keyOf(field)
			return c.Errorf(key, "%s has changed, which needs a restart of the gateway: no change was applied", key)
		}
	}
	return nil
}

// Fingerprint returns a text that identifies how the gateway connects to an upstream: two upstreams
// with the same fingerprint can use the same connections. It covers the fields whose tag reload
// says so, with the values of secrets and the content of files that are read once per connection.
// It returns an [*Error] if one of them cannot be read.
func (c *Config) Fingerprint(u *Upstream) (string, error) {
	own := *c
	own.Upstreams = Upstreams{u}
	if u.Limits.Processes != 0 {
		own.Limits.Upstream.Processes = 0
	}
	if u.Limits.ProcessesPerCaller != 0 {
		own.Limits.Upstream.ProcessesPerCaller = 0
	}
	f := &fingerprint{config: c, hash: sha256.New()}
	f.add("", reflect.ValueOf(own), "")
	if len(u.Command) > 0 {
		// Another reference may take a variable away.
		f.text("inherited", fmt.Sprint(c.Inherited(u)), reloadConnect)
	}
	return hex.EncodeToString(f.hash.Sum(nil)), f.err
}

// A fingerprint hashes fields.
type fingerprint struct {
	config *Config
	hash   hash.Hash
	err    error
}

// add adds a value whose tag reload is tag.
func (f *fingerprint) add(path string, v reflect.Value, tag string) {
	if v.IsZero() || f.err != nil {
		return
	}
	switch x := v.Interface().(type) {
	case Upstreams:
		f.add(join(path, x[0].Name), reflect.ValueOf(*x[0]), tag)
		return
	case Reference:
		f.text(path, x.String(), tag)
		if tag == reloadConnect {
			secret, err := x.Resolve()
			f.secret(path, secret.Reveal(), err)
		}
		return
	case Path:
		f.text(path, string(x), tag)
		if tag == reloadConnect {
			content, err := readLimited(string(x), maxCertificates)
			f.secret(path, string(content), err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		f.text(path, "set", tag) // it may be empty
		f.add(path, v.Elem(), tag)
	case reflect.Struct:
		for i := range v.NumField() {
			field := v.Type().Field(i)
			if !field.IsExported() {
				continue
			}
			inner := tag
			if own, ok := field.Tag.Lookup("reload"); ok {
				inner = own
			}
			at := path
			if key := keyOf(field); key != "" {
				at = join(path, key)
			}
			f.add(at, v.Field(i), inner)
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, key := range keys {
			f.text(join(path, key.String()), "set", tag)
			f.add(join(path, key.String()), v.MapIndex(key), tag)
		}
	case reflect.Slice:
		f.text(path, fmt.Sprint("list of ", v.Len()), tag)
		for i := range v.Len() {
			f.add(fmt.Sprintf("%s[%d]", path, i), v.Index(i), tag)
		}
	default:
		f.text(path, fmt.Sprint(v.Interface()), tag)
	}
}

// text adds a text.
func (f *fingerprint) text(path, text, tag string) {
	if tag == reloadConnect || tag == reloadReread {
		fmt.Fprintf(f.hash, "%q=%q\n", path, text)
	}
}

// secret adds what is not in the configuration itself.
func (f *fingerprint) secret(path, text string, err error) {
	if err != nil {
		f.err = f.config.Errorf(path, "%s: %v", path, err)
	}
	fmt.Fprintf(f.hash, "%q\n", text)
}

// maxCertificates limits the size of a file of certificates, in bytes.
const maxCertificates = 4 << 20
