package control

import (
	"strings"
	"time"

	"github.com/trainyard/trainyard"
)

// floor is the least number of replicas at a time: the minimum, or more where a schedule says so.
func floor(schedules []trainyard.ReplicaFloor, low int, now time.Time) (int, error) {
	for i := range schedules {
		f := &schedules[i]
		zone := time.UTC
		if f.TimeZone != "" {
			z, err := time.LoadLocation(f.TimeZone)
			if err != nil {
				return low, trainyard.Invalid("schedules: time_zone %q is not known: want a name such as Europe/Berlin", f.TimeZone)
			}
			zone = z
		}
		from, err1 := time.Parse("15:04", f.From)
		to, err2 := time.Parse("15:04", f.To)
		if err1 != nil || err2 != nil {
			return low, trainyard.Invalid("schedules: from %q and to %q must be times such as 08:00", f.From, f.To)
		}
		for _, d := range f.Days {
			if !isDay(d) {
				return low, trainyard.Invalid("schedules: day %q is not known: want Monday, Tuesday, Wednesday, Thursday, Friday, Saturday or Sunday", d)
			}
		}
		at := now.In(zone)
		minute, begin, end := at.Hour()*60+at.Minute(), from.Hour()*60+from.Minute(), to.Hour()*60+to.Minute()
		day := at.Weekday()
		inside := minute >= begin && minute < end
		if end <= begin { // over midnight
			inside = minute >= begin || minute < end
			if minute < end {
				day = (day + 6) % 7 // it began the day before
			}
		}
		if inside && onDay(f.Days, day) {
			low = max(low, f.MinInstances)
		}
	}
	return low, nil
}

func onDay(days []string, day time.Weekday) bool {
	for _, d := range days {
		if strings.EqualFold(d, day.String()) {
			return true
		}
	}
	return len(days) == 0
}

func isDay(name string) bool {
	for d := time.Sunday; d <= time.Saturday; d++ {
		if strings.EqualFold(name, d.String()) {
			return true
		}
	}
	return false
}
