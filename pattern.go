package trainyard

import (
	"regexp"
	"sync"
)

// pattern is a regular expression that is compiled when it is first used: a program that an engine starts for a single task is to start
// fast, and uses few of them.
func pattern(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
