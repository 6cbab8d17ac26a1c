package hosts

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// IsTrusted reports whether [Trust] has recorded the entry in its present form. A change of what it
// runs, where, or which variables and headers it passes needs new trust, and so does a copy of the
// project in another folder. The entry must be one that [Resolve] returned, not expanded.
func IsTrusted(e *Env, s Server) bool {
	path, err := trustPath(e, s)
	if err != nil {
		return false
	}
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}

// Trust records that the user agreed to use the entry, which must be one that [Resolve] returned,
// not expanded. It is safe for concurrent use, also by several processes. It returns ErrNoState or
// a file system error.
func Trust(e *Env, s Server) error {
	path, err := trustPath(e, s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	// The text is for people who look into the folder. Only the file name counts.
	err = writeNew(path, []byte(quoteName(s.Name)+" of "+s.File+"\n"), 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// trustPath returns the file that exists if the user trusts the entry.
func trustPath(e *Env, s Server) (string, error) {
	dir := e.State()
	if dir == "" {
		return "", ErrNoState
	}
	digest, err := s.digest(e)
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(dir), "state", "trusted", digest), nil
}

// digest returns a hash of the entry's effects. It hashes references unexpanded, so that a renewed
// token changes nothing. For an EnvFile inside the project it hashes the content, because the
// author of the entry may change that too.
func (s Server) digest(e *Env) (string, error) {
	project, err := filepath.EvalSymlinks(s.Project)
	if err != nil {
		return "", fmt.Errorf("find the project's folder: %w", err)
	}
	entry := struct {
		Project, Host     string
		Transport         Transport
		Command           string
		Args              []string
		Env               map[string]string
		EnvFile, Cwd, URL string
		Headers           map[string]string
		FromFile          map[string]string
	}{project, s.Host, s.Transport, s.Command, s.Args, s.Env, s.EnvFile, s.Cwd, s.URL, s.Headers, nil}
	if s.EnvFile != "" {
		x := expander{env: e, server: &s}
		if path := x.path(x.value("envFile", s.EnvFile)); isWithin(path, s.Project) {
			if entry.FromFile, err = ReadEnvFile(path); err != nil {
				return "", err
			}
		}
	}
	text, err := json.Marshal(entry)
	if err != nil {
		return "", err
	}
	return hash(text), nil
}
