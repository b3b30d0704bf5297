package writeset

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func BenchmarkSnapshot100k(b *testing.B) {
	root := b.TempDir()
	for i := range 2_000 {
		dir := filepath.Join(root, fmt.Sprintf("d%02d/e%02d", i/50, i%50))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		for j := range 50 {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("file_%02d.txt", j)), nil, 0o644); err != nil {
				b.Fatal(err)
			}
		}
	}
	take := func() *Snapshot {
		s, err := Take(context.Background(), root)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	before := take()
	b.Run("Take", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			take()
		}
	})
	b.Run("Diff", func(b *testing.B) {
		after := take()
		for b.Loop() {
			if d := Diff(before, after); len(d) > 0 {
				b.Fatal(d)
			}
		}
	})
}
