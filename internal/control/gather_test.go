package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

// gatherer is a server whose clock the test has.
type gatherer struct {
	*testing.T
	c      *Control
	now    time.Time
	folder trainyard.DataPath
}

func newGatherer(t *testing.T) *gatherer {
	g := &gatherer{T: t, c: newControl(t), now: time.Date(2026, 3, 1, 10, 59, 0, 0, time.UTC),
		folder: trainyard.DataPath{Scope: trainyard.DefaultScope(), Datastore: trainyard.BlobDatastore, Path: "modelDataCollector/e/d/inputs"}}
	g.c.Config.Now = func() time.Time { return g.now }
	return g
}

// waiting is the prefix of what is gathered in the folder's workspace.
func (g *gatherer) waiting() string {
	return trainyard.DataPath{Scope: g.folder.Scope, Datastore: gatherStore}.Key()
}

// row gathers one row at the present minute, and a second passes.
func (g *gatherer) row(n int) {
	g.Helper()
	if err := g.c.gather(g.Context(), g.folder, g.now.Format("2006/01/02/15"), fmt.Appendf(nil, "{\"n\":%d}\n", n)); err != nil {
		g.Fatal(err)
	}
	g.now = g.now.Add(time.Second)
}

// files is what is in every file below a prefix, by the order of their names.
func (g *gatherer) files(prefix string) (out []string) {
	g.Helper()
	all, err := g.c.Blobs.List(g.Context(), prefix)
	if err != nil {
		g.Fatal(err)
	}
	for _, it := range all {
		r, _, err := g.c.Blobs.Open(g.Context(), it.Key, 0)
		if err != nil {
			g.Fatal(err)
		}
		data, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			g.Fatal(err)
		}
		out = append(out, string(data))
	}
	return out
}

// want checks the files of the collection, and whether rows wait.
func (g *gatherer) want(waits bool, want ...string) {
	g.Helper()
	if got := g.files(g.folder.Key() + "/"); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		g.Errorf("the collection has %q, want %q", got, want)
	}
	if got := g.files(g.waiting()); len(got) > 0 != waits {
		g.Errorf("gathered is %q", got)
	}
}

// next is the moment when the folder may get its next file.
func (g *gatherer) next() {
	g.Helper()
	if again, err := g.c.nextFile(g.Context(), g.folder.Key()); err != nil || again != 0 {
		g.Fatalf("no file is made: %v, %v", again, err)
	}
}

func TestABusyCollectionGetsAFileAMinute(t *testing.T) {
	g := newGatherer(t)
	g.row(1)
	g.want(false, "{\"n\":1}\n")
	for n := range 4 {
		g.row(n + 2)
	}
	g.want(true, "{\"n\":1}\n")
	if again, err := g.c.nextFile(t.Context(), g.folder.Key()); err != nil || again != 55*time.Second {
		t.Errorf("the next file is %v away, %v", again, err)
	}
	g.now = g.now.Add(55 * time.Second) // 11:00:00: those that wait are of the hour before
	const four = "{\"n\":2}\n{\"n\":3}\n{\"n\":4}\n{\"n\":5}\n"
	g.row(6)
	g.want(true, "{\"n\":1}\n", four)
	g.now = g.now.Add(time.Minute)
	g.next()
	g.want(false, "{\"n\":1}\n", four, "{\"n\":6}\n")
	g.now = g.now.Add(time.Minute)
	g.row(7)
	g.want(false, "{\"n\":1}\n", four, "{\"n\":6}\n", "{\"n\":7}\n")
	all, err := g.c.Blobs.List(t.Context(), g.folder.Key())
	if err != nil || !strings.HasPrefix(all[1].Key, g.folder.Key()+"/2026/03/01/10/") || !strings.HasPrefix(all[2].Key, g.folder.Key()+"/2026/03/01/11/") {
		t.Errorf("the files are %+v, %v", all, err)
	}
}

