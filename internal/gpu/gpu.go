// Package gpu tells which NVIDIA GPUs there are, how busy they are, and which of them a task was given. It asks nvidia-smi and nothing else,
// and gives nothing away itself.
package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Program is what tells of GPUs. NVIDIA's driver brings it, and NVIDIA's container runtime puts it into containers.
const Program = "nvidia-smi"

// VisibleVariable is the variable by which CUDA is told which GPUs to use: their numbers or UUIDs.
const VisibleVariable = "CUDA_VISIBLE_DEVICES"

// None is a value of VisibleVariable that stands for no GPU at all.
const None = "-1"

// Query is what Program is asked; Parse reads the answer.
func Query() []string {
	return []string{"--query-gpu=index,uuid,utilization.gpu", "--format=csv,noheader,nounits"}
}

// mostGPUs is more than a computer has; what an image calls nvidia-smi may tell of any number.
const mostGPUs = 256

// GPU is one GPU as nvidia-smi tells of it.
type GPU struct {
	Index string // its number here: "0"
	UUID  string // "GPU-…"
	Busy  int    // percent of the last moment in which something ran on it; -1: it does not tell
}

// Parse reads what Program answers to Query. Lines of another shape are left out.
func Parse(out string) []GPU {
	var all []GPU
	for line := range strings.Lines(out) {
		f := strings.Split(line, ",")
		if len(f) != 3 {
			continue
		}
		number, err := strconv.Atoi(strings.TrimSpace(f[0]))
		if err != nil || number < 0 || len(all) == mostGPUs {
			continue
		}
		g := GPU{Index: strconv.Itoa(number), UUID: strings.TrimSpace(f[1]), Busy: -1}
		if n, err := strconv.Atoi(strings.TrimSpace(f[2])); err == nil && n >= 0 && n <= 100 { // "[N/A]" where it is divided (MIG) or lost
			g.Busy = n
		}
		all = append(all, g)
	}
	return all
}

// Clean is the beginning of words of a program that is not ours, in one line and fit to be shown: valid, and without control characters.
func Clean(words string, most int) string {
	words = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(words, ""))
	words = strings.Join(strings.Fields(words), " ")
	return strings.ToValidUTF8(words[:min(len(words), most)], "")
}

// Value is which GPUs VisibleVariable names, for Visible: where it is set and empty CUDA sees none.
func Value(value string, set bool) string {
	if set && value == "" {
		return None
	}
	return value
}

// Fit is how many GPUs a task gets that needs n: as many as there are, with a note, where its node's size has that many and is larger than
// the computer.
func Fit(n, size, have int) (gets int, note string) {
	if have == 0 || n <= have || n > size {
		return n, ""
	}
	return have, fmt.Sprintf("it needs %d GPUs and has %d: its node's size has more than this computer", n, have)
}

// Visible are those of all that VisibleVariable names, as CUDA reads it: numbers or beginnings of UUIDs, of which the first that is not
// there ends the list. A slice of one (MIG-…) counts as one that does not tell how busy it is. "" names all.
func Visible(all []GPU, value string) []GPU {
	if value == "" {
		return all
	}
	var out []GPU
	for name := range strings.SplitSeq(value, ",") {
		name = strings.TrimSpace(name)
		if strings.HasPrefix(name, "MIG-") && len(all) > 0 {
			out = append(out, GPU{Index: name, UUID: name, Busy: -1})
			continue
		}
		i := slices.IndexFunc(all, func(g GPU) bool {
			return g.Index == name || strings.HasPrefix(name, "GPU-") && strings.HasPrefix(g.UUID, name)
		})
		if i < 0 {
			break
		}
		out = append(out, all[i])
	}
	return out
}

// Mean is how busy GPUs are, in percent: the mean of those that tell. nil: none does, and why.
func Mean(all []GPU) (percent *float64, why string) {
	sum, n := 0, 0
	for _, g := range all {
		if g.Busy >= 0 {
			sum, n = sum+g.Busy, n+1
		}
	}
	switch {
	case len(all) == 0:
		return nil, "it has no GPU"
	case n == 0:
		return nil, fmt.Sprintf("none of its GPUs (%s) tells how busy it is, as one that is divided (MIG) does not", strings.Join(Names(all), ", "))
	}
	mean := float64(sum) / float64(n)
	return &mean, ""
}

// Names are the numbers of GPUs.
func Names(all []GPU) []string {
	out := make([]string, len(all))
	for i, g := range all {
		out[i] = g.Index
	}
	return out
}

// Numbered are n GPUs of which nothing is known but that they are there.
func Numbered(n int) []GPU {
	out := make([]GPU, n)
	for i := range out {
		out[i] = GPU{Index: strconv.Itoa(i), Busy: -1}
	}
	return out
}

// Free are the numbers of those that are not taken.
func Free(all []GPU, taken map[string]bool) []string {
	return slices.DeleteFunc(Names(all), func(name string) bool { return taken[name] })
}
