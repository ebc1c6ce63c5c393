package trainyard

import (
	"strings"
	"testing"
)

func TestWhatCanBeTheURLOfAServer(t *testing.T) {
	for _, good := range []string{"https://train.example.com:7878", "https://train.example.com", "https://[2001:db8::1]:7878/", "http://127.0.0.1:7878", "http://[::1]:7878",
		"http://LocalHost:7878"} {
		if err := CheckServerURL(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for bad, want := range map[string]string{
		"":                           "is not the URL",
		"train.example.com":          "is not the URL",
		"train.example.com:7878":     "is not the URL",
		"ftp://x":                    "is not the URL",
		"https://":                   "is not the URL",
		"https://:7878":              "is not the URL",
		"https://a b":                "is not the URL",
		"http://192.0.2.9:1234":      "in the clear",
		"http://train.example.com":   "in the clear",
		"http://localhost.example:1": "in the clear",
	} {
		if err := CheckServerURL(bad); CodeOf(err) != CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}
