package kube

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trainyard/trainyard/internal/target"
	"github.com/trainyard/trainyard/internal/target/kube/podlog"
)

// kubelet hands a container's output on with a time before each line, as fast as it can, and may lose some of it, or break off once.
type kubelet struct {
	streams chan io.Reader // a new one after each that was broken off
	fast    int            // bytes a second
	lose    int            // bytes after the first megabyte
	cut     int            // after so many bytes; 0 for never

	mu    sync.Mutex
	lines bytes.Buffer
}

func (k *kubelet) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lines.Write(p)
}

// next is what it hands on in a twentieth of a second.
func (k *kubelet) next() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	text := k.lines.Next(min(k.fast/20, k.lines.Len()) / 400 * 400) // whole lines
	return bytes.Clone(text)
}

func (k *kubelet) run(ctx context.Context) {
	var to *io.PipeWriter
	for had := 0; ctx.Err() == nil; {
		if to == nil {
			var r io.Reader
			r, to = io.Pipe()
			k.streams <- r
		}
		text := k.next()
		had += len(text)
		if had > 1<<20 && k.lose > 0 {
			k.lose -= len(text)
			text = nil
		}
		var out bytes.Buffer
		for line := range bytes.Lines(text) {
			fmt.Fprintf(&out, "%s %s", time.Now().UTC().Format(time.RFC3339Nano), line)
		}
		if out.Len() > 0 {
			_, _ = to.Write(out.Bytes())
		}
		if k.cut > 0 && had > k.cut {
			k.cut = 0
			to.Close()
			to = nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	to.Close()
	close(k.streams)
}

// What a program prints is held back only while it is further ahead than its node keeps, however it comes, and whatever is lost of it.
func TestALogIsNotHeldBackLongerThanItMust(t *testing.T) {
	t.Parallel()
	const size = 30 << 20
	line := strings.Repeat("x", 399) + "\n"
	for name, c := range map[string]struct {
		each  int           // bytes that the task writes at once,
		pause time.Duration // and then nothing for so long
		fast  int
		lose  int
		again bool // whoever reads it dies after the first 10 MB, and another goes on
		most  time.Duration
		tells int
	}{
		"at once":                    {size, 0, 5 << 20, 0, false, 12 * time.Second, 25},
		"with pauses":                {10_000, 500 * time.Millisecond, 5 << 20, 0, false, 2 * time.Second, 400},
		"in bursts":                  {3 << 20, 5 * time.Second, 5 << 20, 0, false, 12 * time.Second, 25},
		"by a slow node":             {size, 0, 1 << 20, 0, false, 36 * time.Second, 25},
		"with a loss":                {size, 0, 5 << 20, 1 << 20, false, 35 * time.Second, 25},
		"to another after some time": {size, 0, 5 << 20, 0, true, 15 * time.Second, 40},
		"with pauses to another":     {10_000, 500 * time.Millisecond, 5 << 20, 0, true, 5 * time.Second, 500},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			dir := t.TempDir()
			heard, tells := filepath.Join(dir, "heard"), 0
			k := &kubelet{streams: make(chan io.Reader, 1), fast: c.fast, lose: c.lose}
			if c.again {
				k.cut = 10 << 20
			}
			in, output := io.Pipe()
			go k.run(ctx)
			follow := func(r io.Reader) {
				s, err := openSpool(dir)
				if err != nil {
					t.Error(err)
					return
				}
				defer s.close()
				f := &follower{d: &Driver{env: target.Env{Log: slog.New(slog.DiscardHandler)}}, task: &task{}}
				f.tells = func(_ context.Context, at int64) error {
					tells++
					return os.WriteFile(heard, []byte(strconv.FormatInt(at, 10)), 0o600)
				}
				defer f.tellOf(ctx, s)()
				if err := s.append(r, &copier{end: s.size}); err != nil {
					t.Error(err)
				}
				_, _ = io.Copy(io.Discard, r)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for r := range k.streams {
					follow(r)
				}
			}()
			go func() {
				for left := size; left > 0; left -= c.each {
					_, _ = io.WriteString(output, strings.Repeat(line, min(c.each, left)/len(line)))
					<-time.After(c.pause)
				}
				output.Close()
			}()
			began := time.Now()
			_, _ = io.Copy(podlog.New(ctx, k, heard), in)
			took, least := time.Since(began), time.Duration(size/c.each)*c.pause
			if took > least+c.most {
				t.Errorf("%s: it took %v, want at most %v more than %v", name, took, c.most, least)
			}
			cancel()
			<-done
			if tells > c.tells {
				t.Errorf("%s: it was told %d times", name, tells)
			}
		})
	}
}
