package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/trainyard/trainyard/internal/target"
)

// tick is the unit of times in /proc: USER_HZ, which is 100 wherever Linux runs.
const tick = 10 * time.Millisecond

// measure reads /proc of each process.
func (p *process) measure() (u target.Usage, err error) {
	pids, err := p.hold.pids()
	if err != nil {
		return u, err
	}
	page := int64(os.Getpagesize())
	var own, shared, peak int64
	for _, pid := range pids {
		folder := filepath.Join("/proc", strconv.Itoa(pid))
		if data, err := os.ReadFile(filepath.Join(folder, "stat")); err == nil {
			u.CPU += spent(data)
		}
		if data, err := os.ReadFile(filepath.Join(folder, "statm")); err == nil {
			resident, common := pages(data)
			own += (resident - common) * page
			shared = max(shared, common*page)
			if data, err := os.ReadFile(filepath.Join(folder, "status")); err == nil {
				peak += max(0, highWater(data)-common*page)
			}
		}
	}
	_, u.OOMKills = p.hold.usage()
	u.MemoryMB = (own + shared) >> 20
	u.PeakMB = max(u.MemoryMB, (peak+shared)>>20) // of each process at its own time: the sum is never too low
	return u, nil
}

// spent is the processor time of a process and of the children that it has waited for, of /proc/PID/stat.
func spent(stat []byte) (d time.Duration) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 15 {
		return 0
	}
	for _, f := range fields[11:15] { // utime, stime, cutime, cstime
		n, _ := strconv.ParseInt(string(f), 10, 64)
		d += time.Duration(n) * tick
	}
	return d
}

// pages reads /proc/PID/statm: what is resident, and how much of that others may share.
func pages(statm []byte) (resident, shared int64) {
	fields := bytes.Fields(statm)
	if len(fields) < 3 {
		return 0, 0
	}
	resident, _ = strconv.ParseInt(string(fields[1]), 10, 64)
	shared, _ = strconv.ParseInt(string(fields[2]), 10, 64)
	return resident, shared
}

// highWater reads from /proc/PID/status the most bytes that have been resident; 0 if it is not there.
func highWater(status []byte) int64 {
	_, rest, _ := bytes.Cut(status, []byte("VmHWM:"))
	fields := bytes.Fields(rest[:max(0, bytes.IndexByte(rest, '\n'))])
	if len(fields) == 0 {
		return 0
	}
	kb, _ := strconv.ParseInt(string(fields[0]), 10, 64)
	return kb << 10
}
