package mlflow

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Numbers as protocol buffers write them in JSON: 64-bit integers may be strings, and so are the doubles that JSON has no number for.

type double float64

func (f *double) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	switch text {
	case "null":
		return nil
	case "Infinity":
		text = "+Inf"
	case "-Infinity":
		text = "-Inf"
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil && !math.IsInf(v, 0) {
		return fmt.Errorf("%.40s is not a number", data)
	}
	*f = double(v)
	return nil
}

func (f double) MarshalJSON() ([]byte, error) {
	switch v := float64(f); {
	case math.IsNaN(v):
		return []byte(`"NaN"`), nil
	case math.IsInf(v, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(v, -1):
		return []byte(`"-Infinity"`), nil
	default:
		return json.Marshal(v)
	}
}

type integer int64

func (i *integer) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	if text == "null" {
		return nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		*i = integer(v)
		return nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<62 {
		return fmt.Errorf("%.40s is not a 64-bit integer", data)
	}
	*i = integer(f)
	return nil
}
