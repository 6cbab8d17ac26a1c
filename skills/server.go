package skills

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"mime"
	"net/url"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"mcpwire/jsonrpc"
	"mcpwire/mcp"
	"mcpwire/server"
)

const (
	// maxSkills limits the skills of a server, and maxServerBytes the bytes of all their files.
	maxSkills      = 1000
	maxServerBytes = 256 << 20
	// pageBytes is the size after which a page of a list ends, in bytes. A page has at least one
	// entry.
	pageBytes = 256 << 10
)

// cacheTTL is how long clients may cache an entry, in milliseconds. The entries of a server never
// change, but another version of the server may have others.
const cacheTTL = 60_000

// Add serves the skills in files: each folder that contains SKILL.md, at any depth. The path of the
// folder is that of the skill, so the file billing/refunds/SKILL.md has the URI
// skill://billing/refunds/SKILL.md, and its frontmatter must have the name refunds. Each file of a
// skill becomes a resource, also those of skills within it. Add ignores files outside of skills,
// names that begin with a dot, and files that are not regular, such as symbolic links.
//
// Add reads all files at once; later changes have no effect. It returns an error for a skill that
// the specification does not allow, for more than 512 files or 16 MiB in a skill, for more than
// 1,000 skills or 256 MiB in all, and for a second call with the same server.
//
// If [server.Options.View] hides the resource of a skill's SKILL.md, it hides the skill. Let it
// hide the other files of the skill too: it decides about each of them.
func Add(srv *server.Server, files fs.FS) error {
	c, err := load(files, func(name string, err error) error {
		if _, ok := errors.AsType[ignored](err); ok {
			return nil
		}
		return fmt.Errorf("%s: %w", name, err)
	})
	if err != nil {
		return fmt.Errorf("skills: %w", err)
	}
	errs := []error{
		srv.AddRawMethod(listMethod, method(c.list)),
		srv.AddRawMethod(getMethod, method(c.get)),
		srv.AddRawMethod(readDirMethod, method(c.readDir)),
	}
	for _, uri := range slices.Sorted(maps.Keys(c.files)) {
		errs = append(errs, server.AddResource(srv, c.files[uri].def, server.Static(c.files[uri].contents)))
	}
	errs = append(errs, srv.AddExtension(extension, json.RawMessage(`{"directoryRead":true}`)))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("skills: %w", err)
	}
	return nil
}

// A catalog is what a server serves. It does not change.
type catalog struct {
	// roots are the folders that contain SKILL.md.
	roots []string
	// entries are sorted by URI.
	entries []served
	// files are the resources by URI, and folders the children of each folder by its URI.
	files   map[string]*file
	folders map[string][]mcp.Resource
}

// A served is a skill with the JSON text of its entry.
type served struct {
	skill *Skill
	text  json.RawMessage
}

// A file is a resource.
type file struct {
	def      mcp.Resource
	contents mcp.ResourceContents
	entry    fileEntry
}

// An ignored is the reason why [Add] ignores a file in a skill.
type ignored string

func (i ignored) Error() string { return string(i) }

