// Command site writes the documents of the repository as a static site, with search, for a browser.
//
//	cd tools/release && go run ./site -out ../../dist/site
//
// The pages are the README, the guides, and everything that they link to in the repository: other
// documents, decisions, and source files. A link that leads nowhere is an error. The site needs no
// server: it also works from a folder.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", "../..", "`FOLDER` of the repository")
	out := flag.String("out", "", "`FOLDER` to write to")
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	n, err := build(*root, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "%d pages in %s\n", n, *out)
}
