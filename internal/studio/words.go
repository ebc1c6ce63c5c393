package studio

import (
	"fmt"
	"strconv"
	"time"
)

// moment is a time as pages show it: in words, and exactly for who points at it.
type moment struct {
	ISO, Words, Exact string
}

func momentOf(now, t time.Time) moment {
	if t.IsZero() {
		return moment{}
	}
	return moment{ISO: t.UTC().Format(time.RFC3339), Words: ago(now, t), Exact: t.UTC().Format("2006-01-02 15:04:05 UTC")}
}

// lasting is a duration; one that goes on has the time when it began, in Unix milliseconds, so that the browser can count on.
type lasting struct {
	Words string
	Since int64
}

func lastingOf(now, from, to time.Time) lasting {
	if from.IsZero() {
		return lasting{}
	}
	if to.IsZero() {
		return lasting{long(now.Sub(from).Truncate(time.Second)), from.UnixMilli()} // in seconds, as the script counts on
	}
	return lasting{Words: long(to.Sub(from))}
}

// ago says how long before now t was, as people do.
func ago(now, t time.Time) string {
	d := now.Sub(t)
	switch {
	case d < 5*time.Second:
		return "now"
	case d < 7*24*time.Hour:
		return short(d) + " ago"
	}
	return t.UTC().Format("2006-01-02")
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

// long is a duration in two units: 840ms, 3.2s, 1m 32s, 2h 5m, 3d 4h. The script writes those that go on in the same way.
func long(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return "0s"
	case d < time.Second:
		return strconv.Itoa(int(d/time.Millisecond)) + "ms"
	case d < 10*time.Second && d%time.Second != 0:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
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
	if len(parts) > 1 && parts[1][0] != '0' {
		return parts[0] + " " + parts[1]
	}
	return parts[0]
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

// count is "1 node", "2 nodes".
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}

func itoa(n int) string { return strconv.Itoa(n) }
