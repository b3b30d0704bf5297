//go:build !linux

package main

import "syscall"

// as needs Linux, like the harness.
func as(uint32, uint32) *syscall.SysProcAttr { return nil }
