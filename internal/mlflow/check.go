package mlflow

import (
	"path"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/trainyard/trainyard"
)

// Limits of MLflow's own server (its utils/validation.py). Lengths are in characters.
const (
	maxMetrics  = 1000 // in one batch
	maxParams   = 100
	maxTags     = 100
	maxEntities = 1000 // of all three together
	maxKey      = 250
	maxParam    = 6000 // longer values of parameters and tags are cut, as MLflow does
	maxTag      = 8000
	maxText     = 100_000 // of a tag in the registry
	maxName     = 500     // of an experiment
	maxAlias    = 255
)

var (
	runID      = regexp.MustCompile(`^[a-zA-Z0-9][\w.\-]{0,255}$`) // MLflow's, and the dots of jobs' names
	recordID   = regexp.MustCompile(`^[a-zA-Z0-9][\w\-]{0,127}$`)
	entityName = regexp.MustCompile(`^[/\pL\pN\pM_.\- :]*$`)
	aliasName  = regexp.MustCompile(`^[\w\-]+$`)
	aliasOfNum = regexp.MustCompile(`^[vV]\d+$`)
	assetName  = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$`)
)

// checkKey checks the name of a metric, a parameter or a tag: where says which, for the message.
func checkKey(where, key string) error {
	switch {
	case key == "":
		return trainyard.Invalid("Missing value for required parameter '%s'.", where)
	case utf8.RuneCountInString(key) > maxKey:
		return trainyard.Invalid("'%s' exceeds the maximum length of %d characters", where, maxKey)
	case !utf8.ValidString(key) || !entityName.MatchString(key):
		return trainyard.Invalid("Invalid value %q for parameter '%s' supplied: Names may only contain alphanumerics, underscores (_), dashes (-), "+
			"periods (.), spaces ( ), colon(:) and slashes (/).", key, where)
	case path.Clean(key) != key || key == "." || strings.HasPrefix(key, "..") || strings.HasPrefix(key, "/"):
		return trainyard.Invalid("Invalid value %q for parameter '%s' supplied: Names may be treated as files in certain cases, and must not resolve "+
			"to other names when treated as such. This name would resolve to %q", key, where, path.Clean(key))
	}
	return nil
}

// cut shortens a text to a number of characters.
func cut(s string, most int) string {
	if len(s) <= most || utf8.RuneCountInString(s) <= most {
		return s
	}
	return string([]rune(s)[:most])
}

func checkMetric(m *metricView) error {
	if err := checkKey("name", m.Key); err != nil {
		return err
	}
	if m.Value == nil {
		return trainyard.Invalid("Missing value for required parameter 'value' of metric '%s'.", m.Key)
	}
	if m.Time < 0 {
		return trainyard.Invalid("Invalid value %d for parameter 'timestamp' supplied: metric '%s'. Timestamp must be a nonnegative long (64-bit integer)",
			m.Time, m.Key)
	}
	return nil
}

// checkTags checks tags and cuts their values to most characters.
func checkTags(tags []tagView, most int) ([]pair, error) {
	var pairs []pair
	for _, t := range tags {
		if err := checkKey("key", t.Key); err != nil {
			return nil, err
		}
		pairs = append(pairs, pair{t.Key, cut(t.Value, most)})
	}
	return pairs, nil
}

// checkParams checks parameters, and that none is there twice.
func checkParams(params []tagView) ([]pair, error) {
	pairs, err := checkTags(params, maxParam)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, p := range pairs {
		if seen[p.Key] {
			return nil, trainyard.Invalid("Duplicate parameter keys have been submitted: ['%s']. Please ensure the request contains only one param value "+
				"per param key.", p.Key)
		}
		seen[p.Key] = true
	}
	return pairs, nil
}

func checkBatch(what string, n, most int) error {
	if n > most {
		return trainyard.Invalid("A batch logging request can contain at most %d %s. Got %d %s. Please split up %s across multiple requests and try again.",
			most, what, n, what, what)
	}
	return nil
}

func checkRunID(id string) error {
	switch {
	case id == "":
		return trainyard.Invalid("Missing value for required parameter 'run_id'.")
	case !runID.MatchString(id):
		return trainyard.Invalid("Invalid value %q for parameter 'run_id' supplied.", id)
	}
	return nil
}

func checkAlias(alias string) error {
	switch {
	case alias == "":
		return trainyard.Invalid("Registered model alias name cannot be empty.")
	case !aliasName.MatchString(alias) || len(alias) > maxAlias:
		return trainyard.Invalid("Invalid alias name: '%s'. Names may only contain alphanumerics, underscores (_), and dashes (-), at most %d of them.",
			cut(alias, 80), maxAlias)
	case strings.EqualFold(alias, "latest") || aliasOfNum.MatchString(alias):
		return trainyard.Invalid("Alias name '%s' is reserved: 'latest' and a version's number, 'v1', mean something already.", alias)
	}
	return nil
}

func checkModelName(name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return trainyard.Invalid("Missing value for required parameter 'name'.")
	case !assetName.MatchString(name):
		return trainyard.Invalid("Invalid model name '%s'. Registered models are assets of the workspace: their names are letters, digits, '-', '_' and '.', "+
			"begin with a letter or digit, and have at most 255 characters.", name)
	}
	return nil
}
