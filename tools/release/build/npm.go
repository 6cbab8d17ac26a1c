package main

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"path/filepath"
)

// npmSystems and npmProcessors are npm's words for those of Go.
var (
	npmSystems    = map[string]string{"linux": "linux", "darwin": "darwin", "windows": "win32", "freebsd": "freebsd"}
	npmProcessors = map[string]string{"amd64": "x64", "arm64": "arm64"}
)

// launcher is the program of the npm package. It runs the one for its system.
//
//go:embed npm/mcpwire.js
var launcher []byte

//go:embed npm/README.md
var npmReadme []byte

// An npmManifest is a package.json.
type npmManifest struct {
	Name        string            `json:"name"`
	Version     string            `json:"version"`
	Description string            `json:"description"`
	License     string            `json:"license"`
	Bin         map[string]string `json:"bin,omitempty"`
	OS          []string          `json:"os,omitempty"`
	CPU         []string          `json:"cpu,omitempty"`
	Engines     map[string]string `json:"engines,omitempty"`
	Optional    map[string]string `json:"optionalDependencies,omitempty"`
	Preferred   bool              `json:"preferUnplugged,omitempty"`
	Keywords    []string          `json:"keywords,omitempty"`
}

// writeNPM writes the npm packages: one for each target with the program in it, and the one that
// users install, which has all of them as optional dependencies. npm installs the one that fits.
// No package has an install script, so they work where scripts are off.
func (r *release) writeNPM() error {
	main := npmManifest{
		Name: "mcpwire", Version: r.source.version, Description: summary, License: "Apache-2.0",
		Bin:      map[string]string{"mcpwire": "bin/mcpwire.js"},
		Engines:  map[string]string{"node": ">=18"},
		Optional: make(map[string]string),
		Keywords: []string{"mcp", "model-context-protocol", "debug", "proxy"},
	}
	license := file{name: "LICENSE", path: filepath.Join(r.source.root, "LICENSE")}
	for _, b := range r.builds {
		system, processor := npmSystems[b.os], npmProcessors[b.arch]
		if system == "" || processor == "" {
			return fmt.Errorf("npm has no word for %s", b.target)
		}
		m := npmManifest{
			Name: "@mcpwire/" + system + "-" + processor, Version: r.source.version,
			Description: "the program mcpwire for " + b.String(), License: "Apache-2.0",
			OS: []string{system}, CPU: []string{processor}, Preferred: true,
		}
		main.Optional[m.Name] = m.Version
		err := r.writeNPMPackage("mcpwire-"+system+"-"+processor, m,
			file{name: "bin/" + b.program(), path: b.binary, executable: true}, license, file{name: "THIRD_PARTY_LICENSES", data: b.licenses})
		if err != nil {
			return err
		}
	}
	return r.writeNPMPackage("mcpwire", main,
		file{name: "bin/mcpwire.js", data: launcher, executable: true}, license, file{name: "README.md", data: npmReadme})
}

// writeNPMPackage writes an npm package, as npm pack does.
func (r *release) writeNPMPackage(name string, m npmManifest, files ...file) error {
	manifest, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	f, err := r.create(fmt.Sprintf("%s-%s.tgz", name, r.source.version))
	if err != nil {
		return err
	}
	defer f.Close()
	files = append([]file{{name: "package.json", data: append(manifest, '\n')}}, files...)
	if err := writeTarGzip(f, "package", files, r.source.date); err != nil {
		return err
	}
	return f.Close()
}
