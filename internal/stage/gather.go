package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// gather lists files to upload. It follows links only as far as the task's own folder goes, and reads nothing that could make it wait.
type gather struct {
	home    string // the task's folder, links resolved
	view    string // where a contained task saw it; "" for others
	files   []upload
	skipped map[string][]string // what was left out, by why
	errs    []error
	links   int // followed so far
}

// take lists what is at dir: a folder with all below it, or one file. key is where it goes; for a file that was to be a folder, the file
// goes into the folder, and a folder that was to be a file goes there as a folder.
func (g *gather) take(dir, key string, file bool) {
	key = strings.TrimSuffix(key, "/")
	real, info, err := g.follow(dir)
	if err != nil {
		g.fail(key, err)
	}
	if info == nil {
		return
	}
	if !file && info.Mode().IsRegular() {
		key += "/" + filepath.Base(dir)
	}
	g.visit(real, key, nil)
}

// visit lists one path, real but for its last part. above are the real folders on the way to it, so that a link to one of them does not go round for ever.
func (g *gather) visit(at, key string, above []string) {
	info, err := os.Lstat(at)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		if !g.link(at) {
			return
		}
		if at, info, err = g.follow(at); info == nil && err == nil {
			return
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return
	case err != nil:
		g.fail(key, err)
	case info.IsDir():
		g.folder(at, key, above)
	case info.Mode().IsRegular():
		if f, err := openPlain(at); err != nil {
			g.fail(key, err)
		} else {
			f.Close()
			g.files = append(g.files, upload{at, key, info.Size()})
		}
	default:
		g.skip("sockets, pipes and devices", key)
	}
}

// link counts a link that is followed, and says no to the last of very many: folders full of links to each other have more paths than
// there is time.
func (g *gather) link(path string) bool {
	const most = 10000
	if g.links++; g.links > most {
		g.skip(fmt.Sprintf("links after the first %d", most), path)
		return false
	}
	return true
}

// follow resolves the links in a path. It returns neither info nor error for what is not there, and what is left out.
func (g *gather) follow(at string) (string, fs.FileInfo, error) {
	resolve := filepath.EvalSymlinks
	if g.view != "" {
		resolve = g.asSeen
	}
	real, err := resolve(at)
	if errors.Is(err, fs.ErrNotExist) {
		if _, is := os.Lstat(at); is == nil {
			g.skip("links that lead nowhere", at)
		}
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	if rel, err := filepath.Rel(g.home, real); err != nil || !filepath.IsLocal(rel) {
		g.skip("links to what is outside the job's folder", at)
		return "", nil, nil
	}
	info, err := os.Lstat(real)
	return real, info, err
}

// asSeen resolves the links in a path of a contained task's: what these call view is home.
func (g *gather) asSeen(path string) (string, error) {
	const slash = string(filepath.Separator)
	split := func(p string) (at string, rest []string) {
		at = filepath.VolumeName(p)
		return at + slash, strings.Split(p[len(at):], slash)
	}
	at, rest := split(path)
	for links := 0; len(rest) > 0; {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(next)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("%s: more than %d links", path, maxLinks)
		}
		to, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		parts := strings.Split(to, slash)
		if below, ok := strings.CutPrefix(to, g.view); ok && (below == "" || below[0] == filepath.Separator) {
			at, parts = g.home, strings.Split(below, slash)
		} else if filepath.IsAbs(to) {
			at, parts = split(to)
		}
		rest = append(parts, rest...)
	}
	return at, nil
}

// maxLinks is how many links one path may lead through, as in filepath.EvalSymlinks.
const maxLinks = 255

// folder lists a folder, given by its real path.
func (g *gather) folder(dir, key string, above []string) {
	if slices.Contains(above, dir) {
		g.skip("links to a folder that holds them", key)
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		g.fail(key, err)
		return
	}
	above = append(slices.Clip(above), dir)
	for _, e := range entries {
		g.visit(filepath.Join(dir, e.Name()), path.Join(key, e.Name()), above)
	}
}

// skip notes something that is not uploaded.
func (g *gather) skip(why, what string) {
	if g.skipped == nil {
		g.skipped = map[string][]string{}
	}
	g.skipped[why] = append(g.skipped[why], path.Base(filepath.ToSlash(what)))
}

// fail notes something that cannot be read. The rest is uploaded all the same.
func (g *gather) fail(key string, err error) {
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	g.errs = append(g.errs, &trainyard.ClassError{Class: trainyard.ClassData, Err: fmt.Errorf("output %s cannot be read: %w", path.Base(key), err)})
}

// notes says what was left out, in words.
func (g *gather) notes() []string {
	var out []string
	for why, names := range g.skipped {
		const some = 5
		list := strings.Join(names[:min(some, len(names))], ", ")
		if len(names) > some {
			list += fmt.Sprintf(" and %d more", len(names)-some)
		}
		out = append(out, fmt.Sprintf("not uploaded: %s (%s)", why, list))
	}
	slices.Sort(out)
	return out
}
