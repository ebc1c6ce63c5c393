package gpu_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/internal/gpu"
	"github.com/trainyard/trainyard/internal/gpu/gputest"
)

func TestWhatGPUsTell(t *testing.T) {
	for name, c := range map[string]struct {
		out, visible string
		busy         float64
		why          string
	}{
		"the mean of all":                          {gputest.Lines("80", "20"), "", 50, ""},
		"the one of that number":                   {gputest.Lines("80", "20"), "1", 20, ""},
		"the one of that UUID":                     {gputest.Lines("80", "20"), "GPU-00000001-aaaa", 80, ""},
		"the one whose UUID begins so":             {gputest.Lines("80", "20"), "GPU-00000002", 20, ""},
		"several, in any order":                    {gputest.Lines("80", "20", "5"), "2, 0", 42.5, ""},
		"what stands behind one that is not there": {gputest.Lines("80", "20"), "0,7,1", 80, ""},
		"one that does not tell is left out":       {gputest.Lines("[N/A]", "20"), "", 20, ""},
		"one that is lost is left out":             {gputest.Lines("[GPU is lost]", "30"), "", 30, ""},
		"none tells":                               {gputest.Lines("[N/A]", "[N/A]"), "", -1, "none of its GPUs (0, 1) tells"},
		"the one that it has does not tell":        {gputest.Lines("[N/A]", "20"), "0", -1, "none of its GPUs (0) tells"},
		"a slice of one does not tell":             {gputest.Lines("[N/A]"), "MIG-5", -1, "none of its GPUs (MIG-5) tells"},
		"a slice where there is no GPU":            {"", "MIG-5", -1, "it has no GPU"},
		"more than all is not believed":            {gputest.Lines("1000000", "20", "9223372036854775807"), "", 20, ""},
		"nor is a number that none has":            {"-1, GPU-1, 80\n", "", -1, "it has no GPU"},
		"it was given none":                        {gputest.Lines("80"), gpu.None, -1, "it has no GPU"},
		"words are no GPU":                         {"NVIDIA-SMI has failed, because, of something\n", "", -1, "it has no GPU"},
		"idle is something that is known":          {gputest.Lines("0"), "", 0, ""},
	} {
		percent, why := gpu.Mean(gpu.Visible(gpu.Parse(c.out), c.visible))
		if got := value(percent); got != c.busy || !strings.HasPrefix(why, c.why) || (why == "") != (c.why == "") {
			t.Errorf("%s: %v %q, want %v %q", name, got, why, c.busy, c.why)
		}
	}
}

func TestGPUsThatNobodyHas(t *testing.T) {
	all := gpu.Parse(gputest.Lines("1", "2", "3"))
	if got := gpu.Free(all, map[string]bool{"1": true}); !slices.Equal(got, []string{"0", "2"}) {
		t.Errorf("free are %v", got)
	}
	if got := gpu.Names(gpu.Numbered(2)); !slices.Equal(got, []string{"0", "1"}) {
		t.Errorf("numbered are %v", got)
	}
}

func TestManyGPUsAreNotAllKept(t *testing.T) {
	if n := len(gpu.Parse(gputest.Lines(make([]string, 5000)...))); n != 256 {
		t.Errorf("%d are kept", n)
	}
}

func TestWordsOfAnotherProgramAreFitToBeShown(t *testing.T) {
	for words, want := range map[string]string{
		"":                             "",
		" one\tline \nand another":     "one line",
		"\x1b[31mred\x07\u202e\x00end": "[31mred end",
		"a\xffb":                       "ab",
		strings.Repeat("x", 199) + "é": strings.Repeat("x", 199), // 201 bytes
	} {
		if got := gpu.FirstLine(words); got != want {
			t.Errorf("%q: %q, want %q", words, got, want)
		}
	}
}

func TestASizeMayBeLargerThanTheComputer(t *testing.T) {
	for _, c := range []struct{ n, size, have, want int }{{1, 4, 1, 1}, {4, 4, 1, 1}, {2, 4, 1, 1}, {2, 0, 1, 2}, {3, 2, 1, 3}, {2, 4, 3, 2}, {0, 0, 2, 0}} {
		n, note := gpu.Fit(c.n, c.size, c.have)
		if n != c.want || (note != "") != (n < c.n) {
			t.Errorf("%+v: %d %q", c, n, note)
		}
	}
}

// value is -1 for what is not known.
func value(percent *float64) float64 {
	if percent == nil {
		return -1
	}
	return *percent
}
