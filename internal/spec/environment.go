package spec

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/catalog"
	"go.yaml.in/yaml/v4"
)

// Asset is something to register: an environment, a data asset, a datastore, a workspace. It can be sent once its Uploads are done.
type Asset struct {
	Kind       trainyard.Kind
	Name       string
	Version    string // "" where the caller asks the server for the next one, and for kinds without versions
	Location   string // of a workspace
	Tags       map[string]string
	Identity   json.RawMessage // of a workspace
	Properties map[string]any  // ARM's "properties"
	Uploads    []Upload
	Warnings   []string
}

// JSON is ARM's "properties", for sending.
func (a *Asset) JSON() json.RawMessage { return asJSON(a.Properties) }

// Environment translates an environment file.
func (d *Document) Environment(trainyard.Scope) (*Asset, error) {
	f, err := d.reader(Environment)
	if err != nil {
		return nil, err
	}
	a := f.environment()
	a.Name, a.Version = f.name("name"), f.version("version")
	f.need("name")
	a.Properties["isAnonymous"] = false
	if err := d.end(f); err != nil {
		return nil, err
	}
	a.Warnings = f.p.notes
	return a, nil
}

// environment reads a job's environment: a reference, a file, or one written in place.
func (t *jobTranslator) environment() {
	n := t.get("environment")
	switch {
	case n == nil:
	case n.kind == mapping:
		t.inline(&fields{p: t.p, n: n, path: "environment"})
	case n.kind == list:
		t.wrong(n, "environment", "a reference such as azureml:NAME@latest, or a map with image or conda_file")
	case strings.HasPrefix(n.text, "file:"):
		t.environmentFile(n)
	case catalog.IsCurated(n.text):
		t.job.Spec.EnvironmentID = t.curated(n, "environment")
	case strings.HasPrefix(n.text, "azureml://"):
		t.wrong(n, "environment", "azureml://registries/azureml/environments/NAME/labels/latest")
	case strings.HasPrefix(n.text, "azureml:") || strings.HasPrefix(n.text, "/subscriptions/"):
		t.job.Spec.EnvironmentID = t.assetID(n, "environment", t.scope, trainyard.KindEnvironment)
	default:
		t.wrong(n, "environment", "azureml:NAME:VERSION, azureml:NAME@latest, file:PATH, or a map with image or conda_file"+t.meant(n))
	}
}

func (t *jobTranslator) meant(n *node) string {
	if _, err := os.Stat(onDisk(n.text, n.src.dir)); err == nil {
		return "; did you mean file:" + n.text + "?"
	}
	if strings.Contains(n.text, "/") {
		return "; did you mean {image: " + n.text + "}?"
	}
	return placeholderHint(n.text)
}

// environmentFile reads an environment out of a file of its own. Its relative paths count from that file.
func (t *jobTranslator) environmentFile(n *node) {
	path, isDir, ok := t.local(n, "environment")
	if !ok {
		return
	}
	if isDir {
		t.wrong(n, "environment", "a file, and it is a folder")
		return
	}
	data, err := slurp(path)
	if err != nil {
		t.p.at(n.place, "environment", "%v", err)
		return
	}
	name := path
	if rel, err := filepath.Rel(t.n.src.dir, path); err == nil {
		name = filepath.Join(filepath.Dir(t.n.src.name), rel)
	}
	root := read(&source{name: name, dir: filepath.Dir(path)}, data, t.p)
	if root == nil {
		return
	}
	if root.kind != mapping {
		t.p.at(root.place, "", "got %s, want an environment: a map with image, conda_file or build", root.words())
		return
	}
	t.inline(&fields{p: t.p, n: root})
}

// inline takes an environment that has no name in the workspace: it is registered under a hash of what it is made of.
func (t *jobTranslator) inline(f *fields) {
	before := len(t.p.list)
	a := f.environment()
	f.silent("version")
	if name := f.text("name"); name != "" && name != trainyard.AnonymousEnvironment {
		t.p.note("%s is not used: an environment written in place has no name of its own; register it to give it one", f.at("name"))
	}
	f.done()
	if len(t.p.list) > before {
		return
	}
	a.Properties["isAnonymous"] = true
	a.Name = trainyard.AnonymousEnvironment
	version, err := a.hash(t.limit)
	if err != nil {
		t.p.at(f.n.place, f.at("build.path"), "%v", err)
		return
	}
	a.Version = version
	t.job.Environment = a
	t.job.Uploads = append(t.job.Uploads, a.Uploads...)
	t.job.Spec.EnvironmentID = t.scope.Child(string(trainyard.KindEnvironment), a.Name, "versions", a.Version)
}

// hash is of everything that changes what is built; a build context counts with its content.
func (a *Asset) hash(limit int64) (string, error) {
	h := sha256.New()
	for _, key := range []string{"image", "condaFile", "build", "inferenceConfig", "osType"} {
		if v, ok := a.Properties[key]; ok {
			h.Write([]byte(key))
			h.Write(asJSON(v))
		}
	}
	for _, u := range a.Uploads {
		tree, err := Snapshot(u.Path, limit)
		if err != nil {
			return "", err
		}
		sum, err := tree.Hash()
		if err != nil {
			return "", err
		}
		h.Write([]byte(sum))
	}
	return hex.EncodeToString(h.Sum(nil))[:32], nil
}

