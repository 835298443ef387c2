/*
 * ssebench: a load generator for streaming LLM endpoints (HTTP/1.1, epoll, one thread, libc only).
 *
 * Closed loop (C connections) or open loop (Poisson arrivals). Every answer is checked: status, framing,
 * token count and order, one id per stream, the final marker. Prints one JSON object. See README.md.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAX_EVENTS 512
#define RBUF (256 * 1024)

enum dialect { D_OPENAI, D_TGI, D_OLLAMA };
enum cstate { C_IDLE, C_CONNECTING, C_SENDING, C_HEAD, C_BODY };
enum framing { F_LENGTH, F_CHUNKED, F_CLOSE };

/* ---------------------------------------------------------------- histograms: 1,024 sub-buckets per power of two */
#define SUB_BITS 10
#define SUB (1 << SUB_BITS)
#define NBUCKET (SUB * 32)
struct hist {
    uint64_t n, max, b[NBUCKET];
    double sum;
};
static int bucket(uint64_t v)
{
    if (v < SUB) return (int)v;
    int e = 63 - __builtin_clzll(v) - SUB_BITS; /* v >> e is in [SUB, 2 SUB) */
    int i = (e + 1) * SUB + (int)(v >> e) - SUB;
    return i < NBUCKET ? i : NBUCKET - 1;
}
static double bucket_mid(int i)
{
    if (i < SUB) return i;
    int e = i / SUB - 1;
    return ((double)(i % SUB + SUB) + 0.5) * (double)(1ull << e) - 0.5;
}
static void hadd(struct hist *h, uint64_t v)
{
    h->n++;
    h->sum += (double)v;
    if (v > h->max) h->max = v;
    h->b[bucket(v)]++;
}
static double hq(const struct hist *h, double q)
{
    if (!h->n) return 0;
    uint64_t want = (uint64_t)ceil(q * (double)h->n), acc = 0;
    if (want < 1) want = 1;
    for (int i = 0; i < NBUCKET; i++) {
        acc += h->b[i];
        if (acc >= want) {
            double m = bucket_mid(i);
            return m > (double)h->max ? (double)h->max : m;
        }
    }
    return (double)h->max;
}
static void hprint(const char *name, const struct hist *h)
{
    printf("\"%s\":{\"n\":%" PRIu64 ",\"mean\":%.1f,\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p999\":%.1f,\"max\":%" PRIu64 "}", name, h->n,
           h->n ? h->sum / (double)h->n : 0, hq(h, .5), hq(h, .9), hq(h, .99), hq(h, .999), h->max);
}

/* ---------------------------------------------------------------- options and totals */
static const char *host = "127.0.0.1", *path = "/v1/chat/completions", *model = "mock";
static int port, conns_max = 1, tokens = 64, body_bytes = 100, rcvbuf, abort_after = -1;
static long requests_max = 0, warmup = 0;
static double duration = 0, rate = 0, ramp = 0, timeout_s = 60, slow_bps = -1, stall_s = 0, abort_ms = 0;
static bool streaming = true, want_usage = false, check_seed = true, dump_errors = false;
static enum dialect dialect = D_OPENAI;
static char extra_headers[4096];

static struct {
    uint64_t started, ok, failed, measured, tokens, events, bytes, reads, content_reads, connects;
    uint64_t f_connect, f_status, f_reset, f_truncated, f_order, f_id, f_count, f_marker, f_usage, f_timeout, f_framing, f_event, f_event_cut;
    uint64_t failed_with_done; /* streams that failed a check and had shown the final marker all the same */
} t;
static uint64_t status_n[600];
static struct hist h_ttfb, h_ttft, h_itl, h_e2e;
static char first_error[1024];

struct conn {
    int fd;
    enum cstate st;
    /* request */
    long req_no, seed;
    char head[8192];
    int head_len;
    size_t sent;
    uint64_t t_start, t_last, t_first; /* ns */
    /* response */
    char hbuf[16384];
    int hlen, status;
    enum framing fr;
    bool keep;
    uint64_t remain; /* bytes of the body (F_LENGTH) or of the current chunk (F_CHUNKED) */
    int cst;         /* chunk parser: 0 size, 1 data, 2 CRLF after data, 3 trailer line */
    char cline[64];
    int clen;
    bool body_end;
    /* events */
    char *line;
    size_t line_len, line_cap;
    long seen;
    bool bad_order, bad_id, marker, usage, error_event;
    char id[80];
    uint64_t body_bytes;
    int epmask;
    double slow_credit;
    struct conn *next_idle;
    uint64_t due; /* ramp: first request not before */
};

