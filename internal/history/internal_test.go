package history

import (
	"io"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/trainyard/trainyard"
)

func FuzzRange(f *testing.F) {
	for _, s := range []string{"bytes=0-499", "bytes=500-", "bytes=-500", "bytes=0-0,-1", "bytes=-0", "bytes=-", "bytes=1-9223372036854775807"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, ok := parseRange(s)
		switch {
		case !ok && r != byteRange{length: -1}:
			t.Errorf("%q is no range and is read as %+v", s, r)
		case ok && (r.offset < 0 || r.length == 0 || r.length < -1 || r.suffix && r.length < 1):
			t.Errorf("%q is read as %+v", s, r)
		case ok && r.length > 0 && !r.suffix && r.offset+r.length < 0:
			t.Errorf("%q overflows: %+v", s, r)
		}
	})
}

// Whatever a path holds, it is nothing or a row of the table, and the run and the rest have no part of the path that is not theirs.
func FuzzPath(f *testing.F) {
	ws := "/history/v1.0/subscriptions/s/resourceGroups/rg/providers/Microsoft.MachineLearningServices/workspaces/ws/"
	f.Add(ws + "runs/j/logs/user_logs/std_log.txt")
	f.Add(ws + "experiments/e/runs/j%2Fx/details")
	f.Add(ws + "runs//details")
	f.Fuzz(func(t *testing.T, path string) {
		u, err := url.Parse("http://h/" + strings.TrimPrefix(path, "/"))
		if err != nil {
			return
		}
		r := httptest.NewRequest("GET", "/", nil)
		r.URL = u
		c := &call{Request: r}
		rt, err := find(c)
		if (rt == nil) == (err == nil) {
			t.Fatalf("%q: route %v, error %v", path, rt, err)
		}
		if rt != nil && (c.scope.Subscription == "" || c.scope.Workspace == "" || strings.Contains(rt.path, "{run}") && c.run == "" ||
			strings.Contains(rt.path, "{rest}") && c.rest == "") {
			t.Fatalf("%q: %+v of %s", path, c, rt.path)
		}
	})
}

func TestALogsURLStaysForAnHourAndIsGoodForADay(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 34, 56, 0, time.UTC)
	var expires []time.Time
	d := &door{Config{External: nil, Now: func() time.Time { return now }, Signer: noting{&expires}}}
	d.External = New(Config{}).(*door).External
	c := &call{Request: httptest.NewRequest("GET", "https://host:1/x", nil), scope: trainyard.DefaultScope()}
	first := d.logURL(c, "j b", "user_logs/a/b c.txt")
	if !strings.HasPrefix(first, "https://host:1/history/v1.0/subscriptions/"+trainyard.DefaultSubscription+"/") ||
		!strings.HasSuffix(first, "/runs/j%20b/logs/user_logs/a/b%20c.txt?sig=1") {
		t.Errorf("%s", first)
	}
	now = now.Add(20 * time.Minute)
	d.logURL(c, "j", "x")
	if !expires[0].Equal(expires[1]) || expires[1].Before(now.Add(24*time.Hour)) {
		t.Errorf("expires at %v and %v", expires[0], expires[1])
	}
}

type noting struct{ expires *[]time.Time }

func (n noting) Sign(_, _ string, expiry time.Time) url.Values {
	*n.expires = append(*n.expires, expiry)
	return url.Values{"sig": {"1"}}
}
func (noting) Verify(url.Values, string, byte) error { return nil }

// However the bytes of a log are cut into reads, its text is the same but for how many replacements a run of wrong bytes gets.
func FuzzCopyText(f *testing.F) {
	f.Add([]byte("ab日本\xff\xe6\x97"), 2)
	f.Add([]byte("\xf0\x9f\x9a\x82\xf0\x9f"), 1)
	f.Fuzz(func(t *testing.T, data []byte, size int) {
		var out strings.Builder
		n, err := copyText(&out, &pieces{data, max(size, 1)})
		if err != nil || n != int64(len(data)) || !utf8.ValidString(out.String()) {
			t.Fatalf("%d of %d bytes, %v: %q", n, len(data), err, out.String())
		}
		drop := func(s string) string { return strings.ReplaceAll(s, "\uFFFD", "") }
		if want := strings.ToValidUTF8(string(data), ""); drop(out.String()) != drop(want) {
			t.Fatalf("%q becomes %q", data, out.String())
		}
	})
}

// pieces reads at most size bytes at a time.
type pieces struct {
	data []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.data)
	p.data = p.data[n:]
	return n, nil
}
