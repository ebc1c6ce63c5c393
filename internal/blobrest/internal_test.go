package blobrest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-499", "bytes=500-", "bytes=-500", "bytes=0-0,-1", "bytes=-0", "bytes=9223372036854775807-", "bytes=1-9223372036854775807", "bytes=-"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, ok := parseRange(s)
		switch {
		case !ok && r != byteRange{length: -1}:
			t.Errorf("%q is no range and is read as %+v", s, r)
		case ok && (r.offset < 0 || r.length == 0 || r.length < -1 || r.suffix && r.length < 1):
			t.Errorf("%q is read as %+v", s, r)
		case ok && r.length > 0 && !r.suffix && r.offset+r.length < 0:
			t.Errorf("%q overflows: %+v", s, r)
		}
	})
}

func FuzzBlockList(f *testing.F) {
	f.Add([]byte("<?xml version='1.0' encoding='utf-8'?><BlockList><Latest>MQ==</Latest></BlockList>"))
	f.Add([]byte("<BlockList><Committed>x</Committed></BlockList>"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if ids, err := parseBlockList(data); err != nil {
			if _, ok := refusalOf(err); !ok || ids != nil {
				t.Errorf("%v with %q", err, ids)
			}
		}
	})
}

// oldBlocks holds two blocks, one of them old, and notes what is deleted.
type oldBlocks struct {
	Blobs
	now     time.Time
	listed  int
	deleted []string
}

func (o *oldBlocks) Page(_ context.Context, prefix, _, marker string, _ int) ([]trainyard.BlobInfo, []string, string, error) {
	if o.listed++; marker == "" {
		return []trainyard.BlobInfo{{Key: prefix + "old", Modified: o.now.Add(-8 * 24 * time.Hour)}}, nil, "more", nil
	}
	return []trainyard.BlobInfo{{Key: prefix + "new", Modified: o.now.Add(-6 * 24 * time.Hour)}}, nil, "", nil
}

func (o *oldBlocks) Delete(_ context.Context, key string) error {
	o.deleted = append(o.deleted, key)
	return nil
}

func TestAbandonedBlocksAreSweptOnceAnHour(t *testing.T) {
	now := time.Now()
	o := &oldBlocks{now: now}
	h := &handler{Config: Config{Blobs: o, Log: slog.Default()}}
	for range 3 {
		h.sweep(t.Context(), now)
	}
	if o.listed != 2 || len(o.deleted) != 1 || o.deleted[0] != "uncommitted-blocks/old" {
		t.Errorf("listed %d pages, deleted %q; want 2 pages and the old block", o.listed, o.deleted)
	}
	if h.sweep(t.Context(), now.Add(time.Hour)); o.listed != 4 {
		t.Errorf("an hour later it did not look again")
	}
}
