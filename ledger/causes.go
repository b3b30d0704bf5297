package ledger

import (
	"fmt"
	"slices"
	"strings"
)

// A cause is what a row usually comes from and what to do about it. The first
// that fits a drift is taken, so the particular ones stand before the general.
type cause struct {
	column string // "" for any
	kinds  []string
	has    []string // the row contains one of these; none: any row
	text   string
	do     string
}

// causes gives the table. It is a function so that nothing can change it.
func causes() []cause {
	rows := []string{Extra, Unattributed}
	return []cause{
		{Run, []string{OtherCommand}, nil, "the command differs from the one the ledger pins",
			"run the ledger's command, or have its owner pin this one"},
		{Run, []string{LedgerEdited}, nil, "the run tried to edit its own contract",
			"reject the patch"},
		{Run, []string{Loosened}, nil, "the patch loosens the contract that it is judged by; it got nothing by it in this run",
			"have an owner of the ledger read this entry; it holds once it is at the base"},
		{Run, []string{FewerTests}, nil, "tests were taken out, muted or skipped, or their output is not printed any more",
			"find the tests that are gone; gate accept lowers min_tests to what passed"},
		{CPUSec, []string{OverBudget}, []string{endedThere}, "an unbounded loop",
			"a failure, not flakiness: do not run it again, find the loop"},
		{CPUSec, []string{OverBudget}, nil, "a retry loop or accidental quadratic work; a cold build cache costs as much",
			"reject; build in a suite of its own before; shrink inputs only if the test still kills the bug"},

		{Net, nil, []string{"docker.sock", "podman.sock", "containerd.sock"}, "a container daemon is asked for (Testcontainers, compose)",
			"start the service beside the suite and list its host:port in allow_net, which opens a door to it"},
		{Net, nil, []string{"unix:/dev/log", "/systemd/journal/"}, "the suite logs to the machine's syslog",
			"switch system logging off for the suite"},
		{Net, nil, []string{"unix:@/tmp/.X11-unix", "/.X11-unix/", "/bus", "dbus", "pulse"}, "a desktop session of this machine is asked for",
			"unset DISPLAY and DBUS_SESSION_BUS_ADDRESS for the suite"},
		{Net, nil, []string{"ssh-agent", "/agent.", "gnupg", "gpg-agent", "keyring"}, "keys of whoever runs the suite are asked for",
			"reject; give the suite keys of its own"},
		{Net, nil, []string{"unix:"}, "a service of this machine is asked for that the suite did not start",
			"start it inside the suite, or reject"},
		{Net, nil, []string{"vsock:"}, "a way out that no network namespace holds",
			"reject the patch"},
		{Net, nil, []string{"raw:"}, "packets that are neither TCP nor UDP, or that would pass gate by",
			"reject, or send them to a fake"},
		{Net, nil, []string{"169.254.169.254", "metadata.google.internal", "[fd00:ec2::254]", "169.254.170.2"}, "the cloud's metadata service is asked, which gives out credentials",
			"reject; set AWS_EC2_METADATA_DISABLED=true or the like for the suite"},
		{Net, nil, []string{"telemetry", "analytics", "sentry.io", "segment.", "posthog", "mixpanel", "amplitude", "bugsnag", "datadoghq", "honeycomb.io", "newrelic"}, "telemetry",
			"switch it off for the suite (DO_NOT_TRACK=1, NEXT_TELEMETRY_DISABLED=1 or the tool's own); add no host"},
		{Net, nil, []string{"registry.npmjs.org", "registry.yarnpkg.com", "pypi.org", "pythonhosted.org", "proxy.golang.org", "sum.golang.org", "crates.io", "repo.maven.apache.org", "repo1.maven.org", "rubygems.org", "github.com", "githubusercontent.com", "huggingface.co", "docker.io"}, "a download while testing",
			"download in a suite of its own before this one, with its own ledger; add no host under time pressure"},
		{Net, nil, []string{"127.0.0.1:", "[::1]:"}, "a service on this machine that the suite did not start",
			"if the suite needs it, list the endpoint in allow_net, which opens a door to it"},
		{Net, nil, []string{"dns:"}, "a name was looked up; a lookup is an attempt even if it is meant to fail",
			"use localhost or a name below .localhost, or a fake resolver; a lookup that is meant to fail may be accepted as the row it is; add no host under time pressure"},
		{Net, nil, nil, "a hidden download or telemetry",
			"reject; add no host under time pressure"},

		{Writes, []string{Outside}, []string{".gitconfig", ".ssh", ".netrc", ".npmrc", ".bashrc", ".profile", ".zshrc", "/etc/", ".config/git"}, "settings of whoever runs the suite are changed",
			"reject; give the suite a HOME of its own"},
		{Writes, []string{Outside}, nil, "a write outside the repository and its temporary places and caches",
			"write below $TMPDIR instead; list the place in allow_write only if it must be this one"},
		{Writes, rows, []string{".git/hooks", ".git/config"}, "git's own settings or hooks are changed, which run code later",
			"reject the patch"},
		{Writes, rows, []string{".github/", ".gitlab-ci", "CODEOWNERS"}, "the suite changes what guards the repository",
			"reject the patch"},
		{Writes, rows, []string{".git/"}, "a test calls git, which refreshes its index",
			"set GIT_OPTIONAL_LOCKS=0 for the suite, or let it work on a copy"},
		{Writes, rows, []string{"__pycache__", ".pyc"}, "Python byte code",
			"set PYTHONDONTWRITEBYTECODE=1 for the suite, or fold \"**/__pycache__/**\""},
		{Writes, rows, []string{".pytest_cache"}, "pytest's cache",
			"run pytest with -p no:cacheprovider, or fold \".pytest_cache/**\""},
		{Writes, rows, []string{".next/"}, "a Next.js build, whose names change every time",
			"build in a suite of its own, or fold \".next/**\""},
		{Writes, rows, []string{"__snapshots__", ".snap"}, "the runner wrote a missing or obsolete snapshot",
			"run it with --ci; accept only a snapshot that was reviewed"},
		{Writes, rows, []string{"testdata/fuzz/"}, "a fuzz test found an input that fails",
			"fix the bug, then commit the input as a fixture"},
		{Writes, rows, []string{"testdata", "golden", "fixtures"}, "a golden file was written",
			"read its diff; accept only a durable fixture"},
		{Writes, rows, []string{"go.sum", "go.mod", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "Cargo.lock", "poetry.lock", "uv.lock", "Gemfile.lock"}, "a dependency was resolved while testing",
			"resolve before, in a suite of its own; run the tool in its locked mode"},
		{Writes, rows, []string{".coverage", "coverage", ".nyc_output"}, "coverage data",
			"write it below $TMPDIR, or fold it"},
		{Writes, rows, []string{"node_modules/", ".cache/", "target/", "build/", "dist/", ".gradle/", ".tox/", ".mypy_cache", ".ruff_cache"}, "build output or a tool's cache",
			"build in a suite of its own before, point the cache below $TMPDIR, or fold its directory"},
		{Writes, []string{Unattributed}, nil, "no call was seen that wrote it: a shared mapping, or a process outside the tree",
			"run again with nothing else at work here; if it comes again, reject"},
		{Writes, []string{Missing}, nil, "a fixture is no longer written, or a test did not run",
			"if that is meant, gate accept; a path that comes only sometimes belongs in fold"},
		{Writes, nil, nil, "a new cache, golden file or byte code",
			"read the paths; accept only durable fixtures"},
	}
}

