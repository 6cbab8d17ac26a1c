package check

import (
	"bufio"
	"io"
	"strings"

	"mcpwire/internal/printable"
)

// WriteGitHub writes a report as workflow commands of GitHub Actions
// (https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands), which become annotations. The error is that of w.
func WriteGitHub(w io.Writer, r *Report) error {
	b := bufio.NewWriter(w)
	for _, f := range r.Results {
		command := "notice"
		switch f.Rule.Severity {
		case Error:
			command = "error"
		case Warning:
			command = "warning"
		}
		b.WriteString("::" + command + " ")
		if f.Source != "" && f.Source != "-" {
			b.WriteString("file=" + githubProperty.Replace(printable.Line(f.Source)) + ",")
		}
		b.WriteString("title=" + githubProperty.Replace(f.Rule.ID+": "+f.Rule.Title) + "::")
		b.WriteString(githubData.Replace(f.location()+": "+f.Message+"\nfix: "+f.Rule.Fix+"\n"+f.Rule.URL) + "\n")
	}
	return b.Flush()
}

var (
	githubData     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	githubProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)
