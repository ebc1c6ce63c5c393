package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ago says how long before now t was, as people do.
func ago(now, t time.Time) string {
	if t.IsZero() {
		return ""
	}
	d := now.Sub(t)
	switch {
	case d < 0:
		return t.Local().Format("2006-01-02 15:04")
	case d < time.Second:
		return "now"
	case d < 7*24*time.Hour:
		return short(d) + " ago"
	}
	return t.Local().Format("2006-01-02")
}

// short is a duration in its largest unit: 12s, 5m, 3h, 2d.
func short(d time.Duration) string {
	switch {
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + "d"
}

// long is a duration in two units, exact enough to be added up in the head: 840ms, 3.2s, 1m 32s, 2h 5m, 3d 4h.
func long(d time.Duration) string {
	switch {
	case d < 0:
		return "0ms"
	case d < time.Second:
		return strconv.Itoa(int(d/time.Millisecond)) + "ms"
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Round(time.Second)/time.Second)) + "s"
	}
	d = d.Round(time.Second)
	units := []struct {
		unit time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	var parts []string
	for _, u := range units {
		if n := d / u.unit; n > 0 || len(parts) > 0 {
			parts = append(parts, strconv.Itoa(int(n))+u.name)
			d -= n * u.unit
		}
	}
	if len(parts) > 2 {
		parts = parts[:2]
	}
	return strings.TrimSuffix(strings.TrimSuffix(strings.Join(parts, " "), " 0s"), " 0m")
}

// size is a number of bytes for people.
func size(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10) + " B"
	}
	f, units := float64(n), []string{"kB", "MB", "GB", "TB", "PB"}
	for i, u := range units {
		if f /= 1000; f < 999.5 || i == len(units)-1 {
			if f < 9.95 {
				return fmt.Sprintf("%.1f %s", f, u)
			}
			return fmt.Sprintf("%.0f %s", f, u)
		}
	}
	return ""
}

// plural is "1 file", "2 files".
func plural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}

// parseTime reads the times of the API; the zero time for what is none.
func parseTime(v any) time.Time {
	s, _ := v.(string)
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}
