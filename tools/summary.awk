# Reads "go test -v" and prints a line a package, the whole output of packages that failed, and at the end what was left out and why, and what
# the tests that failed said. With TRAINYARD_REQUIRE_ENGINES set, as in CI, a test that was left out is a failure.
{ buffer = buffer $0 "\n" }
/^=== (RUN|CONT|NAME) / { test = $3 }
/_test\.go:[0-9]+: / {
	if (saidLines[test]++ < 20) said[test] = said[test] "    " substr($0, 1, 600) "\n"
}
/_test\.go:[0-9]+: / { reason = $0; sub(/^.*_test\.go:[0-9]+: /, "", reason) }
/^ *--- SKIP: / { skipped[++skips] = $3 ": " reason }
/^ *--- PASS: / { passes++ }
/^ *--- FAIL: / { failed[++fails] = $3 }
/^ok / { print; buffer = "" }
/^\?/ { buffer = "" }
/^FAIL\t/ { printf "%s", buffer; buffer = "" }
END {
	printf "%s", buffer
	for (i = 1; i <= skips; i++) print "left out: " skipped[i]
	for (i = 1; i <= fails; i++) printf "FAILED: %s\n%s", failed[i], said[failed[i]]
	printf "%d passed, %d failed, %d skipped\n", passes, fails, skips
	if (skips > 0 && ENVIRON["TRAINYARD_REQUIRE_ENGINES"] != "") {
		print "TRAINYARD_REQUIRE_ENGINES is set: nothing may be left out"
		exit 1
	}
}
