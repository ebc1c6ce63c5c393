// Package catalog holds what a server knows without being told: the VM sizes people name in their files, and the curated environments.
// It is data and look-ups only: it reads no file, asks nobody, and decides nothing about what a machine here can really hold.
package catalog

import (
	"slices"
	"strings"

	"github.com/trainyard/trainyard"
)

// Sizes lists every VM size, in order of series and size. The caller owns the list.
func Sizes() []trainyard.VMSize {
	var all []trainyard.VMSize
	for i := range allSeries {
		s := &allSeries[i]
		for _, r := range s.sizes {
			all = append(all, s.size(r))
		}
	}
	return all
}

// Size finds a VM size by name. Case does not matter and "Standard_" may be left out: "STANDARD_DS3_V2" and "ds3_v2" are one size.
func Size(name string) (trainyard.VMSize, bool) {
	want := fold(name)
	for i := range allSeries {
		s := &allSeries[i]
		for _, r := range s.sizes {
			if fold(r.name) == want {
				return s.size(r), true
			}
		}
	}
	return trainyard.VMSize{}, false
}

// NearSizes lists the names of at most three of the sizes that look most like name, nearest first; none if nothing does. The "Standard_"
// that most names begin with makes none like another.
func NearSizes(name string, sizes []trainyard.VMSize) []string {
	whole := strings.ToLower(strings.TrimSpace(name))
	short := fold(name)
	misspelt := short == whole && strings.HasPrefix(whole, "stan") // the prefix itself is: compare with whole names
	full, words := map[string]string{}, []string(nil)
	for _, s := range sizes {
		word := fold(s.Name)
		if misspelt {
			word = strings.ToLower(s.Name)
		}
		if full[word] == "" {
			full[word], words = s.Name, append(words, word)
		}
	}
	near := Nearest(short, words)
	near = near[:min(3, len(near))]
	for i, n := range near {
		near[i] = full[n]
	}
	return near
}

func fold(name string) string {
	return strings.TrimPrefix(strings.ToLower(strings.TrimSpace(name)), "standard_")
}

// Nearest lists the words of among that are spelled most like word, nearest first, without those that are not like it at all.
func Nearest(word string, among []string) []string {
	word = strings.ToLower(word)
	limit := max(1, len(word)/3)
	type scored struct {
		word     string
		distance int
	}
	var near []scored
	for _, w := range among {
		d := distance(word, strings.ToLower(w))
		if len(word) > 2 && strings.Contains(strings.ToLower(w), word) {
			d = min(d, limit)
		}
		if d <= limit {
			near = append(near, scored{w, d})
		}
	}
	slices.SortStableFunc(near, func(a, b scored) int { return a.distance - b.distance })
	var out []string
	for _, n := range near {
		out = append(out, n.word)
	}
	return out
}

// distance is the number of insertions, deletions, substitutions and swaps of neighbours that make b of a (optimal string alignment).
func distance(a, b string) int {
	if len(a) > 200 || len(b) > 200 {
		return max(len(a), len(b))
	}
	before, prev, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(prev[j]+1, row[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, prev, row = prev, row, before
	}
	return prev[len(b)]
}
