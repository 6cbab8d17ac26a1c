package web

import "embed"

// embedded are the files of the page. They are served as they are: there is nothing that would have to be built.
//
//go:embed page
var embedded embed.FS
