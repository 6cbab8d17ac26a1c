package auth_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"mcpwire/auth"
)

// A server that accepts the tokens of a program and those of users tries one verifier after the
// other.
func ExampleAnyOf() {
	program, err := auth.NewStatic(auth.StaticToken{Token: "f3a9c1d27e5b48069d1c", Subject: "ci"})
	if err != nil {
		fmt.Println(err)
		return
	}
	users, err := auth.NewStatic(auth.StaticToken{Token: "0b7e61f8a2c94d35b7aa", Subject: "ada"})
	if err != nil {
		fmt.Println(err)
		return
	}
	verifier := auth.AnyOf(program, users)
	for _, token := range []string{"0b7e61f8a2c94d35b7aa", "wrong"} {
		p, err := verifier.Verify(context.Background(), token)
		if err != nil {
			fmt.Println(errors.Is(err, auth.ErrInvalidToken))
			continue
		}
		fmt.Println(p.Subject)
	}
	// Output:
	// ada
	// true
}

// The authorization server says whether a token is active.
func ExampleNewIntrospection() {
	login := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.FormValue("token") != "good" {
			fmt.Fprint(w, `{"active":false}`)
			return
		}
		fmt.Fprint(w, `{"active":true,"iss":"https://login.example.com","sub":"ada","scope":"read write","aud":"https://api.example.com/mcp"}`)
	}))
	defer login.Close()
	verifier, err := auth.NewIntrospection(&auth.IntrospectionOptions{
		Endpoint:     login.URL,
		ClientID:     "api",
		ClientSecret: auth.NewSecret("b51c0d8e"),
		Issuer:       "https://login.example.com",
		Audiences:    []string{"https://api.example.com/mcp"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	p, err := verifier.Verify(context.Background(), "good")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(p.Subject, p.Scopes)
	_, err = verifier.Verify(context.Background(), "stolen")
	fmt.Println(errors.Is(err, auth.ErrInvalidToken))
	// Output:
	// ada [read write]
	// true
}

// A program that authenticates in another way, such as with client certificates, says so with
// WithPrincipal. Handlers see no difference.
func ExampleWithPrincipal() {
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("hello", auth.PrincipalOf(r.Context()).Subject)
	})
	withCertificate := func(w http.ResponseWriter, r *http.Request) {
		ctx := auth.WithPrincipal(r.Context(), &auth.Principal{Subject: "node7"})
		handler.ServeHTTP(w, r.WithContext(ctx))
	}
	withCertificate(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	// Output: hello node7
}
