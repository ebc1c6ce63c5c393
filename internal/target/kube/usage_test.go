package kube

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/trainyard/trainyard"
)

func TestAControlGroupIsRead(t *testing.T) {
	two := "usage_usec 1500000\nuser_usec 1\nnr_periods 0\nlow 0\noom 3\noom_kill 2\nanon 104857600\nfile 999999999\nkernel 1048576\nshmem 0\n"
	if u, err := readGroup(two); err != nil || u.CPU != 1500*time.Millisecond || u.MemoryMB != 101 || u.OOMKills != 2 {
		t.Errorf("%+v, %v", u, err)
	}
	one := "2500000000\ncache 5\nrss 52428800\nshmem 0\ntotal_rss 7\n"
	if u, err := readGroup(one); err != nil || u.CPU != 2500*time.Millisecond || u.MemoryMB != 50 {
		t.Errorf("%+v, %v", u, err)
	}
	if _, err := readGroup("anon 5\n"); trainyard.CodeOf(err) != trainyard.CodeUnsupported {
		t.Errorf("without an account of processors: %v", err)
	}
}

func TestWhatAnImageCallsCatFillsNoMemory(t *testing.T) {
	var h head
	long := strings.Repeat("x", 3*mostAccounts/2)
	for range 3 {
		if n, err := io.Copy(&h, strings.NewReader(long)); n != int64(len(long)) || err != nil {
			t.Fatal(n, err)
		}
	}
	if h.b.Len() != mostAccounts {
		t.Errorf("%d bytes were kept", h.b.Len())
	}
}
