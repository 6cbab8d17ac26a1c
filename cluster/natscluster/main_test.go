package natscluster_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"

	"mcpwire/cluster/natscluster"
)

// nodeVariable is the environment variable that makes the test program a core node, so that a test
// can kill it. Its value has the options as JSON.
const nodeVariable = "NATSCLUSTER_TEST_NODE"

// nodeOptions are the options of natscluster.Embed for such a node.
type nodeOptions struct {
	Name, Dir, Listen string
	Routes            []string
}

func TestMain(m *testing.M) {
	if text := os.Getenv(nodeVariable); text != "" {
		if err := runNode(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	// The tests mostly wait for servers, so more of them run at once than there are processors.
	if err := flag.Set("test.parallel", "4"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m) // parses the flags, so -parallel is possible
}

// runNode runs a core node until standard input ends.
func runNode(text string) error {
	var o nodeOptions
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	b, err := natscluster.Open(context.Background(), natscluster.Options{Logger: quiet, Embed: &natscluster.Embed{Name: o.Name, Dir: o.Dir, Listen: o.Listen, Routes: o.Routes}})
	if err != nil {
		return err
	}
	defer b.Close()
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