// load reads the skills. It calls report with each error and the file that it concerns. If report
// returns nil, load continues without that file or skill.
func load(files fs.FS, report func(name string, err error) error) (*catalog, error) {
	c := &catalog{files: map[string]*file{}, folders: map[string][]mcp.Resource{}}
	err := walk(files, func(name string, regular bool) error {
		if regular && path.Base(name) == manifest {
			c.roots = append(c.roots, path.Dir(name))
		}
		if len(c.roots) > maxSkills {
			return fmt.Errorf("more than %d skills", maxSkills)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	total := int64(0)
	err = walk(files, func(name string, regular bool) error {
		within := slices.ContainsFunc(c.roots, func(root string) bool { return strings.HasPrefix(name, root+"/") })
		switch base := path.Base(name); {
		case !regular && (within || base == manifest):
			return report(name, ignored("not a regular file: it is not served"))
		case base != manifest && strings.EqualFold(base, manifest) && !slices.Contains(c.roots, path.Dir(name)):
			if err := report(name, ignored("not the file of a skill, which has the name "+manifest)); err != nil || !within {
				return err
			}
		case !within:
			return nil
		}
		f, err := readFile(files, name, min(maxTotalBytes, maxServerBytes-total))
		if err != nil {
			return report(name, err)
		}
		total += *f.entry.Size
		c.files[f.def.URI] = f
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, root := range c.roots {
		name := path.Join(root, manifest)
		if root != "." && c.files[uriOf(name)] == nil {
			continue // it could not be read
		}
		if err := c.addSkill(root); err != nil {
			if err := report(name, err); err != nil {
				return nil, err
			}
		}
	}
	slices.SortFunc(c.entries, func(a, b served) int { return cmp.Compare(a.skill.URI, b.skill.URI) })
	for _, children := range c.folders {
		slices.SortFunc(children, func(a, b mcp.Resource) int { return cmp.Compare(a.URI, b.URI) })
	}
	return c, nil
}

// walk calls fn for each file, and for whatever is no folder, whose path has no name that begins
// with a dot.
func walk(files fs.FS, fn func(name string, regular bool) error) error {
	return fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case name != "." && strings.HasPrefix(d.Name(), "."):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !d.IsDir():
			return fn(name, d.Type().IsRegular())
		}
		return nil
	})
}

// uriOf returns the URI of a file or folder.
func uriOf(name string) string {
	segments := strings.Split(name, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	return "skill://" + strings.Join(segments, "/")
}

// readFile reads a file of at most limit bytes.
func readFile(files fs.FS, name string, limit int64) (*file, error) {
	r, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	size := int64(len(data))
	if size > limit {
		return nil, fmt.Errorf("too large: a skill may have %d bytes, and all skills %d", maxTotalBytes, maxServerBytes)
	}
	digest := sha256.Sum256(data)
	f := &file{
		def:   mcp.Resource{URI: uriOf(name), Name: path.Base(name), MIMEType: mimeType(name, data), Size: &size},
		entry: fileEntry{URI: uriOf(name), Digest: "sha256:" + hex.EncodeToString(digest[:]), Size: &size},
	}
	if utf8.Valid(data) {
		f.contents.Text = string(data)
	} else {
		f.contents.Blob = data
	}
	return f, nil
}

// mimeType returns the type of a file by its extension, or a general one.
func mimeType(name string, data []byte) string {
	if path.Ext(name) == ".md" {
		return "text/markdown" // which systems don't agree on
	}
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	if utf8.Valid(data) {
		return "text/plain"
	}
	return "application/octet-stream"
}

// addSkill adds the entry and the folders of the skill in a folder.
func (c *catalog) addSkill(root string) error {
	if root == "." {
		return errors.New("a skill is a folder within the given one")
	}
	uri := uriOf(root)
	main := c.files[uri+"/"+manifest]
	frontmatter, err := frontmatterOf([]byte(main.contents.Text))
	if err != nil {
		return err
	}
	var list []fileEntry
	for _, name := range slices.Sorted(maps.Keys(c.files)) {
		if strings.HasPrefix(name, uri+"/") {
			list = append(list, c.files[name].entry)
		}
	}
	resources, err := json.Marshal(list)
	if err != nil {
		return err
	}
	e := entry{URI: main.def.URI, Frontmatter: frontmatter, Resources: resources}
	skill, err := e.skill() // what clients of this package accept
	if err != nil {
		return err
	}
	if err := checkMetadata(frontmatter); err != nil {
		return err
	}
	main.def.Name, main.def.Description = skill.Name, skill.Description
	for _, f := range list {
		c.addToFolders(uri, f.URI)
	}
	text, err := json.Marshal(&e)
	if err != nil {
		return err
	}
	c.entries = append(c.entries, served{skill, text})
	return nil
}

// checkMetadata returns an error for metadata that the specification reserves.
func checkMetadata(frontmatter json.RawMessage) error {
	var head struct {
		Metadata map[string]any `json:"metadata"`
	}
	if json.Unmarshal(frontmatter, &head) != nil {
		return errors.New("metadata: want keys with text")
	}
	for key := range head.Metadata {
		if strings.HasPrefix(key, "io.modelcontextprotocol/") {
			return fmt.Errorf("metadata: the key %.100q is reserved", key)
		}
	}
	return nil
}

// addToFolders adds a resource to its folder, and the folder to the one above, up to the folder of
// the skill.
func (c *catalog) addToFolders(root, uri string) {
	child := c.files[uri].def
	for {
		folder := child.URI[:strings.LastIndex(child.URI, "/")]
		have := c.folders[folder]
		i := slices.IndexFunc(have, func(r mcp.Resource) bool { return r.URI == child.URI })
		if i >= 0 {
			have[i] = child // SKILL.md has a name and a description now
		} else {
			c.folders[folder] = append(have, child)
		}
		if folder == root {
			return
		}
		name, err := url.PathUnescape(path.Base(folder))
		if err != nil {
			name = path.Base(folder) // this cannot be: uriOf has escaped it
		}
		child = mcp.Resource{URI: folder, Name: name, MIMEType: directoryType}
	}
}

// params are those of the three methods.
type params struct {
	URI    string  `json:"uri"`
	Cursor *string `json:"cursor"`
}

func invalidParams(format string, args ...any) error {
	return jsonrpc.Errorf(jsonrpc.CodeInvalidParams, "invalid params: "+format, args...)
}

// method returns the handler of a method for [server.Server.AddRawMethod]. It adds what results of
// the client's revision have.
func method(fn func(call *server.Call, p params) (*result, error)) func(*server.Call, json.RawMessage) (json.RawMessage, error) {
	return func(call *server.Call, text json.RawMessage) (json.RawMessage, error) {
		var p params
		if err := json.Unmarshal(text, &p); err != nil {
			return nil, invalidParams("%v", err)
		}
		r, err := fn(call, p)
		if err != nil {
			return nil, err
		}
		if call.Revision().Modern() {
			ttl := cacheTTL
			r.TTLMs, r.CacheScope = &ttl, mcp.CacheScopePrivate
		}
		return json.Marshal(r)
	}
}

// pageOf returns the texts after the cursor that fit on a page, and the cursor of the next one.
// keys are sorted. A cursor is the key that the page before ends with.
func pageOf(keys []string, texts []json.RawMessage, cursor *string) (page []json.RawMessage, next string, err error) {
	start := 0
	if cursor != nil {
		at, ok := slices.BinarySearch(keys, *cursor)
		if !ok {
			return nil, "", invalidParams("unknown cursor")
		}
		start = at + 1
	}
	page = []json.RawMessage{}
	size := 0
	for i := start; i < len(keys); i++ {
		if size += len(texts[i]); size > pageBytes && len(page) > 0 {
			return page, keys[i-1], nil
		}
		page = append(page, texts[i])
	}
	return page, "", nil
}

// A result is the result of one of the methods.
type result struct {
	Skills     *[]json.RawMessage `json:"skills,omitempty"`
	Skill      json.RawMessage    `json:"skill,omitempty"`
	Resources  *[]json.RawMessage `json:"resources,omitempty"`
	NextCursor string             `json:"nextCursor,omitempty"`
	TTLMs      *int               `json:"ttlMs,omitempty"`
	CacheScope mcp.CacheScope     `json:"cacheScope,omitempty"`
}

func (c *catalog) list(call *server.Call, p params) (*result, error) {
	keys, texts := make([]string, 0, len(c.entries)), make([]json.RawMessage, 0, len(c.entries))
	for _, e := range c.entries {
		if uri := e.skill.URI; call.Shows(server.KindResource, uri) {
			keys, texts = append(keys, uri), append(texts, e.text)
		}
	}
	page, next, err := pageOf(keys, texts, p.Cursor)
	if err != nil {
		return nil, err
	}
	return &result{Skills: &page, NextCursor: next}, nil
}

func (c *catalog) get(call *server.Call, p params) (*result, error) {
	i, ok := slices.BinarySearchFunc(c.entries, p.URI, func(e served, uri string) int { return cmp.Compare(e.skill.URI, uri) })
	if !ok || !call.Shows(server.KindResource, p.URI) {
		return nil, invalidParams("no skill has the URI %.200q", p.URI)
	}
	return &result{Skill: c.entries[i].text}, nil
}

func (c *catalog) readDir(call *server.Call, p params) (*result, error) {
	children := c.folders[p.URI]
	keys, texts := make([]string, 0, len(children)), make([]json.RawMessage, 0, len(children))
	for i := range children {
		if uri := children[i].URI; c.shows(call, uri) {
			keys, texts = append(keys, uri), append(texts, mcp.Append(nil, &children[i], call.Revision()))
		}
	}
	if len(keys) == 0 {
		return nil, invalidParams("%.200q is not a folder of a skill", p.URI)
	}
	page, next, err := pageOf(keys, texts, p.Cursor)
	if err != nil {
		return nil, err
	}
	return &result{Resources: &page, NextCursor: next}, nil
}

// shows reports whether the caller sees a file, or something in a folder.
func (c *catalog) shows(call *server.Call, uri string) bool {
	if c.files[uri] != nil {
		return call.Shows(server.KindResource, uri)
	}
	return slices.ContainsFunc(c.folders[uri], func(child mcp.Resource) bool { return c.shows(call, child.URI) })
}
