package interop

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// guestTexts are the texts of surface_test.go that guests in other languages need.
var guestTexts = map[string]string{
	"greetingURI": greetingURI, "itemURI": itemURI, "logoURI": logoURI, "missingItem": missingItem, "askedURI": askedURI, "itemTemplate": itemTemplate,
}

// sendGuest runs a script in ts that visits s, and returns its report.
func sendGuest(t *testing.T, s *recordedServer, script string, mode any, able features) visit {
	t.Helper()
	node := node(t, 20)
	to := s.address()
	text, err := json.Marshal(map[string]any{"command": to.Command, "args": to.Args, "url": to.URL, "old": to.Old, "mode": mode, "able": able, "words": guestTexts})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, node, filepath.Join(nodeDir, script), string(text))
	out, err := s.output(cmd)
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	var v visit
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatalf("%s: decode report: %v in %q", script, err, out)
	}
	return v
}

// TestTypeScript1Visit lets a client of the SDK visit our server. The client accepts any revision
// that the server offers, so the server supports only one.
func TestTypeScript1Visit(t *testing.T) {
	for _, revision := range legacyRevisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			s := newProgram(t, everythingVerb, revision)
			able := featuresOf(revision)
			checkVisit(t, sendGuest(t, s, "guest1.mjs", nil, able), expected(revision, able))
			s.audit(1)
		})
	}
}

// TestTypeScript2Visit lets a client of the SDK visit our server.
func TestTypeScript2Visit(t *testing.T) {
	for _, revision := range allRevisions {
		t.Run(revision, func(t *testing.T) {
			t.Parallel()
			s := newProgram(t, everythingVerb, revision)
			var mode any = "legacy"
			processes := 1
			if revision == modern {
				mode, processes = map[string]string{"pin": modern}, 2 // it probes in a separate process
			}
			able := featuresOf(revision)
			want := expected(revision, able)
			want.Codes["missing resource"] = -32602 // it maps the older code to the newer one
			checkVisit(t, sendGuest(t, s, "guest2.mjs", mode, able), want)
			s.audit(processes)
		})
	}
}
