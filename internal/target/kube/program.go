package kube

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// program is what runs in pods: this program, and beside it the same for other processors.
type program struct {
	dir   string            // for packed copies
	files map[string]string // by processor, as Kubernetes calls it

	mu     sync.Mutex
	packed map[string]string // by processor: a gzip of it
}

// machines are what uname -m says of processors.
var machines = map[string]string{"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}

// findProgram looks for what there is: path itself where it is for Linux, and trainyard-linux-ARCH beside it.
func findProgram(path, dir string) (*program, error) {
	p := &program{dir: dir, files: map[string]string{}, packed: map[string]string{}}
	if path == "" {
		return p, nil
	}
	if runtime.GOOS == "linux" {
		p.files[runtime.GOARCH] = path
	}
	for _, arch := range []string{"amd64", "arm64"} {
		beside := filepath.Join(filepath.Dir(path), "trainyard-linux-"+arch)
		switch _, err := os.Stat(beside); {
		case err == nil && p.files[arch] == "":
			p.files[arch] = beside
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("open kube target: %w", err)
		}
	}
	old, err := filepath.Glob(filepath.Join(dir, "program-*"))
	if err != nil {
		return nil, fmt.Errorf("open kube target: %w", err)
	}
	for _, file := range old { // of a program that may be another by now
		if err := os.Remove(file); err != nil {
			return nil, fmt.Errorf("open kube target: %w", err)
		}
	}
	return p, nil
}

func (p *program) none() bool { return len(p.files) == 0 }

// arches are the processors that there is a program for, as Kubernetes calls them.
func (p *program) arches() []string { return slices.Sorted(maps.Keys(p.files)) }

// stock is the program for a processor as the cluster is to keep it, and its bytes; nil if there is none, or too many.
func (p *program) stock(arch, group string) (*stock, []byte, error) {
	path := p.files[arch]
	if path == "" {
		return nil, nil, nil
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > mostPieces*piece {
		return nil, nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	all, whose := sha256.Sum256(data), sha256.Sum256([]byte(group))
	sum := hex.EncodeToString(all[:8])
	return &stock{name: fmt.Sprintf("ty-program-%s-%s-%x", arch, sum, whose[:6]), sum: sum, arch: arch, size: len(data), pieces: (len(data) + piece - 1) / piece}, data, nil
}

// open opens the program for a machine, packed if that is wanted. Close it.
func (p *program) open(machine string, packed bool) (*os.File, error) {
	arch := machines[machine]
	path := p.files[arch]
	if path == "" {
		return nil, fmt.Errorf("there is no program for a node of machine %s; there is one for: %s", machine, strings.Join(p.arches(), ", "))
	}
	if !packed {
		return os.Open(path)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.packed[arch] == "" {
		to := filepath.Join(p.dir, "program-"+arch+".gz")
		if err := pack(path, to); err != nil {
			return nil, err
		}
		p.packed[arch] = to
	}
	return os.Open(p.packed[arch])
}

// pack writes a gzip of a file.
func pack(from, to string) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("pack %s: %w", from, err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("pack %s: %w", from, err)
	}
	defer func() {
		if e := out.Close(); err == nil && e != nil {
			err = fmt.Errorf("pack %s: %w", from, e)
		}
	}()
	z, err := gzip.NewWriterLevel(out, gzip.BestSpeed)
	if err == nil {
		_, err = io.Copy(z, in)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		return fmt.Errorf("pack %s: %w", from, err)
	}
	return nil
}
