package installer

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// What pip 23.0 and 23.2 and uv 0.13 print is in testdata, as they printed it.
func TestTheCauseIsInOneLine(t *testing.T) {
	for name, want := range map[string]string{
		"pip-stalls":        "ReadTimeoutError: HTTPConnectionPool(host='127.0.0.1', port=18977): Read timed out",
		"pip-full-target":   "OSError: [Errno 28] No space left on device: '/tmp/pip-target-avwcrn56/lib/python/big.bin' -> '/small/x/big.bin'",
		"pip-full-temp":     "Could not install packages due to an OSError: [Errno 28] No space left on device",
		"pip-badwheel":      "Wheel 'bad' located at /tmp/pip-unpack-r57n5fgo/bad-1.0-py3-none-any.whl is invalid",
		"pip-missing":       "No matching distribution found for missing (from versions: none)",
		"pip-version":       "No matching distribution found for six==99 (from versions: …, 1.13.0, 1.14.0, 1.15.0, 1.16.0, 1.17.0)",
		"pip-unreachable":   "NewConnectionError('Failed to establish a new connection: [Errno 111] Connection refused'): No matching distribution found for tiny (from versions: none)",
		"pip-noresolve":     "The repository located at index.invalid is not a trusted or secure host and is being ignored: No matching distribution found for tiny (from versions: none)",
		"pip-tls":           "SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in certificate chain (_ssl.c:992)')): No matching distribution found for trainyard-no-such-package-here (from versions: none)",
		"pip-setup":         "broken: python setup.py egg_info did not run successfully: RuntimeError: CUDA toolkit 12 is needed to build broken",
		"pip-isolated":      "broken: pip subprocess to install build dependencies did not run successfully: No matching distribution found for setuptools>=40.8.0 (from versions: none)",
		"pip-compile":       "Running setup.py install for nocompile did not run successfully: command 'x86_64-linux-gnu-gcc' failed: No such file or directory: nocompile",
		"pip-conflict":      "Cannot install fine==1.0 and fine==2.0 because these package versions have conflicting dependencies; The user requested fine==1.0; The user requested fine==2.0",
		"pip-conflict-deep": "Cannot install python-dateutil==2.8.2 and six<1.5 because these package versions have conflicting dependencies; The user requested six<1.5; python-dateutil 2.8.2 depends on six>=1.5",
		"uv-missing":        "No solution found when resolving dependencies: Because missing was not found in the package registry and you require missing, we can conclude that your requirements are unsatisfiable",
		"uv-conflict":       "No solution found when resolving dependencies: Because python-dateutil==2.8.2 depends on six>=1.5 and you require python-dateutil==2.8.2, we can conclude that you require six>=1.5; And because you require six<1.5, we can conclude that your requirements are unsatisfiable",
		"uv-unreachable":    "Request failed after 3 retries in 5.1s: Failed to fetch: http://127.0.0.1:1/simple/tiny/: error sending request for url (http://127.0.0.1:1/simple/tiny/): client error (Connect): tcp connect error: Connection refused (os error 111)",
		"uv-full":           "Failed to initialize cache at `/small/.tmpzUesXt`: failed to write to file `/small/.tmpzUesXt/CACHEDIR.TAG`: No space left on device (os error 28)",
		"uv-setup":          "Failed to build `broken==1.0`: The build backend returned an error: Call to `setuptools.build_meta:__legacy__.prepare_metadata_for_build_wheel` failed (exit status: 1): RuntimeError: CUDA toolkit 12 is needed to build broken",
		"uv-compile":        "Failed to build `nocompile==1.0`: The build backend returned an error: Call to `setuptools.build_meta:__legacy__.prepare_metadata_for_build_wheel` failed (exit status: 1): invalid command 'bdist_wheel': hint: This error likely indicates that `nocompile@1.0` depends on `wheel`, but doesn't declare it as a build dependency",
	} {
		output := recorded(t, name)
		if got := Cause(output); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		gone := name == "pip-stalls" || name == "pip-unreachable" || name == "pip-tls" || name == "uv-unreachable"
		if got := Unreachable(output); got != gone {
			t.Errorf("%s: the index is out of reach: %v, want %v", name, got, gone)
		}
		if got, want := Full(output), strings.Contains(name, "full"); got != want {
			t.Errorf("%s: the disk was full: %v, want %v", name, got, want)
		}
		if got := Index(output); name == "uv-unreachable" && got != "the package index 127.0.0.1:1" || name == "pip-missing" && got != "the package index 127.0.0.1:18977" {
			t.Errorf("%s: the index is %q", name, got)
		}
	}
}

// A traceback that another follows takes back what was said of it, and what was indented below.
func TestWhatFollowsATracebackThatWasTakenBackIsNotAddedToIt(t *testing.T) {
	for _, conflict := range []string{"The conflict is caused by:", "  The conflict is caused by:"} {
		output := "Traceback (most recent call last):\n  File x\nValueError: boom\n" + conflict + "\nDuring handling of the above exception\n   x\n"
		if got := Cause(output); got == "" || strings.Contains(got, "boom") {
			t.Errorf("%q is because of %q", output, got)
		}
	}
}

func recorded(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestOutputThatGivesNoErrorEndsWithItsLastLines(t *testing.T) {
	for output, want := range map[string]string{
		"":                        "",
		"one\n\ntwo\n  three  \n": "two: three",
		"Python 3.11.2\n":         "Python 3.11.2",
		"Traceback (most recent call last):\n  File \"x\", line 1, in <module>\n": "Traceback (most recent call last): File \"x\", line 1, in <module>",
	} {
		if got := Cause(output); got != want {
			t.Errorf("%q comes to %q, want %q", output, got, want)
		}
	}
	if got := []rune(Cause("ERROR: " + strings.Repeat("ü", 5000))); len(got) != most+1 || got[most] != '…' {
		t.Errorf("a long one has %d characters and ends with %q", len(got), got[len(got)-1])
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	for in, want := range map[string]string{
		"see https://me:secret@index.test/simple/six": "see https://****@index.test/simple/six",
		"https://token@index.test/":                   "https://****@index.test/",
		"mail me@index.test":                          "mail me@index.test",
	} {
		if got := Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
		if got := Cause("ERROR: " + in); got != want {
			t.Errorf("Cause(%q) = %q", in, got)
		}
	}
	if got := Index("see https://me:secret@index.test:8080/simple/six/"); got != "the package index index.test:8080" {
		t.Errorf("the index is %q", got)
	}
}

func FuzzCause(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatalf("%d files, %v", len(files), err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("Traceback (most recent call last):\n  File x\nValueError: boom\nThe conflict is caused by:\nDuring handling of the above exception\n   x\n")
	f.Fuzz(func(t *testing.T, output string) {
		cause := Cause(output)
		if strings.Contains(cause, "\n") {
			t.Errorf("%q has more than one line", cause)
		}
		if utf8.RuneCountInString(cause) > most+1 {
			t.Errorf("%d characters", utf8.RuneCountInString(cause))
		}
		if strings.ContainsFunc(output, unicode.IsLetter) && cause == "" && !strings.Contains(output, "@") {
			t.Errorf("nothing is said of %q", output)
		}
	})
}