// environment reads the fields that every environment has.
func (f *fields) environment() *Asset {
	a := &Asset{Kind: trainyard.KindEnvironment, Properties: map[string]any{}}
	f.silent("$schema", "id", "creation_context", "latest_version", "intellectual_property")
	put := func(key, text string) {
		if text != "" {
			a.Properties[key] = text
		}
	}
	put("image", f.text("image"))
	put("description", f.text("description"))
	put("osType", f.choice("os_type", "linux", "Linux", "windows", "Windows"))
	put("condaFile", f.conda("conda_file"))
	if tags := f.texts("tags", false); len(tags) > 0 {
		a.Tags, a.Properties["tags"] = tags, tags
	}
	if props := f.texts("properties", false); len(props) > 0 {
		a.Properties["properties"] = props
	}
	f.build(a)
	f.inference(a)
	f.noted("auto_delete_setting", "nothing is deleted by itself here")
	switch {
	case f.has("dependencies") || f.has("channels"):
		f.silent("dependencies", "channels", "prefix")
		f.p.at(f.n.place, f.path, "it looks like a conda file: write conda_file: with its path, or with its content below it")
	case f.has("image") && f.has("build"):
		f.p.at(f.place("build"), f.at("build"), "there is an image too: have one of them")
	case !f.has("image") && !f.has("build") && !f.has("conda_file"):
		f.p.at(f.n.place, f.path, "nothing says what to make it of: want image, conda_file or build")
	}
	return a
}

func (f *fields) build(a *Asset) {
	b, datastore := f.sub("build"), f.datastore()
	if b.n == nil {
		return
	}
	build := map[string]any{}
	a.Properties["build"] = build
	dockerfile := b.text("dockerfile_path")
	if dockerfile != "" {
		build["dockerfilePath"] = dockerfile
	}
	b.need("path")
	n := b.get("path")
	b.done()
	if n == nil || n.kind != scalar {
		return
	}
	if remote(n.text) {
		build["contextUri"] = n.text
		return
	}
	path, isDir, ok := b.local(n, "path")
	if !ok {
		return
	}
	if !isDir {
		b.wrong(n, "path", "the folder that holds the Dockerfile")
		return
	}
	if dockerfile == "" {
		dockerfile = "Dockerfile"
	}
	if _, err := os.Stat(filepath.Join(path, filepath.FromSlash(dockerfile))); err != nil {
		b.p.at(n.place, b.at("path"), "there is no %s in %s", dockerfile, path)
	}
	a.Uploads = append(a.Uploads, Upload{Field: b.at("path"), Path: path, IsDir: true, What: "context", Datastore: datastore,
		Set: func(uri string) { build["contextUri"] = uri }})
}

func (f *fields) inference(a *Asset) {
	c := f.sub("inference_config")
	if c.n == nil {
		return
	}
	config := map[string]any{}
	for field, key := range map[string]string{"liveness_route": "livenessRoute", "readiness_route": "readinessRoute", "scoring_route": "scoringRoute"} {
		if r := c.sub(field); r.n != nil {
			r.need("path")
			route := map[string]any{"path": r.text("path")}
			if port := r.integer("port", 1); port != nil {
				route["port"] = *port
			}
			r.done()
			config[key] = route
		}
	}
	c.done()
	a.Properties["inferenceConfig"] = config
}

// conda is the text of a conda file: written in place, or in a file of its own.
func (f *fields) conda(field string) string {
	n := f.get(field)
	switch {
	case n == nil:
		return ""
	case n.kind == mapping:
		checkConda(f.p, n, f.at(field))
		return n.yaml()
	case n.kind == list:
		f.wrong(n, field, "the path of a conda file, or its content as a map")
		return ""
	case remote(n.text):
		f.wrong(n, field, "a file on this machine: fetch it first")
		return ""
	}
	path, isDir, ok := f.local(n, field)
	if !ok {
		return ""
	}
	if isDir {
		f.wrong(n, field, "a file, and it is a folder")
		return ""
	}
	data, err := slurp(path)
	if err != nil {
		f.p.at(n.place, f.at(field), "%v", err)
		return ""
	}
	shown := filepath.Join(filepath.Dir(n.src.name), n.text)
	if filepath.IsAbs(n.text) {
		shown = path
	}
	root := read(&source{name: shown, dir: filepath.Dir(path)}, data, f.p)
	if root == nil {
		return ""
	}
	checkConda(f.p, root, "")
	return strings.ReplaceAll(strings.TrimPrefix(string(data), "\ufeff"), "\r\n", "\n")
}

// checkConda looks whether a tree is a conda file.
func checkConda(p *problems, n *node, at string) {
	deps := n.get("dependencies")
	switch {
	case n.kind != mapping:
		p.at(n.place, at, "got %s, want a conda file: a map with dependencies", n.words())
	case deps.null():
		p.at(n.place, join(at, "dependencies"), "it is missing: a conda file lists its packages there")
	case deps.kind != list:
		p.at(deps.place, join(at, "dependencies"), "got %s, want a list of packages", deps.words())
	default:
		for _, d := range deps.values {
			if d.kind == list || d.kind == scalar && d.typ != isString || d.kind == mapping && d.get("pip").null() {
				p.at(d.place, join(at, "dependencies"), "got %s, want a package such as python=3.11, or pip: with a list", d.words())
			}
		}
	}
}

// yaml writes the tree as YAML text that means the same to readers of YAML 1.1 and 1.2.
func (n *node) yaml() string {
	data, err := yaml.Dump(n.tree())
	if err != nil {
		return ""
	}
	return string(data)
}

func (n *node) tree() *yaml.Node {
	switch n.kind {
	case mapping:
		y := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
		for i, k := range n.keys {
			y.Content = append(y.Content, k.tree(), n.values[i].tree())
		}
		return y
	case list:
		y := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		for _, v := range n.values {
			y.Content = append(y.Content, v.tree())
		}
		return y
	}
	y := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: n.text}
	if n.typ != isString {
		y.Tag = ""
	} else if typ, _ := resolve(n.text); typ != isString {
		y.Style = yaml.DoubleQuotedStyle
	}
	return y
}
