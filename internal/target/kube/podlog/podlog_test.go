package podlog

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestCarriageReturnsAreDoubledAcrossWrites(t *testing.T) {
	var out bytes.Buffer
	w := New(t.Context(), &out, "")
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

// count is an output of which only the length matters, also in the kubelet's file.
type count struct{ at, weight atomic.Int64 }

func (c *count) Write(p []byte) (int, error) {
	c.at.Add(int64(len(p)))
	c.weight.Add(weigh(p))
	return len(p), nil
}

var lines = map[string]string{"lines": strings.Repeat("epoch 1 loss 0.5\n", 2<<20), "ends of lines": strings.Repeat("\n", 2<<20), "one line": strings.Repeat("x", 40<<20)}

func TestWhatIsPrintedIsNotFurtherAheadThanALogIsKept(t *testing.T) {
	for what, text := range lines {
		synctest.Test(t, func(t *testing.T) {
			var out count
			heard := filepath.Join(t.TempDir(), "heard")
			done := make(chan error, 1)
			go func() {
				_, err := io.Copy(New(t.Context(), &out, heard), strings.NewReader(text))
				done <- err
			}()
			began, rounds := time.Now(), 0
			for {
				synctest.Wait()
				select {
				case err := <-done:
					if took := time.Since(began); err != nil || out.at.Load() != int64(len(text)) || rounds < 3 || took > time.Duration(rounds)*time.Second {
						t.Errorf("%s: %d of %d bytes after %d rounds and %v: %v", what, out.at.Load(), len(text), rounds, took, err)
					}
					return
				default:
				}
				at, weight := out.at.Load(), out.weight.Load()
				if err := os.WriteFile(heard, []byte(strconv.FormatInt(at-int64(rounds)*1000, 10)+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				rounds++
				<-time.After(look)
				synctest.Wait()
				if more := out.weight.Load() - weight; more > window {
					t.Fatalf("%s: %d bytes ahead of who reads it", what, more)
				}
			}
		})
	}
}

// Nobody says what was read, or does not any more: it is printed all the same, and not faster than a kubelet hands it out.
func TestALogThatNobodyReadsIsPrintedSlowly(t *testing.T) {
	const size = 24 << 20
	text := strings.Repeat(strings.Repeat("x", 99)+"\n", size/100)
	for name, c := range map[string]struct {
		file    bool
		first   string // what is said at the beginning
		min, ok time.Duration
	}{
		"nobody can say":      {false, "", 4 * time.Second, 12 * time.Second},
		"nobody says":         {true, "", 4*time.Second + firstWord, 12*time.Second + firstWord},
		"nobody says it more": {true, "1000000", 4*time.Second + patience, 12*time.Second + patience},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out count
			heard := ""
			if c.file {
				heard = filepath.Join(t.TempDir(), "heard")
			}
			if c.first != "" {
				if err := os.WriteFile(heard, []byte(c.first), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			if _, err := io.Copy(New(t.Context(), &out, heard), strings.NewReader(text)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < c.min || took > c.ok {
				t.Errorf("%s: it took %v, want %v to %v", name, took, c.min, c.ok)
			}
		})
	}
}