static int ep;
static struct conn *conns;
static struct conn *idle;
static int in_flight;
static char *shared_tail;
static size_t shared_tail_len;
static uint64_t t0, t_meas, t_end_meas;
static volatile sig_atomic_t stop_flag;
static bool in_read_content;
static char rbuf[RBUF];
static struct { long seed; uint64_t t_us; } *aborts;
static long aborts_n, aborts_cap;

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}
static uint64_t rng_s = 0x2545F4914F6CDD1Dull;
static double rnd(void)
{
    rng_s ^= rng_s << 13;
    rng_s ^= rng_s >> 7;
    rng_s ^= rng_s << 17;
    return ((double)(rng_s >> 11) + 1) / 9007199254740993.0;
}

/* ---------------------------------------------------------------- request text */
static void make_tail(void)
{
    static const char *words[] = {"the", "engine", "answers", "with", "a", "stream", "of", "tokens", "and", "gateway", "forwards", "each",
                                  "one", "as", "it", "comes", "\\\"quoted\\\"", "line\\n", "caf\\u00e9", "latency"};
    const char *open, *close;
    if (dialect == D_TGI) {
        open = "\"inputs\":\"";
        close = "\"}";
    } else if (strstr(path, "/completions") && !strstr(path, "/chat/")) {
        open = "\"prompt\":\"";
        close = "\"}";
    } else {
        open = "\"messages\":[{\"role\":\"system\",\"content\":\"You are a helpful assistant.\"},{\"role\":\"user\",\"content\":\"";
        close = "\"}]}";
    }
    shared_tail = malloc((size_t)body_bytes + 256);
    char *p = shared_tail + sprintf(shared_tail, "%s", open);
    char *stop = shared_tail + body_bytes;
    uint32_t x = 12345;
    do {
        x = x * 1103515245u + 12345u;
        p += sprintf(p, "%s ", words[(x >> 16) % 20]);
    } while (p < stop);
    p += sprintf(p, "%s", close);
    shared_tail_len = (size_t)(p - shared_tail);
}

static void make_head(struct conn *c)
{
    char b[1024];
    int n;
    c->seed = 100000 + (c->req_no * 7919) % 900000;
    if (dialect == D_TGI)
        n = snprintf(b, sizeof b, "{\"parameters\":{\"max_new_tokens\":%d,\"seed\":%ld},", tokens, c->seed);
    else if (dialect == D_OLLAMA)
        n = snprintf(b, sizeof b, "{\"model\":\"%s\",\"stream\":%s,\"options\":{\"num_predict\":%d,\"seed\":%ld},", model, streaming ? "true" : "false", tokens, c->seed);
    else
        n = snprintf(b, sizeof b, "{\"model\":\"%s\",\"seed\":%ld,\"max_tokens\":%d,\"temperature\":0.7,%s%s", model, c->seed, tokens,
                     streaming ? "\"stream\":true," : "", streaming && want_usage ? "\"stream_options\":{\"include_usage\":true}," : "");
    c->head_len = snprintf(c->head, sizeof c->head,
                           "POST %s HTTP/1.1\r\nHost: %s:%d\r\nContent-Type: application/json\r\nAccept: %s\r\nUser-Agent: ssebench\r\n"
                           "%sContent-Length: %zu\r\n\r\n%s", path, host, port, streaming ? "text/event-stream" : "application/json",
                           extra_headers, (size_t)n + shared_tail_len, b);
}

/* ---------------------------------------------------------------- connections */
static void set_mask(struct conn *c, int mask)
{
    if (c->epmask == mask) return;
    c->epmask = mask;
    struct epoll_event ev = {.events = (uint32_t)mask, .data.ptr = c};
    epoll_ctl(ep, EPOLL_CTL_MOD, c->fd, &ev);
}
static int read_mask(void) { return slow_bps >= 0 ? 0 : EPOLLIN; }

static void conn_drop(struct conn *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
}

static bool more_to_start(void)
{
    if (stop_flag) return false;
    if (requests_max && (long)t.started >= requests_max + warmup) return false;
    return !duration || now_ns() < t_meas + (uint64_t)(duration * 1e9);
}

static void start_request(struct conn *c, uint64_t t_sched);

static void put_idle(struct conn *c)
{
    c->st = C_IDLE;
    c->next_idle = idle;
    idle = c;
}

static void next(struct conn *c)
{
    in_flight--;
    if (rate <= 0 && more_to_start()) start_request(c, 0);
    else put_idle(c);
}

