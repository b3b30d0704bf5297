package truth

import (
	"strings"

	"github.com/org/gate/accuracy/strace"
)

// cwds knows the working directory of every task. Threads made with CLONE_FS
// share theirs.
type cwds struct {
	start string
	tasks map[int]*string
	born  map[int][]birth // task id -> how it was made, in order: ids come again
}

type birth struct {
	parent int
	shared bool
}

// newCwds reads ahead who made whom: a child's first call can stand before
// the line in which its parent's clone returns.
func newCwds(start string, calls []strace.Call) *cwds {
	w := &cwds{start: start, tasks: map[int]*string{}, born: map[int][]birth{}}
	for _, c := range calls {
		switch c.Name {
		case "clone", "clone3", "fork", "vfork":
			if child := c.Int(); c.OK() && child > 0 {
				shared := strings.Contains(strings.Join(c.Args, ","), "CLONE_FS")
				w.born[child] = append(w.born[child], birth{c.Task, shared})
			}
		}
	}
	return w
}

// task is the cell of a task, made on its first appearance.
func (w *cwds) task(id int) *string {
	if cell, ok := w.tasks[id]; ok {
		return cell
	}
	own := w.start
	cell := &own
	if births := w.born[id]; len(births) > 0 {
		w.born[id] = births[1:]
		parent := w.task(births[0].parent)
		if births[0].shared {
			cell = parent
		} else {
			own = *parent
		}
	}
	w.tasks[id] = cell
	return cell
}

func (w *cwds) of(id int) string { return *w.task(id) }

// set changes the directory of a task and of those that share it; "" is
// unknown and changes nothing.
func (w *cwds) set(id int, dir string) {
	if dir != "" {
		*w.task(id) = dir
	}
}

// unshare gives a task a directory of its own.
func (w *cwds) unshare(id int) {
	own := *w.task(id)
	w.tasks[id] = &own
}

// end forgets a task.
func (w *cwds) end(id int) {
	w.task(id) // if it never made a call, its birth is spent all the same
	delete(w.tasks, id)
}
