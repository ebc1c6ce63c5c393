# Reads "go test -v" and prints a line a package, the whole output of packages that failed, and at the end what was left out and why, which
# tests took longest, and what those that failed said. With TRAINYARD_REQUIRE_ENGINES set, as in CI, a test that was left out is a failure.
{ buffer = buffer $0 "\n" }
/^=== (RUN|CONT|NAME) / { test = $3 }
/_test\.go:[0-9]+: / {
	said[test, ++lines[test]] = substr($0, 1, 600)
	reason[test] = $0
	sub(/^.*_test\.go:[0-9]+: /, "", reason[test])
}
/^ *--- SKIP: / { skipped[++skips] = $3 ": " reason[$3] }
/^ *--- PASS: / { passes++ }
/^ *--- FAIL: / { failed[++fails] = $3 }
/^--- (PASS|FAIL): / { took[$3] = substr($4, 2) + 0 }
/^ok / { print; buffer = "" }
/^\?/ { buffer = "" }
/^FAIL\t/ { printf "%s", buffer; buffer = "" }
END {
	printf "%s", buffer
	for (i = 1; i <= skips; i++) print "left out: " skipped[i]
	for (i = 1; i <= 12; i++) {
		most = ""
		for (name in took) if (most == "" || took[name] > took[most]) most = name
		if (most == "" || took[most] < 10) break
		slow = slow (i > 1 ? ", " : "") sprintf("%s %d s", most, took[most])
		delete took[most]
	}
	if (slow != "") print "longest: " slow
	for (i = 1; i <= fails; i++) {
		print "FAILED: " failed[i]
		n = lines[failed[i]]
		for (j = n > 20 ? n - 19 : 1; j <= n; j++) print "    " said[failed[i], j]
	}
	printf "%d passed, %d failed, %d skipped\n", passes, fails, skips
	if (skips > 0 && ENVIRON["TRAINYARD_REQUIRE_ENGINES"] != "") {
		print "TRAINYARD_REQUIRE_ENGINES is set: nothing may be left out"
		exit 1
	}
}