static void fail(struct conn *c, uint64_t *counter, const char *what)
{
    if (c->error_event && (counter == &t.f_truncated || counter == &t.f_reset)) { /* the client was told before the cut */
        counter = &t.f_event_cut;
        what = "error event, then cut";
    }
    (*counter)++;
    if (c->marker) t.failed_with_done++;
    t.failed++;
    if (!first_error[0] || dump_errors) {
        snprintf(first_error, sizeof first_error, "%s: status %d, %ld of %d tokens, %" PRIu64 " body bytes, request %ld", what, c->status,
                 c->seen, tokens, c->body_bytes, c->req_no);
        if (dump_errors && t.failed <= 20) fprintf(stderr, "%s\n  %.*s\n", first_error, c->line_len > 300 ? 300 : (int)c->line_len, c->line ? c->line : "");
    }
    conn_drop(c);
    in_flight--;
    put_idle(c); /* a closed loop starts it again at the next tick, so that errors cannot spin */
}

static void complete(struct conn *c)
{
    uint64_t n = now_ns();
    bool keep = c->keep;
    uint64_t *why = NULL;
    const char *what = "";
    if (c->status != 200) { why = &t.f_status; what = "status"; }
    else if (c->error_event) { why = &t.f_event; what = "error event"; }
    else if (c->bad_order) { why = &t.f_order; what = "token order"; }
    else if (c->bad_id) { why = &t.f_id; what = "id changed"; }
    else if (c->seen != tokens) { why = &t.f_count; what = "token count"; }
    else if (streaming && !c->marker) { why = &t.f_marker; what = "no final marker"; }
    else if (streaming && want_usage && !c->usage) { why = &t.f_usage; what = "no usage"; }
    if (why) {
        fail(c, why, what);
        return;
    }
    t.ok++;
    if (c->req_no >= warmup) {
        t.measured++;
        hadd(&h_e2e, (n - c->t_start) / 1000);
        t_end_meas = n;
    }
    if (!keep) conn_drop(c);
    next(c);
}

static bool do_send(struct conn *c)
{
    size_t total = (size_t)c->head_len + shared_tail_len;
    while (c->sent < total) {
        struct iovec v[2];
        int k = 0;
        if (c->sent < (size_t)c->head_len) {
            v[k].iov_base = c->head + c->sent;
            v[k++].iov_len = (size_t)c->head_len - c->sent;
            v[k].iov_base = shared_tail;
            v[k++].iov_len = shared_tail_len;
        } else {
            size_t o = c->sent - (size_t)c->head_len;
            v[k].iov_base = shared_tail + o;
            v[k++].iov_len = shared_tail_len - o;
        }
        struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)k};
        ssize_t w = sendmsg(c->fd, &m, MSG_NOSIGNAL);
        if (w < 0) {
            if (errno == EAGAIN) {
                set_mask(c, EPOLLOUT | EPOLLIN);
                return true;
            }
            return false;
        }
        c->sent += (size_t)w;
    }
    c->st = C_HEAD;
    set_mask(c, read_mask());
    return true;
}

static void start_request(struct conn *c, uint64_t t_sched)
{
    uint64_t n = now_ns();
    in_flight++;
    c->req_no = (long)t.started++;
    if (c->req_no == warmup) t_meas = n;
    c->t_start = t_sched ? t_sched : n;
    c->t_last = c->t_first = 0;
    c->sent = 0;
    c->hlen = c->status = 0;
    c->cst = c->clen = 0;
    c->body_end = false;
    c->line_len = 0;
    c->seen = 0;
    c->bad_order = c->bad_id = c->marker = c->usage = c->error_event = false;
    c->id[0] = 0;
    c->body_bytes = 0;
    make_head(c);
    if (c->fd < 0) {
        c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        int one = 1;
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        if (rcvbuf) setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf);
        struct sockaddr_in sa = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        inet_pton(AF_INET, host, &sa.sin_addr);
        t.connects++;
        int r = connect(c->fd, (struct sockaddr *)&sa, sizeof sa);
        if (r < 0 && errno != EINPROGRESS) {
            fail(c, &t.f_connect, "connect");
            return;
        }
        c->epmask = r < 0 ? EPOLLOUT : read_mask();
        struct epoll_event ev = {.events = (uint32_t)c->epmask, .data.ptr = c};
        epoll_ctl(ep, EPOLL_CTL_ADD, c->fd, &ev);
        if (r < 0) {
            c->st = C_CONNECTING;
            return;
        }
    }
    c->st = C_SENDING;
    if (!do_send(c)) fail(c, &t.f_reset, "send");
}

