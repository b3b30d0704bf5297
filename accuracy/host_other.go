//go:build !linux

package main

import (
	"errors"
	"syscall"
)

// as needs Linux, like the harness.
func as(uint32, uint32) *syscall.SysProcAttr { return nil }

func lock(string) (func() error, error) { return nil, errors.New("the harness needs Linux") }
