package stage

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// versions is what an environment wants of Python: clauses that must all hold. None: any Python 3.
type versions []clause

type clause struct{ op, version string }

// parseVersions reads ">=3.8,<3.11", "=3.10", "3.10.*" and "==3.10.4".
func parseVersions(text string) (versions, error) {
	var out versions
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if part == "" || part == "*" {
			continue
		}
		number := strings.TrimLeft(part, "<>=!~ ")
		op := strings.TrimSpace(strings.TrimSuffix(part, number))
		switch op {
		case "", "=":
			op = "=="
			if !strings.HasSuffix(number, "*") && strings.Count(number, ".") < 2 {
				number += ".*"
			}
		case "==", "!=", "<", "<=", ">", ">=", "~=":
		default:
			return nil, fmt.Errorf("%q is not a version: want for example 3.10 or >=3.9,<3.12", part)
		}
		if _, err := numbers(strings.TrimSuffix(number, ".*")); err != nil {
			return nil, fmt.Errorf("%q is not a version: want for example 3.10 or >=3.9,<3.12", part)
		}
		out = append(out, clause{op, number})
	}
	return out, nil
}

func (v versions) String() string {
	var parts []string
	for _, c := range v {
		parts = append(parts, strings.TrimSuffix(strings.TrimPrefix(c.op+c.version, "=="), ".*"))
	}
	return strings.Join(parts, ",")
}

// match says whether a version meets every clause.
func (v versions) match(version string) bool {
	for _, c := range v {
		if !c.match(version) {
			return false
		}
	}
	return true
}

// near is match without regard to the third number: could some release of version's minor version match?
func (v versions) near(version string) bool {
	for patch := range 60 {
		if v.match(firstTwo(version) + "." + strconv.Itoa(patch)) {
			return true
		}
	}
	return false
}

// minor is the first minor version named, for advice.
func (v versions) minor() string {
	for _, c := range v {
		return strings.TrimSuffix(firstTwo(c.version), ".*")
	}
	return "3"
}

// python3 says whether some Python 3 could meet v.
func (v versions) python3() bool {
	for minor := range 100 {
		if v.near("3." + strconv.Itoa(minor) + ".0") {
			return true
		}
	}
	return false
}

func (c clause) match(version string) bool {
	have, err := numbers(version)
	if err != nil {
		return false
	}
	wild := strings.HasSuffix(c.version, ".*")
	want, err := numbers(strings.TrimSuffix(c.version, ".*"))
	if err != nil {
		return false
	}
	order := slices.Compare(pad(have), pad(want))
	same := order == 0 || wild && len(have) >= len(want) && slices.Equal(have[:len(want)], want)
	switch c.op {
	case "==":
		return same
	case "!=":
		return !same
	case "<":
		return order < 0
	case "<=":
		return order <= 0 || same
	case ">":
		return order > 0 && !same
	case ">=":
		return order >= 0
	case "~=":
		return order >= 0 && len(want) > 1 && slices.Equal(pad(have)[:len(want)-1], want[:len(want)-1])
	}
	return false
}

func firstTwo(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

func pad(n []int) []int {
	for len(n) < 4 {
		n = append(slices.Clip(n), 0)
	}
	return n
}

func numbers(version string) ([]int, error) {
	if version == "" {
		return nil, errors.New("no version")
	}
	var out []int
	for part := range strings.SplitSeq(version, ".") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}