/* ---------------------------------------------------------------- content checks */
static void count_words(struct conn *c, const char *p, const char *e)
{
    /* the mock's tokens are " w<seed+i>" */
    while (p < e) {
        const char *w = memchr(p, 'w', (size_t)(e - p));
        if (!w) break;
        long v = 0;
        for (p = w + 1; p < e && *p >= '0' && *p <= '9'; p++) v = v * 10 + (*p - '0');
        if (check_seed && v != c->seed + c->seen) c->bad_order = true;
        c->seen++;
    }
}

static const char *find(const char *p, size_t n, const char *key) { return memmem(p, n, key, strlen(key)); }

/* The string value of the first `key` in the event that is a string; NULL if none. */
static const char *str_value(const char *p, size_t n, const char *key, const char **end)
{
    const char *e = p + n, *k;
    while ((k = find(p, (size_t)(e - p), key))) {
        p = k + strlen(key);
        while (p < e && (*p == ' ' || *p == ':')) p++;
        if (p < e && *p == '"') {
            const char *q = memchr(p + 1, '"', (size_t)(e - p - 1));
            if (!q) return NULL;
            *end = q;
            return p + 1;
        }
    }
    return NULL;
}

static void on_event(struct conn *c, const char *p, size_t n, uint64_t tn)
{
    t.events++;
    if (n >= 6 && !memcmp(p, "[DONE]", 6)) {
        c->marker = true;
        return;
    }
    const char *e, *v;
    if (dialect == D_OPENAI) {
        v = str_value(p, n, "\"id\"", &e);
        if (v) {
            size_t l = (size_t)(e - v);
            if (l >= sizeof c->id) l = sizeof c->id - 1;
            if (!c->id[0]) {
                memcpy(c->id, v, l);
                c->id[l] = 0;
            } else if (memcmp(c->id, v, l)) c->bad_id = true;
        }
        if (want_usage && find(p, n, "\"completion_tokens\"")) c->usage = true;
    } else if (find(p, n, dialect == D_OLLAMA ? "\"done\":true" : "\"finish_reason\":\"")) c->marker = true;
    v = str_value(p, n, dialect == D_TGI ? "\"text\"" : "\"content\"", &e);
    if (!v) v = str_value(p, n, dialect == D_OLLAMA ? "\"response\"" : "\"text\"", &e);
    if (!v && find(p, n, "\"error\"")) c->error_event = true;
    if (!v || v == e) return;
    long before = c->seen;
    count_words(c, v, e);
    if (c->seen == before) return;
    in_read_content = true;
    t.tokens += (uint64_t)(c->seen - before);
    if (c->req_no >= warmup) {
        if (!c->t_last) hadd(&h_ttft, (tn - c->t_start) / 1000);
        else hadd(&h_itl, (tn - c->t_last) / 1000);
    }
    c->t_last = tn;
}

/* Body bytes of a stream: complete lines are events ("data:" for SSE, the line itself for NDJSON). */
static void on_line(struct conn *c, const char *p, size_t n, uint64_t tn)
{
    if (n && p[n - 1] == '\r') n--;
    if (!n) return;
    if (dialect == D_OLLAMA) {
        if (*p == '{') on_event(c, p, n, tn);
        return;
    }
    if (n < 5 || memcmp(p, "data:", 5)) return; /* comment, event: or id: line */
    p += 5;
    n -= 5;
    if (n && *p == ' ') p++, n--;
    on_event(c, p, n, tn);
}

static void line_append(struct conn *c, const char *p, size_t n)
{
    if (c->line_len + n + 1 > c->line_cap) {
        c->line_cap = (c->line_len + n + 1) * 2;
        c->line = realloc(c->line, c->line_cap);
    }
    memcpy(c->line + c->line_len, p, n);
    c->line_len += n;
}

static void on_body(struct conn *c, const char *p, size_t n, uint64_t tn)
{
    if (!c->body_bytes && n) {
        if (c->req_no >= warmup) hadd(&h_ttfb, (tn - c->t_start) / 1000);
    }
    c->body_bytes += n;
    if (!streaming || c->status != 200) {
        line_append(c, p, n);
        return;
    }
    while (n) {
        const char *nl = memchr(p, '\n', n);
        if (!nl) {
            line_append(c, p, n);
            return;
        }
        size_t k = (size_t)(nl - p);
        if (c->line_len) {
            line_append(c, p, k);
            on_line(c, c->line, c->line_len, tn);
            c->line_len = 0;
        } else on_line(c, p, k, tn);
        p += k + 1;
        n -= k + 1;
    }
}

