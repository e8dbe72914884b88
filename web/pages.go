package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed assets
var assets embed.FS

// pagePolicy lets pages load their own files and talk to their own box, nothing else.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// mediaTypes of the assets: the machine's own table may lack some or know them by another name.
var mediaTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// page is a fixed answer with a strong ETag.
type page struct {
	contentType, etag string
	body              []byte
}

func newPage(contentType string, body []byte) page {
	sum := sha256.Sum256(body)
	return page{contentType, `"` + hex.EncodeToString(sum[:8]) + `"`, body}
}

func (p *page) serve(rw http.ResponseWriter, r *http.Request) {
	h := rw.Header()
	h.Set("Content-Type", p.contentType)
	h.Set("ETag", p.etag)
	// Names carry no version, so browsers ask each time and mostly hear 304.
	h.Set("Cache-Control", "no-cache")
	h.Set("Content-Security-Policy", pagePolicy)
	if etagMatches(r.Header.Get("If-None-Match"), p.etag) {
		rw.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Length", strconv.Itoa(len(p.body)))
	rw.Write(p.body)
}

// addPages serves the documentation page and, with web.ui, the status page at /.
func (w *Web) addPages(mux *http.ServeMux) {
	entries, err := assets.ReadDir("assets")
	if err != nil {
		panic("web: assets are missing from the binary: " + err.Error())
	}
	for _, entry := range entries {
		name := entry.Name()
		body, err := assets.ReadFile("assets/" + name)
		if err != nil {
			panic("web: asset " + name + " cannot be read: " + err.Error())
		}
		p := newPage(mediaTypes[path.Ext(name)], body)
		switch {
		case name == "docs.html":
			mux.HandleFunc("GET "+apiRoot+"/docs", p.serve)
			mux.Handle("GET /docs", http.RedirectHandler(apiRoot+"/docs", http.StatusFound))
		case name == "status.html":
			if w.options.UI {
				mux.HandleFunc("GET /{$}", p.serve)
			}
		case !strings.HasSuffix(name, ".html"):
			mux.HandleFunc("GET /assets/"+name, p.serve)
		}
	}
}
