/* Starts processes in a container whose image has no tools, on request of another container.
 *
 * The program is the first process of a *target*: a container of the user's image that shares the process and the
 * network namespace of a *holder* (cluster/docker/target.py). It ends only by a signal, so the target's files and
 * namespaces outlive the system's process. It is linked statically, so it runs in any image.
 *
 * It listens at an abstract Unix socket, which belongs to the network namespace and needs no file. A request has the
 * descriptors of a log and of a pid file, and texts that each end with a NUL: the number of arguments, the arguments,
 * and the environment variables that replace or extend those of this program. For each request:
 *
 * 1. A child becomes the leader of a session, resets its signals, and takes the log for its output.
 * 2. It writes its pid and its start time (field 22 of proc(5)) to the pid file.
 * 3. It executes the arguments. A name without a slash is looked for in the folders of PATH.
 * 4. If the execution fails, it empties the pid file and answers with the reason. Otherwise the kernel closes the
 *    connection at the execution, so an empty answer means success.
 *
 * Only root and the user of this program are served. The kernel reaps the children.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_REQUEST (4 << 20)
#define MAX_TEXTS 65536
#define REQUEST_SECONDS 10

extern char **environ;

static char request[MAX_REQUEST];
static char *texts[MAX_TEXTS + 1];

static void answer(int connection, const char *format, const char *subject, const char *reason) {
  char line[8192];
  int length = snprintf(line, sizeof line, format, subject, reason);
  if (length > (int)sizeof line - 1) length = sizeof line - 1;
  if (length > 0 && send(connection, line, length, MSG_NOSIGNAL) < 0) return; /* the peer has gone */
}

/* Reads until the peer ends its request. Returns the number of bytes; -1 if the request is not complete. */
static ssize_t read_request(int connection, int descriptors[2]) {
  ssize_t size = 0;
  for (;;) {
    union {
      struct cmsghdr alignment;
      char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control;
    if (size == MAX_REQUEST) {
      answer(connection, "the command is too long: %s%s", "at most 4 MiB", "");
      return -1;
    }
    struct iovec part = {request + size, MAX_REQUEST - size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t got = recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(2 * sizeof(int)) &&
        descriptors[0] < 0)
      memcpy(descriptors, CMSG_DATA(header), 2 * sizeof(int));
    if (got == 0) return size;
    size += got;
  }
}

/* Calls the kernel, because the C library changes no signal that it keeps to itself, such as 32. Zeros are the default. */
static void reset_signals(void) {
  static const unsigned long plain[8];
  for (int number = 1; number < NSIG; number++) syscall(SYS_rt_sigaction, number, plain, NULL, 8);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

/* Writes "PID BEGAN" to the pid file in one call. Returns 0, or -1 if the start time is unknown. */
static int write_pid(int file) {
  char stat[4096], line[64];
  int proc = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  ssize_t size = proc < 0 ? -1 : read(proc, stat, sizeof stat - 1);
  if (size <= 0) return -1;
  stat[size] = 0;
  char *field = strrchr(stat, ')');
  for (int number = 2; field && number < 22; number++) field = strchr(field + 1, ' ');
  if (!field) return -1;
  int length = snprintf(line, sizeof line, "%ld %lu\n", (long)getpid(), strtoul(field, NULL, 10));
  return write(file, line, length) == length ? 0 : -1;
}

/* Executes a program. Returns only if that fails, with errno set. `tried` becomes the path that failed. */
static void execute(char **argv, char *tried, size_t size) {
  snprintf(tried, size, "%s", argv[0]);
  if (strchr(argv[0], '/') || !*argv[0]) {
    execve(argv[0], argv, environ);
    return;
  }
  const char *folders = getenv("PATH");
  int denied = 0;
  for (const char *folder = folders ? folders : "/bin:/usr/bin"; folder;) {
    const char *end = strchrnul(folder, ':');
    snprintf(tried, size, "%.*s%s%s", (int)(end - folder), folder, end == folder ? "" : "/", argv[0]);
    execve(tried, argv, environ);
    if (errno == EACCES) denied = 1;
    else if (errno != ENOENT && errno != ENOTDIR) return;
    else if (access(tried, F_OK) == 0) return; /* the program is there, but not its interpreter */
    folder = *end ? end + 1 : NULL;
  }
  snprintf(tried, size, "%s", argv[0]);
  errno = denied ? EACCES : ENOENT;
}

static const char *explain(const char *path, int error) {
  if (error != ENOENT) return strerror(error);
  return access(path, F_OK) ? "no such file in the image" : "its interpreter or loader is not in the image";
}

static void run_child(int connection, int log, int pid_file, char **argv, char **variables) {
  char tried[4096];
  setsid();
  reset_signals();
  int nothing = open("/dev/null", O_RDONLY);
  if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0) {
    answer(connection, "%s: %s", "/dev/null", strerror(errno));
    return;
  }
  if (nothing > 2) close(nothing);
  for (; *variables; variables++)
    if (putenv(*variables)) {
      answer(connection, "%s: %s", *variables, strerror(errno));
      return;
    }
  if (write_pid(pid_file)) {
    answer(connection, "%s: %s", "/proc/self/stat", "the start time of the process cannot be read");
    return;
  }
  execute(argv, tried, sizeof tried);
  int error = errno;
  if (ftruncate(pid_file, 0)) error = errno;
  answer(connection, "%s: %s", tried, explain(tried, error));
}

static void serve(int connection, int listener) {
  struct ucred peer;
  socklen_t length = sizeof peer;
  struct timeval limit = {REQUEST_SECONDS, 0};
  if (getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &length)) return;
  if (peer.uid != 0 && peer.uid != geteuid()) return;
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  int descriptors[2] = {-1, -1};
  ssize_t size = read_request(connection, descriptors);
  if (size > 0 && descriptors[0] >= 0 && request[size - 1] == 0) {
    int count = 0, arguments;
    for (char *text = request; text < request + size && count < MAX_TEXTS; text += strlen(text) + 1)
      texts[count++] = text;
    texts[count] = NULL;
    arguments = atoi(texts[0]);
    if (count == MAX_TEXTS || arguments < 1 || arguments > count - 1) {
      answer(connection, "the command is damaged: %s%s", "its number of arguments is wrong", "");
    } else {
      pid_t child = fork();
      if (child < 0) answer(connection, "%s: %s", "fork", strerror(errno));
      if (child == 0) {
        close(listener);
        /* The arguments and the variables follow each other, so the arguments need an end of their own. */
        char **argv = calloc(arguments + 1, sizeof *argv);
        if (!argv) _exit(126);
        memcpy(argv, texts + 1, arguments * sizeof *argv);
        run_child(connection, descriptors[0], descriptors[1], argv, texts + 1 + arguments);
        _exit(127);
      }
    }
  }
  for (int index = 0; index < 2; index++)
    if (descriptors[index] >= 0) close(descriptors[index]);
}

int main(int count, char **arguments) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (count != 2 || strlen(arguments[1]) > sizeof address.sun_path - 1) {
    fprintf(stderr, "usage: hold NAME, which is that of an abstract socket\n");
    return 2;
  }
  memcpy(address.sun_path + 1, arguments[1], strlen(arguments[1]));
  socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(arguments[1]);
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, 16)) {
    perror("hold: no socket");
    return 1;
  }
  signal(SIGCHLD, SIG_IGN); /* the kernel reaps the children */
  for (;;) {
    int connection = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (connection < 0) {
      if (errno != EINTR && errno != ECONNABORTED) sleep(1); /* descriptors or memory are short */
      continue;
    }
    serve(connection, listener);
    close(connection);
  }
}