static void body_complete(struct conn *c)
{
    if (!streaming && c->status == 200) {
        const char *e, *v = str_value(c->line, c->line_len, dialect == D_TGI ? "\"generated_text\"" : "\"content\"", &e);
        if (!v) v = str_value(c->line, c->line_len, dialect == D_OLLAMA ? "\"response\"" : "\"text\"", &e);
        if (v) count_words(c, v, e);
        t.tokens += (uint64_t)c->seen;
    } else if (streaming && c->line_len && c->status == 200) {
        on_line(c, c->line, c->line_len, now_ns());
    }
    complete(c);
}

/* Response head; returns bytes used of p, -1 bad, 0 more needed. */
static int parse_head(struct conn *c)
{
    char *end = memmem(c->hbuf, (size_t)c->hlen, "\r\n\r\n", 4);
    if (!end) return c->hlen >= (int)sizeof c->hbuf - 1 ? -1 : 0;
    if (c->hlen < 12 || memcmp(c->hbuf, "HTTP/1.", 7)) return -1;
    c->status = atoi(c->hbuf + 9);
    c->keep = c->hbuf[7] == '1';
    c->fr = F_CLOSE;
    *end = 0;
    for (char *l = strstr(c->hbuf, "\r\n"); l; l = strstr(l, "\r\n")) {
        l += 2;
        if (!strncasecmp(l, "content-length:", 15)) {
            c->fr = F_LENGTH;
            c->remain = strtoull(l + 15, NULL, 10);
        } else if (!strncasecmp(l, "transfer-encoding:", 18) && strcasestr(l, "chunked")) {
            c->fr = F_CHUNKED;
        } else if (!strncasecmp(l, "connection:", 11)) {
            char *v = l + 11;
            while (*v == ' ') v++;
            if (!strncasecmp(v, "close", 5)) c->keep = false;
        }
    }
    if (c->fr == F_CLOSE) c->keep = false;
    return (int)(end + 4 - c->hbuf);
}

/* Feeds raw response bytes; false when the connection was handed on (complete, failed). */
static bool feed(struct conn *c, const char *p, size_t n, uint64_t tn)
{
    if (c->st == C_HEAD || c->st == C_SENDING) {
        size_t old = (size_t)c->hlen, take = sizeof c->hbuf - 1 - old < n ? sizeof c->hbuf - 1 - old : n;
        memcpy(c->hbuf + old, p, take);
        c->hlen += (int)take;
        c->hbuf[c->hlen] = 0;
        int r;
        while ((r = parse_head(c)) > 0 && c->status == 100) { /* interim answer: the real one follows */
            c->hlen -= r;
            memmove(c->hbuf, c->hbuf + r, (size_t)c->hlen + 1);
        }
        if (r < 0) {
            fail(c, &t.f_framing, "bad head");
            return false;
        }
        if (!r) return true;
        if (c->status > 0 && c->status < 600) status_n[c->status]++;
        c->st = C_BODY;
        size_t used = take - (size_t)(c->hlen - r);
        p += used;
        n -= used;
        if (c->fr == F_LENGTH && !c->remain) {
            body_complete(c);
            return false;
        }
    }
    if (c->fr == F_CLOSE) {
        on_body(c, p, n, tn);
        return true;
    }
    if (c->fr == F_LENGTH) {
        size_t k = n < c->remain ? n : (size_t)c->remain;
        on_body(c, p, k, tn);
        c->remain -= k;
        if (!c->remain) {
            if (n > k) c->keep = false;
            body_complete(c);
            return false;
        }
        return true;
    }
    while (n) {
        if (c->cst == 1) {
            size_t k = n < c->remain ? n : (size_t)c->remain;
            on_body(c, p, k, tn);
            c->remain -= k;
            p += k;
            n -= k;
            if (!c->remain) {
                c->cst = 2;
                c->clen = 0;
            }
            continue;
        }
        /* a line: size, the CRLF after the data, or a trailer */
        const char *nl = memchr(p, '\n', n);
        size_t k = nl ? (size_t)(nl - p) + 1 : n;
        size_t cp = k < sizeof c->cline - 1 - (size_t)c->clen ? k : sizeof c->cline - 1 - (size_t)c->clen;
        memcpy(c->cline + c->clen, p, cp);
        c->clen += (int)cp;
        c->cline[c->clen] = 0;
        p += k;
        n -= k;
        if (!nl) return true;
        if (c->cst == 0) {
            char *x;
            c->remain = strtoull(c->cline, &x, 16);
            if (x == c->cline) {
                fail(c, &t.f_framing, "bad chunk");
                return false;
            }
            c->cst = c->remain ? 1 : 3;
        } else if (c->cst == 2) c->cst = 0;
        else if (c->clen <= 2) { /* empty line after the last chunk */
            if (n) c->keep = false;
            body_complete(c);
            return false;
        }
        c->clen = 0;
    }
    return true;
}

