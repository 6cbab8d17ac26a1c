package main

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"
)

// writeSBOM writes the bill of materials of a build, in CycloneDX's JSON form
// (https://cyclonedx.org): the program, Go's library, and each linked module.
func (r *release) writeSBOM(b *build, modules []linkedModule) error {
	digest, _, err := digestFile(b.binary)
	if err != nil {
		return err
	}
	s := r.source
	bom := cyclonedx.NewBOM()
	bom.SerialNumber = serialNumber(digest)
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: s.date.Format("2006-01-02T15:04:05Z"),
		Component: &cyclonedx.Component{
			BOMRef: "mcpwire", Type: cyclonedx.ComponentTypeApplication, Name: "mcpwire", Version: s.version,
			PackageURL: fmt.Sprintf("pkg:golang/%s@v%s?goos=%s&goarch=%s", s.module, s.version, b.os, b.arch),
			Hashes:     &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: digest}},
			Licenses:   &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
			Properties: &[]cyclonedx.Property{{Name: "vcs.revision", Value: s.commit}},
		},
	}
	library := strings.TrimPrefix(s.goVersion, "go")
	components := []cyclonedx.Component{{
		BOMRef: "std", Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: library,
		PackageURL: "pkg:golang/std@" + library,
	}}
	dependencies := []string{"std"}
	for _, m := range modules {
		c := cyclonedx.Component{
			BOMRef: m.path, Type: cyclonedx.ComponentTypeLibrary, Name: m.path, Version: m.version,
			PackageURL: "pkg:golang/" + m.path + "@" + m.version,
		}
		// The sum of a module is a hash over the hashes of its files.
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.sum, "h1:")); err == nil && len(sum) == sha256.Size {
			c.Properties = &[]cyclonedx.Property{{Name: "go.sum", Value: m.sum}}
		}
		components = append(components, c)
		dependencies = append(dependencies, m.path)
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: "mcpwire", Dependencies: &dependencies}}

	f, err := r.create(fmt.Sprintf("mcpwire_%s_%s_%s.cdx.json", s.version, b.os, b.arch))
	if err != nil {
		return err
	}
	defer f.Close()
	if err := cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return err
	}
	return f.Close()
}

// serialNumber returns the serial number of a bill of materials: a UUID that depends only on the
// program, so that two builds have the same.
func serialNumber(digest string) string {
	id := sha256.Sum256([]byte("mcpwire bill of materials\x00" + digest))
	id[6] = id[6]&0x0f | 0x80 // version 8, custom
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
}
