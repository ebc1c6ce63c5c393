// Package arch is the import table of docs/architecture.md as a test: it fails on any import or package that the table does not list.
package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/trainyard/trainyard"

// table lists every package and what of ours it may import, besides the root package, which all may. "*" is everything.
var table = map[string][]string{
	"":                            {},
	"client":                      {},
	"cmd/trainyard":               {"*"},
	"cmd/trainyard-task":          {"internal/agentlink", "internal/taskrun"},
	"internal/agent":              {"internal/target", "internal/fleet"},
	"internal/agentlink":          {"internal/identity"},
	"internal/arch":               {},
	"internal/arm":                {"internal/identity"},
	"internal/arm/armtest":        {},
	"internal/blob":               {},
	"internal/batchrun":           {},
	"internal/blobrest":           {"internal/identity"},
	"internal/catalog":            {},
	"internal/control":            {"internal/store", "internal/output", "internal/sched", "internal/scale", "internal/loop", "internal/catalog", "internal/modelserver", "internal/batchrun", "internal/pipeline"},
	"internal/fleet":              {},
	"internal/fleet/fleettest":    {"internal/fleet"},
	"internal/fleet/process":      {"internal/fleet", "internal/gpu"},
	"internal/fleet/slurm":        {"internal/fleet", "internal/slurm"},
	"internal/fleet/ssh":          {"internal/fleet", "internal/login"},
	"internal/fleet/ssh/sshtest":  {},
	"internal/gateway":            {},
	"internal/gpu":                {},
	"internal/gpu/gputest":        {"internal/gpu"},
	"internal/history":            {"internal/identity"},
	"internal/identity":           {},
	"internal/installer":          {},
	"internal/login":              {},
	"internal/loop":               {},
	"internal/mlflow":             {},
	"internal/modelserver":        {},
	"internal/output":             {"internal/blob"},
	"internal/pipeline":           {},
	"internal/rightsize":          {},
	"internal/scale":              {},
	"internal/sched":              {},
	"internal/slurm":              {"internal/login"},
	"internal/slurm/slurmtest":    {},
	"internal/spec":               {"internal/catalog", "internal/pipeline"},
	"internal/stage":              {"internal/installer"},
	"internal/store":              {},
	"internal/studio":             {"internal/identity"},
	"internal/target":             {"internal/gpu"},
	"internal/target/process":     {"internal/target", "internal/gpu"},
	"internal/target/slurm":       {"internal/target", "internal/slurm"},
	"internal/target/kube":        {"internal/target", "internal/target/kube/podlog", "internal/gpu"},
	"internal/target/kube/podlog": {},
	"internal/target/docker":      {"internal/target", "internal/gpu", "internal/installer"},
	"internal/target/targettest":  {"internal/target"},
	"internal/taskrun":            {"internal/agent", "internal/agentlink", "internal/stage", "internal/target", "internal/target/process", "internal/target/kube/podlog"},
	"internal/taskrun/slim":       {},
	"internal/bench":              {"client", "internal/sched", "internal/store"},
	"internal/bench/least":        {},
	"test/engines/kube/pause":     {},
}

// inTests lists what the tests of a package may import beyond the table.
var inTests = map[string][]string{
	"cmd/trainyard":           {"internal/gpu/gputest"},
	"internal/gpu":            {"internal/gpu/gputest"},
	"internal/fleet/process":  {"internal/fleet/fleettest", "internal/gpu/gputest"},
	"internal/fleet/slurm":    {"internal/fleet/fleettest"},
	"internal/fleet/ssh":      {"internal/fleet/fleettest", "internal/fleet/ssh/sshtest"},
	"internal/target/process": {"internal/target/targettest", "internal/gpu/gputest"},
	"internal/target/slurm":   {"internal/target/targettest", "internal/slurm/slurmtest"},
	"internal/target/kube":    {"internal/target/targettest", "internal/agentlink", "internal/gpu/gputest"},
	"internal/target/docker":  {"internal/target/targettest", "internal/gpu/gputest"},
	"internal/studio":         {"internal/blob", "internal/output"},
	"internal/agent":          {"internal/agentlink", "internal/target/process"},
	"internal/arm":            {"internal/arm/armtest"},
	"internal/control":        {"internal/blob"},
	"internal/blobrest":       {"internal/blob"},
	"internal/history":        {"internal/blob", "internal/output", "internal/blobrest"},
	"internal/mlflow":         {"internal/blob", "internal/output"},
}