static void on_eof(struct conn *c)
{
    if (c->st == C_BODY && c->fr == F_CLOSE) {
        body_complete(c);
        return;
    }
    if (c->st == C_IDLE) {
        conn_drop(c);
        return;
    }
    fail(c, c->st == C_BODY ? &t.f_truncated : &t.f_reset, c->st == C_BODY ? "truncated" : "closed before the answer");
}

static void client_abort(struct conn *c)
{
    if (aborts_n == aborts_cap) {
        aborts_cap = aborts_cap ? aborts_cap * 2 : 1024;
        aborts = realloc(aborts, sizeof *aborts * (size_t)aborts_cap);
    }
    conn_drop(c);
    aborts[aborts_n].seed = c->seed;
    aborts[aborts_n++].t_us = now_ns() / 1000;
    next(c);
}

static void do_read(struct conn *c, size_t limit)
{
    ssize_t r = recv(c->fd, rbuf, limit < sizeof rbuf ? limit : sizeof rbuf, 0);
    if (r < 0) {
        if (errno != EAGAIN) {
            if (c->st == C_IDLE) conn_drop(c);
            else fail(c, &t.f_reset, "reset");
        }
        return;
    }
    if (r == 0) {
        on_eof(c);
        return;
    }
    t.bytes += (uint64_t)r;
    t.reads++;
    if (c->st == C_IDLE) { /* bytes nobody asked for */
        conn_drop(c);
        return;
    }
    in_read_content = false;
    bool alive = feed(c, rbuf, (size_t)r, now_ns());
    if (in_read_content) t.content_reads++;
    if (alive && abort_after >= 0 && c->st == C_BODY && c->seen >= abort_after) client_abort(c);
}

static void on_signal(int s) { (void)s; stop_flag = 1; }

static void report(void)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    double cpu = (double)ru.ru_utime.tv_sec + (double)ru.ru_stime.tv_sec + (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
    double el = (double)((t_end_meas > t_meas ? t_end_meas : now_ns()) - t_meas) / 1e9;
    double all = (double)(now_ns() - t0) / 1e9;
    printf("{\"elapsed_s\":%.4f,\"started\":%" PRIu64 ",\"ok\":%" PRIu64 ",\"measured\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"unfinished\":%d,"
           "\"rps\":%.2f,\"tokens\":%" PRIu64 ",\"events\":%" PRIu64 ",\"tokens_per_s\":%.1f,\"events_per_s\":%.1f,\"bytes\":%" PRIu64
           ",\"reads\":%" PRIu64 ",\"tokens_per_content_read\":%.3f,\"connects\":%" PRIu64 ",\"client_cpu_s\":%.4f,\"aborted\":%ld,",
           el, t.started, t.ok, t.measured, t.failed, in_flight, (double)t.measured / el, t.tokens, t.events, (double)t.tokens / all,
           (double)t.events / all, t.bytes, t.reads, t.content_reads ? (double)t.tokens / (double)t.content_reads : 0, t.connects, cpu, aborts_n);
    printf("\"failures\":{\"connect\":%" PRIu64 ",\"status\":%" PRIu64 ",\"reset\":%" PRIu64 ",\"truncated\":%" PRIu64 ",\"order\":%" PRIu64
           ",\"id\":%" PRIu64 ",\"count\":%" PRIu64 ",\"marker\":%" PRIu64 ",\"usage\":%" PRIu64 ",\"timeout\":%" PRIu64 ",\"framing\":%" PRIu64 ",\"error_event\":%" PRIu64
           ",\"error_event_cut\":%" PRIu64 "},\"failed_with_done\":%" PRIu64 ",",
           t.f_connect, t.f_status, t.f_reset, t.f_truncated, t.f_order, t.f_id, t.f_count, t.f_marker, t.f_usage, t.f_timeout, t.f_framing, t.f_event, t.f_event_cut, t.failed_with_done);
    printf("\"status\":{");
    bool first = true;
    for (int i = 0; i < 600; i++)
        if (status_n[i]) {
            printf("%s\"%d\":%" PRIu64, first ? "" : ",", i, status_n[i]);
            first = false;
        }
    printf("},\"first_error\":\"%s\",", first_error);
    hprint("ttfb_us", &h_ttfb);
    putchar(',');
    hprint("ttft_us", &h_ttft);
    putchar(',');
    hprint("itl_us", &h_itl);
    putchar(',');
    hprint("e2e_us", &h_e2e);
    if (aborts_n) {
        printf(",\"aborts\":[");
        for (long i = 0; i < aborts_n; i++) printf("%s{\"seed\":%ld,\"t_us\":%" PRIu64 "}", i ? "," : "", aborts[i].seed, aborts[i].t_us);
        printf("]");
    }
    printf("}\n");
}

