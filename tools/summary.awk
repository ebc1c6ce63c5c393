# Reads "go test -v" and prints a line a package, the whole output of packages that failed, and at the end what was left out and why. With
# TRAINYARD_REQUIRE_ENGINES set, as in CI, a test that was left out is a failure.
{ buffer = buffer $0 "\n" }
/_test\.go:[0-9]+: / { reason = $0; sub(/^.*_test\.go:[0-9]+: /, "", reason) }
/^ *--- SKIP: / { skipped[++skips] = $3 ": " reason }
/^ *--- PASS: / { passes++ }
/^ *--- FAIL: / { fails++ }
/^ok / { print; buffer = "" }
/^\?/ { buffer = "" }
/^FAIL\t/ { printf "%s", buffer; buffer = "" }
END {
	printf "%s", buffer
	for (i = 1; i <= skips; i++) print "left out: " skipped[i]
	printf "%d passed, %d failed, %d skipped\n", passes, fails, skips
	if (skips > 0 && ENVIRON["TRAINYARD_REQUIRE_ENGINES"] != "") {
		print "TRAINYARD_REQUIRE_ENGINES is set: nothing may be left out"
		exit 1
	}
}
