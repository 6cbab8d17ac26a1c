package main

import (
	"encoding/json"
	"fmt"
	"strings"
)

// writeManifests writes the Homebrew formula and the Scoop manifest. download is the URL of the
// folder that will have the archives.
func (r *release) writeManifests(download string) error {
	formula, err := r.formula(download)
	if err != nil {
		return fmt.Errorf("homebrew: %w", err)
	}
	if err := r.writeText("mcpwire.rb", formula); err != nil {
		return err
	}
	manifest, err := r.scoop(download)
	if err != nil {
		return fmt.Errorf("scoop: %w", err)
	}
	return r.writeText("mcpwire.scoop.json", manifest)
}

func (r *release) writeText(name, text string) error {
	f, err := r.create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		return err
	}
	return f.Close()
}

// formula returns the Homebrew formula (https://docs.brew.sh/Formula-Cookbook).
func (r *release) formula(download string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "class Mcpwire < Formula\n  desc %q\n  homepage %q\n  version %q\n  license \"Apache-2.0\"\n", capitalize(summary), download, r.source.version)
	for _, system := range []struct{ block, os string }{{"macos", "darwin"}, {"linux", "linux"}} {
		fmt.Fprintf(&b, "\n  on_%s do\n", system.block)
		for _, processor := range []struct{ block, arch string }{{"arm", "arm64"}, {"intel", "amd64"}} {
			build := r.find(system.os, processor.arch)
			if build == nil {
				return "", fmt.Errorf("the release lacks %s/%s", system.os, processor.arch)
			}
			fmt.Fprintf(&b, "    on_%s do\n      url \"%s/%s\"\n      sha256 \"%s\"\n    end\n", processor.block, download, build.archive, build.digest)
		}
		b.WriteString("  end\n")
	}
	b.WriteString(`
  def install
    bin.install "mcpwire"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/mcpwire.bash" => "mcpwire"
    zsh_completion.install "completions/_mcpwire"
    fish_completion.install "completions/mcpwire.fish"
    doc.install "README.md", "CHANGELOG.md", "THIRD_PARTY_LICENSES"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/mcpwire version")
  end
end
`)
	return b.String(), nil
}

// A scoopManifest describes a program for Windows
// (https://github.com/ScoopInstaller/Scoop/wiki/App-Manifests).
type scoopManifest struct {
	Version      string                       `json:"version"`
	Description  string                       `json:"description"`
	License      string                       `json:"license"`
	Homepage     string                       `json:"homepage"`
	Architecture map[string]scoopArchitecture `json:"architecture"`
	Bin          string                       `json:"bin"`
}

type scoopArchitecture struct {
	URL        string `json:"url"`
	Hash       string `json:"hash"`
	ExtractDir string `json:"extract_dir"`
}

// scoop returns the Scoop manifest.
func (r *release) scoop(download string) (string, error) {
	m := scoopManifest{
		Version: r.source.version, Description: capitalize(summary), License: "Apache-2.0", Homepage: download,
		Architecture: make(map[string]scoopArchitecture), Bin: "mcpwire.exe",
	}
	for name, arch := range map[string]string{"64bit": "amd64", "arm64": "arm64"} {
		b := r.find("windows", arch)
		if b == nil {
			return "", fmt.Errorf("the release lacks windows/%s", arch)
		}
		m.Architecture[name] = scoopArchitecture{download + "/" + b.archive, b.digest, strings.TrimSuffix(b.archive, ".zip")}
	}
	text, err := json.MarshalIndent(m, "", "    ")
	return string(text) + "\n", err
}

// capitalize returns a sentence with a capital first letter, as Homebrew and Scoop want it.
func capitalize(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
