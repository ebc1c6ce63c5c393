package kube

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// A log that is read in pieces, by readers that die at any byte and lose the last of their marks, is the log.
func TestASpoolIsWholeHoweverOftenItIsCut(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var stamped, plain bytes.Buffer
	when := t0
	for i := range 300 {
		if r.IntN(5) > 0 { // some lines share a time
			when = when.Add(time.Duration(1 + r.IntN(1e9)))
		}
		line := strings.Repeat(string(rune('a'+i%26)), r.IntN(300)) + "\n"
		if i%50 == 7 {
			line = strings.Repeat("long", 40_000) + "\n"
		}
		fmt.Fprintf(&stamped, "%s %s", when.Format(time.RFC3339Nano), line)
		plain.WriteString(line)
	}
	stamped.WriteString(when.Add(time.Second).Format(time.RFC3339Nano) + " no line end")
	plain.WriteString("no line end")
	dir := t.TempDir()
	for range 200 {
		cutCopy(t, dir, io.LimitReader(since(t, dir, stamped.Bytes()), int64(r.IntN(stamped.Len()))))
		if r.IntN(4) == 0 { // the data reached the disk, the mark did not
			if err := os.Remove(filepath.Join(dir, markFile)); err != nil {
				t.Fatal(err)
			}
		}
	}
	cutCopy(t, dir, since(t, dir, stamped.Bytes()))
	got, err := os.ReadFile(filepath.Join(dir, logFile))
	if err != nil || !bytes.Equal(got, plain.Bytes()) {
		t.Errorf("the copy has %d bytes and differs from the %d that were written (%v)", len(got), plain.Len(), err)
	}
}

// since is what the kubelet gives of a log: the lines from a second on.
func since(t *testing.T, dir string, log []byte) io.Reader {
	t.Helper()
	s, err := openSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	from := s.time.Truncate(time.Second)
	for rest := log; len(rest) > 0; {
		stamp, _, _ := bytes.Cut(rest, []byte(" "))
		if when, err := time.Parse(time.RFC3339Nano, string(stamp)); err == nil && !when.Before(from) {
			return bytes.NewReader(rest)
		}
		_, rest, _ = bytes.Cut(rest, []byte("\n"))
	}
	return strings.NewReader("")
}

func cutCopy(t *testing.T, dir string, r io.Reader) {
	t.Helper()
	s, err := openSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	_ = s.copy(r) // it may be cut within a time
}

func TestASpoolNotesWhatTheNodeThrewAway(t *testing.T) {
	dir := t.TempDir()
	cutCopy(t, dir, strings.NewReader("2026-01-01T12:00:00Z one\n2026-01-01T12:00:01Z two\n"))
	s, err := openSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if err := s.copy(strings.NewReader("2026-01-01T12:00:05Z five\n")); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(filepath.Join(dir, logFile))
	if err != nil || string(got) != "one\ntwo\nfive\n" || !s.lost {
		t.Errorf("the copy is %q, lost %v (%v)", got, s.lost, err)
	}
}

// Of a line that is longer than what the kubelet keeps, the end alone is there to be read when the task has ended.
func TestTheEndOfALongLineFindsItsPlace(t *testing.T) {
	line := make([]byte, 0, 200_000)
	for i := 0; len(line) < cap(line); i++ {
		line = fmt.Appendf(line, "%d%%\r", i)
	}
	line = append(line, "\ndone\n"...)
	for name, c := range map[string]struct {
		begins int // where the kubelet's log does
		want   []byte
		lost   bool
	}{
		"within what was copied":    {60_000, line, false},
		"where the copy was cut":    {100_000, line, false},
		"after what was copied":     {150_000, append(bytes.Clone(line[:100_000]), line[150_000:]...), true},
		"the last line and no more": {len(line) - 5, append(bytes.Clone(line[:100_000]), "done\n"...), true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cutCopy(t, dir, io.LimitReader(strings.NewReader(t0.Format(time.RFC3339Nano)+" "+string(line)), int64(len(t0.Format(time.RFC3339Nano))+1+100_000)))
			s, err := openSpool(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer s.close()
			s.whole = int64(len(line))
			left := func() io.Reader { return strings.NewReader(stampLines(line[c.begins:])) }
			if err := s.copy(left()); !errors.Is(err, errNoMark) {
				t.Fatalf("copying said %v", err)
			}
			n, last, err := measure(left())
			if err != nil || n != int64(len(line)-c.begins) || !bytes.HasSuffix(line, last) || len(last) == 0 || s.endsWith(last) {
				t.Fatalf("it is %d bytes long and ends with %q, %v", n, last, err)
			}
			if err := s.copyTail(left(), s.whole-n); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(dir, logFile))
			if err != nil || !bytes.Equal(got, c.want) || s.lost != c.lost || s.size != int64(len(c.want)) || !s.endsWith(last) {
				t.Errorf("the copy has %d bytes (%d) of %d, lost %v, %v", len(got), s.size, len(c.want), s.lost, err)
			}
		})
	}
}

// stampLines puts times before lines, as the kubelet does.
func stampLines(log []byte) string {
	var out strings.Builder
	when := t0.Add(time.Minute)
	for line := range bytes.Lines(log) {
		when = when.Add(time.Millisecond)
		out.WriteString(when.Format(time.RFC3339Nano) + " " + string(line))
	}
	return out.String()
}

// What has come is there for others before more is waited for, though it ends within a line.
func TestWhatWasReadIsThereBeforeMoreComes(t *testing.T) {
	s, err := openSpool(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	var seen atomic.Int64
	s.grown = func(at, _ int64) { seen.Store(at) }
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- s.copy(r) }()
	for _, text := range []string{"2026-01-02T03:04:05.1Z one\n2026-01-02T03:04:05.2Z tw", "o"} { // the second is only taken once the first was dealt with
		if _, err := io.WriteString(w, text); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(s.log.Name())
	if err != nil || string(got) != "one\n" || seen.Load() != 4 {
		t.Errorf("the log is %q, and %d bytes were told of (%v)", got, seen.Load(), err)
	}
	w.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(s.log.Name()); err != nil || string(got) != "one\ntwo" {
		t.Errorf("in the end the log is %q (%v)", got, err)
	}
}
