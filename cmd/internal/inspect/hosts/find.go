package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// A File is a file with servers, or one that could not be read.
type File struct {
	Host  string
	Scope Scope
	Path  string
	// Servers are in the order of the file.
	Servers []Server
	// Err is why the file could not be read: a *ParseError or a file system error.
	Err error
	// Errors describes the entries that could not be read.
	Errors []*ParseError
}

// Find reads the files of all hosts, those of the user first. It omits files that do not exist or
// have no servers. An unreadable file has an Err and does not stop the search. Find returns an
// error if e.Dir is empty.
func Find(e *Env) ([]File, error) {
	if e.Dir == "" {
		return nil, errors.New("no working directory to search")
	}
	places := userLocations(e)
	if e.get("CLAUDE_CONFIG_DIR") == "" {
		places = append([]location{userLocation("claude-code", e.home(".claude.json"), inMCPServers)}, places...)
	}
	for _, dir := range projectDirs(e, exists) {
		places = append(places, projectLocations(dir)...)
	}
	names := Names()
	slices.SortStableFunc(places, func(a, b location) int { return slices.Index(names, a.host) - slices.Index(names, b.host) })
	seen := map[string]bool{}
	log := e.records()
	var files []File
	for _, p := range places {
		for _, path := range expandLocation(p.path) {
			id := filepath.Clean(path)
			if seen[id] {
				continue
			}
			seen[id], p.path = true, path
			if f, ok := readLocation(p, log); ok {
				files = append(files, f)
			}
		}
	}
	return files, nil
}

// expandLocation returns the files that a path matches, which may contain a star for one folder.
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
	// Use the names that could be read.
	names, _ := dir.Readdirnames(-1)
	for i, name := range names {
		names[i] = filepath.Join(before, name, after)
	}
	return names
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readLocation reads the file at a location and reports whether to list it.
func readLocation(p location, log *records) (File, bool) {
	f := File{Host: p.host, Scope: p.scope, Path: p.path}
	data, err := readFile(p.path)
	// ENOTDIR is about a parent.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
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
	if bytes.HasPrefix(data, bom) && syntaxOf(p.path, data) == syntaxJSON {
		f.Errors = append(f.Errors, &ParseError{Path: p.path, Line: 1, Column: 1,
			Reason: "the file begins with a byte order mark, which JSON.parse refuses, and so " + p.host + " may: save it as UTF-8 without one"})
	}
	if p.host == "claude-code" && p.scope == ScopeUser {
		p.scope = ScopeLocal
		f.add(data, projectEntries(root), p, log)
	}
	return f, len(f.Servers)+len(f.Errors) > 0
}

