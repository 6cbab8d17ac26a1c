package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/apk" // apk packages
	_ "github.com/goreleaser/nfpm/v2/deb" // deb packages
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm" // rpm packages
)

// writeLinuxPackages writes the packages of a build for Debian, Fedora and Alpine, and those that
// derive from them.
func (r *release) writeLinuxPackages(b *build) error {
	for _, format := range []string{"deb", "rpm", "apk"} {
		contents, err := r.linuxContents(b, format)
		if err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
		if err := r.writeLinuxPackage(b, format, contents); err != nil {
			return fmt.Errorf("%s: %w", format, err)
		}
	}
	return nil
}

// linuxContents returns the files of a package in a format, by their paths on the system.
func (r *release) linuxContents(b *build, format string) (files.Contents, error) {
	var contents files.Contents
	add := func(destination, source string, executable bool) {
		info := &files.ContentFileInfo{Owner: "root", Group: "root", Mode: os.FileMode(file{executable: executable}.mode()), MTime: r.source.date}
		contents = append(contents, &files.Content{Source: source, Destination: destination, FileInfo: info})
	}
	for _, f := range r.files(b) {
		destination, err := linuxPath(format, f.name)
		if err != nil {
			return nil, err
		}
		if destination == "" {
			continue
		}
		data, err := f.contents()
		if err != nil {
			return nil, err
		}
		if strings.HasPrefix(f.name, "man/") {
			if data, err = compressPage(data); err != nil {
				return nil, err
			}
		}
		source := filepath.Join(r.work, b.os+"-"+b.arch, "files", filepath.FromSlash(destination))
		if err := os.MkdirAll(filepath.Dir(source), 0o777); err != nil {
			return nil, err
		}
		if err := os.WriteFile(source, data, 0o666); err != nil {
			return nil, err
		}
		add(destination, source, f.executable)
	}
	return contents, nil
}

// linuxPath returns the path on a Linux system of a file of the archive, or "" for a file that
// packages leave out. The format of the package stands for the system.
func linuxPath(format, name string) (string, error) {
	switch dir, base := path.Split(name); {
	case name == "mcpwire":
		return "/usr/bin/mcpwire", nil
	case name == "LICENSE":
		return "/usr/share/doc/mcpwire/copyright", nil
	case dir == "":
		return "/usr/share/doc/mcpwire/" + base, nil
	case dir == "man/":
		return "/usr/share/man/man1/" + base + ".gz", nil
	case base == "mcpwire.bash":
		return "/usr/share/bash-completion/completions/mcpwire", nil
	case base == "_mcpwire" && format == "deb":
		return "/usr/share/zsh/vendor-completions/_mcpwire", nil
	case base == "_mcpwire":
		return "/usr/share/zsh/site-functions/_mcpwire", nil
	case base == "mcpwire.fish":
		return "/usr/share/fish/vendor_completions.d/mcpwire.fish", nil
	case base == "mcpwire.ps1":
		return "", nil
	}
	return "", fmt.Errorf("no place on Linux is known for the file %s", name)
}

// compressPage compresses a manual page, without a time.
func compressPage(page []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(page); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// writeLinuxPackage writes a package in one format.
func (r *release) writeLinuxPackage(b *build, format string, contents files.Contents) error {
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	info := nfpm.WithDefaults(&nfpm.Info{
		Name: "mcpwire", Arch: b.arch, Platform: b.os, Version: r.source.version, VersionSchema: "semver", Release: "1",
		Section: "devel", Priority: "optional", Maintainer: "the authors of mcpwire", Vendor: "mcpwire",
		Description: summary + "\nmcpwire taps, records, shows, checks, replays and bridges the traffic of the\nModel Context Protocol.",
		License:     "Apache-2.0", MTime: r.source.date,
		Overridables: nfpm.Overridables{Contents: contents, RPM: nfpm.RPM{BuildHost: "localhost", Group: "Development/Tools"}},
	})
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	f, err := r.create(packager.ConventionalFileName(info))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := packager.Package(info, f); err != nil {
		return err
	}
	return f.Close()
}

// summary says in one line what the program is, in all packages.
const summary = "read, debug and connect servers of the Model Context Protocol"
