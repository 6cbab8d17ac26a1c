package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A script that needs to know which processes of a server run at the same time runs this program
// with a variable: mcpwire check -e MCPWIRE_TEST_SERVER=together -e 'MCPWIRE_TEST_TOGETHER=DIR 1 5'
// -- mcpwire serve
func init() {
	if os.Getenv("MCPWIRE_TEST_SERVER") == "together" {
		if err := connectTogether(strings.Fields(os.Getenv("MCPWIRE_TEST_TOGETHER"))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// connectTogether numbers the processes of a server by files in a folder, and does not return until
// so many have started: with 1 5, the first returns at once, the next four when all of them have
// started, and later ones at once.
func connectTogether(args []string) error {
	dir := args[0]
	name := func(n int) string { return filepath.Join(dir, fmt.Sprint(n)) }
	n := 1
	for ; ; n++ {
		f, err := os.OpenFile(name(n), os.O_CREATE|os.O_EXCL, 0o600)
		if os.IsExist(err) {
			continue
		}
		if err != nil {
			return err
		}
		f.Close()
		break
	}
	for _, arg := range args[1:] {
		var together int
		if _, err := fmt.Sscan(arg, &together); err != nil {
			return err
		}
		if n > together {
			continue
		}
		for {
			if _, err := os.Stat(name(together)); err == nil {
				return nil
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}
