package stage

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"
)

// recipe is a conda file read for an installer of Python packages.
type recipe struct {
	Python versions
	Lines  []string          // of a requirements file
	Conda  []string          // packages that only conda has
	Vars   map[string]string // environment variables the file sets
	Notes  []string          // what was left out or read differently, in words
}

// condaFile is the file as conda reads it. Its name, prefix and channels do not matter to what is installed here.
type condaFile struct {
	Dependencies []yaml.Node       `yaml:"dependencies"`
	Variables    map[string]string `yaml:"variables"`
}

// parseRecipe reads a conda file. Errors are for its author.
func parseRecipe(text string) (recipe, error) {
	var file condaFile
	if err := yaml.Unmarshal([]byte(text), &file); err != nil {
		return recipe{}, fmt.Errorf("its conda file is not what conda reads: %w", err)
	}
	r := recipe{Vars: file.Variables}
	var pip []string
	var errs []error
	for i := range file.Dependencies {
		node := &file.Dependencies[i]
		if node.Kind == yaml.ScalarNode {
			errs = append(errs, r.addConda(node.Value))
			continue
		}
		var nested map[string][]string
		if err := node.Decode(&nested); err != nil {
			errs = append(errs, fmt.Errorf("line %d of its conda file: want a package, or pip: with a list of packages", node.Line))
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(nested)) {
			if name != "pip" {
				errs = append(errs, fmt.Errorf("line %d of its conda file: %q is no installer that can be used here; only pip: is", node.Line, name))
			}
		}
		pip = append(pip, nested["pip"]...)
	}
	r.holdNumPy(pip)
	for _, line := range pip {
		errs = append(errs, r.addPip(line))
	}
	return r, errors.Join(errs...)
}

// matchSpec is conda's way to name a package: channel::name, then a version, then a build.
var matchSpec = pattern(`^(?:[^\s:]+::)?([A-Za-z0-9_][A-Za-z0-9_.-]*)\s*(.*)$`)

// bracketed is the long spelling: name[version='>=1.2',build=…].
var bracketed = pattern(`^\[(.*)\]$`)
var bracketVersion = pattern(`version\s*=\s*['"]?([^'"\]]+?)['"]?\s*(?:,\s*\w+\s*=|$)`)

// addConda reads one dependency.
func (r *recipe) addConda(spec string) error {
	spec, _, _ = strings.Cut(spec, " #")
	m := matchSpec().FindStringSubmatch(strings.TrimSpace(spec))
	if m == nil {
		return fmt.Errorf("its conda file asks for %q, which names no package", spec)
	}
	name, version := strings.ToLower(m[1]), strings.TrimSpace(m[2])
	if b := bracketed().FindStringSubmatch(version); b != nil {
		version = ""
		if v := bracketVersion().FindStringSubmatch(b[1]); v != nil {
			version = v[1]
		}
	}
	pin, err := pipPin(version)
	if err != nil {
		return fmt.Errorf("its conda file asks for %q: %w", spec, err)
	}
	switch {
	case name == "python":
		if r.Python, err = parseVersions(pin); err != nil {
			return fmt.Errorf("its conda file asks for %q: %w", spec, err)
		}
	case condaRuntime()[name]:
		r.Notes = append(r.Notes, fmt.Sprintf("%s is left out: the node's Python and the packages themselves bring it", name))
	case onlyConda(name):
		r.Conda = append(r.Conda, name)
	default:
		r.Lines = append(r.Lines, pipName(name)+pin)
	}
	return nil
}

// holdNumPy keeps NumPy below 2 beside a package that conda has for NumPy 1 alone. What the package's files on an index ask for does not say
// so, and without it the newest NumPy would come, with which the package cannot be imported.
func (r *recipe) holdNumPy(pip []string) {
	for _, line := range append(slices.Clone(r.Lines), pip...) {
		if rest, ok := strings.CutPrefix(line, "numpy"); ok && (rest != "" && strings.ContainsAny(rest[:1], "=<>!~ ") || slices.Contains(pip, line)) {
			return // its version is said
		}
	}
	for _, line := range r.Lines {
		name, version, _ := strings.Cut(line, "==")
		version, _, _ = strings.Cut(version, ",")
		version, wild := strings.CutSuffix(version, ".*")
		have, err := numbers(version)
		since, known := sinceNumPy2()[name]
		if wild { // 2.2.* may be 2.2.3
			since = since[:min(len(have), len(since))]
		}
		if err == nil && known && slices.Compare(have, since) < 0 {
			r.Lines = append(r.Lines, "numpy<2")
			r.Notes = append(r.Notes, fmt.Sprintf("numpy is kept below 2, as conda does: %s %s is made for NumPy 1", name, version))
			return
		}
	}
}

// buildString is what may follow a version: "=py310_0", " h1234_1".
var buildString = pattern(`^([^=\s]+)(?:=|\s+)[A-Za-z_*][A-Za-z0-9_.*]*$|^([^=\s]+)=[0-9]+$`)

// pipPin turns conda's version into pip's: "=1.2" means 1.2 and what begins with it, "==1.2" that alone.
func pipPin(v string) (string, error) {
	v = strings.TrimSpace(v)
	if strings.Contains(v, "|") {
		return "", errors.New("a choice of versions (|) has no like in pip; name one range")
	}
	var out []string
	for part := range strings.SplitSeq(v, ",") {
		part = strings.TrimSpace(part)
		number := strings.TrimLeft(part, "<>=!~ ")
		op := strings.ReplaceAll(strings.TrimSuffix(part, number), " ", "")
		if b := buildString().FindStringSubmatch(number); b != nil {
			number = b[1] + b[2]
		}
		number = strings.TrimSpace(number)
		switch {
		case number == "" && op == "" || number == "*":
			continue
		case number == "" || strings.ContainsAny(number, " =<>!~"):
			return "", fmt.Errorf("%q is not a version", part)
		case op == "=" || op == "" && strings.HasSuffix(number, "*"):
			out = append(out, "=="+strings.TrimSuffix(strings.TrimSuffix(number, "*"), ".")+".*")
		case op == "":
			out = append(out, "=="+number)
		case (op == ">=" || op == "<" || op == ">" || op == "<=") && strings.HasSuffix(number, "*"):
			out = append(out, op+strings.TrimSuffix(strings.TrimSuffix(number, "*"), "."))
		default:
			out = append(out, op+number)
		}
	}
	return strings.Join(out, ","), nil
}

// fileLine is a line of a requirements file that reads another file.
var fileLine = pattern(`^(?:-r|-c|--requirement|--constraint)[\s=]*(.+)$`)

// addPip reads one entry of the pip list.
func (r *recipe) addPip(line string) error {
	line = strings.TrimSpace(line)
	if line == "" || strings.HasPrefix(line, "#") {
		return nil
	}
	if strings.ContainsAny(line, "\r\n") {
		return fmt.Errorf("its pip list has an entry of several lines (%q); write one package an entry", line)
	}
	if m := fileLine().FindStringSubmatch(line); m != nil && !strings.Contains(m[1], "://") {
		return fmt.Errorf("its pip list reads the file %q, which is not sent with the environment; write the lines of %s into the list", m[1], m[1])
	}
	path := strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(line, "--editable"), "-e"))
	if strings.HasPrefix(path, ".") || strings.HasPrefix(path, "/") || strings.HasSuffix(path, ".whl") && !strings.Contains(path, "://") {
		return fmt.Errorf("its pip list installs the file %q, which is not sent with the environment; put the package on an index, or install it in the job's command",
			path)
	}
	r.Lines = append(r.Lines, line)
	return nil
}