func (f *File) add(data []byte, list []entry, p location, log *records) {
	for _, e := range list {
		if p.mixed && !looksLikeServer(e.node) {
			continue
		}
		r := reader{data: data, host: p.host, mixed: p.mixed}
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

// ReadFile reads the servers of a file that the user names. They may be below mcpServers, servers,
// mcp_servers, context_servers, amp.mcpServers or mcp, or at the top level. It returns a
// *ParseError or a file system error.
func ReadFile(e *Env, path string) (File, error) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(e.Dir, path)
	}
	p := location{scope: ScopeFile, path: path, tables: serverTables}
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
	list := entries(root, serverTables)
	if len(list) == 0 {
		list = slices.DeleteFunc(members(root, "", ""), func(e entry) bool { return !looksLikeServer(e.node) })
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

// readFile reads a regular file of limited size.
func readFile(path string) ([]byte, error) {
	// Check before opening: opening a pipe waits for its other end.
	info, err := os.Stat(path)
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

// A location is where a host may have a file.
type location struct {
	host  string
	scope Scope
	path  string
	// tables lists the paths of names that lead to tables of servers.
	tables [][]string
	// mixed reports that the tables also have entries of other kinds: settings of all servers,
	// switches for servers of other files, extensions that are part of the host.
	mixed bool
	root  string
}

// Paths of names that lead to tables of servers.
var (
	inMCPServers = [][]string{{"mcpServers"}}
	inServers    = [][]string{{"servers"}}
	inMCP        = [][]string{{"mcp", "servers"}}
	inOpenCode   = [][]string{{"mcp", "servers"}, {"mcp"}}
	inZed        = [][]string{{"context_servers"}}
	inAmp        = [][]string{{"amp.mcpServers"}}
	inCodex      = [][]string{{"mcp_servers"}}
	inGoose      = [][]string{{"extensions"}}
	inFx         = [][]string{{"mcp"}}
	// serverTables is for files that the user names.
	serverTables = [][]string{{"mcpServers"}, {"servers"}, {"mcp_servers"}, {"context_servers"}, {"amp.mcpServers"}, {"mcp", "servers"}, {"mcp"}, {"extensions"}}
)

// Names returns the names of the known hosts, in the order of [Find]. The slice belongs to the
// caller.
func Names() []string {
	return []string{"claude-desktop", "claude-code", "cursor", "vscode", "vscode-insiders", "windsurf", "codex", "cline", "roo", "kilo",
		"gemini", "opencode", "zed", "amp", "kiro", "lm-studio", "copilot-cli",
		"antigravity", "fx", "goose", "grok", "junie", "kimi", "mastra", "pi"}
}

// userLocations returns the locations of the user's files. A path is "" if its folder is unknown.
func userLocations(e *Env) []location {
	config := e.config()
	code, insiders := join(config, "Code", "User"), join(config, "Code - Insiders", "User")
	xdg := e.folder("XDG_CONFIG_HOME", ".config")
	dotConfig := xdg
	if e.goos() == "darwin" {
		dotConfig = e.home(".config")
	}
	zed, goose := join(dotConfig, "zed"), join(dotConfig, "goose", "config.yaml")
	if e.goos() == "windows" {
		zed, goose = join(config, "Zed"), join(config, "Block", "goose", "config", "config.yaml")
	}
	openCode, kilo := join(xdg, "opencode"), join(xdg, "kilo")
	list := []location{
		userLocation("claude-desktop", join(config, "Claude", "claude_desktop_config.json"), inMCPServers),
		userLocation("claude-code", join(e.folder("CLAUDE_CONFIG_DIR"), ".claude.json"), inMCPServers),
		userLocation("cursor", e.home(".cursor", "mcp.json"), inMCPServers),
		userLocation("vscode", join(code, "mcp.json"), inServers),
		userLocation("vscode", join(code, "settings.json"), inMCP),
		userLocation("vscode", join(code, "profiles", "*", "mcp.json"), inServers),
		userLocation("vscode-insiders", join(insiders, "mcp.json"), inServers),
		userLocation("vscode-insiders", join(insiders, "settings.json"), inMCP),
		userLocation("vscode-insiders", join(insiders, "profiles", "*", "mcp.json"), inServers),
		userLocation("windsurf", e.home(".codeium", "windsurf", "mcp_config.json"), inMCPServers),
		userLocation("codex", join(e.folder("CODEX_HOME", ".codex"), "config.toml"), inCodex),
		userLocation("cline", e.get("CLINE_MCP_SETTINGS_PATH"), inMCPServers),
		userLocation("cline", join(e.folder("CLINE_DIR", ".cline"), "data", "settings", "cline_mcp_settings.json"), inMCPServers),
		userLocation("kilo", join(kilo, "kilo.json"), inOpenCode),
		userLocation("kilo", join(kilo, "kilo.jsonc"), inOpenCode),
		userLocation("kilo", e.home(".kilocode", "cli", "global", "settings", "mcp_settings.json"), inMCPServers),
		userLocation("gemini", e.home(".gemini", "settings.json"), inMCPServers),
		userLocation("opencode", e.get("OPENCODE_CONFIG"), inOpenCode),
		userLocation("opencode", join(openCode, "opencode.json"), inOpenCode),
		userLocation("opencode", join(openCode, "opencode.jsonc"), inOpenCode),
		userLocation("zed", join(zed, "settings.json"), inZed),
		userLocation("amp", e.home(".config", "amp", "settings.json"), inAmp),
		userLocation("amp", e.home(".config", "amp", "settings.jsonc"), inAmp),
		userLocation("kiro", e.home(".kiro", "settings", "mcp.json"), inMCPServers),
		userLocation("lm-studio", e.home(".lmstudio", "mcp.json"), inMCPServers),
		userLocation("lm-studio", e.home(".cache", "lm-studio", "mcp.json"), inMCPServers),
		userLocation("copilot-cli", join(e.folder("COPILOT_HOME", ".copilot"), "mcp-config.json"), inMCPServers),
		userLocation("antigravity", e.home(".gemini", "config", "mcp_config.json"), inMCPServers),
		userLocation("antigravity", e.home(".gemini", "antigravity", "mcp_config.json"), inMCPServers),
		userLocation("fx", e.home(".fx", "mcp.json"), inFx),
		userLocation("goose", goose, inGoose),
		userLocation("grok", join(e.folder("GROK_HOME", ".grok"), "config.toml"), inCodex),
		userLocation("junie", e.home(".junie", "mcp", "mcp.json"), inMCPServers),
		userLocation("kimi", join(e.folder("KIMI_CODE_HOME", ".kimi-code"), "mcp.json"), inMCPServers),
		userLocation("mastra", e.home(".mastracode", "mcp.json"), inMCPServers),
		userLocation("pi", join(e.folder("PI_CODING_AGENT_DIR", ".pi", "agent"), "mcp.json"), inMCPServers),
	}
	for _, editor := range []string{code, insiders} {
		storage := join(editor, "globalStorage")
		list = append(list,
			userLocation("cline", join(storage, "saoudrizwan.claude-dev", "settings", "cline_mcp_settings.json"), inMCPServers),
			userLocation("roo", join(storage, "rooveterinaryinc.roo-cline", "settings", "mcp_settings.json"), inMCPServers),
			userLocation("kilo", join(storage, "kilocode.kilo-code", "settings", "mcp_settings.json"), inMCPServers))
	}
	return list
}

func userLocation(host, path string, maps [][]string) location {
	return location{host: host, scope: ScopeUser, path: path, tables: maps, mixed: isMixed(maps)}
}

// isMixed reports whether tables of servers also have other entries.
func isMixed(tables [][]string) bool {
	last := tables[len(tables)-1][0]
	return last == "mcp" && len(tables[len(tables)-1]) == 1 || last == "extensions"
}

// projectLocations returns the locations of files for a project in dir.
func projectLocations(dir string) []location {
	in := func(host string, maps [][]string, below ...string) location {
		return location{host: host, scope: ScopeProject, path: join(dir, below...), tables: maps, mixed: isMixed(maps), root: dir}
	}
	list := []location{
		in("claude-code", inMCPServers, ".mcp.json"),
		in("cursor", inMCPServers, ".cursor", "mcp.json"),
		in("vscode", inServers, ".vscode", "mcp.json"),
		in("vscode", inMCP, ".vscode", "settings.json"),
		in("codex", inCodex, ".codex", "config.toml"),
		in("roo", inMCPServers, ".roo", "mcp.json"),
		in("kilo", inMCPServers, ".kilocode", "mcp.json"),
		in("gemini", inMCPServers, ".gemini", "settings.json"),
		in("opencode", inOpenCode, "opencode.json"),
		in("opencode", inOpenCode, "opencode.jsonc"),
		in("opencode", inOpenCode, ".opencode", "opencode.json"),
		in("opencode", inOpenCode, ".opencode", "opencode.jsonc"),
		in("zed", inZed, ".zed", "settings.json"),
		in("amp", inAmp, ".amp", "settings.json"),
		in("amp", inAmp, ".amp", "settings.jsonc"),
		in("kiro", inMCPServers, ".kiro", "settings", "mcp.json"),
		in("copilot-cli", inMCPServers, ".github", "mcp.json"),
		in("grok", inCodex, ".grok", "config.toml"),
		in("junie", inMCPServers, ".junie", "mcp", "mcp.json"),
		in("kimi", inMCPServers, ".kimi-code", "mcp.json"),
		in("mastra", inMCPServers, ".mastracode", "mcp.json"),
		in("pi", inMCPServers, ".pi", "mcp.json"),
	}
	for _, folder := range []string{"", ".kilo", ".kilocode"} {
		list = append(list, in("kilo", inOpenCode, folder, "kilo.json"), in("kilo", inOpenCode, folder, "kilo.jsonc"))
	}
	return list
}

// projectDirs returns the possible project folders, from the working directory up to the root of
// the repository or the home folder. Outside both, it returns only the working directory, because
// others may write to folders such as /tmp.
func projectDirs(e *Env, exists func(string) bool) []string {
	if e.Dir == "" {
		return nil
	}
	var dirs []string
	dir := filepath.Clean(e.Dir)
	for {
		dirs = append(dirs, dir)
		if exists(filepath.Join(dir, ".git")) || e.Home != "" && dir == filepath.Clean(e.Home) {
			return dirs
		}
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dir = up
	}
	return slices.Clip(dirs[:1])
}
