// actor does in C what a Go program cannot do to itself.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void die(const char *what) {
	fprintf(stderr, "actor: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void create(const char *name) {
	int fd = open(name, O_CREAT | O_WRONLY, 0644);
	if (fd < 0)
		die(name);
	close(fd);
}

static void wait_for(pid_t pid) {
	int status;
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		die("child");
}

// The parent of a vfork is suspended until its child has called exec; the
// child is trapped meanwhile.
static void do_vfork(char *self) {
	pid_t pid = vfork();
	if (pid == 0) {
		if (mkdir("from-vfork", 0755) != 0)
			_exit(1);
		execl(self, self, "create", "after-exec", NULL);
		_exit(1);
	}
	wait_for(pid);
}

static void do_spawn(char *self) {
	posix_spawn_file_actions_t acts;
	pid_t pid;
	char *argv[] = {self, "create", "after-exec", NULL};
	posix_spawn_file_actions_init(&acts);
	posix_spawn_file_actions_addopen(&acts, 1, "by-spawn", O_CREAT | O_WRONLY, 0644);
	if ((errno = posix_spawn(&pid, self, &acts, NULL, argv, environ)) != 0)
		die("posix_spawn");
	wait_for(pid);
}

// getpid as a 32-bit program calls it.
static void do_i386(void) {
#ifdef __x86_64__
	long r = 20;
	__asm__ volatile("int $0x80" : "+a"(r) : : "memory", "r8", "r9", "r10", "r11");
	printf("%ld\n", r);
#else
	printf("absent\n");
#endif
}

static void do_x32(void) {
#ifdef __x86_64__
	printf("%ld\n", syscall(0x40000000 | SYS_mkdir, "x32", 0755) == 0 ? 0L : (long)-errno);
#else
	printf("absent\n");
#endif
}

static volatile long ticks;
static void tick(int sig) { (void)sig; ticks++; }

// Files made under a timer whose handler does not restart calls: seccomp_unotify(2)
// says that a trapped call may then fail with EINTR at any moment.
static void do_storm(int n, int flags) {
	struct sigaction sa = {.sa_handler = tick, .sa_flags = flags};
	struct itimerval every = {{0, 500}, {0, 500}}, off = {{0, 0}, {0, 0}};
	int made = 0, interrupted = 0;
	sigaction(SIGALRM, &sa, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
	for (int i = 0; i < n; i++) {
		char name[32];
		snprintf(name, sizeof name, "f%d", i);
		for (;;) {
			int fd = open(name, O_CREAT | O_EXCL | O_WRONLY, 0644);
			if (fd >= 0) {
				made++;
				close(fd);
				break;
			}
			if (errno != EINTR)
				die(name);
			interrupted++;
		}
	}
	setitimer(ITIMER_REAL, &off, NULL);
	printf("%d made, interrupted by %s\n", made, ticks > 10 ? "many" : "few");
	fprintf(stderr, "%d interrupted, %ld ticks\n", interrupted, ticks);
}

static void do_sigchld(int flags, void (*handler)(int)) {
	struct sigaction sa = {.sa_handler = handler, .sa_flags = flags};
	if (sigaction(SIGCHLD, &sa, NULL) != 0)
		die("sigaction");
}

static void *thread(void *name) {
	create(name);
	return NULL;
}

// glibc asks for clone3 first.
static void do_threads(void) {
	pthread_t t[8];
	static char names[8][8];
	for (int i = 0; i < 8; i++) {
		snprintf(names[i], sizeof names[i], "t%d", i);
		if ((errno = pthread_create(&t[i], NULL, thread, names[i])) != 0)
			die("pthread_create");
	}
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
}

// Leaves a process behind that is nobody's child and has let go of stdout
// unless told to hold it.
static void do_daemon(int hold) {
	pid_t pid = fork();
	int ready[2];
	char c;
	if (pid == 0) {
		if (pipe(ready) != 0 || setsid() < 0)
			_exit(1);
		if ((pid = fork()) == 0) {
			if (!hold)
				close(1);
			signal(SIGHUP, SIG_IGN);
			if (write(ready[1], "x", 1) != 1)
				_exit(1);
			for (;;)
				pause();
		}
		_exit(pid < 0 || read(ready[0], &c, 1) != 1);
	}
	wait_for(pid);
}

// Not dumpable: /proc/PID of this process belongs to root, and its memory is
// closed to others of the same user.
static void do_undumpable(void) {
	int fd;
	if (prctl(PR_SET_DUMPABLE, 0) != 0)
		die("prctl");
	create("by-path");
	if ((fd = open(".", O_RDONLY)) < 0 || fchmod(fd, 0700) != 0)
		die("fchmod");
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	if (strcmp(what, "create") == 0)
		create(argv[2]);
	else if (strcmp(what, "vfork") == 0)
		do_vfork(argv[0]);
	else if (strcmp(what, "spawn") == 0)
		do_spawn(argv[0]);
	else if (strcmp(what, "i386") == 0)
		do_i386();
	else if (strcmp(what, "x32") == 0)
		do_x32();
	else if (strcmp(what, "storm") == 0)
		do_storm(atoi(argv[2]), 0);
	else if (strcmp(what, "restart") == 0)
		do_storm(atoi(argv[2]), SA_RESTART);
	else if (strcmp(what, "ignore") == 0)
		do_sigchld(0, SIG_IGN);
	else if (strcmp(what, "nocldwait") == 0)
		do_sigchld(SA_NOCLDWAIT, SIG_DFL);
	else if (strcmp(what, "handle") == 0)
		do_sigchld(0, tick);
	else if (strcmp(what, "threads") == 0)
		do_threads();
	else if (strcmp(what, "daemon") == 0)
		do_daemon(argc > 2);
	else if (strcmp(what, "undumpable") == 0)
		do_undumpable();
	else if (strcmp(what, "die") == 0)
		raise(atoi(argv[2]));
	else if (strcmp(what, "exit") == 0)
		exit(atoi(argv[2]));
	else if (strcmp(what, "hold") == 0) {
		if (argc > 2)
			do_daemon(1);
		printf("ready\n");
		fflush(stdout);
		for (;;)
			pause();
	} else {
		fprintf(stderr, "actor: no action %s\n", what);
		return 2;
	}
	return 0;
}
