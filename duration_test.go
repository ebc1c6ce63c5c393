package trainyard_test

import (
	"testing"
	"time"

	"github.com/trainyard/trainyard"
	"pgregory.net/rapid"
)

func TestISODurationIsWrittenAsClientsWriteIt(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"PT0S":        0,
		"PT30S":       30 * time.Second,
		"PT2M":        2 * time.Minute,
		"PT59M":       59 * time.Minute,
		"PT1H":        time.Hour,
		"PT1H30M":     90 * time.Minute,
		"PT1M30S":     90 * time.Second,
		"P1D":         24 * time.Hour,
		"P1DT12H":     36 * time.Hour,
		"PT0.5S":      500 * time.Millisecond,
		"PT1M0.0015S": time.Minute + 1500*time.Microsecond,
	} {
		if got := trainyard.ISODuration(d); got != want {
			t.Errorf("ISODuration(%v) = %q, want %q", d, got, want)
		}
	}
	if got := trainyard.ISODuration(-time.Second); got != "PT0S" {
		t.Errorf("a negative duration is written %q", got)
	}
}

func TestParseISODuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"PT120S": 2 * time.Minute, "PT60M": time.Hour, "pt1h": time.Hour, "P1W": 168 * time.Hour, "P1DT1H": 25 * time.Hour,
		"PT0,5S": 500 * time.Millisecond, "PT1.5H": 90 * time.Minute, "PT0S": 0, " PT5S ": 5 * time.Second,
	} {
		got, err := trainyard.ParseISODuration(text)
		if err != nil || got != want {
			t.Errorf("ParseISODuration(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "P", "PT", "P1DT", "1H", "PT1", "P1Y", "P1M", "-PT1H", "PT1S1M", "PT1e3S", "3600", "P99999999999W", "PT999999999999999999999H"} {
		if got, err := trainyard.ParseISODuration(text); err == nil || trainyard.CodeOf(err) != trainyard.CodeInvalid {
			t.Errorf("ParseISODuration(%q) = %v, %v, want a refusal", text, got, err)
		}
	}
}

func TestISODurationComesBackAsItWent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(250*365*24*time.Hour)).Draw(t, "d"))
		if rapid.Bool().Draw(t, "whole seconds") {
			d = d.Truncate(time.Second)
		}
		text := trainyard.ISODuration(d)
		back, err := trainyard.ParseISODuration(text)
		if err != nil || back != d {
			t.Fatalf("%v is written %q and read %v, %v", d, text, back, err)
		}
	})
}