static void usage(void)
{
    fprintf(stderr, "usage: ssebench --port P [--host 127.0.0.1] [--path /v1/chat/completions] [--model NAME] [--dialect openai|tgi|ollama]\n"
            "  [--conns C] [--requests R] [--duration S] [--warmup R] [--rate R/S] [--ramp S] [--no-stream] [--tokens N] [--body-bytes B]\n"
            "  [--usage] [--no-seed] [--header 'K: V'] [--timeout S] [--abort-after TOKENS] [--abort-ms MS] [--slow-bps B] [--stall S] [--rcvbuf B] [--verbose]\n");
    exit(2);
}

int main(int argc, char **argv)
{
    enum { HOST = 1, PORT, PATH, MODEL, DIALECT, CONNS, REQS, DUR, WARM, RATE, RAMP, NOSTREAM, TOKENS, BODY, USAGE, NOSEED, HEADER, TIMEOUT, ABORT, ABORTMS, SLOW, STALL, RCV, VERB };
    static const struct option o[] = {{"host", 1, 0, HOST}, {"port", 1, 0, PORT}, {"path", 1, 0, PATH}, {"model", 1, 0, MODEL}, {"dialect", 1, 0, DIALECT},
        {"conns", 1, 0, CONNS}, {"requests", 1, 0, REQS}, {"duration", 1, 0, DUR}, {"warmup", 1, 0, WARM}, {"rate", 1, 0, RATE}, {"ramp", 1, 0, RAMP},
        {"no-stream", 0, 0, NOSTREAM}, {"tokens", 1, 0, TOKENS}, {"body-bytes", 1, 0, BODY}, {"usage", 0, 0, USAGE}, {"no-seed", 0, 0, NOSEED},
        {"header", 1, 0, HEADER}, {"timeout", 1, 0, TIMEOUT}, {"abort-after", 1, 0, ABORT}, {"abort-ms", 1, 0, ABORTMS}, {"slow-bps", 1, 0, SLOW}, {"stall", 1, 0, STALL},
        {"rcvbuf", 1, 0, RCV}, {"verbose", 0, 0, VERB}, {0}};
    for (int k; (k = getopt_long(argc, argv, "", o, NULL)) != -1;) switch (k) {
        case HOST: host = optarg; break;
        case PORT: port = atoi(optarg); break;
        case PATH: path = optarg; break;
        case MODEL: model = optarg; break;
        case DIALECT: dialect = !strcmp(optarg, "tgi") ? D_TGI : !strcmp(optarg, "ollama") ? D_OLLAMA : D_OPENAI; break;
        case CONNS: conns_max = atoi(optarg); break;
        case REQS: requests_max = atol(optarg); break;
        case DUR: duration = atof(optarg); break;
        case WARM: warmup = atol(optarg); break;
        case RATE: rate = atof(optarg); break;
        case RAMP: ramp = atof(optarg); break;
        case NOSTREAM: streaming = false; break;
        case TOKENS: tokens = atoi(optarg); break;
        case BODY: body_bytes = atoi(optarg); break;
        case USAGE: want_usage = true; break;
        case NOSEED: check_seed = false; break;
        case HEADER:
            strncat(extra_headers, optarg, sizeof extra_headers - strlen(extra_headers) - 3);
            strcat(extra_headers, "\r\n");
            break;
        case TIMEOUT: timeout_s = atof(optarg); break;
        case ABORT: abort_after = atoi(optarg); break;
        case ABORTMS: abort_ms = atof(optarg); break;
        case SLOW: slow_bps = atof(optarg); break;
        case STALL: stall_s = atof(optarg); if (slow_bps < 0) slow_bps = 0; break;
        case RCV: rcvbuf = atoi(optarg); break;
        case VERB: dump_errors = true; break;
        default: usage();
        }
    if (!port || conns_max < 1 || (!requests_max && !duration)) usage();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    struct rlimit rl;
    if (!getrlimit(RLIMIT_NOFILE, &rl)) {
        rl.rlim_cur = rl.rlim_max;
        setrlimit(RLIMIT_NOFILE, &rl);
    }
    make_tail();
    ep = epoll_create1(EPOLL_CLOEXEC);
    conns = calloc((size_t)conns_max, sizeof *conns);
    t0 = t_meas = now_ns();
    for (int i = conns_max - 1; i >= 0; i--) {
        conns[i].fd = -1;
        conns[i].due = t0 + (uint64_t)(ramp * 1e9 * i / conns_max);
        put_idle(&conns[i]);
    }
    int ramped = 0; /* closed loop: connections started so far */
    uint64_t next_arrival = t0, last_tick = t0;
    bool stalled = stall_s > 0;
    struct epoll_event evs[MAX_EVENTS];

    for (;;) {
        uint64_t n = now_ns(), wake = n + 100000000ull;
        bool more = more_to_start();
        if (rate > 0) {
            while (more && next_arrival <= n) {
                if (!idle) { /* all connections busy: the arrival waits, and its clock runs */
                    wake = n + 1000000;
                    break;
                }
                struct conn *c = idle;
                idle = c->next_idle;
                start_request(c, next_arrival);
                next_arrival += (uint64_t)(-log(rnd()) / rate * 1e9);
                more = more_to_start();
            }
            if (more && idle && next_arrival < wake) wake = next_arrival;
        } else {
            while (ramped < conns_max && conns[ramped].due <= n && more) {
                start_request(&conns[ramped++], 0);
                more = more_to_start();
            }
            if (ramped < conns_max && more && conns[ramped].due < wake) wake = conns[ramped].due;
        }
        if (!more && !in_flight) break;
        if (stop_flag) break;
        struct timespec ts;
        n = now_ns();
        uint64_t d = wake > n ? wake - n : 0;
        ts.tv_sec = (time_t)(d / 1000000000ull);
        ts.tv_nsec = (long)(d % 1000000000ull);
        int k = epoll_pwait2(ep, evs, MAX_EVENTS, &ts, NULL);
        for (int i = 0; i < k; i++) {
            struct conn *c = evs[i].data.ptr;
            uint32_t e = evs[i].events;
            if (c->fd < 0) continue;
            if (c->st == C_CONNECTING) {
                int err = 0;
                socklen_t l = sizeof err;
                getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &l);
                if (err) {
                    fail(c, &t.f_connect, "connect");
                    continue;
                }
                c->st = C_SENDING;
                if (!do_send(c)) fail(c, &t.f_reset, "send");
                continue;
            }
            if ((e & EPOLLOUT) && c->st == C_SENDING && !do_send(c)) {
                fail(c, &t.f_reset, "send");
                continue;
            }
            if (e & (EPOLLIN | EPOLLHUP | EPOLLERR)) do_read(c, sizeof rbuf);
        }
        n = now_ns();
        if (n - last_tick >= 100000000ull) {
            double dt = (double)(n - last_tick) / 1e9;
            last_tick = n;
            if (stalled && n - t0 >= (uint64_t)(stall_s * 1e9)) { /* the stall is over: read at full speed */
                stalled = false;
                slow_bps = -1;
                for (int i = 0; i < conns_max; i++)
                    if (conns[i].fd >= 0 && conns[i].st >= C_HEAD) set_mask(&conns[i], EPOLLIN);
            }
            for (int i = 0; i < conns_max; i++) {
                struct conn *c = &conns[i];
                if (c->st == C_IDLE && rate <= 0 && i < ramped && more_to_start()) start_request(c, 0);
                if (c->st == C_IDLE || c->fd < 0) continue;
                if (abort_ms > 0 && c->st >= C_HEAD && n > c->t_start && n - c->t_start > (uint64_t)(abort_ms * 1e6)) client_abort(c);
                else if (slow_bps > 0 && c->st >= C_HEAD) {
                    c->slow_credit += slow_bps * dt;
                    if (c->slow_credit >= 1) {
                        size_t lim = (size_t)c->slow_credit;
                        c->slow_credit -= (double)lim;
                        do_read(c, lim);
                    }
                } else if (timeout_s > 0 && n > c->t_start && n - c->t_start > (uint64_t)(timeout_s * 1e9)) fail(c, &t.f_timeout, "timeout");
            }
            if (slow_bps >= 0 && !stalled && duration && n > t0 + (uint64_t)(duration * 1e9)) break;
        }
    }
    report();
    return t.failed ? 1 : 0;
}
