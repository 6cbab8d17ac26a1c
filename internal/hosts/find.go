package hosts

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A File is one that has servers in it, or that should and could not be read.
type File struct {
	Host  string
	Scope Scope
	Path  string
	// Servers are in the order of the file.
	Servers []Server
	// Err is why the file could not be read: a *ParseError, or an error of the file system.
	Err error
	// Errors are the entries that could not be read.
	Errors []*ParseError
}

// maxProfiles is how many files a pattern stands for at most.
const maxProfiles = 64

// Find reads the files of all hosts, those of the user first. Files that are not there are not listed, nor are those without
// servers. A file that cannot be read has an Err, and others are listed still. The error is that of an environment without a
// working directory.
func Find(e *Env) ([]File, error) {
	if e.Dir == "" {
		return nil, errors.New("no working directory to search from")
	}
	places := userLocations(e)
	if e.get("CLAUDE_CONFIG_DIR") == "" {
		places = append([]location{userLocation("claude-code", e.home(".claude.json"), inMCPServers)}, places...)
	}
	for _, dir := range projectDirs(e, exists) {
		places = append(places, projectLocations(dir)...)
	}
	rank := map[string]int{}
	for i, name := range Names() {
		rank[name] = i
	}
	sortStable(places, func(p location) int { return rank[p.host] })
	seen := map[string]bool{}
	log := e.records()
	var files []File
	for _, p := range places {
		for _, path := range expandLocation(p.path) {
			if id := filepath.Clean(path); seen[id] {
				continue
			} else {
				seen[id] = true
			}
			p.path = path
			if f, ok := readLocation(p, log); ok {
				files = append(files, f)
			}
		}
	}
	return files, nil
}

// sortStable sorts by a rank, and leaves equals in their order.
func sortStable(list []location, rank func(location) int) {
	byRank := make([][]location, len(Names()))
	for _, p := range list {
		byRank[rank(p)] = append(byRank[rank(p)], p)
	}
	list = list[:0]
	for _, ps := range byRank {
		list = append(list, ps...)
	}
}

// expandLocation returns the files that a path stands for, which may have a star for one folder.
func expandLocation(path string) []string {
	before, after, ok := strings.Cut(path, string(filepath.Separator)+"*"+string(filepath.Separator))
	if !ok {
		if path == "" {
			return nil
		}
		return []string{path}
	}
	dir, err := os.Open(before)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(maxProfiles) // what could be read counts
	for i, name := range names {
		names[i] = filepath.Join(before, name, after)
	}
	return names
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readLocation reads the file at a place, and tells whether it is to be listed.
func readLocation(p location, log *records) (File, bool) {
	f := File{Host: p.host, Scope: p.scope, Path: p.path}
	data, err := readFile(p.path)
	if errors.Is(err, fs.ErrNotExist) || isNotDir(err) {
		return f, false
	}
	if err != nil {
		f.Err = err
		return f, true
	}
	root, err := parse(data, syntaxOf(p.path, data))
	if err != nil {
		f.Err = withPath(err, p.path)
		return f, true
	}
	if root.kind != kindObject {
		f.Err = &ParseError{Path: p.path, Line: 1, Column: 1, Reason: "not a table"}
		return f, true
	}
	list := entries(root, p.tables)
	f.add(data, list, p, log)
	if p.host == "claude-code" && p.scope == ScopeUser {
		p.scope = ScopeLocal
		f.add(data, projectEntries(root), p, log)
	}
	return f, len(f.Servers)+len(f.Errors) > 0
}

// add reads entries into f.
func (f *File) add(data []byte, list []entry, p location, log *records) {
	for _, e := range list {
		if p.host == "opencode" && !looksLikeServer(e.node) {
			continue // settings of all servers, and switches for those of other files
		}
		r := reader{data: data, host: p.host}
		s, problem := r.server(e)
		if problem != nil {
			problem.Path = p.path
			f.Errors = append(f.Errors, problem)
			continue
		}
		s.File, s.Scope = p.path, p.scope
		if s.Project == "" {
			s.Project = p.root
		}
		log.restoreURL(&s)
		f.Servers = append(f.Servers, s)
	}
}

// ReadFile reads the servers of a file that the user names: it may have them below mcpServers, servers, mcp_servers,
// context_servers, amp.mcpServers or mcp, or be nothing but a table of them. The error is a *ParseError or one of the file system.
func ReadFile(e *Env, path string) (File, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(e.Dir, path)
	}
	p := location{scope: ScopeFile, path: path, tables: anyTable}
	f := File{Scope: ScopeFile, Path: path}
	data, err := readFile(path)
	if err != nil {
		return f, err
	}
	root, err := parse(data, syntaxOf(path, data))
	if err != nil {
		return f, withPath(err, path)
	}
	log := e.records()
	list := entries(root, anyTable)
	if len(list) == 0 {
		list = rootEntries(root)
	}
	if syntaxOf(path, data) == syntaxTOML && root.get("mcp_servers") != nil {
		p.host = "codex"
	}
	f.add(data, list, p, log)
	for i := range f.Servers {
		f.Servers[i].Host = ""
	}
	p.scope = ScopeLocal
	f.add(data, projectEntries(root), p, log)
	return f, nil
}

// readFile reads a regular file within the limit.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path) // before opening: to open a pipe would wait for its other end
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFileBytes {
		return nil, &ParseError{Path: path, Reason: tooBig}
	}
	return data, nil
}

// isNotDir tells whether a folder on the way to a file is none: there is no such file.
func isNotDir(err error) bool { return errors.Is(err, syscall.ENOTDIR) }
