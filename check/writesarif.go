package check

import (
	"io"
	"net/url"
	"path/filepath"
	"strings"
)

// The part of SARIF 2.1.0 (https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html) that reports need.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool       sarifTool     `json:"tool"`
		Artifacts  []sarifFile   `json:"artifacts,omitempty"`
		Results    []sarifResult `json:"results"`
		ColumnKind string        `json:"columnKind"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version,omitempty"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string        `json:"id"`
		Short   sarifText     `json:"shortDescription"`
		Full    sarifText     `json:"fullDescription"`
		HelpURI string        `json:"helpUri"`
		Help    sarifText     `json:"help"`
		Default sarifSeverity `json:"defaultConfiguration"`
	}
	sarifSeverity struct {
		Level string `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifFile struct {
		Location sarifURI `json:"location"`
	}
	sarifURI struct {
		URI string `json:"uri"`
	}
	sarifResult struct {
		RuleID     string          `json:"ruleId"`
		RuleIndex  int             `json:"ruleIndex"`
		Level      string          `json:"level"`
		Message    sarifText       `json:"message"`
		Locations  []sarifLocation `json:"locations"`
		Properties sarifProperties `json:"properties"`
	}
	sarifLocation struct {
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations"`
	}
	sarifPhysical struct {
		Artifact sarifURI `json:"artifactLocation"`
	}
	sarifLogical struct {
		Name string `json:"name"`
		Full string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
	sarifProperties struct {
		Event    uint64   `json:"event"`
		Related  []uint64 `json:"relatedEvents,omitempty"`
		Method   string   `json:"method,omitempty"`
		Revision string   `json:"revision,omitempty"`
	}
)

// WriteSARIF writes a report as SARIF 2.1.0. Events are logical locations: a capture has no lines that people edit. The error is that of w.
func WriteSARIF(w io.Writer, r *Report) error {
	run := sarifRun{ColumnKind: "utf16CodeUnits", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: r.Tool, Version: r.Version, Rules: []sarifRule{}}
	if r.Tool == "" {
		run.Tool.Driver.Name = "mcpwire"
	}
	index := map[string]int{}
	add := func(rule *Rule) {
		index[rule.ID] = len(run.Tool.Driver.Rules)
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{
			ID: rule.ID, Short: sarifText{rule.Title}, Full: sarifText{rule.Why}, HelpURI: rule.URL, Help: sarifText{rule.Fix}, Default: sarifSeverity{sarifLevel(rule.Severity)},
		})
	}
	for _, rule := range r.rules() {
		add(rule)
	}
	for _, s := range r.Sources {
		if s != "-" {
			run.Artifacts = append(run.Artifacts, sarifFile{sarifURI{fileURI(s)}})
		}
	}
	for _, f := range r.Results {
		if _, ok := index[f.Rule.ID]; !ok {
			add(f.Rule)
		}
		run.Results = append(run.Results, sarifOf(f, index[f.Rule.ID]))
	}
	return encode(w, sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}})
}

func sarifOf(f Result, index int) sarifResult {
	full := "event " + utoa(f.Event)
	if f.Pointer != "" {
		full += " " + f.Pointer
	}
	loc := sarifLocation{Logical: []sarifLogical{{Name: "event " + utoa(f.Event), Full: full, Kind: "member"}}}
	if f.Source != "" && f.Source != "-" {
		loc.Physical = &sarifPhysical{sarifURI{fileURI(f.Source)}}
	}
	return sarifResult{
		RuleID: f.Rule.ID, RuleIndex: index, Level: sarifLevel(f.Rule.Severity), Message: sarifText{f.Message}, Locations: []sarifLocation{loc},
		Properties: sarifProperties{f.Event, f.Related, f.Method, revisionName(f.Revision)},
	}
}

func sarifLevel(s Severity) string {
	switch s {
	case Error:
		return "error"
	case Warning:
		return "warning"
	}
	return "note"
}

// fileURI makes a URI reference of a file's name, relative if the name is.
func fileURI(name string) string {
	name = filepath.ToSlash(name)
	u := url.URL{Path: name}
	if strings.HasPrefix(name, "/") {
		u.Scheme = "file"
	}
	return u.String()
}
