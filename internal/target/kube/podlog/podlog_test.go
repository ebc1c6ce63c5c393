package podlog

import (
	"bytes"
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
