package spec

import (
	"math"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// A scalarType is what a plain scalar is under YAML 1.1, as PyYAML resolves it. PyYAML is the reference because the Python SDK and the
// public examples are read by it: 2e-5 is a string there, yes is a boolean, and 1:30 is ninety.
type scalarType int

const (
	isString scalarType = iota
	isInt
	isFloat
	isBool
	isNull
	isTime
)

func (t scalarType) String() string {
	return [...]string{"a string", "an integer", "a number", "a boolean", "nothing", "a date"}[t]
}

// maxScalar is the longest text that can be a number: Python reads no integer of more digits.
const maxScalar = 4300

var (
	boolPattern  = regexp.MustCompile(`^(?:yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$`)
	floatPattern = regexp.MustCompile(`^(?:[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+][0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?` +
		`|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$`)
	intPattern = regexp.MustCompile(`^(?:[-+]?0b[0-1_]+|[-+]?0[0-7_]+|[-+]?(?:0|[1-9][0-9_]*)|[-+]?0x[0-9a-fA-F_]+` +
		`|[-+]?[1-9][0-9_]*(?::[0-5]?[0-9])+)$`)
	nullPattern = regexp.MustCompile(`^(?:~|null|Null|NULL|)$`)
	timePattern = regexp.MustCompile(`^(?:[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{2}:[0-9]{2}` +
		`(?:\.[0-9]*)?(?:[ \t]*(?:Z|[-+][0-9]{1,2}(?::[0-9]{2})?))?)$`)
)

// resolve says what a plain scalar is and how Python's str() writes it. Dates stay as they are written.
func resolve(text string) (scalarType, string) {
	switch {
	case len(text) > maxScalar:
		return isString, text
	case boolPattern.MatchString(text):
		return isBool, pythonBool(text)
	case floatPattern.MatchString(text):
		return isFloat, pythonFloat(parseFloat(text))
	case intPattern.MatchString(text):
		if n := parseInt(text); n != nil {
			return isInt, n.String()
		}
	case nullPattern.MatchString(text):
		return isNull, "None"
	case timePattern.MatchString(text):
		return isTime, text
	}
	return isString, text
}

func pythonBool(text string) string {
	switch strings.ToLower(text) {
	case "yes", "true", "on":
		return "True"
	}
	return "False"
}

// parseInt reads what intPattern matches; nil for the few that no number comes of, such as "0b_".
func parseInt(text string) *big.Int {
	digits := strings.ReplaceAll(text, "_", "")
	negative := strings.HasPrefix(digits, "-")
	digits = strings.TrimLeft(digits, "+-")
	n, ok := new(big.Int), true
	switch {
	case digits == "0":
	case strings.HasPrefix(digits, "0b"):
		n, ok = n.SetString(digits[2:], 2)
	case strings.HasPrefix(digits, "0x"):
		n, ok = n.SetString(digits[2:], 16)
	case strings.HasPrefix(digits, "0"):
		n, ok = n.SetString(digits, 8)
	case strings.Contains(digits, ":"):
		for _, part := range strings.Split(digits, ":") {
			d, whole := new(big.Int).SetString(part, 10)
			if !whole {
				return nil
			}
			n.Mul(n, big.NewInt(60)).Add(n, d)
		}
	default:
		n, ok = n.SetString(digits, 10)
	}
	if !ok {
		return nil
	}
	if negative {
		n.Neg(n)
	}
	return n
}

// parseFloat reads what floatPattern matches.
func parseFloat(text string) float64 {
	digits := strings.ToLower(strings.ReplaceAll(text, "_", ""))
	sign := 1.0
	if strings.HasPrefix(digits, "-") {
		sign = -1
	}
	digits = strings.TrimLeft(digits, "+-")
	switch {
	case digits == ".inf":
		return math.Inf(int(sign))
	case digits == ".nan":
		return math.NaN()
	case strings.Contains(digits, ":"):
		parts := strings.Split(digits, ":")
		sum, base := 0.0, 1.0
		for i := len(parts) - 1; i >= 0; i-- {
			d, _ := strconv.ParseFloat(parts[i], 64)
			sum, base = sum+d*base, base*60
		}
		return sign * sum
	}
	n, _ := strconv.ParseFloat(digits, 64) // out of range gives infinity, as in Python
	return sign * n
}

// pythonFloat writes f as Python's repr does: the shortest digits that come back as f, always with a point or an exponent.
func pythonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 0):
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(f, 'g', -1, 64), "+"))
	}
	scientific := strconv.FormatFloat(f, 'e', -1, 64)
	mantissa, exponent, _ := strings.Cut(scientific, "e")
	if e, _ := strconv.Atoi(exponent); e < -4 || e >= 16 {
		return mantissa + "e" + exponent
	}
	fixed := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(fixed, ".") {
		fixed += ".0"
	}
	return fixed
}
