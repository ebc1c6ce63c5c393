package modelserver

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/trainyard/trainyard"
)

// serverPackage is what scoring scripts run under. azureml-defaults, of older files, brings it.
const serverPackage = "azureml-inference-server-http"

// serverNeed asks for the server. Before 0.8 it cannot be told where to listen.
var serverNeed = need{line: serverPackage + ">=0.8", met: []string{serverPackage, "azureml-defaults"}}

// defaultPython is for environments that name none: the versions that the server is made for.
const defaultPython = "python>=3.9"

// need is a package that must be there, and those any of which will do.
type need struct {
	line string
	met  []string
}

// scriptEnvironment is what a scoring script runs in.
func (p *Plan) scriptEnvironment(r Request) (*trainyard.EnvironmentPlan, error) {
	e := r.Environment
	switch {
	case r.Contained && hasImage(e) && blank(e.CondaFile):
		return e, nil // the image is to have the server; if it does not, the command says so
	case e != nil && !blank(e.CondaFile):
		return p.extend(e, r.Contained, serverNeed)
	case hasImage(e):
		p.warn("the image of environment %s is not used: the replica runs as a process, in an environment of Python and %s alone; "+
			"give the environment a conda_file with the packages that the scoring script imports", e.Name, serverPackage)
	default:
		p.warn("the deployment names no environment with packages: the scoring script runs in one of Python and %s alone", serverPackage)
	}
	return plan("of the inference server", condaText(defaultPython, []string{serverNeed.line})), nil
}

// extend is the environment with what it lacks.
func (p *Plan) extend(e *trainyard.EnvironmentPlan, contained bool, needs ...need) (*trainyard.EnvironmentPlan, error) {
	text, err := addPackages(e.CondaFile, needs...)
	if err != nil {
		return nil, trainyard.Invalid("environment %s: %v", e.Name, err)
	}
	out := *e
	out.CondaFile = text
	if !contained {
		out.Image = ""
	}
	out.Hash = EnvironmentHash(&out)
	return &out, nil
}

// plan is an environment of packages.
func plan(name, conda string) *trainyard.EnvironmentPlan {
	e := &trainyard.EnvironmentPlan{Name: name, CondaFile: conda}
	e.Hash = EnvironmentHash(e)
	return e
}

// EnvironmentHash is of everything that changes what is built of e: of the conda file alone, where there is no image.
func EnvironmentHash(e *trainyard.EnvironmentPlan) string {
	hash := digest(strings.TrimSpace(strings.ReplaceAll(e.CondaFile, "\r\n", "\n")))
	if e.Image == "" && e.Context == "" {
		return hash
	}
	return digest(hash, e.Image, e.Context, e.Dockerfile)
}

func digest(texts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\x00")))
	return hex.EncodeToString(sum[:16])
}

// condaText is a conda file of packages from pip.
func condaText(python string, lines []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "channels:\n- conda-forge\ndependencies:\n- %s\n- pip\n- pip:\n", yamlQuote(python))
	for _, line := range lines {
		fmt.Fprintf(&b, "  - %s\n", yamlQuote(line))
	}
	return b.String()
}

func yamlQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// addPackages puts what a conda file lacks into its pip list. The rest of the file keeps its words; one that lacks nothing is not touched.
func addPackages(text string, needs ...need) (string, error) {
	doc, deps, err := openConda(text)
	if err != nil {
		return "", err
	}
	pip, have := packages(deps)
	changed := false
	for _, n := range needs {
		if slices.ContainsFunc(n.met, func(name string) bool { return slices.Contains(have, name) }) {
			continue
		}
		if pip == nil {
			pip = &yaml.Node{Kind: yaml.SequenceNode}
			if !slices.Contains(have, "pip") {
				deps.Content = append(deps.Content, scalar("pip"))
			}
			deps.Content = append(deps.Content, &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{scalar("pip"), pip}})
		}
		pip.Content = append(pip.Content, scalar(n.line))
		changed = true
	}
	if !changed {
		return text, nil
	}
	out, err := yaml.Marshal(doc)
	if err != nil {
		return "", fmt.Errorf("its conda file cannot be written again: %w", err)
	}
	return string(out), nil
}

// openConda reads a conda file and finds its dependencies.
func openConda(text string) (doc, deps *yaml.Node, err error) {
	doc = &yaml.Node{}
	if err := yaml.Unmarshal([]byte(text), doc); err != nil {
		return nil, nil, fmt.Errorf("its conda file is not YAML: %w", err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, nil, errors.New("its conda file is not what conda reads: want a mapping with dependencies")
	}
	deps, err = listOf(doc.Content[0], "dependencies")
	return doc, deps, err
}

func scalar(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: s} }

// listOf is the list under a key, made if there is none.
func listOf(m *yaml.Node, key string) (*yaml.Node, error) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value != key {
			continue
		}
		v := m.Content[i+1]
		if v.Kind == yaml.ScalarNode && (v.Tag == "!!null" || v.Value == "") {
			*v = yaml.Node{Kind: yaml.SequenceNode}
		}
		if v.Kind != yaml.SequenceNode {
			return nil, fmt.Errorf("line %d of its conda file: %s must be a list", v.Line, key)
		}
		return v, nil
	}
	v := &yaml.Node{Kind: yaml.SequenceNode}
	m.Content = append(m.Content, scalar(key), v)
	return v, nil
}

// packages finds the pip list of a file's dependencies, nil if there is none, and the names of all that the file asks for.
func packages(deps *yaml.Node) (pip *yaml.Node, have []string) {
	for _, d := range deps.Content {
		switch d.Kind {
		case yaml.ScalarNode:
			have = append(have, packageName(d.Value))
		case yaml.MappingNode:
			for i := 0; i+1 < len(d.Content); i += 2 {
				if d.Content[i].Value != "pip" || d.Content[i+1].Kind != yaml.SequenceNode {
					continue
				}
				pip = d.Content[i+1]
				for _, line := range pip.Content {
					have = append(have, packageName(line.Value))
				}
			}
		}
	}
	return pip, have
}

var nameStart = regexp.MustCompile(`^(?:[^\s:=<>@]+::)?([A-Za-z0-9][A-Za-z0-9._-]*)`)
var nameDashes = regexp.MustCompile(`[-_.]+`)

// packageName is the normal form of the name in "Scikit_Learn[x]>=1 ; python_version>'3'", "" for what names no package.
func packageName(line string) string {
	m := nameStart.FindStringSubmatch(strings.TrimSpace(line))
	if m == nil {
		return ""
	}
	return strings.ToLower(nameDashes.ReplaceAllString(m[1], "-"))
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }
