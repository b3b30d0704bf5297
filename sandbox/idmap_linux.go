package sandbox

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// idMaps are /proc/PID/uid_map and gid_map of user_namespaces(7).
type idMaps struct{ uid, gid idMap }

type idMap []struct{ inside, outside, count uint32 }

// has tells whether an id of gate's own user namespace is mapped.
func (m idMap) has(id uint32) bool {
	for _, r := range m {
		if id >= r.outside && id-r.outside < r.count {
			return true
		}
	}
	return false
}

// outside translates what a task calls an id.
func (m idMap) outside(id uint32) (uint32, bool) {
	for _, r := range m {
		if id >= r.inside && id-r.inside < r.count {
			return r.outside + id - r.inside, true
		}
	}
	return 0, false
}

// readIDs reads the maps of a task; nil if it is in gate's own user namespace.
func readIDs(t *task) (*idMaps, error) {
	var own, its unix.Stat_t
	if err := unix.Stat("/proc/self/ns/user", &own); err != nil {
		return nil, fmt.Errorf("stat /proc/self/ns/user: %w", err)
	}
	if err := unix.Stat(t.link("ns/user"), &its); err != nil {
		return nil, fmt.Errorf("stat %s: %w", t.link("ns/user"), err)
	}
	if own.Dev == its.Dev && own.Ino == its.Ino {
		return nil, nil
	}
	var out idMaps
	for name, to := range map[string]*idMap{"uid_map": &out.uid, "gid_map": &out.gid} {
		data, err := os.ReadFile(t.link(name))
		if err != nil {
			return nil, err
		}
		if *to, err = parseIDs(string(data)); err != nil {
			return nil, fmt.Errorf("parse %s: %w", t.link(name), err)
		}
	}
	return &out, nil
}

func parseIDs(text string) (idMap, error) {
	var out idMap
	for line := range strings.Lines(text) {
		r := struct{ inside, outside, count uint32 }{}
		if _, err := fmt.Sscan(line, &r.inside, &r.outside, &r.count); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		out = append(out, r)
	}
	return out, nil
}
