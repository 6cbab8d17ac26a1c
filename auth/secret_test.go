package auth_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"mcpwire/auth"
)

func TestSecretIsNotPrinted(t *testing.T) {
	s := auth.NewSecret("SECRET")
	type inner struct{ hidden auth.Secret }
	v := struct {
		S auth.Secret
		P *auth.Secret
		I inner
		M map[string]auth.Secret
		O auth.IntrospectionOptions
	}{s, &s, inner{s}, map[string]auth.Secret{"x": s}, auth.IntrospectionOptions{ClientSecret: s}}
	j, err := json.Marshal(map[string]any{"s": s, "m": v.M})
	if err != nil {
		t.Fatal(err)
	}
	hex := fmt.Sprintf("%x", "SECRET")
	var text, object strings.Builder
	slog.New(slog.NewTextHandler(&text, nil)).Info("", "s", s, "v", v)
	slog.New(slog.NewJSONHandler(&object, nil)).Info("", "s", s, "v", v)
	for _, text := range []string{fmt.Sprintf("%v %+v %#v", v, v, v), fmt.Sprintf("%s %q %x %d", s, s, s, s), string(j), text.String(), object.String()} {
		for _, bad := range []string{"SECRET", hex, base64.StdEncoding.EncodeToString([]byte("SECRET"))} {
			if text == "" || strings.Contains(text, bad) {
				t.Errorf("%q is in %q", bad, text)
			}
		}
	}
	if s.Reveal() != "SECRET" || !(auth.Secret{}).IsZero() || auth.NewSecret("").Reveal() != "" {
		t.Error("Reveal does not return the text")
	}
}
