//go:build !linux

package stage

import "testing"

// asNobody calls f. Tests are not run as root here.
func asNobody(_ *testing.T, _ string, f func()) { f() }
