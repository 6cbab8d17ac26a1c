package targets

import (
	"strings"
	"testing"
)

func TestServerName(t *testing.T) {
	for _, tt := range []struct{ command, want string }{
		{"npx -y @modelcontextprotocol/server-filesystem /tmp", "server-filesystem"},
		{"npx -y @modelcontextprotocol/server-filesystem@2025.1.14", "server-filesystem"},
		{"npx --yes --package @a/b b-server", "b-server"},
		{"/usr/bin/npx -y weather@latest", "weather"},
		{`C:\node\npx.cmd -y weather`, "weather"},
		{"npx -y mcp-remote https://mcp.example.com/sse --header x", "mcp.example.com"},
		{"npx", "npx"},
		{"bunx --bun weather", "weather"},
		{"pnpm dlx @x/weather", "weather"},
		{"npm exec -y -- @x/weather", "weather"},
		{"uvx mcp-server-git==1.2 --repository x", "mcp-server-git"},
		{"uvx --from git+https://github.com/a/b mcp-b", "mcp-b"},
		{"uvx git+https://github.com/a/weather.git", "weather"},
		{"uvx mcp-server[extra]", "mcp-server"},
		{"uv tool run weather", "weather"},
		{"uv --directory x run weather", "weather"},
		{"uv run --directory /srv/x python -m weather.server", "weather.server"},
		{"uv run --with httpx server.py", "server.py"},
		{"pipx run weather", "weather"},
		{"docker run -i --rm -e TOKEN=secret -v /a:/b ghcr.io/github/github-mcp-server:latest stdio", "github-mcp-server"},
		{"docker run -it --network=host mcp/fetch@sha256:abc", "fetch"},
		{"docker run -i", "docker"},
		{"docker compose up", "docker"},
		{"python -m weather", "weather"},
		{"python3 -u -m weather", "weather"},
		{"python3 -u weather.py -m x", "weather"},
		{"/venv/bin/python /srv/weather/src/server.py", "weather"},
		{"node /srv/weather/build/index.js --token secret", "weather"},
		{"node --import tsx src/index.ts", "index"},
		{"node server.js", "server"},
		{"node -e code", "node"},
		{"python -c code", "python"},
		{"bun run weather.ts", "weather"},
		{"java -Xmx1g -jar /opt/weather-1.2.jar", "weather-1.2"},
		{"env A=b C=d npx weather", "weather"},
		{"cmd /c npx -y weather", "weather"},
		{"./weather --key secret", "weather"},
		{"weather.exe", "weather"},
		{"mcpwire serve", "mcpwire"},
	} {
		if got := ServerName(strings.Fields(tt.command)); got != tt.want {
			t.Errorf("serverName(%s) = %q, want %q", tt.command, got, tt.want)
		}
	}
}
