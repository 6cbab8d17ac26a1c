package traceparent

import "testing"

func TestParse(t *testing.T) {
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	tests := []struct {
		text  string
		flags string
		ok    bool
	}{
		{"00-" + trace + "-" + span + "-01", "01", true},
		{"00-" + trace + "-" + span + "-00", "00", true},
		{"cc-" + trace + "-" + span + "-01", "01", true},
		{"cc-" + trace + "-" + span + "-01-what-the-future-will-be-like", "01", true},
		{"", "", false},
		{"00-" + trace + "-" + span, "", false},
		{"00-" + trace + "-" + span + "-01-", "", false},
		{"00-" + trace + "-" + span + "-01-more", "", false},
		{"cc-" + trace + "-" + span + "-01.more", "", false},
		{"ff-" + trace + "-" + span + "-01", "", false},
		{"0-" + trace + "-" + span + "-01", "", false},
		{"0G-" + trace + "-" + span + "-01", "", false},
		{"00-" + trace[1:] + "-" + span + "-01", "", false},
		{"00-" + trace + "0-" + span + "-01", "", false},
		{"00-0AF7651916cd43dd8448eb211c80319c-" + span + "-01", "", false},
		{"00-" + trace + "-" + span + "-0", "", false},
		{"00-" + trace + "-" + span + "-0x", "", false},
		{"00-00000000000000000000000000000000-" + span + "-01", "", false},
		{"00-" + trace + "-0000000000000000-01", "", false},
		{"00-" + trace + "-" + span + "-01 ", "", false},
	}
	for _, tt := range tests {
		gotTrace, gotSpan, flags, ok := Parse(tt.text)
		if ok != tt.ok || flags != tt.flags || ok && (gotTrace != trace || gotSpan != span) {
			t.Errorf("%q: got %s, %s, %s, %v", tt.text, gotTrace, gotSpan, flags, ok)
		}
	}
}
