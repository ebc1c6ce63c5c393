package studio

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/identity"
)

// filesAtMost are listed of each group on a page.
const filesAtMost = 100

// fileGroup is a list of files with links to them.
type fileGroup struct {
	Title string
	Files []fileLink
	More  int // that are not listed
}

type fileLink struct {
	Name, URL, Size string
	When            moment
}

// artifacts is the prefix of all that a job leaves behind.
func artifacts(scope trainyard.Scope, job string) string {
	return trainyard.DataPath{Scope: scope, Datastore: trainyard.ArtifactDatastore, Path: "ExperimentRun/dcid." + job}.Key()
}

// filesOf lists what a job left behind: its artifacts, and its outputs as far as they are kept here.
func (d *door) filesOf(v *visit, j *trainyard.Job) ([]fileGroup, error) {
	base := "/jobs/" + url.PathEscape(j.Name)
	group, err := d.list(v, "Artifacts", artifacts(j.Scope, j.Name)+"/", base+"/files/")
	if err != nil {
		return nil, err
	}
	groups := []fileGroup{group}
	for _, name := range sortedKeys(j.Plan.Outputs) {
		key, err := outputKey(v, j, name)
		if err != nil {
			continue // it is elsewhere; its address is shown
		}
		if group, err = d.list(v, "Output "+name, key+"/", base+"/outputs/"+url.PathEscape(name)+"/"); err != nil {
			return nil, err
		}
		if len(group.Files) > 0 {
			groups = append(groups, group)
		}
	}
	return groups, nil
}

func (d *door) list(v *visit, title, prefix, base string) (fileGroup, error) {
	all, err := d.Files.List(v.Context(), prefix)
	if err != nil {
		return fileGroup{}, err
	}
	g := fileGroup{Title: title}
	for _, f := range all {
		name := strings.TrimPrefix(f.Key, prefix)
		if len(g.Files) == filesAtMost {
			g.More = len(all) - filesAtMost
			break
		}
		g.Files = append(g.Files, fileLink{Name: name, URL: v.link(base + escapePath(name)), Size: size(f.Size), When: momentOf(v.now, f.Modified)})
	}
	return g, nil
}

func escapePath(p string) string {
	parts := strings.Split(p, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// outputKey is where an output's files are, without a slash at its end, if that is in a datastore of the workspace and the visitor may
// read it. Outputs can be sent anywhere; that a job may write to a place gives nobody the right to read it.
func outputKey(v *visit, j *trainyard.Job, name string) (string, error) {
	out, ok := j.Plan.Outputs[name]
	p, err := trainyard.ParseDataPath(j.Scope, out.URI)
	if !ok || err != nil || p.Scope.Fold() != j.Scope.Fold() || strings.Trim(p.Path, "/") == "" {
		return "", trainyard.NotFound("job %q has no output %q in a datastore of its workspace", j.Name, name)
	}
	if err := v.may(identity.Read, trainyard.KindDatastore, p.Datastore); err != nil {
		return "", err
	}
	return strings.TrimRight(p.Key(), "/"), nil
}

// sendFile sends an artifact, logs among them.
func (d *door) sendFile(v *visit) error {
	j, err := d.Jobs.Job(v.Context(), v.scope, v.PathValue("name"))
	if err != nil {
		return err
	}
	return d.send(v, artifacts(j.Scope, j.Name))
}

// sendOutput sends a file of a named output.
func (d *door) sendOutput(v *visit) error {
	j, err := d.Jobs.Job(v.Context(), v.scope, v.PathValue("name"))
	if err != nil {
		return err
	}
	key, err := outputKey(v, j, v.PathValue("output"))
	if err != nil {
		return err
	}
	return d.send(v, key)
}

// send sends the file below folder that the path names. A browser shows text and pictures, and never runs anything of it.
func (d *door) send(v *visit, folder string) error {
	name := v.PathValue("path")
	if !fs.ValidPath(name) || name == "." {
		return trainyard.Invalid("%q is not the path of a file", name)
	}
	key := folder + "/" + name
	r, info, err := d.Files.Open(v.Context(), key, 0)
	if err != nil {
		return err
	}
	r.Close()
	h := v.w.Header()
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'")
	kind, inline := kindOf(name)
	h.Set("Content-Type", kind)
	how := "attachment"
	if inline && v.URL.Query().Get("download") == "" {
		how = "inline"
	}
	h.Set("Content-Disposition", mime.FormatMediaType(how, map[string]string{"filename": path.Base(name)}))
	if info.ETag != "" {
		h.Set("ETag", `"`+strings.Trim(info.ETag, `"`)+`"`)
	}
	body := &seeker{ctx: v.Context(), files: d.Files, key: key, size: info.Size}
	defer body.Close()
	http.ServeContent(v.w, v.Request, "", info.Modified, body)
	return nil
}

// kindOf is the type that a file is sent as, and whether a browser may show it.
func kindOf(name string) (kind string, inline bool) {
	switch ext := strings.ToLower(path.Ext(name)); ext {
	case ".png", ".jpg", ".jpeg", ".gif", ".webp":
		return map[string]string{".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp"}[ext], true
	case ".txt", ".log", ".out", ".err", ".csv", ".tsv", ".json", ".jsonl", ".yaml", ".yml", ".toml", ".ini", ".md", ".py", ".sh", ".r":
		return "text/plain; charset=utf-8", true
	}
	return "application/octet-stream", false
}

// seeker reads stored bytes from where it is told to, as http.ServeContent wants it. It ends where the file ended when it was asked for.
type seeker struct {
	ctx   context.Context // of the request that it lives for
	files Files
	key   string
	size  int64
	at    int64
	open  io.ReadCloser
}

func (s *seeker) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.at
	case io.SeekEnd:
		offset += s.size
	}
	if offset < 0 {
		return s.at, errors.New("seek before the beginning")
	}
	if offset != s.at {
		s.Close()
	}
	s.at = offset
	return offset, nil
}

func (s *seeker) Read(p []byte) (int, error) {
	left := s.size - s.at
	if left <= 0 {
		return 0, io.EOF
	}
	if s.open == nil {
		r, _, err := s.files.Open(s.ctx, s.key, s.at)
		if err != nil {
			return 0, err
		}
		s.open = r
	}
	n, err := s.open.Read(p[:min(int64(len(p)), left)])
	s.at += int64(n)
	return n, err
}

func (s *seeker) Close() error {
	if s.open == nil {
		return nil
	}
	r := s.open
	s.open = nil
	return r.Close()
}
