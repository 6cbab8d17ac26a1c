package main

import (
	"context"
	"fmt"
	"os"
	"strings"
)

// A target is a system and a processor that the program is built for, in Go's words.
type target struct{ os, arch string }

// targets are those of a release.
var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"},
	{"darwin", "amd64"}, {"darwin", "arm64"},
	{"windows", "amd64"}, {"windows", "arm64"},
	{"freebsd", "amd64"}, {"freebsd", "arm64"},
}

func (t target) String() string { return t.os + "/" + t.arch }

// program returns the file name of the program.
func (t target) program() string {
	if t.os == "windows" {
		return "mcpwire.exe"
	}
	return "mcpwire"
}

// parseTargets parses a list such as linux/amd64,darwin/arm64. "all" means targets.
func parseTargets(list string) ([]target, error) {
	if list == "all" {
		return targets, nil
	}
	var parsed []target
	for name := range strings.SplitSeq(list, ",") {
		goos, arch, found := strings.Cut(name, "/")
		if !found || goos == "" || arch == "" {
			return nil, fmt.Errorf("target %q: want a system and a processor, such as linux/amd64", name)
		}
		parsed = append(parsed, target{goos, arch})
	}
	return parsed, nil
}

// compile builds the program for a target: without a C library, without paths of this machine,
// and without symbols.
func (s *source) compile(ctx context.Context, t target, path string) error {
	const vars = "/internal/build."
	ldflags := fmt.Sprintf("-s -w -buildid= -X %[1]sversion=%[2]s -X %[1]scommit=%[3]s -X %[1]sdate=%[4]s",
		s.module+vars, s.version, s.commit, s.date.Format("2006-01-02"))
	cmd := s.command(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", path, "./cmd/mcpwire")
	cmd.Env = append(cmd.Env, "CGO_ENABLED=0", "GOFLAGS=", "GOOS="+t.os, "GOARCH="+t.arch, "GOAMD64=v1", "GOARM64=v8.0")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}
	return nil
}