// numbers to hold: see docs/architecture.md.
const (
	maxInterface = 7
	maxDepth     = 6
)

type pkg struct {
	imports, testImports []string
	doc                  bool
}

func TestImportTable(t *testing.T) {
	pkgs := load(t)
	for path, p := range pkgs {
		allowed, listed := table[path]
		if !listed {
			t.Errorf("package %q is not in the table: add it there and in docs/architecture.md, or put the code where it belongs", path)
			continue
		}
		if !p.doc {
			t.Errorf("package %q has no sentence that says what it is for", path)
		}
		for _, imp := range p.imports {
			if imp != "" && !slices.Contains(allowed, imp) && !slices.Contains(allowed, "*") {
				t.Errorf("%s imports %s, which the table does not allow", path, imp)
			}
		}
		for _, imp := range p.testImports {
			if imp != "" && imp != path && !slices.Contains(allowed, imp) && !slices.Contains(allowed, "*") && !slices.Contains(inTests[path], imp) {
				t.Errorf("a test of %s imports %s, which the table does not allow", path, imp)
			}
		}
	}
	for path := range table {
		if _, ok := pkgs[path]; !ok && path != "internal/arch" {
			t.Errorf("the table lists %q, which does not exist", path)
		}
	}
}

func TestImportDepth(t *testing.T) {
	pkgs := load(t)
	var depth func(path string) int
	depth = func(path string) int {
		d := 0
		for _, imp := range pkgs[path].imports {
			d = max(d, depth(imp))
		}
		return d + 1
	}
	for path := range pkgs {
		if d := depth(path); d > maxDepth {
			t.Errorf("%s is %d imports deep, at most %d wanted", path, d, maxDepth)
		}
	}
}

func TestInterfacesAreSmallAndNothingRunsAtInit(t *testing.T) {
	walk(t, func(path string, file *ast.File, fset *token.FileSet, test bool) {
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.InterfaceType:
				methods := 0
				for _, m := range n.Methods.List {
					methods += len(m.Names)
				}
				if methods > maxInterface {
					t.Errorf("%s: an interface of %d methods, at most %d wanted", fset.Position(n.Pos()), methods, maxInterface)
				}
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" && !test {
					t.Errorf("%s: func init", fset.Position(n.Pos()))
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && test && x.Name == "time" && n.Sel.Name == "Sleep" {
					t.Errorf("%s: a test sleeps; wait for what it waits for", fset.Position(n.Pos()))
				}
			}
			return true
		})
	})
}

func load(t *testing.T) map[string]*pkg {
	t.Helper()
	pkgs := map[string]*pkg{}
	walk(t, func(path string, file *ast.File, _ *token.FileSet, test bool) {
		p := pkgs[path]
		if p == nil {
			p = &pkg{}
			pkgs[path] = p
		}
		p.doc = p.doc || (file.Doc != nil && len(file.Doc.List) > 0)
		for _, spec := range file.Imports {
			name, _ := strconv.Unquote(spec.Path.Value)
			rest, ours := strings.CutPrefix(name, module)
			if !ours {
				if path == "" && !test && strings.Contains(strings.SplitN(name, "/", 2)[0], ".") {
					t.Errorf("the root package imports %s; it may import the standard library only", name)
				}
				continue
			}
			rest = strings.TrimPrefix(rest, "/")
			list := &p.imports
			if test {
				list = &p.testImports
			}
			if !slices.Contains(*list, rest) {
				*list = append(*list, rest)
			}
		}
	})
	return pkgs
}

// walk parses every Go file of the module, for whatever system it is written.
func walk(t *testing.T, visit func(path string, file *ast.File, fset *token.FileSet, test bool)) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && name != root {
				return filepath.SkipDir // a module of its own
			}
			if strings.HasPrefix(d.Name(), ".") && name != root || d.Name() == "testdata" {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(name))
		if err != nil {
			return err
		}
		if rel == "." {
			rel = ""
		}
		visit(filepath.ToSlash(rel), file, fset, strings.HasSuffix(name, "_test.go"))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
