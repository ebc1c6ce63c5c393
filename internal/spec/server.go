package spec

import (
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/catalog"
)

// Server is a server's configuration file.
type Server struct {
	Locations []trainyard.Location // the first is the default; empty: the file names none
}

// Driver is a kind of fleet that a location may name.
type Driver struct {
	Name string
	// Check says what is wrong with a location's settings, which are a JSON object.
	Check func(settings []byte) error
}

// LoadServer reads the configuration of a server. drivers are the kinds of fleet that this build has; the first is the default.
func LoadServer(path string, drivers []Driver) (*Server, error) {
	data, err := slurp(path)
	if err != nil {
		return nil, err
	}
	p := &problems{}
	root := read(&source{name: path, dir: filepath.Dir(path)}, data, p)
	if root == nil {
		return nil, p.err(path)
	}
	if root.kind != mapping {
		p.at(root.place, "", "got %s, want a map: locations", root.words())
		return nil, p.err(path)
	}
	f := &fields{p: p, n: root}
	s := &Server{}
	for i, n := range f.maps("locations") {
		one := &fields{p: p, n: n, path: "locations" + (step{index: i}).String()}
		l := one.location(drivers)
		one.apart(&l, s.Locations)
		s.Locations = append(s.Locations, l)
	}
	f.done()
	return s, p.err(path)
}

// maps is a field that is a list of maps.
func (f *fields) maps(name string) []*node {
	n := f.get(name)
	if n == nil {
		return nil
	}
	if n.kind != list {
		f.wrong(n, name, "a list")
		return nil
	}
	var out []*node
	for i, v := range n.values {
		if v.kind != mapping {
			f.p.at(v.place, f.at(name)+(step{index: i}).String(), "got %s, want a map", v.words())
			continue
		}
		out = append(out, v)
	}
	return out
}

// locationName is what a location may be called: it is also the name of a folder, and a part of addresses and of computes' names.
var locationName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// apart says where a location cannot be told from one above it: names and regions are the same in any case.
func (f *fields) apart(l *trainyard.Location, above []trainyard.Location) {
	same := func(a, b string) bool { return a != "" && strings.EqualFold(a, b) }
	for _, o := range above {
		if same(o.Name, l.Name) {
			f.p.at(f.place("name"), f.at("name"), "there is another location %q above", o.Name)
		}
		for _, region := range l.Regions {
			if slices.ContainsFunc(o.Regions, func(r string) bool { return same(r, region) }) {
				f.p.at(f.place("regions"), f.at("regions"), "region %s means location %q already", region, o.Name)
			}
		}
	}
}

func (f *fields) location(drivers []Driver) trainyard.Location {
	l := trainyard.Location{Name: f.need("name"), Driver: f.text("driver"), Regions: f.list("regions"), Approved: f.list("approved")}
	switch {
	case l.Name == "":
	case !locationName.MatchString(l.Name):
		f.p.at(f.place("name"), f.at("name"), "%q cannot be a location's name: up to 63 letters, digits, '.', '_' and '-', beginning with a letter or a digit", l.Name)
	case strings.EqualFold(l.Name, "attached"):
		f.p.at(f.place("name"), f.at("name"), "%q cannot be a location's name: it is the place of machines that were attached", l.Name)
	}
	if l.Driver == "" {
		l.Driver = drivers[0].Name
	}
	kind := slices.IndexFunc(drivers, func(d Driver) bool { return d.Name == l.Driver })
	if kind < 0 {
		var names []string
		for _, d := range drivers {
			names = append(names, d.Name)
		}
		f.p.at(f.place("driver"), f.at("driver"), "got %q, want %s", l.Driver, anyOf(names))
	}
	if c := f.sub("capacity"); c.n != nil {
		l.Capacity = trainyard.Capacity{Nodes: or(c.integer("nodes", 1), 0), VCPUs: or(c.integer("vcpus", 1), 0), GPUs: or(c.integer("gpus", 1), 0)}
		c.done()
	}
	if s := f.sub("settings"); s.n != nil {
		l.Settings = asJSON(s.n.plain())
		if kind >= 0 {
			f.settings(s.n, l.Settings, drivers[kind])
		}
	}
	f.sizes(&l)
	for _, s := range l.Sizes {
		if !l.Capacity.Holds(trainyard.Capacity{}.Plus(1, s)) {
			f.p.at(f.place("sizes"), f.at("sizes"), "%s (%d vCPUs, %d GPUs) is more than the location's capacity: no node of it could ever be had", s.Name, s.VCPUs, s.GPUs)
		}
	}
	f.prices(&l)
	f.approvals(l)
	return l
}

