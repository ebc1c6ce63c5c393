package trainyard

import (
	"math"
	"strconv"
	"strings"
	"time"
)

var isoDuration = pattern(`^P(?:([0-9]+)W)?(?:([0-9]+(?:[.,][0-9]+)?)D)?(T(?:([0-9]+(?:[.,][0-9]+)?)H)?(?:([0-9]+(?:[.,][0-9]+)?)M)?(?:([0-9]+(?:[.,][0-9]+)?)S)?)?$`)

// ParseISODuration reads an ISO 8601 duration such as "PT1H30M", "P1D" or "PT0.5S". Years and months are refused, because they have no
// fixed length, and so are negative durations. Letters match without regard to case.
func ParseISODuration(s string) (time.Duration, error) {
	text := strings.ToUpper(strings.TrimSpace(s))
	m := isoDuration().FindStringSubmatch(text)
	if m == nil || text == "P" || m[3] == "T" {
		return 0, Invalid("%q is not a duration: want ISO 8601 in days, hours, minutes and seconds, such as PT30S, PT1H30M or P1D", s)
	}
	units := []struct {
		text string
		unit time.Duration
	}{{m[1], 7 * 24 * time.Hour}, {m[2], 24 * time.Hour}, {m[4], time.Hour}, {m[5], time.Minute}, {m[6], time.Second}}
	total := 0.0
	var whole time.Duration // sums the integer parts exactly; a float64 of nanoseconds is exact for 104 days only
	for _, u := range units {
		if u.text == "" {
			continue
		}
		n, err := strconv.ParseFloat(strings.Replace(u.text, ",", ".", 1), 64)
		total += n * float64(u.unit)
		if err != nil || total >= math.MaxInt64 {
			return 0, Invalid("the duration %q is too long: the longest is about 292 years", s)
		}
		floor := math.Floor(n)
		whole += time.Duration(floor)*u.unit + time.Duration(math.Round((n-floor)*float64(u.unit)))
	}
	return whole, nil
}

// ISODuration writes d as clients write theirs: "PT30S", "PT2M", "PT1H", "PT1H30M", "P1DT12H", and "PT0S" for none. A unit is used only
// when d fills it, so 59 minutes stay "PT59M". A negative d counts as none.
func ISODuration(d time.Duration) string {
	if d <= 0 {
		return "PT0S"
	}
	var date, clock strings.Builder
	put := func(b *strings.Builder, unit time.Duration, letter byte) {
		if n := d / unit; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10))
			b.WriteByte(letter)
			d -= n * unit
		}
	}
	put(&date, 24*time.Hour, 'D')
	put(&clock, time.Hour, 'H')
	put(&clock, time.Minute, 'M')
	if d%time.Second == 0 {
		put(&clock, time.Second, 'S')
	} else {
		whole, rest := d/time.Second, d%time.Second
		fraction := strings.TrimRight(strconv.FormatInt(int64(rest+time.Second), 10)[1:], "0") // the added second keeps the leading zeros
		clock.WriteString(strconv.FormatInt(int64(whole), 10) + "." + fraction + "S")
	}
	if clock.Len() == 0 {
		return "P" + date.String()
	}
	return "P" + date.String() + "T" + clock.String()
}
