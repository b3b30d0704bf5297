package rusage

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const statLine = "4711 (sh) S 4242 4711 4242 34816 4711 4194304 532 1044 0 3 " +
	"12 34 56 78 20 0 1 0 987654 4722688 400 18446744073709551615 94000000000000 94000000100000 140722000000000 " +
	"0 0 0 0 0 65538 1 0 0 17 1 0 0 0 0 0 94000000200000 94000000300000 94000010000000 140722000001000 140722000001020 140722000001020 140722000002000 0\n"

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestParseStat(t *testing.T) {
	usual := stat{
		parent:     4242,
		own:        Usage{ms(120), ms(340)},
		waited:     Usage{ms(560), ms(780)},
		start:      987654,
		stack:      140722000000000,
		exitSignal: 17,
	}
	tests := []struct {
		name, in string
		want     stat
		err      string // part of the message
	}{
		{name: "usual", in: statLine, want: usual},
		{name: "hostile name", in: strings.Replace(statLine, "(sh)", "(a) R 1 (\n)", 1), want: usual},
		{name: "empty", err: "no program name"},
		{name: "cut off", in: statLine[:60], err: "fields after the name"},
		{name: "not a number", in: strings.Replace(statLine, " 4242 ", " x ", 1), err: "field 4"},
		{name: "more ticks than time can hold", in: strings.Replace(statLine, " 12 34 ", " 9223372036854775807 34 ", 1), err: "field 14"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStat([]byte(tt.in))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error = %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(stat{})); diff != "" {
				t.Errorf("parseStat (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseStatus(t *testing.T) {
	const head = "Name:\tsh\nUmask:\t0022\nState:\tS (sleeping)\n"
	tests := []struct {
		name, in string
		want     status
		err      string
	}{
		{name: "ignores SIGCHLD", in: head + "Tgid:\t12\nPid:\t13\nSigIgn:\t0000000000010004\n", want: status{process: 12, ignored: 1<<16 | 1<<2}},
		{name: "does not", in: head + "Tgid:\t12\nSigIgn:\t0000000000000000\n", want: status{process: 12}},
		{name: "no mask", in: head + "Tgid:\t12\n", err: "want a line"},
		{name: "no process", in: head + "SigIgn:\t0000000000000000\n", err: "want a line"},
		{name: "bad mask", in: head + "Tgid:\t12\nSigIgn:\tyes\n", err: "SigIgn"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseStatus([]byte(tt.in))
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error = %v, want one with %q", err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("parseStatus = %+v, %v, want %+v", got, err, tt.want)
			}
		})
	}
}

func TestWithin(t *testing.T) {
	tests := []struct {
		name         string
		fine, coarse time.Duration
		want         time.Duration
	}{
		{name: "the fine one is possible", fine: ms(123), coarse: ms(120), want: ms(123)},
		{name: "too small", fine: ms(99), coarse: ms(120), want: ms(120)},
		{name: "too large", fine: ms(140), coarse: ms(120), want: ms(130) - 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := within(Usage{tt.fine, tt.fine}, Usage{tt.coarse, tt.coarse})
			if want := (Usage{tt.want, tt.want}); got != want {
				t.Errorf("within = %v, want %v", got, want)
			}
		})
	}
}

// Whatever a program calls itself, the fields after its name are found.
func FuzzParseStat(f *testing.F) {
	f.Add("sh")
	f.Add(") S 1 (")
	f.Add("\n")
	want, err := parseStat([]byte(statLine))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, err := parseStat([]byte(strings.Replace(statLine, "sh", name, 1)))
		if err != nil || got != want {
			t.Errorf("named %q: %+v, %v, want %+v", name, got, err, want)
		}
		if _, err := parseStat([]byte(name)); err == nil && strings.Count(name, " ") < 36 {
			t.Errorf("%q passes for a stat line", name)
		}
	})
}

// The name is the only line of status that a program can write; the kernel
// escapes newlines in it.
func FuzzParseStatus(f *testing.F) {
	f.Add("sh")
	f.Add("SigIgn:\tffff")
	f.Fuzz(func(t *testing.T, name string) {
		name = strings.NewReplacer("\n", `\n`, `\`, `\\`).Replace(name)
		got, err := parseStatus([]byte("Name:\t" + name + "\nTgid:\t12\nSigIgn:\t0000000000010000\n"))
		if want := (status{process: 12, ignored: 1 << 16}); err != nil || got != want {
			t.Errorf("named %q: %+v, %v, want %+v", name, got, err, want)
		}
	})
}
