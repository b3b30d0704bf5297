package sandbox

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Listen makes a socket inside the namespace while the tree runs, bound to an
// address that need not be one of the host's. It may be called from the answers
// that come Later, and fails once the tree has ended.
func (b *Box) Listen(l Listen) (*os.File, error) {
	id, reply, err := b.asked.ask()
	if err != nil {
		return nil, err
	}
	if err := b.ctl.send(message{Step: "listen", ID: id, Listen: &l}); err != nil {
		return nil, err
	}
	r, ok := <-reply
	switch {
	case !ok:
		return nil, errEnded
	case r.err != "":
		return nil, fmt.Errorf("listen on %s %s: %s", l.Network, l.Addr, r.err)
	}
	return os.NewFile(uintptr(r.fd), "listen "+l.Addr.String()), nil
}

var errEnded = errors.New("the tree has ended")

// asked holds the questions to init that have no answer yet.
type asked struct {
	mu    sync.Mutex
	ended bool
	last  int
	open  map[int]chan socketReply
}

type socketReply struct {
	fd  int
	err string
}

func (a *asked) ask() (id int, reply <-chan socketReply, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ended {
		return 0, nil, errEnded
	}
	a.last++
	ch := make(chan socketReply, 1)
	if a.open == nil {
		a.open = map[int]chan socketReply{}
	}
	a.open[a.last] = ch
	return a.last, ch, nil
}

// answer hands a reply of init's to who asked.
func (a *asked) answer(m message, fds []int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	r := socketReply{fd: -1, err: m.Err}
	if len(fds) == 1 {
		r.fd = fds[0]
	} else if r.err == "" {
		r.err = fmt.Sprintf("BUG: init sent %d descriptors", len(fds))
	}
	ch := a.open[m.ID]
	if ch == nil {
		for _, fd := range fds {
			_ = unix.Close(fd) // nobody asked
		}
		return
	}
	delete(a.open, m.ID)
	ch <- r
}

// end tells everybody that no answer will come.
func (a *asked) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	for id, ch := range a.open {
		close(ch)
		delete(a.open, id)
	}
}
