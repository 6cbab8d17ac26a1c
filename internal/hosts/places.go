package hosts

import (
	"path/filepath"
	"slices"
)

// A place is where a host may have a file.
type location struct {
	host  string
	scope Scope
	path  string
	// tables are the paths of member names that lead to the tables of servers.
	tables [][]string
	// root is the folder of the project that the file belongs to.
	root string
}

// The tables that servers are in, by the names that lead to them.
var (
	inMCPServers = [][]string{{"mcpServers"}}
	inServers    = [][]string{{"servers"}}
	inMCP        = [][]string{{"mcp", "servers"}}
	inOpenCode   = [][]string{{"mcp", "servers"}, {"mcp"}}
	inZed        = [][]string{{"context_servers"}}
	inAmp        = [][]string{{"amp.mcpServers"}}
	inCodex      = [][]string{{"mcp_servers"}}
	// anyTable is for files that the user names.
	anyTable = [][]string{{"mcpServers"}, {"servers"}, {"mcp_servers"}, {"context_servers"}, {"amp.mcpServers"}, {"mcp", "servers"}, {"mcp"}}
)

// Names returns the names of the hosts that are known, in the order in which [Find] lists them. The slice belongs to the caller.
func Names() []string {
	return []string{"claude-desktop", "claude-code", "cursor", "vscode", "vscode-insiders", "windsurf", "codex", "cline", "roo", "kilo",
		"gemini", "opencode", "zed", "amp", "kiro", "lm-studio", "copilot-cli"}
}

// userLocations returns where the files of the user are. Paths are "" where e has no folder for them.
func userLocations(e *Env) []location {
	config := e.config()
	code, insiders := join(config, "Code", "User"), join(config, "Code - Insiders", "User")
	zed := e.folder("XDG_CONFIG_HOME", ".config")
	switch e.goos() {
	case "darwin":
		zed = e.home(".config")
	case "windows":
		zed = config
	}
	zedName := "zed"
	if e.goos() == "windows" {
		zedName = "Zed"
	}
	openCode := join(e.folder("XDG_CONFIG_HOME", ".config"), "opencode")
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
		userLocation("cline", e.home(".cline", "data", "settings", "cline_mcp_settings.json"), inMCPServers),
		userLocation("kilo", e.home(".kilocode", "cli", "global", "settings", "mcp_settings.json"), inMCPServers),
		userLocation("gemini", e.home(".gemini", "settings.json"), inMCPServers),
		userLocation("opencode", e.get("OPENCODE_CONFIG"), inOpenCode),
		userLocation("opencode", join(openCode, "opencode.json"), inOpenCode),
		userLocation("opencode", join(openCode, "opencode.jsonc"), inOpenCode),
		userLocation("zed", join(zed, zedName, "settings.json"), inZed),
		userLocation("amp", e.home(".config", "amp", "settings.json"), inAmp),
		userLocation("amp", e.home(".config", "amp", "settings.jsonc"), inAmp),
		userLocation("kiro", e.home(".kiro", "settings", "mcp.json"), inMCPServers),
		userLocation("lm-studio", e.home(".lmstudio", "mcp.json"), inMCPServers),
		userLocation("lm-studio", e.home(".cache", "lm-studio", "mcp.json"), inMCPServers),
		userLocation("copilot-cli", join(e.folder("COPILOT_HOME", ".copilot"), "mcp-config.json"), inMCPServers),
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
	return location{host: host, scope: ScopeUser, path: path, tables: maps}
}

// projectLocations returns where the files of a project in dir are.
func projectLocations(dir string) []location {
	in := func(host string, maps [][]string, below ...string) location {
		return location{host: host, scope: ScopeProject, path: join(dir, below...), tables: maps, root: dir}
	}
	return []location{
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
	}
}

// maxParents is how many folders above the working directory are searched.
const maxParents = 64

// projectDirs returns the folders that may be the project's, the working directory first: up to the root of the repository or the
// home folder. Without either it is the working directory alone: what lies in /tmp may be anybody's.
func projectDirs(e *Env, exists func(string) bool) []string {
	if e.Dir == "" {
		return nil
	}
	var dirs []string
	dir := filepath.Clean(e.Dir)
	for range maxParents {
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
