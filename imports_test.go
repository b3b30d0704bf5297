package gate_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/org/gate"

// row says what a package may import besides the standard library.
type row struct {
	pkg     string   // relative to the module; "dir/..." is all packages below dir and dir
	own     []string // packages of this module, spelled like pkg
	foreign []string // packages of other modules
	why     string
}

// importTable has a row for every package. What the rows do not allow is
// forbidden, for every operating system; tests are free.
var importTable = []row{
	{
		pkg:     "egress",
		foreign: []string{"golang.org/x/sys/unix", "golang.org/x/net/dns/dnsmessage"},
		why:     "a leaf: column 1 can be read and tested without the other two",
	},
	{
		pkg:     "rusage",
		foreign: []string{"golang.org/x/sys/unix", "github.com/shirou/gopsutil/v3/common", "github.com/shirou/gopsutil/v3/process"},
		why:     "a leaf: column 2",
	},
	{
		pkg:     "writeset",
		foreign: []string{"golang.org/x/sys/unix", "github.com/bmatcuk/doublestar/v4"},
		why:     "a leaf: column 3",
	},
	{
		pkg:     "sandbox",
		foreign: []string{"golang.org/x/sys/unix"},
		why:     "a leaf that knows no column and no ledger: it declares the sinks that it feeds, so what traps calls can be audited alone",
	},
	{
		pkg: "transcript",
		why: "a leaf: what a suite says of itself is kept apart from what was seen of it",
	},
	{
		pkg:     "ledger",
		own:     []string{"egress", "rusage", "writeset"},
		foreign: []string{"github.com/google/renameio/v2"},
		why:     "the contract speaks of the columns and of nothing that runs or traps: a verdict on a saved record must not depend on the machine",
	},
	{
		pkg:     "runner",
		own:     []string{"sandbox", "egress", "rusage", "writeset", "transcript", "ledger"},
		foreign: []string{"golang.org/x/sys/unix"},
		why:     "the one place where the sandbox and the columns meet",
	},
	{
		pkg:     "cmd/gate",
		own:     []string{"runner", "ledger", "sandbox", "egress", "rusage", "writeset"},
		foreign: []string{"golang.org/x/sys/unix", "golang.org/x/term", "github.com/google/renameio/v2"},
		why:     "the command line; it needs the sandbox for its hidden subcommand and for doctor",
	},
	{
		pkg:     "accuracy/...",
		own:     []string{"accuracy/..."},
		foreign: []string{"golang.org/x/sys/unix", "golang.org/x/net/dns/dnsmessage", "github.com/bmatcuk/doublestar/v4"},
		why:     "an independent reader: code shared with a recorder would share its mistakes",
	},
	{
		pkg: "internal/need",
		why: "for the tests of every package, accuracy's too: it holds no rule that a recorder and its second opinion could share",
	},
	{
		pkg:     "bench",
		foreign: []string{"golang.org/x/sys/unix"},
		why:     "it measures the built command from outside",
	},
}

// never holds for whatever is imported by way of other packages too, and for
// packages that are yet to come.
var never = []struct{ from, to, why string }{
	{"cmd/gate-webhook", "sandbox", "a server that faces the network must not contain code that makes namespaces and traps calls"},
	{"cmd/gate-webhook", "runner", "nor what would run a command"},
	{"ledger", "sandbox", "judging a record runs nothing"},
	{"accuracy/...", "sandbox", "the second opinion must not come from the same code"},
}

// exits lists the files that may end the process.
var exits = []struct{ file, why string }{
	{"*/main.go", "main is one line, os.Exit(run(...)): everything else returns an error and runs its defers"},
	{"cmd/*/main.go", "the same"},
	{"sandbox/init_linux.go", "the child in the namespaces has nothing to return to"},
}

