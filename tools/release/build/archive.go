package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A file is one entry of an archive or a package.
type file struct {
	// name is the path in the archive, with slashes.
	name string
	// path is that of the contents on disk. If it is empty, data are the contents.
	path string
	data []byte
	// executable is set for programs.
	executable bool
}

// contents returns the contents of the file.
func (f file) contents() ([]byte, error) {
	if f.path == "" {
		return f.data, nil
	}
	return os.ReadFile(f.path)
}

// mode returns the permissions of the file.
func (f file) mode() int64 {
	if f.executable {
		return 0o755
	}
	return 0o644
}

// shells have completion scripts, in files with the names that the shells look for.
var shells = []struct{ name, file string }{
	{"bash", "mcpwire.bash"}, {"zsh", "_mcpwire"}, {"fish", "mcpwire.fish"}, {"powershell", "mcpwire.ps1"},
}

// prepareExtras collects what each archive has in addition to the program: the license, the README,
// the manual pages and the completion scripts. A program for this machine writes the last two.
func (r *release) prepareExtras(ctx context.Context) error {
	for _, name := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		r.extras = append(r.extras, file{name: name, path: filepath.Join(r.source.root, name)})
	}
	host, err := r.source.output(ctx, "go", "env", "GOHOSTOS", "GOHOSTARCH")
	if err != nil {
		return err
	}
	goos, arch, _ := strings.Cut(host, "\n")
	program := filepath.Join(r.work, "host", target{goos, arch}.program())
	if err := r.source.compile(ctx, target{goos, arch}, program); err != nil {
		return err
	}
	man := filepath.Join(r.work, "man")
	if _, err := r.source.output(ctx, program, "man", man); err != nil {
		return err
	}
	pages, err := os.ReadDir(man)
	if err != nil {
		return err
	}
	for _, page := range pages {
		r.extras = append(r.extras, file{name: "man/" + page.Name(), path: filepath.Join(man, page.Name())})
	}
	for _, shell := range shells {
		script, err := r.source.output(ctx, program, "completion", shell.name)
		if err != nil {
			return err
		}
		r.extras = append(r.extras, file{name: "completions/" + shell.file, data: []byte(script + "\n")})
	}
	return nil
}

// files returns all files of a build's archive.
func (r *release) files(b *build) []file {
	return append(slices.Clone(r.extras),
		file{name: b.program(), path: b.binary, executable: true},
		file{name: "THIRD_PARTY_LICENSES", data: b.licenses})
}

// writeArchive writes the archive of a build: zip for Windows, tar.gz for other systems.
func (r *release) writeArchive(b *build) error {
	name := fmt.Sprintf("mcpwire_%s_%s_%s", r.source.version, b.os, b.arch)
	write, extension := writeTarGzip, ".tar.gz"
	if b.os == "windows" {
		write, extension = writeZip, ".zip"
	}
	b.archive = name + extension
	f, err := r.create(b.archive)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := write(f, name, r.files(b), r.source.date); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	b.digest, _, err = digestFile(f.Name())
	return err
}

// writeTarGzip writes files below a folder as a compressed tar archive. All files have one time
// and belong to root.
func writeTarGzip(w io.Writer, folder string, files []file, date time.Time) error {
	compressed, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		data, err := f.contents()
		if err != nil {
			return err
		}
		if err := archive.WriteHeader(&tar.Header{Name: folder + "/" + f.name, Mode: f.mode(), Size: int64(len(data)), ModTime: date, Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := archive.Write(data); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

// writeZip writes files below a folder as a zip archive. All files have one time.
func writeZip(w io.Writer, folder string, files []file, date time.Time) error {
	archive := zip.NewWriter(w)
	for _, f := range files {
		data, err := f.contents()
		if err != nil {
			return err
		}
		h := &zip.FileHeader{Name: folder + "/" + f.name, Method: zip.Deflate, Modified: date}
		h.SetMode(os.FileMode(f.mode()))
		entry, err := archive.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := entry.Write(data); err != nil {
			return err
		}
	}
	return archive.Close()
}
