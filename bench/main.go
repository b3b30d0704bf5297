// Command bench measures what gate costs, in wall time, beside a bare network
// namespace (`unshare -rn`) and beside the usual tool for watching a process
// tree (`strace -f --seccomp-bpf`).
//
// Absolute times on a shared machine say little, so each figure is a ratio of
// runs made one after the other, as the median of several such rounds. It
// prints a table in Markdown. It judges nothing and is no test.
package main

import "os"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }
