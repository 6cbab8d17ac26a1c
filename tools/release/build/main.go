package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "build:", err)
		os.Exit(1)
	}
}

// run makes a release and writes the list of its files to stdout.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("build", flag.ContinueOnError)
	flags.SetOutput(stderr)
	root := flags.String("root", "../..", "the checkout")
	out := flags.String("out", "../../dist", "the folder for the files; it must be empty or absent")
	version := flags.String("version", "", "the version, such as 0.1.0 (default: the tag of the commit)")
	chosen := flags.String("targets", "all", "systems to build for, such as linux/amd64,darwin/arm64")
	download := flags.String("download", "", "where the archives will be, for the Homebrew formula and the Scoop manifest; without it they are not written")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	targets, err := parseTargets(*chosen)
	if err != nil {
		return err
	}
	src, err := openSource(ctx, *root, *version)
	if err != nil {
		return err
	}
	if err := makeEmpty(*out); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "mcpwire-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)

	r := &release{source: src, out: *out, work: work}
	fmt.Fprintf(stderr, "mcpwire %s, commit %.12s of %s, with %s\n", src.version, src.commit, src.date.Format("2006-01-02"), src.goVersion)
	if err := r.prepareExtras(ctx); err != nil {
		return err
	}
	for _, t := range targets {
		fmt.Fprintln(stderr, "building for", t)
		if err := r.addTarget(ctx, t); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	if err := r.writeNPM(); err != nil {
		return fmt.Errorf("npm: %w", err)
	}
	if err := r.writeImage(); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if *download == "" {
		fmt.Fprintln(stderr, "no -download: the Homebrew formula and the Scoop manifest are not written")
	} else if err := r.writeManifests(strings.TrimSuffix(*download, "/")); err != nil {
		return err
	}
	return r.writeChecksums(stdout)
}

// makeEmpty makes a folder, and rejects one with files in it: they would get into the checksums.
func makeEmpty(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("the folder %s is not empty; remove it, or choose another with -out", dir)
	}
	return nil
}

// A release is what is made of one source.
type release struct {
	source *source
	// out is the folder for the files that are published, work the one for everything else.
	out, work string
	// extras are the files beside the program in each archive and package.
	extras []file
	builds []*build
}

// A build is the program for one target.
type build struct {
	target
	// binary is the path of the program.
	binary string
	// licenses are the license texts of everything that is linked.
	licenses []byte
	// archive is the name of the archive, and digest its SHA-256 in hexadecimal.
	archive, digest string
}

// addTarget builds the program for a target, and everything that has that program alone in it.
func (r *release) addTarget(ctx context.Context, t target) error {
	b := &build{target: t, binary: filepath.Join(r.work, t.os+"-"+t.arch, t.program())}
	if err := r.source.compile(ctx, t, b.binary); err != nil {
		return err
	}
	modules, err := linkedModules(ctx, r.source, b.binary)
	if err != nil {
		return err
	}
	if b.licenses, err = licenseTexts(r.source, append(slices.Clip(modules), vocabulary(r.source))); err != nil {
		return err
	}
	if err := r.writeArchive(b); err != nil {
		return err
	}
	if err := r.writeSBOM(b, modules); err != nil {
		return err
	}
	if t.os == "linux" {
		if err := r.writeLinuxPackages(b); err != nil {
			return err
		}
	}
	r.builds = append(r.builds, b)
	return nil
}

// create returns a file to write in the folder of published files.
func (r *release) create(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(r.out, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
}

// writeChecksums writes the checksums of all files, and the list of files with their sizes.
func (r *release) writeChecksums(stdout io.Writer) error {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, e := range entries {
		digest, size, err := digestFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%s  %s\n", digest, e.Name())
		fmt.Fprintf(table, "%d\t %s\n", size, e.Name())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "checksums.txt"), []byte(sums.String()), 0o666)
}

// digestFile returns the SHA-256 of a file in hexadecimal, and its size in bytes.
func digestFile(path string) (digest string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	h := sha256.New()
	if size, err = io.Copy(h, f); err != nil {
		return "", 0, err
	}
	return fmt.Sprintf("%x", h.Sum(nil)), size, nil
}

// find returns the build for a target, or nil.
func (r *release) find(goos, arch string) *build {
	i := slices.IndexFunc(r.builds, func(b *build) bool { return b.os == goos && b.arch == arch })
	if i < 0 {
		return nil
	}
	return r.builds[i]
}
