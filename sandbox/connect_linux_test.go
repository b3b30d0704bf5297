package sandbox

import (
	"strings"
	"testing"

	"github.com/org/gate/internal/need"
)

// A connect that waits for a server which accepts nothing, and a signal: in
// Notify it is gate that waits, and the signal is the caller's all the same.
func TestConnectAndSignals(t *testing.T) {
	python := need.Program(t, "python3")
	const full = `
import ctypes, errno, os, signal, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
l = socket.socket(); l.bind(("127.0.0.1", 0)); l.listen(0)
waiting = []
for i in range(3):
    c = socket.socket(); c.setblocking(False); c.connect_ex(l.getsockname()); waiting.append(c)
to = struct.pack("=H", socket.AF_INET) + struct.pack("!H", l.getsockname()[1]) + socket.inet_aton("127.0.0.1") + bytes(8)
c = socket.socket()
def connect():
    r = libc.connect(c.fileno(), to, len(to))
    print(r and errno.errorcode.get(ctypes.get_errno(), ctypes.get_errno()), os.get_blocking(c.fileno()))
r, w = os.pipe(); os.set_blocking(w, False); signal.set_wakeup_fd(w)
signal.signal(signal.SIGALRM, lambda *a: None)
def accept_after_signal():
    if os.fork() == 0:
        os.read(r, 1)
        for i in range(4): l.accept()
        os._exit(0)
`
	for _, tt := range []struct{ name, guards, code, want string }{
		{"handled", "connect(2): EINTR", "signal.setitimer(signal.ITIMER_REAL, 0.2); connect()", "EINTR True"},
		{"to be restarted", "signal(7): SA_RESTART", "signal.siginterrupt(signal.SIGALRM, False); accept_after_signal(); signal.setitimer(signal.ITIMER_REAL, 0.2); connect()", "0 True"},
		{"with SO_SNDTIMEO", "signal(7): EINTR in spite of SA_RESTART", "signal.siginterrupt(signal.SIGALRM, False); c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', 60, 0)); signal.setitimer(signal.ITIMER_REAL, 0.2); connect()", "EINTR True"},
		{"SO_SNDTIMEO alone", "socket(7): EINPROGRESS", "c.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', 0, 200000)); connect()", "EINPROGRESS True"},
		{"blocked", "signal(7): a signal that is blocked interrupts nothing", "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1]); os.kill(os.getpid(), signal.SIGUSR1); accept_after_signal(); os.write(w, b'x'); connect()", "0 True"},
		{"not waiting", "connect(2): EINPROGRESS", "c.setblocking(False); connect()", "EINPROGRESS False"},
		{"again, after EINTR", "connect(2): the attempt goes on", "signal.setitimer(signal.ITIMER_REAL, 0.2); accept_after_signal(); connect(); connect(); connect()", "EINTR True\n0 True\nEISCONN True"},
	} {
		t.Run(strings.ReplaceAll(tt.name, " ", "_"), func(t *testing.T) {
			eachTier(t, func(t *testing.T, tier Tier) {
				rec := &recorder{answer: func(*NetCall) Answer { return Answer{} }}
				out := scene{tier: tier, argv: []string{python, "-c", full + tt.code}, handler: rec}.run(t)
				// The child that accepts may survive.
				if got := strings.TrimSpace(out.Stdout); got != tt.want || out.Exit.Code != 0 {
					t.Errorf("got %q, exit %d, want %q (%s)\n%s", got, out.Exit.Code, tt.want, tt.guards, out.Stderr)
				}
			})
		})
	}
}
