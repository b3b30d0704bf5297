package egress

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestReadJournal(t *testing.T) {
	tests := []struct {
		name string
		in   io.Reader
		want []string
		gap  string // "" for none
		n    int64
	}{
		{"empty", strings.NewReader(""), nil, "", 0},
		{
			"any clear spelling, other keys, no final newline",
			strings.NewReader(`{"dest":"A.example.:443","by":"nock","n":[1]}` + "\n" + `{"dest":"[::FFFF:10.0.0.1]:1/udp"}`),
			[]string{"a.example:443", "10.0.0.1:1/udp"}, "", 0,
		},
		{
			"broken lines leave the others",
			strings.NewReader("{\"dest\":\"a:1\"}\nnonsense\n\n{\"dest\":\"b:1\"}\n"),
			[]string{"a:1", "b:1"}, "line 2 of the in-process journal: not a JSON object", 2,
		},
		{"two objects", strings.NewReader(`{"dest":"a:1"}{"dest":"b:1"}`), nil, "not a JSON object", 1},
		{"an array", strings.NewReader(`["a:1"]`), nil, "not a JSON object", 1},
		{"null", strings.NewReader(`null`), nil, `no text under the key "dest"`, 1},
		{"no dest", strings.NewReader(`{"to":"a:1"}`), nil, `no text under the key "dest"`, 1},
		{"case of the key", strings.NewReader(`{"DEST":"a:1"}`), nil, `no text under the key "dest"`, 1},
		{"a number", strings.NewReader(`{"dest":1}`), nil, `no text under the key "dest"`, 1},
		{"null dest", strings.NewReader(`{"dest":null}`), nil, `no text under the key "dest"`, 1},
		{"a URL", strings.NewReader(`{"dest":"https://a/"}`), nil, "a URL is no endpoint", 1},
		{"no port", strings.NewReader(`{"dest":"a.example"}`), nil, "no port", 1},
		{"a pattern", strings.NewReader(`{"dest":"*:443"}`), nil, "a pattern is no destination", 1},
		{
			"a line too long", strings.NewReader("{\"dest\":\"a:1\"}\n" + strings.Repeat("x", maxLine+1) + "\n{\"dest\":\"b:1\"}\n"),
			[]string{"a:1"}, "line 2 of the in-process journal: longer than 65536 bytes", 1,
		},
		{
			"too much", io.LimitReader(&lines{}, maxJournal+2048),
			nil, "beyond the 16777216 bytes", maxJournal/1024 + 2,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			gaps, err := ReadJournal(tt.in, func(e Endpoint) { got = append(got, e.String()) })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if tt.gap == "" {
				if gaps != nil {
					t.Errorf("got gaps %+v", gaps)
				}
				return
			}
			if len(gaps) != 1 || gaps[0].Kind != "egress-log" || gaps[0].Count != tt.n {
				t.Fatalf("got gaps %+v, want one of %d", gaps, tt.n)
			}
			if tt.name != "too much" && !strings.Contains(gaps[0].Detail, tt.gap) {
				t.Errorf("got %q, want %q in it", gaps[0].Detail, tt.gap)
			}
		})
	}
	broken := errors.New("disk on fire")
	if _, err := ReadJournal(iotest.ErrReader(broken), nil); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

// lines is an endless file of lines of 1024 bytes that are no JSON.
type lines struct{ at int }

func (l *lines) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 'x'
		if l.at++; l.at%1024 == 0 {
			b[i] = '\n'
		}
	}
	return len(b), nil
}

func FuzzReadJournal(f *testing.F) {
	f.Add("{\"dest\":\"a:1\"}\n{\"dest\":\"unix:/x\"}\n")
	f.Add("{\"dest\":\"127.0.0.1:eph\",\"dest\":\"\\u001b:1\"}")
	f.Fuzz(func(t *testing.T, s string) {
		rec := New(Config{Mode: Namespaced})
		if _, err := ReadJournal(strings.NewReader(s), rec.InProcess); err != nil {
			t.Fatal(err)
		}
		for _, row := range rec.Finish().Rows {
			if _, err := Parse(row.Endpoint); err != nil || row.Witness != InProcess {
				t.Errorf("row %+v: %v", row, err)
			}
		}
	})
}
