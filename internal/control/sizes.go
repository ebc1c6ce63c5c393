package control

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
	"github.com/trainyard/trainyard/internal/catalog"
)

// usualSize is the size of nodes for which nobody named one, where it can be had.
const usualSize = "Standard_DS3_v2"

// offered lists the sizes of which a location may make n machines: those that it approves and whose machines fit in its capacity.
func offered(l *trainyard.Location, n int) []trainyard.VMSize {
	var out []trainyard.VMSize
	for _, s := range l.Sizes {
		if l.Approves(s) && fits(l, s, n) {
			out = append(out, s)
		}
	}
	return out
}

// fits says whether a location that has no machines yet has room for n of the size.
func fits(l *trainyard.Location, s trainyard.VMSize, n int) bool {
	return l.Capacity.Holds(trainyard.Capacity{}.Plus(n, s))
}

// sizeAt finds the size that somebody named for n nodes of a location. The error is a sentence that says what is wrong with it and what the
// location has instead.
func sizeAt(l *trainyard.Location, name string, n int) (trainyard.VMSize, error) {
	size, ok := l.Size(name)
	switch {
	case !ok:
		near := ""
		if names := catalog.NearSizes(name, offered(l, 1)); len(names) > 0 {
			near = "; the nearest of its own: " + strings.Join(names, ", ")
		}
		return size, fmt.Errorf("%q is not a size of location %s%s; it has: %s", name, l.Name, near, sizeNames(l))
	case !l.Approves(size):
		return size, fmt.Errorf("%s is of a restricted series and location %s has no approval for it; it has: %s; who runs the server grants it with \"approved: [%s]\" at the location",
			size.Name, l.Name, sizeNames(l), cmp.Or(size.Series, size.Name))
	case !fits(l, size, n):
		return size, tooMuch(l, size, n)
	}
	return size, nil
}

// defaultSize is the size for n nodes when none is named: the usual one, or the smallest that the location offers. Of equals the first in
// the configuration is taken. The error says that there is none.
func defaultSize(l *trainyard.Location, n int) (trainyard.VMSize, error) {
	sizes := offered(l, n)
	if len(sizes) == 0 {
		return trainyard.VMSize{}, fmt.Errorf("location %s has no size that it approves and of which its capacity holds %d; see: trainyard location show --name %s", l.Name, n, l.Name)
	}
	if usual, ok := l.Size(usualSize); ok && slices.ContainsFunc(sizes, func(s trainyard.VMSize) bool { return s.Name == usual.Name }) {
		return usual, nil
	}
	return slices.MinFunc(sizes, func(a, b trainyard.VMSize) int {
		return cmp.Or(cmp.Compare(a.VCPUs, b.VCPUs), cmp.Compare(a.MemoryGB, b.MemoryGB))
	}), nil
}

// tooMuch is the error about n nodes of a size that are more than a location has in all.
func tooMuch(l *trainyard.Location, s trainyard.VMSize, n int) error {
	if n == 1 {
		return fmt.Errorf("a node of size %s (%d vCPUs, %d GPUs) is more than location %s has in all; it has: %s; see: trainyard location show --name %s",
			s.Name, s.VCPUs, s.GPUs, l.Name, sizeNames(l), l.Name)
	}
	return fmt.Errorf("%d nodes of size %s (%d vCPUs, %d GPUs each) are more than location %s has in all; see: trainyard location show --name %s",
		n, s.Name, s.VCPUs, s.GPUs, l.Name, l.Name)
}

// sizeNames lists the sizes that a location offers, the first dozen by name.
func sizeNames(l *trainyard.Location) string {
	var names []string
	for _, s := range offered(l, 1) {
		names = append(names, s.Name)
	}
	switch n := len(names); {
	case n == 0:
		return "none"
	case n > 12:
		return fmt.Sprintf("%s and %d more (trainyard compute list-sizes --location %s)", strings.Join(names[:12], ", "), n-12, l.Name)
	}
	return strings.Join(names, ", ")
}
