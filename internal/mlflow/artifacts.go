package mlflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// The artifact proxy: what clients call mlflow-artifacts:/PATH. A PATH is one of
//
//	{experiment}/{run}/artifacts/…          the run's artifacts, those of the job that it is
//	{experiment}/models/{id}/artifacts/…    a logged model's that no run made
//	{experiment}/traces/{id}/artifacts/…    a trace's
//	datastores/{name}/…                     files of a datastore, to be read: registered models are there

// spot is a place in the proxy.
type spot struct {
	prefix   string // blob key of its root, without a slash at its end
	path     string // below it, clean; "" is the root
	run      string // whose it is, if a run's
	model    string
	trace    string
	readOnly bool
}

// key is the blob key of the place.
func (s spot) key() string {
	if s.path == "" {
		return s.prefix
	}
	return s.prefix + "/" + s.path
}

// artifacts is the blob prefix, without a slash at its end, of all that a run leaves behind. Package output has the same for jobs.
func artifacts(scope trainyard.Scope, run string) string {
	return trainyard.DataPath{Scope: scope, Datastore: trainyard.ArtifactDatastore, Path: "ExperimentRun/dcid." + run}.Key()
}

// datastoreName keeps out what would name the container of another workspace: that has dots in it.
var datastoreName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,254}$`)

// locate says what a path in the proxy means.
func locate(scope trainyard.Scope, p string) (spot, error) {
	p = strings.Trim(p, "/")
	parts := strings.Split(p, "/")
	for _, part := range parts {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, "\\\x00") {
			return spot{}, trainyard.Invalid("Invalid path: %q has the part %q", cut(p, 200), part)
		}
	}
	at := func(i int) string {
		if i < len(parts) {
			return parts[i]
		}
		return ""
	}
	rest := func(i int) string { return strings.Join(parts[min(i, len(parts)):], "/") }
	switch {
	case at(0) == "datastores" && datastoreName.MatchString(at(1)) && !trainyard.Kind(strings.ToLower(at(1))).Versioned():
		return spot{prefix: trainyard.DataPath{Scope: scope, Datastore: strings.ToLower(at(1))}.Container(), path: rest(2), readOnly: true}, nil
	case at(1) == "models" && strings.HasPrefix(at(2), "m-") && at(3) == "artifacts" && recordID.MatchString(at(2)):
		return spot{prefix: artifacts(scope, at(2)), path: rest(4), model: at(2)}, nil
	case at(1) == "traces" && strings.HasPrefix(at(2), "tr-") && at(3) == "artifacts" && recordID.MatchString(at(2)):
		return spot{prefix: strings.TrimSuffix(traceKey(scope, at(2)), "log.jsonl") + "artifacts", path: rest(4), trace: at(2)}, nil
	case at(2) == "artifacts" && runID.MatchString(at(1)):
		return spot{prefix: artifacts(scope, at(1)), path: rest(3), run: at(1)}, nil
	}
	return spot{}, trainyard.NotFound("there are no artifacts at %q: want EXPERIMENT_ID/RUN_ID/artifacts/PATH", cut(p, 200))
}

// mayChange refuses to write where the caller may not, or where the server writes itself.
func (d *door) mayChange(c *call, s spot) error {
	switch {
	case s.readOnly:
		return forbidden("artifacts of datastores are read here and not written; store them with the workspace's tools, or in a run")
	case s.run != "":
		if top, _, _ := strings.Cut(s.path, "/"); top == "user_logs" || top == "system_logs" {
			return forbidden("%s of run \"%s\" holds what its processes said and is written by the server alone; choose another artifact path", top, s.run)
		}
		return d.mayWriteRun(c, s.run)
	case s.model != "":
		m, err := d.model(c.Context(), c.scope, s.model)
		if err != nil {
			return err
		}
		return d.mayWrite(c, "logged model \""+s.model+"\"", m.Owner, m.Run)
	}
	t, err := d.trace(c.Context(), c.scope, s.trace)
	if err != nil {
		return err
	}
	return d.mayWrite(c, "trace \""+s.trace+"\"", t.owner, "")
}

func (d *door) putArtifact(c *call) error {
	s, err := locate(c.scope, c.rest)
	if err != nil {
		return err
	}
	if s.path == "" {
		return trainyard.Invalid("Invalid path: %q names no file", c.rest)
	}
	if err := d.mayChange(c, s); err != nil {
		return err
	}
	body := &sized{r: c.Body, want: c.ContentLength}
	if _, err := d.Blobs.PutWith(c.Context(), s.key(), body, c.Header.Get("Content-Type"), nil, false); err != nil {
		return cmp.Or(body.err, err)
	}
	return c.done()
}

// sized is a body that is as long as its header says; a connection that breaks must not leave a part that looks whole.
type sized struct {
	r    io.Reader
	want int64 // -1: not known
	got  int64
	err  error
}

func (s *sized) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.got += int64(n)
	if err == io.EOF && s.want >= 0 && s.got != s.want {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		s.err = trainyard.Invalid("the artifact broke off after %d bytes: send it again", s.got)
	}
	return n, err
}

func (d *door) getArtifact(c *call) error {
	s, err := locate(c.scope, c.rest)
	if err != nil {
		return err
	}
	missing := trainyard.NotFound("there is no artifact %q", c.rest)
	if s.path == "" {
		return missing
	}
	at, err := d.Blobs.Stat(c.Context(), s.key())
	if err != nil {
		if isMissing(err) {
			err = missing
		}
		return err
	}
	head := c.w.Header()
	head.Set("Content-Type", cmp.Or(at.Type, "application/octet-stream"))
	head.Set("Content-Disposition", "attachment")
	head.Set("Etag", `"`+at.ETag+`"`)
	// What a run stores is not this server's word: a browser must not run it.
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", "sandbox")
	r := &seeker{ctx: c.Context(), blobs: d.Blobs, key: s.key(), size: at.Size, etag: at.ETag}
	defer r.Close()
	http.ServeContent(c.w, c.Request, "", at.Modified, r)
	if r.err != nil {
		d.Log.Error("artifact cut short", "key", s.key(), "error", r.err)
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}
	return nil
}

// seeker reads an object from where it is wanted, and opens it only then. A log that grows meanwhile ends where it ended at first.
type seeker struct {
	ctx    context.Context
	blobs  Bucket
	key    string
	size   int64
	etag   string
	offset int64
	open   io.ReadCloser
	err    error
}

func (s *seeker) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.offset
	case io.SeekEnd:
		offset += s.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning")
	}
	if offset != s.offset {
		s.Close()
	}
	s.offset = offset
	return offset, nil
}

func (s *seeker) Read(p []byte) (int, error) {
	if s.offset >= s.size {
		return 0, io.EOF
	}
	if s.open == nil {
		r, at, err := s.blobs.OpenRange(s.ctx, s.key, s.offset, s.size-s.offset)
		if err == nil && at.Size < s.size {
			r.Close()
			err = fmt.Errorf("%s became shorter", s.key)
		}
		if err != nil {
			s.err = err
			return 0, err
		}
		s.open = r
	}
	n, err := s.open.Read(p)
	s.offset += int64(n)
	if err == io.EOF && s.offset < s.size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

func (s *seeker) Close() error {
	if s.open == nil {
		return nil
	}
	err := s.open.Close()
	s.open = nil
	return err
}

// deleteArtifact removes a file, or everything below a folder.
func (d *door) deleteArtifact(c *call) error {
	s, err := locate(c.scope, c.rest)
	if err != nil {
		return err
	}
	if s.path == "" && s.run != "" {
		return forbidden("all artifacts of run \"%s\" at once are deleted with its job; name a file or a folder", s.run)
	}
	if err := d.mayChange(c, s); err != nil {
		return err
	}
	if err := d.Blobs.Delete(c.Context(), s.key()); err != nil && !isMissing(err) {
		return err
	}
	if err := d.Blobs.DeletePrefix(c.Context(), s.key()+"/"); err != nil {
		return err
	}
	return c.done()
}

type fileView struct {
	Path string `json:"path"`
	Dir  bool   `json:"is_dir"`
	Size *int64 `json:"file_size,omitempty"`
}

// children lists what is directly below a place; names are relative to it. Below a file there is nothing.
func (d *door) children(ctx context.Context, s spot) ([]fileView, error) {
	files := []fileView{}
	prefix, marker := s.key()+"/", ""
	for {
		items, dirs, next, err := d.Blobs.Page(ctx, prefix, "/", marker, 1000)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			files = append(files, fileView{Path: strings.TrimPrefix(it.Key, prefix), Size: &it.Size})
		}
		for _, dir := range dirs {
			files = append(files, fileView{Path: strings.Trim(strings.TrimPrefix(dir, prefix), "/"), Dir: true})
		}
		if next == "" {
			break
		}
		marker = next
	}
	slices.SortFunc(files, func(a, b fileView) int { return strings.Compare(a.Path, b.Path) })
	return files, nil
}

// listArtifacts is the proxy's list: paths are relative to the one that is asked for.
func (d *door) listArtifacts(c *call) error {
	s, err := locate(c.scope, c.URL.Query().Get("path"))
	if err != nil {
		return err
	}
	files, err := d.children(c.Context(), s)
	if err != nil {
		return err
	}
	return c.reply(map[string]any{"files": files})
}

// listRunArtifacts is tracking's list: paths are relative to the run's root.
func (d *door) listRunArtifacts(c *call) error {
	var ask struct {
		runAsk
		Path string `json:"path"`
	}
	if err := c.decode(&ask); err != nil {
		return err
	}
	r, err := d.run(c.Context(), c.scope, ask.id())
	if err != nil {
		return err
	}
	return d.listBelow(c, r.Experiment+"/"+r.ID+"/artifacts", ask.Path, r.Location)
}

func (d *door) listModelArtifacts(c *call) error {
	m, err := d.model(c.Context(), c.scope, c.id)
	if err != nil {
		return err
	}
	return d.listBelow(c, strings.TrimPrefix(m.Location, "mlflow-artifacts:/"), c.URL.Query().Get("artifact_directory_path"), m.Location)
}

func (d *door) listBelow(c *call, root, below, uri string) error {
	s, err := locate(c.scope, root+"/"+strings.Trim(below, "/"))
	if err != nil {
		return err
	}
	files, err := d.children(c.Context(), s)
	if err != nil {
		return err
	}
	for i := range files {
		files[i].Path = path.Join(strings.Trim(below, "/"), files[i].Path)
	}
	return c.reply(map[string]any{"root_uri": uri, "files": files})
}