// gapAdvice says what to do about a gap of a kind.
func gapAdvice(kind string) string {
	switch kind {
	case "write-cap":
		return "fold the directory that holds so many, or have the suite make them below $TMPDIR"
	case "outside-cap":
		return "have the suite write below $TMPDIR, or list the place in allow_write"
	case "net-cap", "name-cap", "bind-cap":
		return "no suite needs so many: look in the record for what makes them"
	case "packet-drops":
		return "run again with less at work here; if it comes again, find what floods the network"
	case "cpu-lost":
		return "run as root or where gate may make a cgroup, which counts what nobody waits for"
	case "egress-log":
		return "mend the adapter that writes GATE_EGRESS_LOG: one {\"dest\":\"host:port\"} a line"
	case "inherited-file":
		return "redirect the output to a place outside the repository"
	case "unreadable-directory":
		return "have the suite leave its directories readable"
	case "shared-cache":
		return "run where overlayfs works (its upper layer may not lie on another overlay), or point the cache below $TMPDIR"
	case "unnamed-path":
		return "have the suite not write in a directory that it has removed, or whose path is longer than 4096 bytes"
	case "own-network", "foreign-mount":
		return "no namespace or mount of the suite's own can be looked into: run that test elsewhere, or as a user who may not make them"
	}
	return "run again; if it comes again, gate doctor says what this host lacks"
}

// explain gives the likely cause of a drift, by a table, and what to do about it.
func explain(table []cause, d Drift) (text, do string) {
	for _, c := range table {
		fits := (c.column == "" || c.column == d.Column) &&
			(c.kinds == nil || slices.Contains(c.kinds, d.Kind)) &&
			(c.has == nil || slices.ContainsFunc(c.has, func(s string) bool { return strings.Contains(d.Row, s) }))
		if !fits {
			continue
		}
		text, do = c.text, c.do
		if d.Column != Net {
			return text, do
		}
		if service := knownService(d.Row); service != "" {
			text = fmt.Sprintf("%s (the port of %s)", text, service)
		}
		return text, do
	}
	return "not known", "read the record"
}

// knownService names what usually listens on the port of an endpoint.
func knownService(endpoint string) string {
	port := strings.TrimSuffix(endpoint[strings.LastIndexByte(endpoint, ':')+1:], "/udp")
	return map[string]string{
		"1433": "SQL Server", "3306": "MySQL", "5432": "PostgreSQL", "5672": "RabbitMQ", "6379": "Redis",
		"8125": "StatsD", "9042": "Cassandra", "9092": "Kafka", "9200": "Elasticsearch",
		"11211": "memcached", "27017": "MongoDB", "2375": "Docker", "2181": "ZooKeeper", "53": "a name server",
	}[port]
}
