// Command gate runs a test suite, records what its process tree touched
// (network, CPU, writes) and compares that with a committed ledger.
//
// This package is the command line alone: it reads flags, finds the
// repository and its ledger, hands the run to package runner, has package
// ledger judge and render the record, and picks the exit status. It records
// nothing and judges nothing itself.
package main

import "os"

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
