package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseTargets(t *testing.T) {
	for _, tt := range []struct {
		list, want string // want is empty for an error
	}{
		{"linux/amd64", "linux/amd64"},
		{"linux/amd64,windows/arm64", "linux/amd64 windows/arm64"},
		{"", ""}, {"linux", ""}, {"linux/", ""}, {"/amd64", ""}, {"linux/amd64,", ""},
	} {
		got, err := parseTargets(tt.list)
		var names []string
		for _, target := range got {
			names = append(names, target.String())
		}
		if got := strings.Join(names, " "); got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("parseTargets(%q) = %q, %v; want %q", tt.list, got, err, tt.want)
		}
	}
	if all, err := parseTargets("all"); err != nil || len(all) != 8 {
		t.Errorf("all targets: %v, %v; want 8", all, err)
	}
}

func TestVersions(t *testing.T) {
	for version, want := range map[string]bool{
		"0.1.0": true, "1.20.3": true, "1.0.0-rc.1": true, "1.0.0-beta.12": true,
		"": false, "1": false, "1.2": false, "01.2.3": false, "1.2.3-": false, "1.2.3+x": false, "1.2.3-rc1": false, "1.2.3 ": false,
	} {
		if got := semver.MatchString(version); got != want {
			t.Errorf("version %q: accepted %v, want %v", version, got, want)
		}
	}
}

func TestLinuxPath(t *testing.T) {
	for _, tt := range []struct{ format, name, want string }{
		{"deb", "mcpwire", "/usr/bin/mcpwire"},
		{"deb", "LICENSE", "/usr/share/doc/mcpwire/copyright"},
		{"deb", "THIRD_PARTY_LICENSES", "/usr/share/doc/mcpwire/THIRD_PARTY_LICENSES"},
		{"deb", "man/mcpwire-tap.1", "/usr/share/man/man1/mcpwire-tap.1.gz"},
		{"deb", "completions/_mcpwire", "/usr/share/zsh/vendor-completions/_mcpwire"},
		{"rpm", "completions/_mcpwire", "/usr/share/zsh/site-functions/_mcpwire"},
		{"apk", "completions/_mcpwire", "/usr/share/zsh/site-functions/_mcpwire"},
		{"apk", "completions/mcpwire.ps1", ""},
	} {
		if got, err := linuxPath(tt.format, tt.name); got != tt.want || err != nil {
			t.Errorf("linuxPath(%q, %q) = %q, %v; want %q", tt.format, tt.name, got, err, tt.want)
		}
	}
	if got, err := linuxPath("deb", "completions/other"); err == nil {
		t.Errorf("a file without a place has %q", got)
	}
}

// TestLicenseTexts shows that a module without a license is not distributed.
func TestLicenseTexts(t *testing.T) {
	with, without := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(with, "LICENSE-MIT.txt"): "do what you want\n",
		filepath.Join(with, "NOTICE"):          "written by us\n",
		filepath.Join(with, "license.go"):      "package license\n",
		filepath.Join(without, "README"):       "hello\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	s := &source{goVersion: "go1.26.0", goRoot: with}
	got, err := licenseTexts(s, []linkedModule{{path: "example.com/m", version: "v1.0.0", dir: with}})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]int{"do what you want": 2, "written by us": 2, "example.com/m v1.0.0: NOTICE": 1, "Go 1.26.0: LICENSE-MIT.txt": 1, "package license": 0} {
		if n := strings.Count(string(got), text); n != want {
			t.Errorf("%q is there %d times, want %d, in:\n%s", text, n, want, got)
		}
	}
	if _, err := licenseTexts(s, []linkedModule{{path: "example.com/n", version: "v1.0.0", dir: without}}); err == nil || !strings.Contains(err.Error(), "example.com/n") {
		t.Errorf("a module without a license: %v", err)
	}
}

// TestVocabularyLicense shows that the data of other authors has a license too.
func TestVocabularyLicense(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	s := &source{goVersion: "go1.26.0", goRoot: root, root: root}
	got, err := licenseTexts(s, []linkedModule{vocabulary(s)})
	if err != nil {
		t.Fatal(err)
	}
	if want := "o200k_base of tiktoken 0.14.0: LICENSE\n\nMIT License\n\nCopyright (c) 2022 OpenAI"; !strings.Contains(string(got), want) {
		t.Errorf("the license texts lack %q", want)
	}
}

// TestTarGzip shows that an archive depends on its files and the date alone.
func TestTarGzip(t *testing.T) {
	files := []file{{name: "a/b", data: []byte("text")}, {name: "mcpwire", data: []byte("program"), executable: true}}
	date := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var one, two bytes.Buffer
	for _, w := range []io.Writer{&one, &two} {
		if err := writeTarGzip(w, "folder", files, date); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Error("two archives of the same files differ")
	}
	decompressed, err := gzip.NewReader(&one)
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(decompressed)
	for _, want := range []struct {
		name, text string
		mode       int64
	}{{"folder/a/b", "text", 0o644}, {"folder/mcpwire", "program", 0o755}} {
		h, err := archive.Next()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if h.Name != want.name || string(text) != want.text || h.Mode != want.mode || !h.ModTime.Equal(date) || h.Uid != 0 {
			t.Errorf("got %q %q %o %v of %d; want %q %q %o %v of 0", h.Name, text, h.Mode, h.ModTime, h.Uid, want.name, want.text, want.mode, date)
		}
	}
	if _, err := archive.Next(); err != io.EOF {
		t.Errorf("after the last file: %v", err)
	}
}

// TestManifests shows that the formula and the manifest name each archive with its digest, and
// that a release without one of the systems has neither.
func TestManifests(t *testing.T) {
	r := &release{source: &source{version: "1.2.3"}}
	if _, err := r.formula("https://example.com"); err == nil {
		t.Error("a formula without archives")
	}
	if _, err := r.scoop("https://example.com"); err == nil {
		t.Error("a Scoop manifest without archives")
	}
	for _, target := range targets {
		r.builds = append(r.builds, &build{target: target, archive: target.os + target.arch, digest: "digest-of-" + target.os + target.arch})
	}
	formula, err := r.formula("https://example.com")
	if err != nil {
		t.Fatal(err)
	}
	scoop, err := r.scoop("https://example.com")
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range targets {
		text := formula
		switch target.os {
		case "windows":
			text = scoop
		case "freebsd":
			continue // Homebrew and Scoop do not know it
		}
		name := target.os + target.arch
		if !strings.Contains(text, `"https://example.com/`+name+`"`) || !strings.Contains(text, `"digest-of-`+name+`"`) {
			t.Errorf("%s is not in:\n%s", target, text)
		}
	}
}
