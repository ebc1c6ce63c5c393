package studio

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestScreenShowsWhatATerminalWould(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain text":                        {"a <b> & 'c'\n", "a &lt;b&gt; &amp; &#39;c&#39;\n"},
		"a line that has no end":            {"a\nb", "a\nb"},
		"Windows' ends of lines":            {"a\r\nb\r\n", "a\nb\n"},
		"a progress bar":                    {" 10%\r 20%\r100%\ndone\n", "100%\ndone\n"},
		"a progress bar that goes on":       {" 10%\r 20%\r", " 20%"},
		"colours":                           {"\x1b[31mred\x1b[0m \x1b[1;94mbold\x1b[m\n", `<span class="f1">red</span> <span class="f12 bo">bold</span>` + "\n"},
		"a colour over lines":               {"\x1b[32ma\nb\x1b[39mc\n", `<span class="f2">a</span>` + "\n" + `<span class="f2">b</span>c` + "\n"},
		"colours of 256":                    {"\x1b[38;5;9mx\x1b[48;5;200my\x1b[38;2;1;2;3mz\n", `<span class="f9">x</span><span class="f9">y</span>z` + "\n"},
		"a colour in what was overwritten":  {"\x1b[31m1%\r2%\n", `<span class="f1">2%</span>` + "\n"},
		"cursor movements":                  {"a\x1b[2K\x1b[1A\x1b[?25lb\n", "ab\n"},
		"a title":                           {"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\n", "ab\n"},
		"control characters":                {"a\x00\x07\x08b\tc\n", "ab\tc\n"},
		"bytes that are no UTF-8":           {"a\xff\xfeb\n", "a�b\n"},
		"markup in a colour":                {"\x1b[31m<script>\n", `<span class="f1">&lt;script&gt;</span>` + "\n"},
		"a sequence that is not one":        {"a\x1b[12\nb\n", "a\nb\n"},
		"a class through the back door":     {"\x1b[\"onload=x;31mz\n", "nload=x;31mz\n"},
		"numbers that are none":             {"\x1b[999;-1;31mz\n", `<span class="f1">z</span>` + "\n"},
		"a string that has no end, at once": {"\x1b]" + strings.Repeat("x", 100) + "\n", strings.Repeat("x", 100) + "\n"},
	} {
		s := &screen{}
		if got := s.write([]byte(c.in)) + s.rest(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestScreenHoldsBackHalfRunesAndSequences(t *testing.T) {
	s := &screen{}
	s.write([]byte("caf\xc3"))
	if got := s.open(); got != "caf" {
		t.Errorf("%q", got)
	}
	s.write([]byte("\xa9 \x1b[3"))
	if got := s.open(); got != "café " {
		t.Errorf("%q", got)
	}
	s.write([]byte("1mred"))
	if got := s.open(); got != `café <span class="f1">red</span>` {
		t.Errorf("%q", got)
	}
}

func TestScreenDoesNotGrowWithALine(t *testing.T) {
	s, out := &screen{}, 0
	for range 100 {
		out += len(s.write([]byte(strings.Repeat("é", 5000))))
		if len(s.line) > lineAtMost {
			t.Fatalf("%d bytes are kept", len(s.line))
		}
	}
	if n := out + len(s.rest()); n != 100*10000 || s.at+int64(len(s.line)) != 100*10000 {
		t.Errorf("%d bytes shown, at %d", n, s.at)
	}
	bar := &screen{}
	for range 10000 {
		bar.write([]byte("\r 50% of it"))
	}
	if len(bar.line) > 20 {
		t.Errorf("%d bytes are kept of a progress bar", len(bar.line))
	}
}

// However a log comes in pieces, and wherever a browser comes back, the same is shown in the end.
func TestScreenDoesNotCareForPieces(t *testing.T) {
	part := rapid.SampledFrom([]string{"a", "é", "\n", "\r\n", "\r", "\x1b[31m", "\x1b[0m", "\x1b[1", "\xff", "<", "日本", "\x1b]0;x\x07", "\t", " 5%"})
	rapid.Check(t, func(t *rapid.T) {
		data := []byte(strings.Join(rapid.SliceOfN(part, 0, 60).Draw(t, "log"), ""))
		at := &screen{}
		want := at.write(data) + at.rest()
		if !utf8.ValidString(want) {
			t.Fatalf("%q is no UTF-8", want)
		}
		s, got := &screen{}, ""
		for rest := data; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "piece")
			got += s.write(rest[:n])
			rest = rest[n:]
		}
		if got += s.rest(); got != want {
			t.Fatalf("in pieces %q, at once %q", got, want)
		}
		if s.at != at.at {
			t.Fatalf("in pieces the last line begins at %d, at once at %d", s.at, at.at)
		}
	})
}

func FuzzScreen(f *testing.F) {
	f.Add([]byte("a\x1b[31;"), []byte("1mb\r\n<"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		s := &screen{}
		out := s.write(a) + s.write(b) + s.rest()
		if !utf8.ValidString(out) || s.at+int64(len(s.line)) != int64(len(a)+len(b)) {
			t.Fatalf("%q at %d", out, s.at)
		}
		for rest := out; rest != ""; { // nothing but our own tags
			i := strings.IndexByte(rest, '<')
			if i < 0 {
				break
			}
			rest = rest[i:]
			if !strings.HasPrefix(rest, `<span class="`) && !strings.HasPrefix(rest, "</span>") {
				t.Fatalf("%q", out)
			}
			rest = rest[1:]
		}
	})
}

func TestDurations(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 300 * time.Microsecond: "0s", 840 * time.Millisecond: "840ms", 3200 * time.Millisecond: "3.2s", 3 * time.Second: "3s", 42 * time.Second: "42s", 59600 * time.Millisecond: "1m",
		92 * time.Second: "1m 32s", 2 * time.Minute: "2m", 125 * time.Minute: "2h 5m", 76 * time.Hour: "3d 4h", 24*time.Hour + time.Minute: "1d", -time.Second: "0s",
	} {
		if got := long(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}
