package main

import (
	_ "embed"
	"fmt"
	"regexp"
)

//go:embed docs.txt
var docsText string

// docs are the descriptions of types, fields and constants: lines of docs.txt that are a key, a colon and a text.
var docs = func() map[string]string {
	all := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^([A-Za-z][\w./*-]*): (.+)$`).FindAllStringSubmatch(docsText, -1) {
		all[m[1]] = m[2]
	}
	return all
}()

var docsUsed = map[string]bool{}

// doc returns a description, or "".
func doc(key string) string {
	docsUsed[key] = true
	return docs[key]
}

// checkDocs complains of descriptions of what does not exist, and of types without one.
func checkDocs(m *model) error {
	for key := range docs {
		if !docsUsed[key] {
			return fmt.Errorf("docs.txt: %q describes nothing", key)
		}
	}
	for name := range m.types {
		if docs[name] == "" {
			return fmt.Errorf("docs.txt: type %s has no description", name)
		}
	}
	return nil
}
