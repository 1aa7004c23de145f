/* The least that a broker could do to answer fetch.c: serves one segment file as partition 0 of any topic, by sendfile and nothing else.
   Every answer begins and ends at a batch boundary, from a table that is made at the start. One connection after the other.

   Usage: sendfile PORT FILE. Prints "ready" when it listens; ends when its standard input closes. Build: cc -O2 -pthread -o sendfile sendfile.c. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int file; static long size, batches; static uint64_t *first, end_offset; static long *place;
static void fail(const char *what) { fprintf(stderr, "sendfile: %s: %s\n", what, strerror(errno)); exit(1); }
static uint8_t *p16(uint8_t *w, int v) { *w++ = v >> 8; *w++ = v; return w; }
static uint8_t *p32(uint8_t *w, uint32_t v) { return p16(p16(w, v >> 16), v); }
static uint8_t *p64(uint8_t *w, uint64_t v) { return p32(p32(w, v >> 32), v); }
static uint32_t g32(const uint8_t *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }
static uint64_t g64(const uint8_t *p) { return (uint64_t)g32(p) << 32 | g32(p + 4); }
static int full(int s, uint8_t *b, long n) { while (n) { long k = read(s, b, n); if (k <= 0) return 0; b += k; n -= k; } return 1; }

static void list_batches(void) {
  uint8_t head[61]; long at = 0, room = 1024;
  first = malloc(room * sizeof *first); place = malloc((room + 1) * sizeof *place);
  for (; size - at >= 61; batches++) {
    if (pread(file, head, 61, at) != 61) fail("read");
    if (batches == room) { room *= 2; first = realloc(first, room * sizeof *first); place = realloc(place, (room + 1) * sizeof *place); }
    first[batches] = g64(head); place[batches] = at; end_offset = g64(head) + g32(head + 23) + 1;
    at += 12 + g32(head + 8);
  }
  place[batches] = at; posix_fadvise(file, 0, 0, POSIX_FADV_NORMAL);
}

/* The last batch in [0, batches) that begins at or before an offset (`by_offset`) or a place. */
static long floor_of(uint64_t wanted, int by_offset) {
  long low = 0, high = batches;
  while (high - low > 1) { long mid = (low + high) / 2; if ((by_offset ? first[mid] : (uint64_t)place[mid]) <= wanted) low = mid; else high = mid; }
  return low;
}

static void answer(int s, const uint8_t *req) {
  const uint8_t *r = req + 12; r += 2 + (r[0] << 8 | r[1]);        /* size, key, version, correlation; client */
  r += 4 + 4 + 4 + 4 + 1 + 4;                                      /* replica, wait, least, most, isolation, topics */
  int name_len = r[0] << 8 | r[1]; const uint8_t *name = r + 2; r = name + name_len + 4 + 4;
  uint64_t offset = g64(r); long most = g32(r + 8);
  long from = floor_of(offset, 1), to = place[batches] - place[from] <= most ? batches : floor_of(place[from] + most, 0);
  if (to == from) to++;
  off_t at = place[from]; long left = place[to] - at;
  uint8_t out[512], *w = out + 4; w = p32(w, g32(req + 8)); w = p32(w, 0); w = p32(w, 1); w = p16(w, name_len); memcpy(w, name, name_len); w += name_len;
  w = p32(w, 1); w = p32(w, 0); w = p16(w, 0); w = p64(w, end_offset); w = p64(w, end_offset); w = p32(w, 0); w = p32(w, left);
  p32(out, w - out - 4 + left);
  if (send(s, out, w - out, MSG_MORE) != w - out) fail("send");
  while (left > 0) { long k = sendfile(s, file, &at, left); if (k <= 0) fail("sendfile"); left -= k; }
}

static void *until_stdin_ends(void *_) { char c; while (read(0, &c, 1) > 0) ; exit(0); return _; }

int main(int argc, char **argv) {
  if (argc < 3) { fprintf(stderr, "usage: sendfile PORT FILE\n"); return 2; }
  struct stat status; file = open(argv[2], O_RDONLY); if (file < 0 || fstat(file, &status)) fail(argv[2]);
  size = status.st_size; list_batches(); if (!batches) fail("no batches");
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))}; inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
  int one = 1, l = socket(AF_INET, SOCK_STREAM, 0); setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(l, (void *)&a, sizeof a) || listen(l, 8)) fail("listen");
  pthread_t t; pthread_create(&t, 0, until_stdin_ends, 0); printf("ready\n"); fflush(stdout);
  for (;;) {
    int s = accept(l, 0, 0); if (s < 0) fail("accept");
    setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (uint8_t req[1024]; full(s, req, 4);) { long n = g32(req); if (n > 1000 || !full(s, req + 4, n)) break; answer(s, req); }
    close(s);
  }
}
