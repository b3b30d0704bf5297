package sandbox

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// initCaps are what init keeps over its re-execution inside a user namespace
// of an ordinary user: to configure the network, mount, bind port 53, load a
// filter, and to stay out of reach of the tree's ptrace, which needs a
// superset of the target's capabilities. Overlayfs does its own work, in a
// directory of mode 0, with the capabilities of whoever mounted it.
var initCaps = []uintptr{
	unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_SYS_ADMIN, unix.CAP_NET_BIND_SERVICE,
	unix.CAP_SETPCAP, unix.CAP_KILL, unix.CAP_SYS_PTRACE, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER,
}

// treeCaps are what the tree keeps under real root: the default set of OCI
// containers, which suites are used to.
var treeCaps = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FSETID, unix.CAP_FOWNER, unix.CAP_MKNOD,
	unix.CAP_NET_RAW, unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETFCAP, unix.CAP_SETPCAP,
	unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT, unix.CAP_KILL, unix.CAP_AUDIT_WRITE,
}

// capMask is the 64-bit set of a list of capabilities.
func capMask(caps []uintptr) (mask uint64) {
	for _, c := range caps {
		mask |= 1 << c
	}
	return mask
}

// dropBounding limits what an exec of the calling thread can ever gain:
// to treeCaps for root, to nothing for anyone else. See capabilities(7).
func dropBounding(root bool) error {
	var keep uint64
	if root {
		keep = capMask(treeCaps)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_CAP_AMBIENT_CLEAR_ALL: %w", err)
	}
	for c := uintptr(0); c < 64; c++ {
		if keep&(1<<c) != 0 {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err == unix.EINVAL { // past the last one that this kernel knows
			return nil
		}
		if err != nil {
			return fmt.Errorf("prctl PR_CAPBSET_DROP %d: %w", c, err)
		}
	}
	return nil
}

// dropCaps leaves the calling thread treeCaps if it is root's, and nothing
// otherwise. In Notify, root may have fewer to begin with; without this it
// could mount on the host itself, which no path would show.
func dropCaps(spec Spec) error {
	var keep uint64
	if os.Geteuid() == 0 && spec.User == nil {
		have, err := readStatus(unix.Gettid())
		if err != nil {
			return fmt.Errorf("read own capabilities: %w", err)
		}
		keep = capMask(treeCaps) & have.creds.caps
	}
	return setCaps(keep, keep, 0)
}

// setCaps sets the sets of the calling thread alone.
func setCaps(effective, permitted, inheritable uint64) error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: uint32(effective), Permitted: uint32(permitted), Inheritable: uint32(inheritable)},
		{Effective: uint32(effective >> 32), Permitted: uint32(permitted >> 32), Inheritable: uint32(inheritable >> 32)},
	}
	if err := unix.Capset(&hdr, &data[0]); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// becomeUser changes the credentials of the calling thread alone (the
// wrappers of the syscall package would change every thread), and keeps
// CAP_SYS_ADMIN for the filter that comes next, if it had it.
func becomeUser(u User) error {
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_KEEPCAPS: %w", err)
	}
	var groups unsafe.Pointer
	if len(u.Groups) > 0 {
		groups = unsafe.Pointer(&u.Groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(u.Groups)), uintptr(groups), 0); errno != 0 {
		return fmt.Errorf("setgroups: %w", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(u.GID), uintptr(u.GID), uintptr(u.GID)); errno != 0 {
		return fmt.Errorf("setresgid %d: %w", u.GID, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(u.UID), uintptr(u.UID), uintptr(u.UID)); errno != 0 {
		return fmt.Errorf("setresuid %d: %w", u.UID, errno)
	}
	admin := capMask([]uintptr{unix.CAP_SYS_ADMIN})
	return setCaps(admin, admin, 0)
}
