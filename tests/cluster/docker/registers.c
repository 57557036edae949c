/* Registers over TCP, for an image that has nothing but this program: registers PORT FILE PEER...
 * "registers ask PORT" is a health check.
 *
 * "get KEY" answers "VALUE VERSION", or "- 0". "set KEY VALUE VERSION" answers the same, or "changed" if the register
 * has another version; -1 matches each version. Each change is appended to the file and fsynced before the answer. At
 * its start the server reads the file, without an incomplete last line. It sends the time to each peer, an address or a
 * name, ten times a second.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MANY 256

struct entry { char key[32], value[32]; long version; };
struct peer { char text[512]; size_t size; };

static struct entry entries[MANY];
static struct pollfd watched[MANY];
static struct peer peers[MANY];
static int file;

static struct entry *find(const char *key) {
  for (int index = 0; index < MANY; index++) {
    if (!*entries[index].key) {
      snprintf(entries[index].key, sizeof entries[index].key, "%s", key);
      strcpy(entries[index].value, "-");
    }
    if (!strcmp(entries[index].key, key)) return &entries[index];
  }
  abort();
}

/* Reads an IPv4 address, or finds a name in /etc/hosts. A static program has no other resolver. */
static int find_address(const char *name, struct in_addr *address) {
  if (inet_pton(AF_INET, name, address) == 1) return 1;
  FILE *hosts = fopen("/etc/hosts", "r");
  char line[512];
  int found = 0;
  while (hosts && !found && fgets(line, sizeof line, hosts)) {
    char *rest = line, *number = strsep(&rest, " \t\n"), *known;
    while (!found && (known = strsep(&rest, " \t\n")))
      found = !strcmp(known, name) && inet_pton(AF_INET, number, address) == 1;
  }
  if (hosts) fclose(hosts);
  return found;
}

static void recover(const char *path) {
  char line[256], key[32], value[32];
  long version, end = 0;
  FILE *before = fopen(path, "a+");
  if (!before) { perror(path); exit(1); }
  rewind(before);
  while (fgets(line, sizeof line, before) && strchr(line, '\n')) {
    end = ftell(before);
    if (sscanf(line, "%31s %31s %ld", key, value, &version) != 3) { puts("a damaged line"); exit(1); }
    struct entry *entry = find(key);
    strcpy(entry->value, value);
    entry->version = version;
  }
  fclose(before);
  file = open(path, O_WRONLY | O_APPEND);
  if (file < 0 || ftruncate(file, end) || fsync(file)) { perror(path); exit(1); }
}

static void answer(int connection, char *line) {
  char said[128], key[32], value[32];
  long version;
  if (sscanf(line, "get %31s", key) == 1) {
    struct entry *entry = find(key);
    snprintf(said, sizeof said, "%s %ld\n", entry->value, entry->version);
  } else if (sscanf(line, "set %31s %31s %ld", key, value, &version) == 3) {
    struct entry *entry = find(key);
    if (version >= 0 && version != entry->version) {
      strcpy(said, "changed\n");
    } else {
      strcpy(entry->value, value);
      entry->version++;
      dprintf(file, "%s %s %ld\n", key, value, entry->version);
      if (fsync(file)) abort();
      snprintf(said, sizeof said, "%s %ld\n", value, entry->version);
    }
  } else {
    strcpy(said, "unknown\n");
  }
  if (send(connection, said, strlen(said), MSG_NOSIGNAL) < 0) perror("send");
}

/* Returns 0 if a server accepts connections at a port of this machine. */
static int ask(int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  return connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof address) != 0;
}

int main(int count, char **arguments) {
  char folder[256], *end;
  char moment[32];
  if (count < 3) return 2;
  if (!strcmp(arguments[1], "ask")) return ask(atoi(arguments[2]));
  int port = atoi(arguments[1]), on = 1, watching = 1;
  recover(arguments[2]);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  int listener = socket(AF_INET, SOCK_STREAM, 0), datagrams = socket(AF_INET, SOCK_DGRAM, 0);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 64)) { perror("listen"); return 1; }
  printf("%d:%d %s %s in %s\n", getuid(), getgid(), getenv("GREETING"), getenv("HOME"), getcwd(folder, sizeof folder));
  fflush(stdout);
  watched[0] = (struct pollfd){listener, POLLIN, 0};
  for (;;) {
    poll(watched, watching, 100);
    for (int index = 3; index < count; index++) {
      if (!find_address(arguments[index], &address.sin_addr)) continue;
      snprintf(moment, sizeof moment, "%ld", (long)time(NULL));
      sendto(datagrams, moment, strlen(moment), 0, (struct sockaddr *)&address, sizeof address);
    }
    for (int index = watching - 1; index > 0; index--) {
      struct peer *peer = &peers[index];
      if (!watched[index].revents) continue;
      ssize_t got = recv(watched[index].fd, peer->text + peer->size, sizeof peer->text - 1 - peer->size, 0);
      if (got <= 0) {
        close(watched[index].fd);
        watched[index] = watched[--watching];
        *peer = peers[watching];
        continue;
      }
      peer->size += got;
      peer->text[peer->size] = 0;
      while ((end = strchr(peer->text, '\n'))) {
        *end = 0;
        answer(watched[index].fd, peer->text);
        peer->size -= end + 1 - peer->text;
        memmove(peer->text, end + 1, peer->size + 1);
      }
    }
    if (watched[0].revents && watching < MANY) {
      int connection = accept(listener, NULL, NULL);
      if (connection >= 0) {
        peers[watching].size = 0;
        watched[watching++] = (struct pollfd){connection, POLLIN, 0};
      }
    }
  }
}
