package podlog

import (
	"bytes"
	"strings"
	"testing"
)

func TestCarriageReturnsAreDoubledAcrossWrites(t *testing.T) {
	var out bytes.Buffer
	w := New(t.Context(), &out)
	for _, piece := range []string{"50%\r100%\r", "\nend\r\n", "\n"} {
		if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("Write(%q) = %d, %v", piece, n, err)
		}
	}
	if got, want := out.String(), "50%\r100%\r\r\nend\r\r\n\n"; got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

func TestWhatCostsTheKubeletLittleIsNotHeldBack(t *testing.T) {
	for text, want := range map[string]int{
		strings.Repeat("epoch 1 loss 0.5\n", 1000): 17_000,
		strings.Repeat("x", 64_000):                4128,
		"":                                         0,
		"a\n":                                      2,
	} {
		if got := cost([]byte(text)); got != want {
			t.Errorf("%d bytes cost %d, want %d", len(text), got, want)
		}
	}
}
