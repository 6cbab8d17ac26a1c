package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
)

// A source is the checkout that a release is made of.
type source struct {
	// root is the folder of the checkout, and module the path of the module of the program.
	root, module string
	// version is the version without a leading v.
	version string
	commit  string
	// date is the time of the commit. It is the time of all files.
	date time.Time
	// goVersion is the Go release, such as go1.26.8, and goRoot its folder.
	goVersion, goRoot string
}

// semver matches the versions that all kinds of packages accept.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-(alpha|beta|rc)\.(0|[1-9]\d*))?$`)

// checkModules returns an error if users could not get the modules of the repository in the version
// of a tag: they must require each other in it, and the commit has a tag for each of them.
func (s *source) checkModules(ctx context.Context, tag string) error {
	work, err := os.ReadFile(filepath.Join(s.root, "go.work"))
	if err != nil {
		return err
	}
	parsed, err := modfile.ParseWork("go.work", work, nil)
	if err != nil {
		return err
	}
	tags, err := s.output(ctx, "git", "tag", "--points-at", "HEAD")
	if err != nil {
		return err
	}
	main := ""
	for _, use := range parsed.Use {
		dir := path.Clean(use.Path)
		name := filepath.Join(s.root, dir, "go.mod")
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		m, err := modfile.ParseLax(name, text, nil)
		if err != nil {
			return err
		}
		if dir == "." { // the first one
			main = m.Module.Mod.Path
		} else if own := dir + "/" + tag; dir != "tools" && !slices.Contains(strings.Fields(tags), own) {
			return fmt.Errorf("the commit has no tag %s for the module in %s; README.md has the commands", own, dir)
		}
		for _, r := range m.Require {
			if v := r.Mod.Version; strings.HasPrefix(r.Mod.Path+"/", main+"/") && v != tag {
				return fmt.Errorf("%s requires %s %s: run go run ./modules require %s in tools, commit, and tag that commit", name, r.Mod.Path, v, tag)
			}
		}
	}
	return nil
}

// openSource reads what a release needs to know about a checkout. An empty version means the tag
// of the commit. It rejects a checkout with changes, since its commit would not tell what is in
// the program.
func openSource(ctx context.Context, root, version string) (*source, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	s := &source{root: root}
	status, err := s.output(ctx, "git", "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if status != "" {
		first, _, _ := strings.Cut(status, "\n")
		return nil, fmt.Errorf("%s has changes that are not committed, such as %q", root, first)
	}
	if version == "" {
		tag, err := s.output(ctx, "git", "describe", "--exact-match", "--tags", "--match", "v*")
		if err != nil {
			return nil, fmt.Errorf("the commit has no tag; tag it (git tag v0.1.0), or give a version with -version: %w", err)
		}
		version = tag
		if err := s.checkModules(ctx, tag); err != nil {
			return nil, err
		}
	}
	s.version = strings.TrimPrefix(version, "v")
	if !semver.MatchString(s.version) {
		return nil, fmt.Errorf("version %q: want three numbers, and perhaps -rc.1, -beta.1 or -alpha.1, such as 0.1.0-rc.1", version)
	}
	if s.commit, err = s.output(ctx, "git", "rev-parse", "HEAD"); err != nil {
		return nil, err
	}
	date, err := s.output(ctx, "git", "show", "-s", "--format=%cI", "HEAD")
	if err != nil {
		return nil, err
	}
	if s.date, err = time.Parse(time.RFC3339, date); err != nil {
		return nil, fmt.Errorf("the date of the commit: %w", err)
	}
	s.date = s.date.UTC()
	if s.module, err = s.output(ctx, "go", "list", "-f", "{{.Module.Path}}", "./cmd/mcpwire"); err != nil {
		return nil, err
	}
	env, err := s.output(ctx, "go", "env", "GOVERSION", "GOROOT")
	if err != nil {
		return nil, err
	}
	var found bool
	if s.goVersion, s.goRoot, found = strings.Cut(env, "\n"); !found {
		return nil, fmt.Errorf("go env printed %q", env)
	}
	return s, nil
}

// command returns a command that runs in the checkout, in its workspace.
func (s *source) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "GOWORK="+filepath.Join(s.root, "go.work"))
	return cmd
}

// output runs a command in the checkout and returns what it prints, without the last newline.
func (s *source) output(ctx context.Context, name string, args ...string) (string, error) {
	out, err := s.command(ctx, name, args...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return "", fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return strings.TrimSuffix(string(out), "\n"), nil
}
