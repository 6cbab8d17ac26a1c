package web

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"strings"
)

//go:generate go -C ../../../../tools/bundle run .

// The files of the page, see the package comment.
var (
	//go:embed page/index.html
	indexHTML string
	//go:embed dist/main.css
	mainCSS string
	//go:embed dist/main.js
	mainJS string
)

// Elements of indexHTML, in this order. In an exported page, the files themselves stand in their
// place.
const (
	styleLink = `<link rel="stylesheet" href="/static/main.css">`
	scriptTag = `<script type="module" src="/static/main.js"></script>`
)

// A pageFile serves a file of the page.
type pageFile struct {
	body string
	mime string
	etag string
}

// newPageFile returns a file of a media type.
func newPageFile(body, mime string) pageFile {
	sum := sha256.Sum256([]byte(body))
	return pageFile{body: body, mime: mime, etag: `"` + hex.EncodeToString(sum[:12]) + `"`}
}

// ServeHTTP implements [http.Handler].
func (f pageFile) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Type", f.mime)
	// The next version of this program has other files at the same address.
	h.Set("Cache-Control", "no-cache")
	h.Set("ETag", f.etag)
	if strings.Contains(r.Header.Get("If-None-Match"), f.etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if r.Method != http.MethodHead {
		w.Write([]byte(f.body)) // errors mean that the client has disconnected
	}
}

// dataID is the id of the element with the data of an exported page.
const dataID = "mcpwire-data"

// exportedPage returns the parts of the self-contained page around JSON.
func exportedPage(data []byte) [3][]byte {
	head, rest, _ := strings.Cut(indexHTML, styleLink)
	body, tail, _ := strings.Cut(rest, scriptTag)
	// The policy must precede everything that it applies to.
	meta := `<meta http-equiv="Content-Security-Policy" content="` + exportPolicy() + `">` + "\n"
	head += meta + "<style>" + mainCSS + "</style>" + body + `<script type="application/json" id="` + dataID + `">`
	return [3][]byte{[]byte(head), insideHTML(data), []byte("</script>\n" + `<script type="module">` + mainJS + "</script>" + tail)}
}

// exportPolicy returns a policy that allows only the script and the style sheet of the page.
func exportPolicy() string {
	return "default-src 'none'; script-src " + hashSource(mainJS) + "; style-src " + hashSource(mainCSS) + "; img-src blob: data:; media-src blob:; base-uri 'none'; form-action 'none'"
}

func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// insideHTML escapes JSON for a script element, so that it can neither end the element nor begin a
// comment. The escaped characters occur only in JSON strings.
func insideHTML(text []byte) []byte {
	text = bytes.ReplaceAll(text, []byte("<"), []byte(`\u003c`))
	text = bytes.ReplaceAll(text, []byte(">"), []byte(`\u003e`))
	text = bytes.ReplaceAll(text, []byte("\u2028"), []byte(`\u2028`))
	return bytes.ReplaceAll(text, []byte("\u2029"), []byte(`\u2029`))
}
