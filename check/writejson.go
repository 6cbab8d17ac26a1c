package check

import (
	"encoding/json"
	"io"

	"mcpwire/mcp"
)

type jsonReport struct {
	Findings []jsonFinding `json:"findings"`
	Summary  jsonSummary   `json:"summary"`
}

type jsonSummary struct {
	Errors   int      `json:"errors"`
	Warnings int      `json:"warnings"`
	Infos    int      `json:"infos"`
	Events   uint64   `json:"events"`
	Sources  []string `json:"sources"`
}

type jsonFinding struct {
	Rule     string   `json:"rule"`
	Severity Severity `json:"severity"`
	Source   string   `json:"source,omitempty"`
	Capture  string   `json:"capture,omitempty"`
	Event    uint64   `json:"event"`
	Dir      string   `json:"dir,omitempty"`
	Session  uint64   `json:"session,omitempty"`
	Exchange uint64   `json:"exchange,omitempty"`
	ID       string   `json:"id,omitempty"`
	Method   string   `json:"method,omitempty"`
	Revision string   `json:"revision,omitempty"`
	Pointer  string   `json:"pointer,omitempty"`
	Message  string   `json:"message"`
	Fix      string   `json:"fix"`
	URL      string   `json:"url"`
	Related  []uint64 `json:"related,omitempty"`
	SDK      string   `json:"sdk,omitempty"`
}

// WriteJSON writes a report as one JSON object: findings, an array, and summary. The error is that of w.
func WriteJSON(w io.Writer, r *Report) error {
	out := jsonReport{Findings: []jsonFinding{}, Summary: jsonSummary{Events: r.Events, Sources: r.Sources}}
	out.Summary.Errors, out.Summary.Warnings, out.Summary.Infos = r.Count()
	for _, f := range r.Results {
		out.Findings = append(out.Findings, jsonFinding{
			Rule: f.Rule.ID, Severity: f.Rule.Severity, Source: f.Source, Capture: f.Capture, Event: f.Event, Dir: string(f.Dir), Session: f.Session,
			Exchange: f.Exchange, ID: f.ID, Method: f.Method, Revision: revisionName(f.Revision), Pointer: f.Pointer, Message: f.Message,
			Fix: f.Rule.Fix, URL: f.Rule.URL, Related: f.Related, SDK: f.SDK,
		})
	}
	return encode(w, out)
}

// encode writes a value in lines that people can read, too.
func encode(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func revisionName(r mcp.Revision) string {
	if r == mcp.RevisionNone {
		return ""
	}
	return r.String()
}

type jsonRule struct {
	ID        string         `json:"id"`
	Severity  Severity       `json:"severity"`
	Revisions []mcp.Revision `json:"revisions"`
	Title     string         `json:"title"`
	Why       string         `json:"why"`
	Fix       string         `json:"fix"`
	URL       string         `json:"url"`
	Good      string         `json:"good"`
	Bad       string         `json:"bad"`
}

// WriteRulesJSON writes the descriptions of rules as a JSON array. The error is that of w.
func WriteRulesJSON(w io.Writer, rules []*Rule) error {
	out := []jsonRule{}
	for _, r := range rules {
		revisions := r.Revisions
		if len(revisions) == 0 {
			revisions = mcp.Revisions()
		}
		out = append(out, jsonRule{r.ID, r.Severity, revisions, r.Title, r.Why, r.Fix, r.URL, r.Good.Transcript(), r.Bad.Transcript()})
	}
	return encode(w, out)
}
