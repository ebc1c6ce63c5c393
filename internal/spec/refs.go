package spec

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/catalog"
)

// Upload is something on this machine that must reach the server before the document can be sent. The caller uploads it and calls Set.
type Upload struct {
	Field     string           // that names it: "code", "inputs.data.path"
	Path      string           // absolute
	IsDir     bool             // a folder; else a file
	What      string           // "code", "input", "context" (of an image build) or "data"
	Datastore string           // where the user wants it; "": the default one
	Set       func(uri string) // puts the URI, for code the ARM id, where it belongs
}

var (
	assetName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,254}$`)
	assetRef  = regexp.MustCompile(`^([^:@/\s]+)(?:([:@])([^:@/\s]+))?$`)
	remoteURI = regexp.MustCompile(`(?i)^(?:azureml|https?|wasbs?|abfss?|adl|s3|gs|hdfs)://\S+$|^runs:/\S+$`)
	anyScheme = regexp.MustCompile(`(?i)^[a-z][a-z0-9+.-]+://`)
)

// name is a field that names a thing, which must be spelled so that it can stand in a path of the API.
func (f *fields) name(field string) string {
	text := f.text(field)
	if text != "" && !assetName.MatchString(text) {
		f.wrong(f.n.get(field), field, "a name of letters, digits, -, _ and ."+placeholderHint(text))
	}
	return text
}

func placeholderHint(text string) string {
	if strings.ContainsAny(text, "<>{}") {
		return ": it looks like a place to fill in"
	}
	return ""
}

// assetID is the ARM id that a reference to an asset of the workspace stands for: azureml:NAME:VERSION, azureml:NAME@LABEL or an ARM id.
// A name alone means its latest version. "" means that a problem was said.
func (f *fields) assetID(n *node, field string, scope trainyard.Scope, kind trainyard.Kind) string {
	text := strings.TrimPrefix(n.text, "azureml:")
	if strings.HasPrefix(text, "/") {
		id, err := trainyard.ParseID(text)
		if err != nil || id.Kind != kind {
			f.wrong(n, field, "the ARM id of one of the workspace's "+string(kind))
			return ""
		}
		if id.Version == "" && id.Label == "" {
			id.Label = "latest"
		}
		return id.String()
	}
	m := assetRef.FindStringSubmatch(text)
	if m == nil || !assetName.MatchString(m[1]) {
		f.wrong(n, field, "azureml:NAME:VERSION or azureml:NAME@LABEL"+placeholderHint(n.text))
		return ""
	}
	name, sign, version := m[1], m[2], m[3]
	switch {
	case sign == ":" && strings.EqualFold(version, "latest"):
		f.p.note("%s: %s is an old spelling: write azureml:%s@latest", f.at(field), n.text, name)
		fallthrough
	case sign == "":
		return scope.Child(string(kind), name, "labels", "latest")
	case sign == "@":
		return scope.Child(string(kind), name, "labels", version)
	}
	return scope.Child(string(kind), name, "versions", version)
}

// compute is the ARM id of the compute a job names; "" is serverless.
func (f *fields) compute(field string, scope trainyard.Scope) string {
	n := f.get(field)
	if n == nil {
		return ""
	}
	text := strings.TrimPrefix(f.text(field), "azureml:")
	switch {
	case n.kind != scalar || strings.EqualFold(text, "serverless"):
		return ""
	case strings.HasPrefix(text, "/"):
		id, err := trainyard.ParseID(text)
		if err != nil || id.Kind != trainyard.KindCompute {
			f.wrong(n, field, "the ARM id of one of the workspace's computes")
		}
		return id.String()
	case strings.Contains(text, "${{"):
		f.wrong(n, field, "the name of a compute: expressions are for pipelines")
		return ""
	case !assetName.MatchString(text):
		f.wrong(n, field, "the name of a compute, such as azureml:cpu-cluster"+placeholderHint(text))
		return ""
	}
	return scope.Child(string(trainyard.KindCompute), text)
}

// datastore is the name of the datastore to upload to; "" is the default one.
func (f *fields) datastore() string {
	name := strings.TrimPrefix(f.text("datastore"), "azureml:")
	if name != "" && !assetName.MatchString(name) {
		f.wrong(f.n.get("datastore"), "datastore", "the name of a datastore"+placeholderHint(name))
	}
	return name
}

// curated checks a reference to a curated environment and returns it as it was written.
func (f *fields) curated(n *node, field string) string {
	if _, err := catalog.Resolve(n.text); err != nil {
		f.p.at(n.place, f.at(field), "%v", err)
	}
	return n.text
}

// remote says whether a text is an address that is not on this machine.
func remote(text string) bool { return remoteURI.MatchString(text) }

// uri checks an address that the server will read.
func (f *fields) uri(n *node, field string) string {
	if strings.HasPrefix(n.text, "azureml://") && strings.Contains(n.text, "/datastores/") || strings.HasPrefix(n.text, "azureml://datastores/") {
		if _, err := trainyard.ParseDataPath(trainyard.DefaultScope(), n.text); err != nil {
			f.p.at(n.place, f.at(field), "%v", err)
		}
	}
	return n.text
}

// local finds the file or folder on this machine that a path names. ok is false where it is not there; a problem was said then.
func (f *fields) local(n *node, field string) (path string, isDir, ok bool) {
	if anyScheme.MatchString(n.text) && !strings.HasPrefix(n.text, "file://") {
		f.wrong(n, field, "a path on this machine, or an address that begins with https://, azureml://, wasbs:// or abfss://")
		return "", false, false
	}
	path = onDisk(n.text, n.src.dir)
	info, err := os.Stat(path)
	if err != nil {
		f.p.at(n.place, f.at(field), "there is no file or folder %s (looked for %s)%s", n.words(), path, placeholderHint(n.text))
		return "", false, false
	}
	return path, info.IsDir(), true
}

// onDisk is the absolute path that a text in a file of the folder dir names: file: and file:// in front and ~ for the user's home are
// understood.
func onDisk(text, dir string) string {
	path := strings.TrimPrefix(strings.TrimPrefix(text, "file:"), "//")
	if rest, home := strings.CutPrefix(path, "~"); home && (rest == "" || rest[0] == '/' || rest[0] == '\\') {
		if h, err := os.UserHomeDir(); err == nil {
			path = h + rest
		}
	}
	path = filepath.FromSlash(path)
	if !filepath.IsAbs(path) {
		path = filepath.Join(dir, path)
	}
	return filepath.Clean(path)
}
