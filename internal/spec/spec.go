// Package spec reads Azure ML v2 YAML files and translates them into the words of the API: job.yml into a JobSpec, compute.yml into a
// ComputeSpec, and so on. It runs on the user's machine. It asks no server and stores nothing: what must be uploaded first it lists, and
// what only a server can know (labels, default places) it leaves to one. Whatever is wrong with a file is said at once, each with its
// place in the file, what was found and what is wanted.
package spec

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/trainyard/trainyard"
)

// Options say how to read a document.
type Options struct {
	Noun   string            // of the command line: job, compute, environment, data, datastore, workspace; "": the file must say it
	Set    []string          // "a.b[0].c=value", carried out in order; what is missing on the way is made
	Remove []string          // "a.b[0]", carried out after Set
	Flags  map[string]string // what Set was made of, where that is not --set itself: flags by path, for messages
	Limit  int64             // most bytes of a build context: see Snapshot; 0: SnapshotLimit
}

// Document is a file that was read, and is of a kind this build acts on.
type Document struct {
	Kind    Kind
	Name    string // "" if the file has none
	Version string // "" if the file has none
	File    string // as it was given; "" for a document made of Options.Set alone

	limit    int64
	root     *node
	problems *problems
}

// Load reads a YAML file. An empty path is a document made of Options.Set alone. Mistakes that can wait for the translation are
// reported by it, together with those it finds.
func Load(path string, opts Options) (*Document, error) {
	if path == "" {
		return Parse("", []byte("{}"), ".", opts)
	}
	data, err := slurp(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data, filepath.Dir(path), opts)
}

// commandLine is the source of what no file says.
const commandLine = "the command line"

// slurp reads a file, at most a byte more than will be accepted.
func slurp(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, trainyard.NotFound("there is no file %s", path)
	} else if err != nil {
		return nil, trainyard.Invalid("%s cannot be opened: %v", path, errors.Unwrap(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		return nil, trainyard.Invalid("%s is a folder: name the YAML file in it", path)
	}
	if err == nil && info.Mode().IsRegular() && info.Size() > maxFile {
		return nil, trainyard.Invalid("%s is %d KiB, and at most %d KiB are read: is it the right file?", path, info.Size()>>10, maxFile>>10)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+4)) // + a byte order mark and one byte too many
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return data, nil
}

// Parse reads a document from memory. name is for messages, dir is where its relative paths count from.
func Parse(name string, data []byte, dir string, opts Options) (*Document, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("find the folder of %s: %w", name, err)
	}
	p := &problems{}
	src := &source{name: name, dir: dir}
	root := read(src, data, p)
	if root == nil && len(opts.Set) > 0 && len(p.list) == 1 && p.list[0].text == emptyFile {
		root, p.list = &node{place: place{src: src}, kind: mapping}, nil
	}
	if root == nil {
		return nil, p.err(name)
	}
	if root.kind != mapping {
		p.at(root.place, "", "got %s, want a map: lines of \"name: value\"", root.words())
		return nil, p.err(name)
	}
	if name == "" {
		root.moved(&source{name: commandLine, dir: dir})
	}
	for _, arg := range opts.Set {
		set(root, arg, dir, opts.Flags, p)
	}
	for _, path := range opts.Remove {
		remove(root, path, p)
	}
	d := &Document{File: name, limit: cmp.Or(opts.Limit, SnapshotLimit), root: root, problems: p}
	d.detect(opts.Noun)
	if d.Kind == "" {
		return nil, p.err(name)
	}
	quiet := &fields{p: &problems{}, n: root}
	d.Name, d.Version = quiet.text("name"), quiet.version("version")
	return d, nil
}

// reader begins a translation: a reader of the document's fields that starts with the problems of loading it.
func (d *Document) reader(want Kind) (*fields, error) {
	if d.Kind != want {
		return nil, trainyard.Invalid("%s is of kind %s, not %s", d.File, d.Kind, want)
	}
	return &fields{p: d.problems.clone(), n: d.root}, nil
}

// end finishes a translation: the error with everything that is wrong, or nil.
func (d *Document) end(f *fields) error {
	f.done()
	name := d.File
	if name == "" {
		name = commandLine
	}
	return f.p.err(name)
}
