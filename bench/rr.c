/* Closed-loop request generator for a Kafka-compatible broker: N connections, each with one Produce v7 request (one record)
   in flight. Prints requests/s and latency percentiles; ends with status 1 when the broker refuses a record, closes a
   connection or falls silent, so that a rate is never the rate of errors.

   Usage: rr [-i IDLE] PORT CONNS SECONDS TOPIC [VALUE_BYTES] [ACKS]
     -i IDLE   before measuring, open IDLE further connections; each gets one ApiVersions answer and is then left alone
   Build: cc -O2 -o rr rr.c. The topic must exist with a partition 0; ACKS is 1 or -1 (0 has no answer). Loopback only. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MAX 1024                               /* a Produce answer for one partition is about 50 bytes */
#define IDLE_CHUNK 32                                 /* below Kafka's listen backlog of 50 */
#define SAMPLES 8000000                               /* latencies kept; requests beyond are counted all the same */

struct conn { int fd, have; double sent; uint8_t in[ANSWER_MAX]; };

static uint32_t table[256];
static uint8_t *w;                                    /* write cursor */

static void fail(const char *what) { fprintf(stderr, "rr: %s\n", what); exit(1); }
static void crc_init(void) {
  for (int i = 0; i < 256; i++) { uint32_t c = i; for (int k = 0; k < 8; k++) c = c & 1 ? (c >> 1) ^ 0x82f63b78 : c >> 1; table[i] = c; }
}
static uint32_t crc32c(const uint8_t *p, int n) { uint32_t c = ~0u; while (n--) c = table[(c ^ *p++) & 255] ^ (c >> 8); return ~c; }
static void i8(int v) { *w++ = v; }
static void i16(int v) { i8(v >> 8); i8(v); }
static void i32(uint32_t v) { i16(v >> 16); i16(v); }
static void i64(uint64_t v) { i32(v >> 32); i32(v); }
static void varint(int v) { uint32_t z = ((uint32_t)v << 1) ^ (v >> 31); while (z > 127) { i8((z & 127) | 128); z >>= 7; } i8(z); }
static uint32_t g32(const uint8_t *p) { return (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]; }
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static int by_value(const void *a, const void *b) { float x = *(float *)a, y = *(float *)b; return x < y ? -1 : x > y; }

static int build(uint8_t *buf, const char *topic, int size, int acks) {
  w = buf + 4;
  i16(0); i16(7); i32(1); i16(2); i8('r'); i8('r');                                  /* header: Produce v7, client "rr" */
  i16(-1); i16(acks); i32(30000); i32(1);                                            /* no transaction, acks, timeout, 1 topic */
  i16(strlen(topic)); memcpy(w, topic, strlen(topic)); w += strlen(topic); i32(1); i32(0);
  uint8_t *records_size = w; i32(0);
  uint8_t *batch = w; i64(0); uint8_t *batch_len = w; i32(0); i32(-1); i8(2);
  uint8_t *crc = w; i32(0); uint8_t *body = w;
  uint64_t stamp = (uint64_t)time(0) * 1000;
  i16(0); i32(0); i64(stamp); i64(stamp); i64(-1); i16(-1); i32(-1); i32(1);
  uint8_t head[32], *save = w; w = head; i8(0); varint(0); varint(0); varint(-1); varint(size); int n = w - head; w = save;
  varint(n + size + 1); memcpy(w, head, n); w += n; memset(w, 'x', size); w += size; varint(0);
  uint8_t *end = w;
  w = records_size; i32(end - batch); w = batch_len; i32(end - batch - 12); w = crc; i32(crc32c(body, end - body));
  w = buf; i32(end - buf - 4);
  return end - buf;
}

static int dial(int port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)}; inet_pton(AF_INET, "127.0.0.1", &a.sin_addr);
  int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  if (s < 0) { perror("rr: socket"); exit(1); }
  if (connect(s, (void *)&a, sizeof a)) { perror("rr: connect"); exit(1); }
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return s;
}

static void put(int s, const uint8_t *b, int n) { if (write(s, b, n) != n) { perror("rr: write"); exit(1); } }
static void full(int s, uint8_t *b, int n) {
  while (n) { int k = read(s, b, n); if (k <= 0) fail("an idle connection was closed before its answer"); b += k; n -= k; }
}

