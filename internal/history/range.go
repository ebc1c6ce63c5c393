package history

import (
	"strconv"
	"strings"
)

// byteRange is a range of a Range header. A negative length is to the end; with suffix, length counts from the end.
type byteRange struct {
	offset, length int64
	suffix         bool
}

// parseRange reads "bytes=0-499", "bytes=500-" and "bytes=-500". Anything else, several ranges too, is no range: as RFC 9110 14.2 has it,
// the whole is sent.
func parseRange(s string) (byteRange, bool) {
	whole := byteRange{length: -1}
	spec, ok := strings.CutPrefix(strings.TrimSpace(s), "bytes=")
	from, to, dash := strings.Cut(spec, "-")
	if !ok || !dash {
		return whole, false
	}
	from, to = strings.TrimSpace(from), strings.TrimSpace(to)
	last, err := strconv.ParseUint(to, 10, 63)
	if to != "" && err != nil {
		return whole, false
	}
	if from == "" {
		if last == 0 { // "-" and "-0" too
			return whole, false
		}
		return byteRange{length: int64(last), suffix: true}, true
	}
	start, err := strconv.ParseUint(from, 10, 63)
	switch {
	case err != nil, to != "" && last < start:
		return whole, false
	case to == "" || last == 1<<63-1:
		return byteRange{offset: int64(start), length: -1}, true
	}
	return byteRange{offset: int64(start), length: int64(last - start + 1)}, true
}
