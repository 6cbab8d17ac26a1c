package server

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"path"
	"strings"
	"unicode/utf8"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
)

// maxFile is the largest file that Files reads, in bytes.
const maxFile = 32 << 20

// Files returns a function for [AddResourceTemplate] that reads the files of a file system. The template has a variable path, as in
// file:///srv/docs/{+path} or docs://all{/path*}:
//
//	root, err := os.OpenRoot("/srv/docs")
//	…
//	def := mcp.ResourceTemplate{URITemplate: "file:///srv/docs/{+path}", Name: "docs"}
//	err = server.AddResourceTemplate(srv, def, server.Files(root.FS()))
//
// Use the file system of an [os.Root], or one that is not on a disk: an [os.DirFS] follows symbolic links to wherever they lead. Paths with NUL, backslashes,
// or elements that are ., .. or empty are those of no file, however they are encoded. Nor are folders files. A file that cannot be opened, for whatever reason,
// is answered as one that does not exist; the log says why.
//
// What is UTF-8 is sent as text, all else as a blob. The MIME type is that of the file's extension or, if it is unknown, of the template. A file of
// more than 32 MiB is an error.
func Files(files fs.FS) func(ctx context.Context, vars Vars) (mcp.ResourceContents, error) {
	return func(_ context.Context, vars Vars) (contents mcp.ResourceContents, err error) {
		name := strings.Join(vars["path"], "/")
		if !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00") {
			return contents, fmt.Errorf("path %q: %w", name, ErrNotFound)
		}
		data, err := readFile(files, name)
		if err != nil {
			return contents, err
		}
		contents.MIMEType = mime.TypeByExtension(path.Ext(name))
		if utf8.Valid(data) {
			contents.Text = string(data)
		} else {
			contents.Blob = data
		}
		return contents, nil
	}
}

// readFile reads a file that is not too large, even if it grows meanwhile.
func readFile(files fs.FS, name string) ([]byte, error) {
	info, err := fs.Stat(files, name)
	if err != nil {
		return nil, openError(err)
	}
	if !info.Mode().IsRegular() { // to open a pipe could take for ever
		return nil, fmt.Errorf("%s is no file: %w", name, ErrNotFound)
	}
	f, err := files.Open(name)
	if err != nil {
		return nil, openError(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, jsonrpc.Errorf(jsonrpc.CodeInternalError, "the file has more than %d bytes", maxFile)
	}
	return data, nil
}

// openError says that there is no file: whether a link leads out, a part of the path is no folder or permission is missing is nothing to tell a stranger.
func openError(err error) error { return fmt.Errorf("%w: %w", ErrNotFound, err) }
