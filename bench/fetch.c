/* Reads partition 0 of a topic with N connections, each on its own, one Fetch v4 request in flight, and prints the rate.
   A connection that reaches the end of the log begins again at the first offset until it has its bytes; it ends with
   status 1 on an error, a close or an empty topic.

   Usage: fetch PORT CONNS TOPIC BYTES_PER_CONN [FETCH_BYTES]. Build: cc -O2 -pthread -o fetch fetch.c. Loopback only. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SLACK (4 << 20)                               /* one batch may be larger than what was asked for */

static int port, fetch_bytes = 1 << 20, topic_len; static const char *topic; static long limit;
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static void fail(const char *what) { fprintf(stderr, "fetch: %s\n", what); exit(1); }
static uint8_t *p16(uint8_t *w, int v) { *w++ = v >> 8; *w++ = v; return w; }
static uint8_t *p32(uint8_t *w, uint32_t v) { return p16(p16(w, v >> 16), v); }
static uint8_t *p64(uint8_t *w, uint64_t v) { return p32(p32(w, v >> 32), v); }
static uint32_t g32(const uint8_t *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }
static uint64_t g64(const uint8_t *p) { return (uint64_t)g32(p) << 32 | g32(p + 4); }
static void full(int s, uint8_t *b, long n) { while (n) { long k = read(s, b, n); if (k <= 0) fail("a connection was closed by the broker"); b += k; n -= k; } }

static int dial(void) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)}; inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
  int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  if (connect(s, (void *)&a, sizeof a)) { perror("fetch: connect"); exit(1); }
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return s;
}

static void ask(int s, uint64_t offset) {
  uint8_t req[512], *w = req + 4; w = p16(w, 1); w = p16(w, 4); w = p32(w, 1); w = p16(w, 1); *w++ = 'f';
  w = p32(w, -1); w = p32(w, 500); w = p32(w, 1); w = p32(w, fetch_bytes); *w++ = 0;
  w = p32(w, 1); w = p16(w, topic_len); memcpy(w, topic, topic_len); w += topic_len;
  w = p32(w, 1); w = p32(w, 0); w = p64(w, offset); w = p32(w, fetch_bytes);
  p32(req, w - req - 4); if (write(s, req, w - req) != w - req) { perror("fetch: write"); exit(1); }
}

/* Takes one answer; returns the bytes of records in it and moves *offset behind the last whole batch, or to 0 at the end. */
static long take(int s, uint8_t *in, uint64_t *offset) {
  full(s, in, 4); long n = g32(in); if (n > fetch_bytes + SLACK || n < 48 + topic_len) fail("an answer of an odd size");
  full(s, in, n);
  uint8_t *r = in + 4 + 4 + 4 + 2 + topic_len + 4 + 4;                               /* correlation, throttle, topics, name, partitions, index */
  int error = r[0] << 8 | r[1]; if (error) { fprintf(stderr, "fetch: error %d at offset %lu\n", (int16_t)error, (unsigned long)*offset); exit(1); }
  uint64_t high_watermark = g64(r + 2); r += 2 + 8 + 8;
  int aborted = g32(r); r += 4 + (aborted > 0 ? aborted * 16 : 0);
  long size = (int32_t)g32(r); r += 4; uint8_t *end = r + size;
  if (size <= 0) fail("an answer without records: is the topic empty?");
  while (end - r >= 61) { long len = g32(r + 8); if (r + 12 + len > end) break; *offset = g64(r) + g32(r + 23) + 1; r += 12 + len; }
  if (*offset >= high_watermark) *offset = 0;
  return size;
}

static void *reader(void *result) {
  int s = dial(); uint64_t offset = 0; long got = 0; uint8_t *in = malloc(fetch_bytes + SLACK);
  while (got < limit) { ask(s, offset); got += take(s, in, &offset); }
  *(long *)result = got; close(s); free(in); return 0;
}

int main(int argc, char **argv) {
  if (argc < 5) { fprintf(stderr, "usage: fetch PORT CONNS TOPIC BYTES_PER_CONN [FETCH_BYTES]\n"); return 2; }
  port = atoi(argv[1]); int conns = atoi(argv[2]); topic = argv[3]; topic_len = strlen(topic); limit = atol(argv[4]);
  if (argc > 5) fetch_bytes = atoi(argv[5]);
  if (conns < 1 || topic_len > 249) fail("CONNS must be at least 1, TOPIC at most 249 characters");
  pthread_t *t = malloc(conns * sizeof *t); long *got = calloc(conns, sizeof *got), sum = 0; double start = now();
  for (int i = 0; i < conns; i++) pthread_create(&t[i], 0, reader, &got[i]);
  for (int i = 0; i < conns; i++) { pthread_join(t[i], 0); sum += got[i]; }
  double took = now() - start; printf("%d conns %.0f MB in %.2f s = %.0f MB/s\n", conns, sum / 1e6, took, sum / took / 1e6);
}