func TestALargeFileIsNotWaitedWith(t *testing.T) {
	g := newGatherer(t)
	long := append(bytes.Repeat([]byte("x"), gatherSize/3), '\n')
	for range 5 { // the first at once, two that wait, and two more
		if err := g.c.gather(t.Context(), g.folder, "2026", long); err != nil {
			t.Fatal(err)
		}
		g.now = g.now.Add(time.Millisecond)
	}
	if got := g.files(g.folder.Key() + "/"); len(got) != 2 || len(got[0]) != len(long) || len(got[1]) != 2*len(long) {
		t.Errorf("%d files", len(got))
	}
}

// A server that is killed has all rows that it took in its store: another makes files of them, once.
func TestRowsOfAKilledServerAreKept(t *testing.T) {
	theirs := trainyard.Scope{Subscription: "s", ResourceGroup: "rg", Workspace: "theirs"}
	for _, scope := range []trainyard.Scope{trainyard.DefaultScope(), theirs} {
		g := newGatherer(t)
		if _, _, err := g.c.PutResource(t.Context(), anAdmin, &trainyard.Resource{Scope: scope, Kind: trainyard.KindWorkspace, Name: scope.Workspace}); err != nil {
			t.Fatal(err)
		}
		g.folder.Scope = scope
		g.row(1)
		g.row(2)
		g.row(3)
		left, err := g.c.Blobs.List(t.Context(), g.waiting())
		if err != nil || len(left) != 1 {
			t.Fatalf("gathered is %+v, %v", left, err)
		}
		if _, err := g.c.Blobs.Append(t.Context(), left[0].Key, left[0].Size, []byte(`{"n":`)); err != nil { // killed in the middle of a row, which was not acknowledged
			t.Fatal(err)
		}
		g.c = New(g.c.Config)
		g.row(4) // a file at once: it knows of none
		g.row(5)
		if err := g.c.deliverLeft(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.want(true, "{\"n\":1}\n", "{\"n\":2}\n{\"n\":3}\n", "{\"n\":4}\n")
	}
}

// Killed after the file was made and before what it was made of was taken away.
func TestAFileThatIsMadeTwiceIsOne(t *testing.T) {
	g := newGatherer(t)
	g.row(1)
	g.row(2)
	left, err := g.c.Blobs.List(t.Context(), g.waiting())
	if err != nil {
		t.Fatal(err)
	}
	key := strings.TrimPrefix(left[0].Key, g.waiting()+g.c.gathered.server+"/")
	if err := g.c.Blobs.Put(t.Context(), key, strings.NewReader("{\"n\":2}\n")); err != nil {
		t.Fatal(err)
	}
	g.c = New(g.c.Config)
	for range 2 {
		if err := g.c.deliverLeft(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.want(false, "{\"n\":1}\n", "{\"n\":2}\n")
	}
}

// halfBlobs is a disk that is full in the middle of a row.
type halfBlobs struct {
	Blobs
	full bool
}

func (b *halfBlobs) Append(ctx context.Context, key string, offset int64, data []byte) (int64, error) {
	if !b.full {
		return b.Blobs.Append(ctx, key, offset, data)
	}
	n, _ := b.Blobs.Append(ctx, key, offset, data[:len(data)-2])
	return n, errors.New("no space")
}

func TestAFullDiskTearsNoRow(t *testing.T) {
	g := newGatherer(t)
	disk := &halfBlobs{Blobs: g.c.Blobs}
	g.c.Blobs = disk
	g.row(1)
	g.row(2)
	disk.full = true
	if err := g.c.gather(t.Context(), g.folder, "2026/03/01/10", []byte("{\"n\":3}\n")); err == nil {
		t.Fatal("rows that do not fit were taken")
	}
	disk.full = false
	g.row(4)
	g.now = g.now.Add(time.Minute)
	g.next()
	g.want(false, "{\"n\":1}\n", "{\"n\":2}\n", "{\"n\":4}\n")
}