/* Connections that are open and known to the broker, but silent: each has had exactly one ApiVersions answer. */
static void hold_idle(int port, int count) {
  uint8_t ask[64], in[65536]; int fd[IDLE_CHUNK];
  w = ask + 4; i16(18); i16(0); i32(7); i16(4); memcpy(w, "idle", 4); w += 4;
  int len = w - ask; w = ask; i32(len - 4);
  for (int done = 0; done < count;) {
    int n = count - done < IDLE_CHUNK ? count - done : IDLE_CHUNK;
    for (int i = 0; i < n; i++) { fd[i] = dial(port); put(fd[i], ask, len); }
    for (int i = 0; i < n; i++) {
      full(fd[i], in, 4); uint32_t size = g32(in);
      if (size < 10 || size > sizeof in) fail("an idle connection got an odd ApiVersions answer");
      full(fd[i], in, size); if (in[4] || in[5]) fail("an idle connection got an error to ApiVersions");
    }
    done += n;
  }
}

/* One read; 1 when the whole answer is there and says that the record was taken, 0 when more must come. */
static int answered(struct conn *c, int topic_len) {
  int k = read(c->fd, c->in + c->have, ANSWER_MAX - c->have);
  if (k <= 0) fail("a connection was closed by the broker");
  c->have += k;
  if (c->have < 4) return 0;
  uint32_t size = g32(c->in);
  if (size > ANSWER_MAX - 4 || size < 38u + topic_len) fail("a Produce answer of an odd size");
  if (c->have < (int)size + 4) return 0;
  const uint8_t *e = c->in + 4 + 4 + 4 + 2 + topic_len + 4 + 4;                      /* size, correlation, topics, name, partitions, index */
  if (e[0] || e[1]) { fprintf(stderr, "rr: the broker answered error %d\n", (int16_t)(e[0] << 8 | e[1])); exit(1); }
  c->have = 0;
  return 1;
}

static void report(int conns, long count, double took, float *lat, long k) {
  qsort(lat, k, sizeof *lat, by_value);
  printf("%d conns %.0f req/s p50 %.0fus p99 %.0fus p99.9 %.0fus max %.1fms\n", conns, count / took, lat[k / 2] * 1e6, lat[k * 99 / 100] * 1e6,
         lat[k * 999 / 1000] * 1e6, lat[k - 1] * 1e3);
}

static void raise_descriptors(int need) {
  struct rlimit r; getrlimit(RLIMIT_NOFILE, &r);
  if ((long)r.rlim_cur >= need) return;
  r.rlim_cur = need; if ((long)r.rlim_max < need) r.rlim_max = need;
  if (setrlimit(RLIMIT_NOFILE, &r)) { perror("rr: more descriptors"); exit(1); }
}

int main(int argc, char **argv) {
  int idle = 0, option;
  while ((option = getopt(argc, argv, "+i:")) != -1) { if (option == 'i') idle = atoi(optarg); else return 2; }
  argv += optind - 1; argc -= optind - 1;
  if (argc < 5) { fprintf(stderr, "usage: rr [-i IDLE] PORT CONNS SECONDS TOPIC [VALUE_BYTES] [ACKS]\n"); return 2; }
  int port = atoi(argv[1]), conns = atoi(argv[2]), size = argc > 5 ? atoi(argv[5]) : 100, acks = argc > 6 ? atoi(argv[6]) : 1;
  double seconds = atof(argv[3]); int topic_len = strlen(argv[4]);
  if (conns < 1 || topic_len > 249 || !acks) fail("CONNS must be at least 1, TOPIC at most 249 characters, ACKS 1 or -1");
  raise_descriptors(conns + idle + 64);
  crc_init();
  uint8_t *buf = malloc(size + 4096); int len = build(buf, argv[4], size, acks);
  hold_idle(port, idle);
  int ep = epoll_create1(0); struct conn *c = calloc(conns, sizeof *c);
  for (int i = 0; i < conns; i++) {
    c[i].fd = dial(port);
    struct epoll_event e = {.events = EPOLLIN, .data.u32 = i}; epoll_ctl(ep, EPOLL_CTL_ADD, c[i].fd, &e);
  }
  long count = 0, k = 0; float *lat = malloc(SAMPLES * sizeof *lat); double start = now(), t = start;
  for (int i = 0; i < conns; i++) { c[i].sent = now(); put(c[i].fd, buf, len); }
  struct epoll_event ev[256];
  while (t - start < seconds) {
    int m = epoll_wait(ep, ev, 256, 10000);
    if (m <= 0) fail("no answer for 10 seconds");
    for (int j = 0; j < m; j++) {
      struct conn *one = &c[ev[j].data.u32];
      if (!answered(one, topic_len)) continue;
      t = now(); count++; if (k < SAMPLES) lat[k++] = t - one->sent;
      one->sent = t; put(one->fd, buf, len);
    }
  }
  report(conns, count, t - start, lat, k);
}
