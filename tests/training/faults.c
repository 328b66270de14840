/* Preloaded into a process: its n-th change of files under a folder kills it, or finds the disk full.
 *
 *   FAULT_FOLDER  what must stand in a file's path for it to count
 *   FAULT_ARM     counting begins with the first path that holds this
 *   FAULT_AT      n, from 1
 *   FAULT_KIND    "kill" or "full"
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

static int armed, count;

/* Whether the disk is full for this change of the file; the process may end here. */
static int fault(const char *path) {
    const char *folder = getenv("FAULT_FOLDER"), *arm = getenv("FAULT_ARM"), *at = getenv("FAULT_AT");
    if (!folder || !arm || !at || !path || !strstr(path, folder)) return 0;
    if (!armed && !strstr(path, arm)) return 0;
    armed = 1;
    int now = __sync_add_and_fetch(&count, 1);
    if (!strcmp(getenv("FAULT_KIND"), "kill")) {
        if (now == atoi(at)) kill(getpid(), SIGKILL);
        return 0;
    }
    return now >= atoi(at);
}

static int fault_of(int descriptor) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return fault(path);
}

#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define FULL(value) do { errno = ENOSPC; return value; } while (0)

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write); if (fault_of(fd)) FULL(-1); return real(fd, data, size);
}
size_t fwrite(const void *data, size_t size, size_t n, FILE *file) {
    REAL(fwrite); if (fault_of(fileno(file))) FULL(0); return real(data, size, n, file);
}
int fsync(int fd) { REAL(fsync); if (fault_of(fd)) FULL(-1); return real(fd); }
int mkdir(const char *path, mode_t mode) { REAL(mkdir); if (fault(path)) FULL(-1); return real(path, mode); }

/* Removing and renaming need no space: there they only count, and kill. */
int rename(const char *from, const char *to) { REAL(rename); fault(to); return real(from, to); }
int unlink(const char *path) { REAL(unlink); fault(path); return real(path); }
int unlinkat(int fd, const char *path, int flags) { REAL(unlinkat); fault_of(fd); return real(fd, path, flags); }
int rmdir(const char *path) { REAL(rmdir); fault(path); return real(path); }

static int opened(const char *name, const char *path, int flags, mode_t mode) {
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, name);
    if ((flags & O_CREAT) && fault(path)) FULL(-1);
    return real(path, flags, mode);
}
#define OPEN(name) int name(const char *path, int flags, ...) { \
    va_list rest; va_start(rest, flags); mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0; \
    va_end(rest); return opened(#name, path, flags, mode); }
OPEN(open)
OPEN(open64)
