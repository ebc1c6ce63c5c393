package studio

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
)

//go:embed static
var static embed.FS

// asset is a file that pages load. Its name holds a hash of it, so it can be kept for ever.
type asset struct {
	body []byte
	kind string
}

// assets are by name with hash: "studio.0123456789ab.css"; names are those of the files without.
type assets struct {
	files map[string]asset
	names map[string]string
}

func loadAssets() assets {
	a := assets{files: map[string]asset{}, names: map[string]string{}}
	kinds := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	entries, err := static.ReadDir("static")
	if err != nil {
		panic(err) // embedded: cannot be missing from a program that was built
	}
	for _, e := range entries {
		body, err := static.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(body)
		ext := path.Ext(e.Name())
		hashed := strings.TrimSuffix(e.Name(), ext) + "." + hex.EncodeToString(sum[:6]) + ext
		a.files[hashed], a.names[e.Name()] = asset{body, kinds[ext]}, hashed
	}
	return a
}

func (a assets) url(name string) string { return "/studio/static/" + a.names[name] }

// sendAsset needs no session: the login page looks like the others.
func (d *door) sendAsset(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	file := r.PathValue("file")
	a, ok := d.assets.files[file]
	if !ok {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("ETag", `"`+file+`"`)
	if r.Header.Get("If-None-Match") == `"`+file+`"` {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	_, _ = w.Write(a.body)
}
