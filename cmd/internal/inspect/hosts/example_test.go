package hosts_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"mcpwire/cmd/internal/inspect/hosts"
)

// exampleMachine makes a home folder with a server for Cursor.
func exampleMachine() (*hosts.Env, func()) {
	dir, err := os.MkdirTemp("", "hosts")
	if err != nil {
		log.Fatal(err)
	}
	text := "{\n  // files\n  \"mcpServers\": {\n    \"fs\": {\"command\": \"npx\", \"args\": [\"${SERVER}\"]}\n  }\n}\n"
	if err := os.MkdirAll(filepath.Join(dir, ".cursor"), 0o700); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".cursor", "mcp.json"), []byte(text), 0o600); err != nil {
		log.Fatal(err)
	}
	lookup := func(name string) (string, bool) { return "server-filesystem", name == "SERVER" }
	return &hosts.Env{GOOS: "linux", Home: dir, Dir: dir, Lookup: lookup}, func() { _ = os.RemoveAll(dir) }
}

func ExampleFind() {
	env, done := exampleMachine()
	defer done()
	files, err := hosts.Find(env)
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range files {
		for _, s := range f.Servers {
			fmt.Println(s.Host, s.Scope, s.Name, s.Transport, s.Command, s.Args)
		}
	}
	// Output: cursor user fs stdio npx [${SERVER}]
}

func ExampleResolve() {
	env, done := exampleMachine()
	defer done()
	s, err := hosts.Resolve(env, "cursor:fs")
	if err != nil {
		log.Fatal(err)
	}
	s, err = s.Expand(env)
	fmt.Println(s.Command, s.Args, err)
	_, err = hosts.Resolve(env, "fz")
	fmt.Println(err)
	// Output:
	// npx [server-filesystem] <nil>
	// no server "fz" is configured: did you mean fs?
}

func ExampleDocument_Wrap() {
	env, done := exampleMachine()
	defer done()
	doc, err := hosts.Open(env, filepath.Join(env.Home, ".cursor", "mcp.json"))
	if err != nil {
		log.Fatal(err)
	}
	if err := doc.Wrap("/mcpServers/fs", []string{"mcpwire", "tap", "--name", "fs", "--"}); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", doc.Result())
	// Output:
	// {
	//   // files
	//   "mcpServers": {
	//     "fs": {"command": "mcpwire", "args": ["tap", "--name", "fs", "--", "npx", "${SERVER}"]}
	//   }
	// }
}
