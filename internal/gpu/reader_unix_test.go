//go:build unix

package gpu_test

import (
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/trainyard/trainyard/internal/gpu"
	"github.com/trainyard/trainyard/internal/gpu/gputest"
)

// until asks again and again until the answer is as wanted.
func until(t *testing.T, r *gpu.Reader, visible string, want float64, words string) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		percent, why := r.Use(visible)
		if value(percent) == want && strings.Contains(why, words) {
			return
		}
		select {
		case <-late:
			t.Fatalf("%v %q, want %v %q", value(percent), why, want, words)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func TestAReadingIsShared(t *testing.T) {
	smi := gputest.Here(t)
	smi.Set("80", "20")
	var r gpu.Reader
	defer r.Close()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() { r.Use("") })
	}
	all.Wait()
	until(t, &r, "0", 80, "")
	until(t, &r, "1", 20, "")
	if n := len(smi.Asked()); n != 1 {
		t.Errorf("it was asked %d times", n)
	}
	smi.Set("10", "30")
	until(t, &r, "", 20, "")
	smi.Break()
	until(t, &r, "", -1, "couldn't communicate with the NVIDIA driver")
}

func TestThisProcessMayBeGivenSomeGPUsOnly(t *testing.T) {
	gputest.Here(t).Set("80", "20", "30")
	var r gpu.Reader
	defer r.Close()
	if n := len(r.List(t.Context())); n != 3 {
		t.Errorf("it has %d GPUs", n)
	}
	t.Setenv(gpu.VisibleVariable, "2")
	if all := r.List(t.Context()); len(all) != 1 || all[0].Index != "2" {
		t.Errorf("it has %+v", all)
	}
}

func TestWithoutTheProgramThereAreNoGPUs(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var r gpu.Reader
	if all := r.List(t.Context()); len(all) != 0 {
		t.Errorf("there are %+v", all)
	}
	if percent, why := r.Use(""); percent != nil || why != "there is no nvidia-smi" {
		t.Errorf("%v %q", percent, why)
	}
}

func TestOneThatHangsHoldsNobodyUp(t *testing.T) {
	smi := gputest.Here(t)
	smi.Hang()
	var r gpu.Reader
	from := time.Now()
	for range 100 {
		if percent, why := r.Use(""); percent != nil || !strings.Contains(why, "was not heard yet") {
			t.Fatalf("%v %q", percent, why)
		}
	}
	if took := time.Since(from); took > time.Second {
		t.Errorf("to ask took %s", took)
	}
	late := time.After(20 * time.Second)
	for len(smi.Asked()) == 0 {
		select {
		case <-late:
			t.Fatal("it is not asked")
		case <-time.After(time.Millisecond):
		}
	}
	from = time.Now()
	for range 3 {
		if all := r.List(t.Context()); len(all) != 0 {
			t.Errorf("there are %+v", all)
		}
	}
	if took := time.Since(from); took > 4*time.Second { // it is waited for once
		t.Errorf("to list took %s", took)
	}
	r.Close()
	asked := smi.Asked()
	if len(asked) != 1 {
		t.Fatalf("there were %v at once", asked)
	}
	pid, err := strconv.Atoi(asked[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("it is still there: %v", err)
	}
}
