package main

import (
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestStampIsTheTimeThatBashPrints(t *testing.T) {
	if at, err := stamp("1795255884.062686\n"); err != nil || !at.Equal(time.UnixMicro(1795255884062686)) {
		t.Errorf("%v (%v)", at, err)
	}
	for _, text := range []string{"", "$EPOCHREALTIME\n", "1795255884\n"} { // no process, a shell that is not bash
		if at, err := stamp(text); err == nil {
			t.Errorf("%q is %v", text, at)
		}
	}
}

func TestAtOnceDoesAllAndTellsWhatFailed(t *testing.T) {
	var did atomic.Int64
	if err := atOnce(100, func(int) error { did.Add(1); return nil }); err != nil || did.Load() != 100 {
		t.Errorf("%d of 100 (%v)", did.Load(), err)
	}
	broken := errors.New("broken")
	if err := atOnce(100, func(i int) error {
		if i == 50 {
			return broken
		}
		return nil
	}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestEnginesThatAreNotThereAreNamed(t *testing.T) {
	for _, e := range engines() {
		t.Setenv(e.env, "")
	}
	rows, leftOut, err := beside(t.Context(), "no-program", "", "")
	if err != nil || len(rows) > 0 || len(leftOut) != len(engines()) {
		t.Fatalf("%v, %v (%v)", rows, leftOut, err)
	}
	text := besides(rows, leftOut)
	for _, e := range engines() {
		if !strings.Contains(text, "Left out: "+e.name) {
			t.Errorf("%s is not named in %s", e.name, text)
		}
	}
}

func TestExportSetsWhatAScriptPrints(t *testing.T) {
	t.Setenv("TRAINYARD_BENCH_TRY", "before")
	if err := export("noise\nexport TRAINYARD_BENCH_TRY=/a=b\n"); err != nil || os.Getenv("TRAINYARD_BENCH_TRY") != "/a=b" {
		t.Errorf("%q (%v)", os.Getenv("TRAINYARD_BENCH_TRY"), err)
	}
}
