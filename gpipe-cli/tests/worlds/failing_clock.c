/* A clock that fails: once after SIGURG, for the threads of the program whose name GPIPE_CLOCKLESS matches. The
 * standard library of Rust panics there. To be loaded before the C library (LD_PRELOAD). */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_int fails;
static const char *threads;
static void *program;

static void begin_to_fail(int signal) {
    (void)signal;
    atomic_store(&fails, 1);
}

__attribute__((constructor)) static void start(void) {
    Dl_info of;
    threads = getenv("GPIPE_CLOCKLESS");
    if (dladdr((void *)getauxval(AT_ENTRY), &of)) program = of.dli_fbase;
    if (threads) signal(SIGURG, begin_to_fail);
}

/* Whether the program itself asks, not a library of it, in one of the threads. */
static int is_asked_by_thread(void *caller) {
    char name[16] = "";
    Dl_info of;
    prctl(PR_GET_NAME, name);
    return fnmatch(threads, name, 0) == 0 && dladdr(caller, &of) && of.dli_fbase == program;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    void *caller = __builtin_return_address(0);
    if (atomic_load(&fails) && is_asked_by_thread(caller) && atomic_exchange(&fails, 0)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_clock_gettime, clock, time);
}
