package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const wellKnownMetadata = "/.well-known/oauth-protected-resource"

// resourceMetadata is the document of https://www.rfc-editor.org/rfc/rfc9728#section-2.
type resourceMetadata struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	ScopesSupported      []string `json:"scopes_supported,omitempty"`
	BearerMethods        []string `json:"bearer_methods_supported"`
	Name                 string   `json:"resource_name,omitempty"`
	Documentation        string   `json:"resource_documentation,omitempty"`
	DPoPAlgorithms       []string `json:"dpop_signing_alg_values_supported,omitempty"`
	DPoPRequired         bool     `json:"dpop_bound_access_tokens_required,omitempty"`
}

// buildMetadata makes the metadata, if there are authorization servers.
func (g *Guard) buildMetadata(o *GuardOptions) error {
	servers := unique(o.AuthorizationServers)
	if len(servers) == 0 {
		if o.MetadataURL != "" {
			return errors.New("auth: metadata without authorization servers")
		}
		return nil
	}
	if g.resource == "" {
		return errors.New("auth: metadata needs the URL of the resource")
	}
	for _, s := range servers {
		if u, err := checkEndpoint(s); err != nil {
			return fmt.Errorf("auth: authorization server: %w", err)
		} else if u.RawQuery != "" || u.ForceQuery {
			return errors.New("auth: the URL of an authorization server has a query")
		}
	}
	origin := originURL(g.resource)
	path := strings.TrimPrefix(g.resource, origin)
	g.metadataPaths = slices.Compact([]string{wellKnownMetadata + path, wellKnownMetadata})
	g.metadataURL = origin + wellKnownMetadata + path
	if o.MetadataURL != "" {
		u, err := checkEndpoint(o.MetadataURL)
		if err != nil {
			return fmt.Errorf("auth: metadata: %w", err)
		}
		g.metadataURL = u.String() // escapes what would not fit into a quoted string
	}
	doc := resourceMetadata{
		Resource: g.resource, AuthorizationServers: servers, ScopesSupported: unique(o.ScopesSupported), BearerMethods: []string{"header"},
		Name: o.Name, Documentation: o.Documentation,
	}
	if g.dpop != nil {
		doc.DPoPAlgorithms, doc.DPoPRequired = g.dpop.names, g.dpop.required
	}
	text, err := json.Marshal(doc)
	g.metadata = text
	return err
}

// MetadataPaths returns the paths that the metadata should be served at: the well-known one of the resource, and that of the root, where some clients look
// too. A resource without a path has one, a guard without authorization servers none.
// See https://modelcontextprotocol.io/specification/2026-07-28/basic/authorization#protected-resource-metadata-discovery-requirements.
func (g *Guard) MetadataPaths() []string { return slices.Clone(g.metadataPaths) }

// MetadataURL returns where clients are told to find the metadata, or "" if there is none.
func (g *Guard) MetadataURL() string { return g.metadataURL }

// Metadata returns a handler that serves the metadata of the resource (https://www.rfc-editor.org/rfc/rfc9728), to everyone and every web page. Without
// authorization servers it answers 404.
func (g *Guard) Metadata() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		if g.metadata == nil {
			http.Error(w, http.StatusText(http.StatusNotFound), http.StatusNotFound)
			return
		}
		h.Set("Access-Control-Allow-Origin", "*")
		switch r.Method {
		case http.MethodGet, http.MethodHead:
			h.Set("Content-Type", "application/json")
			h.Set("Cache-Control", "max-age=300")
			h.Set("Content-Length", strconv.Itoa(len(g.metadata)))
			if r.Method == http.MethodGet {
				_, _ = w.Write(g.metadata) // the client is gone
			}
		case http.MethodOptions:
			h.Set("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")
			h.Set("Access-Control-Allow-Headers", "*")
			h.Set("Access-Control-Max-Age", "86400")
			w.WriteHeader(http.StatusNoContent)
		default:
			h.Set("Allow", "GET, HEAD, OPTIONS")
			w.WriteHeader(http.StatusMethodNotAllowed)
		}
	})
}

// Handler returns a handler that serves the metadata at [Guard.MetadataPaths], and protects next from everything else.
func (g *Guard) Handler(next http.Handler) http.Handler {
	metadata, protected := g.Metadata(), g.Protect(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slices.Contains(g.metadataPaths, r.URL.EscapedPath()) {
			metadata.ServeHTTP(w, r)
			return
		}
		protected.ServeHTTP(w, r)
	})
}