// settings has the driver look at its settings. The place is that of the field that it names first, if it names one.
func (f *fields) settings(n *node, settings []byte, kind Driver) {
	err := kind.Check(settings)
	if err == nil {
		return
	}
	where, field, first := f.place("settings"), f.at("settings"), len(err.Error())
	for _, k := range n.keys {
		if i := strings.Index(err.Error(), k.text); i >= 0 && i < first {
			where, field, first = k.place, f.at("settings")+"."+k.text, i
		}
	}
	f.p.at(where, field, "%v", err)
}

// approvals checks that each word of approved is one of which the location has a size, or all: a slip of the pen would approve nothing.
func (f *fields) approvals(l trainyard.Location) {
	n := f.get("approved")
	if n == nil || n.kind != list {
		return
	}
	sizes := l.Sizes
	if len(sizes) == 0 {
		sizes = catalog.Sizes()
	}
	known := []string{"all"}
	for _, s := range sizes {
		known = append(known, s.Series, s.Name, s.Family)
	}
	for i, v := range n.values {
		is := func(word string) bool { return word != "" && strings.EqualFold(word, v.text) }
		if v.kind != scalar || slices.ContainsFunc(known, is) {
			continue
		}
		near := ""
		if words := catalog.Nearest(v.text, known); len(words) > 0 {
			near = " (did you mean " + words[0] + "?)"
		}
		f.p.at(v.place, f.at("approved")+(step{index: i}).String(), "the location has no series, size or family %q%s; all approves every one", v.text, near)
	}
}

// anyOf is "a, b or c".
func anyOf(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// sizes are names of the catalogue, or sizes of the location's own.
func (f *fields) sizes(l *trainyard.Location) {
	n := f.get("sizes")
	if n == nil {
		return
	}
	if n.kind != list {
		f.wrong(n, "sizes", "a list of sizes")
		return
	}
	for i, v := range n.values {
		at := f.at("sizes") + (step{index: i}).String()
		if v.kind == scalar {
			size, ok := catalog.Size(v.text)
			if !ok {
				near := ""
				if names := catalog.NearSizes(v.text, catalog.Sizes()); len(names) > 0 {
					near = " (did you mean " + anyOf(names) + "?)"
				}
				f.p.at(v.place, at, "%q is not in the catalogue%s; a size of your own is a map with name, vcpus and memory_gb", v.text, near)
			}
			l.Sizes = append(l.Sizes, size)
			continue
		}
		if v.kind != mapping {
			f.p.at(v.place, at, "got %s, want the name of a size, or a map with name, vcpus and memory_gb", v.words())
			continue
		}
		one := &fields{p: f.p, n: v, path: at}
		size := trainyard.VMSize{Name: one.need("name"), Family: one.text("family"), Series: one.text("series"), GPU: one.text("gpu"),
			VCPUs: or(one.integer("vcpus", 1), 1), GPUs: or(one.integer("gpus", 0), 0), MemoryGB: one.number("memory_gb"), PricePerHour: one.number("price"),
			LowPriorityRate: one.number("low_priority_price"), ComputeTypes: []string{trainyard.ComputeCluster, "ComputeInstance"}}
		if size.Family == "" {
			size.Family = l.Name + "Family"
		}
		if one.has("needs_approval") {
			yes := one.boolean("needs_approval")
			size.NeedsApproval = yes != nil && *yes
		}
		for _, needed := range []string{"vcpus", "memory_gb"} {
			if !one.has(needed) {
				f.p.at(v.place, one.at(needed), "it is missing")
			}
		}
		one.done()
		l.Sizes = append(l.Sizes, size)
	}
}

// prices are dollars an hour by size; what a low-priority node costs keeps its share.
func (f *fields) prices(l *trainyard.Location) {
	f.each("prices", func(k, v *node, path string) {
		if len(l.Sizes) == 0 {
			l.Sizes = slices.Clone(catalog.Sizes())
		}
		size, ok := l.Size(k.text)
		if !ok {
			f.p.at(k.place, path, "the location has no size %q", k.text)
			return
		}
		price := (&fields{p: f.p, n: &node{place: v.place, kind: mapping, keys: []*node{k}, values: []*node{v}}, path: f.at("prices")}).number(k.text)
		for i := range l.Sizes {
			if l.Sizes[i].Name == size.Name {
				if size.PricePerHour > 0 {
					l.Sizes[i].LowPriorityRate = price * size.LowPriorityRate / size.PricePerHour
				}
				l.Sizes[i].PricePerHour = price
			}
		}
	})
	f.done()
}

// number is a field that is a number of at least 0.
func (f *fields) number(name string) float64 {
	n := f.get(name)
	if n == nil {
		return 0
	}
	if n.kind == scalar {
		if x, err := strconv.ParseFloat(n.text, 64); err == nil && x >= 0 && x < 1e9 {
			return x
		}
	}
	f.wrong(n, name, "a number of at least 0")
	return 0
}
