package config

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"mcpwire/auth"
	"mcpwire/internal/proc/environ"
	"mcpwire/internal/text/lazyregexp"
	"mcpwire/stdio"
)

// A Duration is a time such as 500ms, 10s or 5m. Zero means that the file has none.
type Duration time.Duration

// Or returns the time, or other if the file has none.
func (d Duration) Or(other time.Duration) time.Duration {
	if d == 0 {
		return other
	}
	return time.Duration(d)
}

// parseDuration parses a Duration.
func parseDuration(s string) (Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("want a time with a unit, such as 500ms, 10s or 5m")
	}
	return Duration(d), nil
}

// A Size is a number of bytes, such as 65536, 64K or 16M. Zero means that the file has none.
type Size int

// size matches a Size.
var size = lazyregexp.New(`^([0-9]{1,15})([KMG]?)$`)

// parseSize parses a Size.
func parseSize(s string) (Size, error) {
	m := size().FindStringSubmatch(s)
	if m == nil {
		return 0, fmt.Errorf("want a number of bytes, such as 65536, 64K or 16M")
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	shift := map[string]int{"": 0, "K": 10, "M": 20, "G": 30}[m[2]]
	if err != nil || n > math.MaxInt>>shift {
		return 0, fmt.Errorf("the number is too large")
	}
	return Size(n << shift), nil
}

// A Path is a path of a file, relative to the folder of the configuration. It may begin with file:.
type Path string

// A Texts is a list of texts. The file may have a single text instead.
type Texts []string

// Values are texts or references, by name.
type Values map[string]Value

// A Value is a text, or a reference to one. Zero means that the file has none.
type Value struct {
	// Text is the text. It is empty for a reference.
	Text string
	// Reference is the reference. It is zero for a text.
	Reference Reference
}

// IsZero reports whether the file has no value.
func (v Value) IsZero() bool { return v == Value{} }

// A Reference says where a secret is: in an environment variable (env:NAME) or in a file
// (file:PATH). Zero means that the file has none.
type Reference struct {
	// Env is the name of the variable. It is empty for a file.
	Env string
	// File is the path, which [Load] makes absolute or relative to the working directory. It is
	// empty for a variable.
	File string
}

// IsZero reports whether there is no reference.
func (r Reference) IsZero() bool { return r == Reference{} }

// String returns the reference as in a configuration. It is not secret.
func (r Reference) String() string {
	switch {
	case r.Env != "":
		return "env:" + r.Env
	case r.File != "":
		return "file:" + r.File
	}
	return ""
}

// maxSecret limits the size of a file with a secret, in bytes.
const maxSecret = 64 << 10

// Resolve returns the secret. It removes white space around the content of a file. An empty secret
// is an error.
func (r Reference) Resolve() (auth.Secret, error) {
	text := ""
	switch {
	case r.Env != "":
		v, ok := os.LookupEnv(r.Env)
		if !ok {
			return auth.Secret{}, fmt.Errorf("the environment variable %s is not set", r.Env)
		}
		text = v
	case r.File != "":
		v, err := readLimited(r.File, maxSecret)
		if err != nil {
			return auth.Secret{}, err
		}
		text = strings.TrimSpace(string(v))
	}
	switch {
	case text == "":
		return auth.Secret{}, fmt.Errorf("%s is empty", r)
	case !utf8.ValidString(text):
		return auth.Secret{}, fmt.Errorf("%s is not UTF-8", r)
	}
	return auth.NewSecret(text), nil
}

// Resolve returns the text, or that of the reference.
func (v Value) Resolve() (string, error) {
	if v.Reference.IsZero() {
		return v.Text, nil
	}
	secret, err := v.Reference.Resolve()
	return secret.Reveal(), err
}

// secretVariables returns the names of variables with secrets of the gateway: those that references
// of the file name, and those with the headers for a collector of spans. A variable that every
// program gets is not one of them, wherever a reference names it.
func (c *Config) secretVariables() []string {
	list := []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_METRICS_HEADERS", "OTEL_EXPORTER_OTLP_LOGS_HEADERS"}
	common := slices.DeleteFunc(stdio.MinimalEnv(), func(name string) bool { return strings.HasSuffix(name, "*") })
	for _, r := range c.file.references {
		if r.Env != "" && !environ.Match(r.Env, common) {
			list = append(list, r.Env)
		}
	}
	return list
}

// Inherited returns the names of the variables that the command of an upstream inherits from the
// gateway.
func (c *Config) Inherited(u *Upstream) []string {
	return environ.Names(slices.Concat(stdio.MinimalEnv(), u.Inherit), c.secretVariables())
}

// readLimited reads a file of at most limit bytes.
func readLimited(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s: more than %d KiB", path, limit>>10)
	}
	return data, err
}

// variableName matches the name of an environment variable.
var variableName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// parseReference parses env:NAME and file:PATH. isReference reports whether s has one of the
// prefixes.
func parseReference(s string) (r Reference, isReference bool, err error) {
	if name, ok := strings.CutPrefix(s, "env:"); ok {
		if !variableName().MatchString(name) {
			return r, true, fmt.Errorf("env: is followed by the name of a variable, such as env:API_KEY")
		}
		return Reference{Env: name}, true, nil
	}
	if path, ok := strings.CutPrefix(s, "file:"); ok {
		if path == "" {
			return r, true, fmt.Errorf("file: is followed by a path, such as file:/run/secrets/key")
		}
		return Reference{File: path}, true, nil
	}
	return r, false, nil
}

// below returns a path relative to dir, unless it is absolute or empty.
func below(dir, path string) string {
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