func TestImports(t *testing.T) {
	packages := load(t)
	for name, p := range packages {
		i := slices.IndexFunc(importTable, func(r row) bool { return covers(r.pkg, name) })
		if i < 0 {
			if len(p.imports) > 0 {
				t.Errorf("%s: no row in the import table: add one, with its reason", name)
			}
			continue
		}
		r := importTable[i]
		for imported, file := range p.imports {
			allowed := r.foreign
			what := imported
			if inside, ours := strings.CutPrefix(imported, module+"/"); ours {
				allowed, what = r.own, inside
			}
			if !slices.ContainsFunc(allowed, func(a string) bool { return covers(a, what) }) {
				t.Errorf("%s: imports %s; %s may import %q only (%s)", file, what, r.pkg, allowed, r.why)
			}
		}
	}
	for _, n := range never {
		for name := range packages {
			if chain := reach(packages, name, n.to); covers(n.from, name) && chain != nil {
				t.Errorf("%s must never import %s (%s): %s", name, n.to, n.why, strings.Join(chain, " -> "))
			}
		}
	}
}

// TestProcessEnds finds os.Exit and its likes.
func TestProcessEnds(t *testing.T) {
	ends := map[string][]string{
		"os":                    {"Exit"},
		"syscall":               {"Exit"},
		"log":                   {"Fatal", "Fatalf", "Fatalln"},
		"golang.org/x/sys/unix": {"Exit"},
	}
	for _, p := range load(t) {
		for _, f := range p.files {
			if slices.ContainsFunc(exits, func(e struct{ file, why string }) bool {
				ok, err := path.Match(e.file, f.name)
				return ok && err == nil
			}) {
				continue
			}
			names := importNames(f.ast)
			ast.Inspect(f.ast, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := sel.X.(*ast.Ident); ok && slices.Contains(ends[names[x.Name]], sel.Sel.Name) {
						t.Errorf("%s: %s.%s: return an error instead; only main may end the process, and the child in the sandbox", p.fset.Position(n.Pos()), x.Name, sel.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

// TestNoHiddenState: what a package does follows from the arguments of its
// functions. An init function runs before main can decide anything, and a
// variable of the package that changes couples tests and runs to each other.
// Tables and errors that are set once, where they are declared, are constants
// that the language cannot spell.
func TestNoHiddenState(t *testing.T) {
	for _, p := range load(t) {
		info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
		conf := types.Config{
			// Only names within the package are to be resolved.
			Importer: noImports{},
			Error:    func(error) {},
		}
		var forThisOS []*ast.File
		for _, f := range p.files {
			if f.built {
				forThisOS = append(forThisOS, f.ast)
			}
		}
		pkg, _ := conf.Check(p.name, p.fset, forThisOS, info)
		global := func(e ast.Expr) *ast.Ident {
			id := root(e)
			if id == nil || info.Uses[id] == nil || info.Uses[id].Parent() != pkg.Scope() {
				return nil
			}
			if _, ok := info.Uses[id].(*types.Var); !ok {
				return nil
			}
			return id
		}
		for _, f := range forThisOS {
			for _, d := range f.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Recv == nil && d.Name.Name == "init" {
						t.Errorf("%s: an init function", p.fset.Position(d.Pos()))
					}
				case *ast.GenDecl:
					for _, s := range d.Specs {
						v, ok := s.(*ast.ValueSpec)
						if ok && d.Tok == token.VAR && len(v.Values) == 0 && !embeds(d) && !embeds(v) {
							t.Errorf("%s: variable %s of the package has no value: it can only be there to be changed", p.fset.Position(v.Pos()), v.Names[0].Name)
						}
					}
				}
			}
			changed := func(e ast.Expr, how string) {
				if id := global(e); id != nil {
					t.Errorf("%s: variable %s of the package is %s", p.fset.Position(e.Pos()), id.Name, how)
				}
			}
			ast.Inspect(f, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					if n.Tok != token.DEFINE {
						for _, e := range n.Lhs {
							changed(e, "assigned to")
						}
					}
				case *ast.IncDecStmt:
					changed(n.X, "changed")
				case *ast.RangeStmt:
					if n.Tok == token.ASSIGN {
						changed(n.Key, "assigned to")
						changed(n.Value, "assigned to")
					}
				case *ast.UnaryExpr:
					// The address of a row of a table is how it is read.
					if id, ok := n.X.(*ast.Ident); ok && n.Op == token.AND {
						changed(id, "shared by its address")
					}
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.Ident); ok && slices.Contains([]string{"delete", "clear", "copy"}, f.Name) && len(n.Args) > 0 {
						changed(n.Args[0], "changed by "+f.Name)
					}
				}
				return true
			})
		}
	}
}

type goPackage struct {
	name    string
	fset    *token.FileSet
	files   []goFile
	imports map[string]string // path, unless of the standard library -> a file that has it
}

type goFile struct {
	name  string // relative to the module
	ast   *ast.File
	built bool // on this operating system
}

// load parses every file of the module that is not a test, for whatever
// operating system.
func load(t *testing.T) map[string]*goPackage {
	t.Helper()
	packages := make(map[string]*goPackage)
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := d.Name(); base != "." && (base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return nil
		}
		file = filepath.ToSlash(file)
		name := path.Dir(file)
		p := packages[name]
		if p == nil {
			p = &goPackage{name: name, fset: token.NewFileSet(), imports: make(map[string]string)}
			packages[name] = p
		}
		parsed, err := parser.ParseFile(p.fset, file, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		built, err := build.Default.MatchFile(name, path.Base(file))
		if err != nil {
			return err
		}
		p.files = append(p.files, goFile{name: file, ast: parsed, built: built})
		for _, imported := range importNames(parsed) {
			first, _, _ := strings.Cut(imported, "/")
			if imported == "C" || strings.Contains(first, ".") {
				p.imports[imported] = file
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("read the module: %v", err)
	}
	if len(packages) == 0 {
		t.Fatal("no package found: this test must run at the root of the module")
	}
	return packages
}

// importNames gives the imports of a file by the name that they have in it. A
// name that is not given is taken to be the last element of the path.
func importNames(f *ast.File) map[string]string {
	names := make(map[string]string)
	for _, s := range f.Imports {
		imported, err := strconv.Unquote(s.Path.Value)
		if err != nil {
			panic(fmt.Sprintf("BUG: the parser let through the import path %s", s.Path.Value))
		}
		name := path.Base(imported)
		if s.Name != nil {
			name = s.Name.Name
		}
		if name == "_" || name == "." || names[name] != "" {
			name = imported // cannot be mistaken for a name
		}
		names[name] = imported
	}
	return names
}

// covers says that pattern, a package or "dir/...", means the package name.
func covers(pattern, name string) bool {
	dir, all := strings.CutSuffix(pattern, "/...")
	return name == dir || all && strings.HasPrefix(name, dir+"/")
}

// reach gives the shortest chain of imports from one package to another, or nil.
func reach(packages map[string]*goPackage, from, to string) []string {
	chains := [][]string{{from}}
	seen := map[string]bool{from: true}
	for len(chains) > 0 {
		chain := chains[0]
		chains = chains[1:]
		last := chain[len(chain)-1]
		if last == to && len(chain) > 1 {
			return chain
		}
		if packages[last] == nil {
			continue
		}
		for _, imported := range slices.Sorted(maps.Keys(packages[last].imports)) {
			if next, ours := strings.CutPrefix(imported, module+"/"); ours && !seen[next] {
				seen[next] = true
				chains = append(chains, append(slices.Clone(chain), next))
			}
		}
	}
	return nil
}

// root gives the variable that an expression such as x.f[i] is a part of.
func root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// embeds says that a declaration has a go:embed line: its value comes from there.
func embeds(n ast.Node) bool {
	var doc *ast.CommentGroup
	switch n := n.(type) {
	case *ast.GenDecl:
		doc = n.Doc
	case *ast.ValueSpec:
		doc = n.Doc
	}
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool {
		return strings.HasPrefix(c.Text, "//go:embed ")
	})
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) {
	return nil, errors.New("not needed")
}
