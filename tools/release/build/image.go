package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageUser is the user and the group in the image. It has no other rights than those of everyone.
const imageUser = 65532

// writeImage writes the image of all Linux builds, an archive of an OCI image layout
// (https://github.com/opencontainers/image-spec/blob/main/image-layout.md). Without a Linux build
// it writes nothing.
func (r *release) writeImage() error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	found := false
	for _, b := range r.builds {
		if b.os != "linux" {
			continue
		}
		found = true
		image, err := r.image(b)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: b.os, Architecture: b.arch}},
		})
	}
	if !found {
		return nil
	}
	dir := filepath.Join(r.work, "image")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.source.version})); err != nil {
		return err
	}
	f, err := r.create(fmt.Sprintf("mcpwire_%s_image.tar", r.source.version))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := writeTarOf(f, dir, r.source.date); err != nil {
		return err
	}
	return f.Close()
}

// image returns the image of one build.
func (r *release) image(b *build) (v1.Image, error) {
	data, err := r.imageLayer(b)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	s := r.source
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: s.date}, CreatedBy: "mcpwire tools/release/build"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = b.os, b.arch
	config.Created = v1.Time{Time: s.date}
	config.Config = v1.Config{
		User:       fmt.Sprintf("%d:%d", imageUser, imageUser),
		Env:        []string{"PATH=/usr/bin", "HOME=/home/mcpwire"},
		WorkingDir: "/home/mcpwire",
		Entrypoint: []string{"/usr/bin/mcpwire"},
		Cmd:        []string{"help"},
		Labels: map[string]string{
			"org.opencontainers.image.title": "mcpwire", "org.opencontainers.image.description": summary,
			"org.opencontainers.image.version": s.version, "org.opencontainers.image.revision": s.commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

// imageLayer returns the file system of the image as a tar archive: the program, its licenses, the
// roots that TLS trusts, a home folder and /tmp.
func (r *release) imageLayer(b *build) ([]byte, error) {
	program, err := os.ReadFile(b.binary)
	if err != nil {
		return nil, err
	}
	license, err := os.ReadFile(filepath.Join(r.source.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	var roots bytes.Buffer
	for root := range bundle.Roots() {
		// A root with a constraint is trusted only for some names or dates. A file cannot say so.
		if root.Constraint == nil {
			if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
				return nil, err
			}
		}
	}
	passwd := fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nmcpwire:x:%[1]d:%[1]d:mcpwire:/home/mcpwire:/sbin/nologin\n", imageUser)
	group := fmt.Sprintf("root:x:0:\nmcpwire:x:%d:\n", imageUser)

	var out bytes.Buffer
	w := tar.NewWriter(&out)
	add := func(name string, mode int64, owner int, data []byte) {
		h := &tar.Header{Name: name, Mode: mode, Uid: owner, Gid: owner, Size: int64(len(data)), ModTime: r.source.date, Format: tar.FormatPAX, Typeflag: tar.TypeReg}
		if data == nil {
			h.Typeflag = tar.TypeDir
		}
		if err == nil {
			err = w.WriteHeader(h)
		}
		if err == nil {
			_, err = w.Write(data)
		}
	}
	for _, dir := range []string{"etc/", "etc/ssl/", "etc/ssl/certs/", "home/", "usr/", "usr/bin/", "usr/share/", "usr/share/doc/", "usr/share/doc/mcpwire/"} {
		add(dir, 0o755, 0, nil)
	}
	add("tmp/", 0o1777, 0, nil)
	add("home/mcpwire/", 0o700, imageUser, nil)
	add("etc/passwd", 0o644, 0, []byte(passwd))
	add("etc/group", 0o644, 0, []byte(group))
	add("etc/ssl/certs/ca-certificates.crt", 0o644, 0, roots.Bytes())
	add("usr/bin/mcpwire", 0o755, 0, program)
	add("usr/share/doc/mcpwire/LICENSE", 0o644, 0, license)
	add("usr/share/doc/mcpwire/THIRD_PARTY_LICENSES", 0o644, 0, b.licenses)
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

// writeTarOf writes the files of a folder as a tar archive, in the order of their names.
func writeTarOf(w io.Writer, dir string, date time.Time) error {
	archive := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		h := &tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(data)), ModTime: date, Format: tar.FormatPAX}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		_, err = archive.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return archive.Close()
}
