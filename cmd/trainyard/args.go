package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// many are the flags that take several values after one name, as in "az": --set a=1 b=2.
var many = map[string]string{"--set": "=", "--tags": "=", "--remove": "", "--traffic": "=", "--mirror-traffic": "="}

// azArgs turns the manners of az's arguments into ours: a leading "ml", long flags shortened as far as they stay clear (--workspace for
// --workspace-name), several values after one flag, and a value after a switch: --local true.
func azArgs(root *cobra.Command, args []string) []string {
	if len(args) > 0 && args[0] == "ml" {
		args = args[1:]
	}
	cmd, _, err := root.Find(args)
	if err != nil || len(args) > 0 && strings.HasPrefix(args[0], "__complete") {
		return args
	}
	var out []string
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(out, args[i:]...)
		}
		arg := args[i]
		if strings.HasPrefix(arg, "--") {
			arg = wholeName(cmd, arg)
		}
		if i+1 < len(args) && isTruth(cmd, arg, args[i+1]) { // az has no flag without a value
			i++
			arg += "=" + strings.ToLower(args[i])
		}
		out = append(out, arg)
		mark, several := many[arg]
		if !several || cmd.Flag(strings.TrimPrefix(arg, "--")) == nil {
			continue
		}
		for n := 0; i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") && strings.Contains(args[i+1], mark); n++ {
			i++
			if n > 0 {
				out = append(out, arg)
			}
			out = append(out, args[i])
		}
	}
	return out
}

// isTruth says whether a flag's value, true or false, stands apart from it.
func isTruth(cmd *cobra.Command, arg, next string) bool {
	name, long := strings.CutPrefix(arg, "--")
	if !long || !strings.EqualFold(next, "true") && !strings.EqualFold(next, "false") {
		return false
	}
	f := cmd.Flag(name)
	return f != nil && f.Value.Type() == "bool"
}

// wholeName completes a shortened long flag if only one begins so.
func wholeName(cmd *cobra.Command, arg string) string {
	name, value, hasValue := strings.Cut(arg[2:], "=")
	name = strings.ReplaceAll(name, "_", "-")
	found := ""
	exact := false
	look := func(f *pflag.Flag) {
		switch {
		case f.Name == name:
			exact = true
		case strings.HasPrefix(f.Name, name) && found != "" && found != f.Name:
			found = "?"
		case strings.HasPrefix(f.Name, name):
			found = f.Name
		}
	}
	cmd.Flags().VisitAll(look)
	cmd.InheritedFlags().VisitAll(look)
	if !exact && found != "" && found != "?" {
		name = found
	}
	if hasValue {
		return "--" + name + "=" + value
	}
	return "--" + name
}
