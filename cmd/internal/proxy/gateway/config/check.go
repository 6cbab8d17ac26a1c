package config

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Check reports what a valid configuration needs and this machine does not have: environment
// variables, files, folders and programs. It ignores disabled upstreams, and starts and connects
// nothing.
func (c *Config) Check() Errors {
	var found Errors
	add := func(path, format string, args ...any) {
		found = append(found, c.Errorf(path, format, args...))
	}
	disabled := func(path string) bool {
		for _, u := range c.Upstreams {
			if u.Disabled && strings.HasPrefix(path, join("upstreams", u.Name)+".") {
				return true
			}
		}
		return false
	}
	for _, r := range c.file.references {
		if disabled(r.path) {
			continue
		}
		if _, err := r.Resolve(); err != nil {
			add(r.path, "%s: %v", r.path, err)
		}
	}
	if _, err := c.Secrets(); err != nil && len(found) == 0 {
		if one, ok := errors.AsType[*Error](err); ok {
			found = append(found, one)
		}
	}
	for _, p := range c.file.paths {
		if disabled(p.path) {
			continue
		}
		if info, err := os.Stat(p.File); err != nil {
			add(p.path, "%s: %v", p.path, err)
		} else if !info.Mode().IsRegular() {
			add(p.path, "%s: %s is not a file", p.path, p.File)
		}
	}
	for _, u := range c.Upstreams {
		path := join("upstreams", u.Name)
		if u.Disabled {
			continue
		}
		if u.Cwd != "" {
			if info, err := os.Stat(u.Cwd); err != nil || !info.IsDir() {
				add(path+".cwd", "%s.cwd: %s is not a folder", path, u.Cwd)
			}
		}
		if len(u.Command) > 0 {
			if err := findProgram(u.Command[0], u.Cwd); err != nil {
				add(path+".command", "%s.command: %v", path, err)
			}
		}
		if !u.URL.Reference.IsZero() {
			if text, err := u.URL.Resolve(); err == nil {
				if parsed, err := url.Parse(text); err != nil || parsed.Host == "" || parsed.Scheme != "https" && parsed.Scheme != "http" {
					add(path+".url", "%s.url: the text of %s is not a URL", path, u.URL.Reference)
				}
			}
		}
	}
	found.sort()
	return found
}

// minKey is the least number of bytes of a key.
const minKey = 32

// Secrets returns the values of Keys, or nil without Keys. An error is an [*Error].
func (c *Config) Secrets() (secrets [][]byte, err error) {
	for i, key := range c.Keys {
		path := fmt.Sprintf("keys[%d]", i)
		text, err := key.Resolve()
		if err != nil {
			return nil, c.Errorf(path, "%s: %v", path, err)
		}
		secret, err := base64.StdEncoding.DecodeString(text.Reveal())
		if err != nil || len(secret) < minKey {
			return nil, c.Errorf(path, "%s: want %d random bytes or more in base64, as openssl rand -base64 %d writes", path, minKey, minKey)
		}
		secrets = append(secrets, secret)
	}
	return secrets, nil
}

// findProgram returns an error unless a program can be run in a folder.
func findProgram(program, cwd string) error {
	if !strings.ContainsRune(program, filepath.Separator) && !strings.Contains(program, "/") {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("the program %s is not in the PATH: install it, or use its full path", program)
		}
		return nil
	}
	path, err := filepath.Abs(below(cwd, program))
	if err == nil {
		_, err = exec.LookPath(path)
	}
	if err != nil {
		return fmt.Errorf("%s is not a program that can be run: %w", program, err)
	}
	return nil
}
