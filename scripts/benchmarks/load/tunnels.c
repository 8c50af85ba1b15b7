/* The near end of a benchmark: clients of a proxy. Prints one line of JSON.
 *
 *   tunnels run    VIA HOST PORT WIDTH TOTAL [FILE]   opens TOTAL tunnels, WIDTH at a time: handshake, the bytes of
 *                                                     FILE (64 without one) out and back, close
 *   tunnels hold   VIA HOST PORT COUNT                opens COUNT tunnels and says so, waits for a line on stdin, then
 *                                                     sees that each of them still echoes
 *   tunnels bulk   VIA HOST PORT                      one tunnel; reads what a source sends, to its end
 *   tunnels pages  VIA HOST PORT WIDTH TOTAL          TOTAL requests over WIDTH kept connections
 *
 * VIA is `direct`, or a way and the proxy's port: `connect:3128`, `socks5:1080`, `http:3128` (requests in absolute
 * form). `env` in place of the port takes port, user and password from HTTP_PROXY, as programs in a sandbox do.
 *
 * A state machine on epoll: each connection waits for one thing at a time. Tunnels are closed with a reset, so that a
 * long run does not end in a machine out of ports.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum way { DIRECT, CONNECT, SOCKS5, HTTP };
enum state { CONNECTING, GREETING, ASKING, TALKING };
enum { EVENTS = 512, ROOM = 16384, AT_ONCE = 64, BLOCK = 1 << 20, PATIENCE = 60 };

struct client {
    int sock;
    enum state state;
    size_t got;
    double begun;
    char *heard;
};

static enum way way;
static int port_to_dial, target_port, epoll, kept, paged;
static const char *target;
static char credentials[800], request[2048], payload[ROOM];
static size_t request_size, payload_size = 64, room = ROOM;
static long total, started, done, failed;
static double *latency;

static void die(const char *what) { fprintf(stderr, "tunnels: %s\n", what); exit(2); }

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

/* --- what is said */

static void base64(const char *in, size_t size, char *out) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        unsigned bits = (unsigned char)in[i] << 16;
        if (i + 1 < size) bits |= (unsigned char)in[i + 1] << 8;
        if (i + 2 < size) bits |= (unsigned char)in[i + 2];
        for (int k = 0; k < 4; k++) *out++ = i + k > size ? '=' : digits[bits >> (18 - 6 * k) & 63];
    }
    *out = 0;
}

static size_t percent_decoded(const char *in, size_t size, char *out) {
    char *begun = out, digits[3] = "";
    for (size_t i = 0; i < size; i++) {
        if (in[i] != '%' || i + 2 >= size) *out++ = in[i];
        else memcpy(digits, in + i + 1, 2), *out++ = (char)strtol(digits, 0, 16), i += 2;
    }
    return out - begun;
}

/* http://user:password@host:port */
static int proxy_of_environment(void) {
    const char *url = getenv("HTTP_PROXY") ? getenv("HTTP_PROXY") : getenv("http_proxy"), *at, *colon;
    char plain[512], encoded[700];
    if (!url || !(colon = strrchr(url, ':'))) die("HTTP_PROXY is not set");
    url = strstr(url, "://") ? strstr(url, "://") + 3 : url;
    if ((at = strrchr(url, '@')) && at - url < (long)sizeof plain) {
        base64(plain, percent_decoded(url, at - url, plain), encoded);
        snprintf(credentials, sizeof credentials, "Proxy-Authorization: Basic %s\r\n", encoded);
    }
    return atoi(colon + 1);
}

static void parse_way(const char *text) {
    static const char *names[] = {"direct", "connect:", "socks5:", "http:"};
    for (way = DIRECT; way <= HTTP; way++) {
        size_t size = strlen(names[way]);
        if (strncmp(text, names[way], size)) continue;
        port_to_dial = way == DIRECT ? target_port : strcmp(text + size, "env") ? atoi(text + size) : proxy_of_environment();
        return;
    }
    die("VIA is direct, connect:PORT, socks5:PORT or http:PORT");
}

static void make_request(void) {
    if (way == SOCKS5) {
        request_size = 7 + strlen(target);
        memcpy(request, "\5\1\0\3", 4);
        request[4] = (char)strlen(target);
        memcpy(request + 5, target, strlen(target));
        request[request_size - 2] = (char)(target_port >> 8);
        request[request_size - 1] = (char)target_port;
    } else if (paged && way == HTTP) {
        request_size = snprintf(request, sizeof request, "GET http://%s:%d/page HTTP/1.1\r\nHost: %s:%d\r\n%s\r\n", target, target_port, target, target_port, credentials);
    } else if (paged) {
        request_size = snprintf(request, sizeof request, "GET /page HTTP/1.1\r\nHost: %s:%d\r\n\r\n", target, target_port);
    } else {
        request_size = snprintf(request, sizeof request, "CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n%s\r\n", target, target_port, target, target_port, credentials);
    }
}

static void read_payload(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file || !(payload_size = fread(payload, 1, sizeof payload, file))) die("the payload cannot be read");
    fclose(file);
}

/* --- connections */

static int dial(int flags) {
    int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0), on = 1;
    struct linger reset = {1, 0};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port_to_dial), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (flags & SOCK_NONBLOCK) setsockopt(sock, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    if (!connect(sock, (struct sockaddr *)&address, sizeof address) || errno == EINPROGRESS) return sock;
    close(sock);
    return -1;
}

static void watch(struct client *client, unsigned events, int operation) {
    struct epoll_event event = {.events = events, .data.ptr = client};
    epoll_ctl(epoll, operation, client->sock, &event);
}

static void start(struct client *client) {
    while (started < total) {
        started++;
        client->begun = now();
        client->got = 0;
        client->state = CONNECTING;
        client->sock = dial(SOCK_NONBLOCK);
        if (client->sock >= 0) {
            watch(client, EPOLLOUT, EPOLL_CTL_ADD);
            return;
        }
        failed++;
    }
    client->sock = -1;
}

static void fail(struct client *client) {
    failed++;
    close(client->sock);
    client->sock = -1;
    if (!kept) start(client);
}

/* A proxy may end a kept connection between two requests: the one that it did not hear is asked again. */
static void reconnect(struct client *client) {
    close(client->sock);
    started--;
    start(client);
}

static void say(struct client *client, enum state next, const char *words, size_t size) {
    client->state = next;
    client->got = 0;
    if (send(client->sock, words, size, MSG_NOSIGNAL) != (ssize_t)size) fail(client);
}

static void ask_for_page(struct client *client) {
    started++;
    client->begun = now();
    say(client, TALKING, request, request_size);
}

static void succeed(struct client *client) {
    latency[done++] = now() - client->begun;
    if (kept) return;
    if (paged && started < total) {
        ask_for_page(client);
        return;
    }
    close(client->sock);
    if (!paged) start(client);
}

static void connected(struct client *client) {
    int error = 0;
    socklen_t size = sizeof error;
    getsockopt(client->sock, SOL_SOCKET, SO_ERROR, &error, &size);
    watch(client, EPOLLIN, EPOLL_CTL_MOD);
    if (error) fail(client);
    else if (paged) say(client, TALKING, request, request_size);
    else if (way == DIRECT) say(client, TALKING, payload, payload_size);
    else if (way == SOCKS5) say(client, GREETING, "\5\1\0", 3);
    else say(client, ASKING, request, request_size);
}

/* Of a whole answer: 1 if it is good, -1 if it is not, 0 if it is not whole yet. */
static int answered(struct client *client) {
    if (way == SOCKS5) return client->got < 10 ? 0 : client->heard[1] ? -1 : 1;
    if (!strstr(client->heard, "\r\n\r\n")) return 0;
    return strncmp(client->heard + 8, " 200", 4) ? -1 : 1;
}

static int page_is_whole(struct client *client) {
    char *length = strcasestr(client->heard, "content-length:"), *body = strstr(client->heard, "\r\n\r\n");
    if (!body) return 0;
    if (strncmp(client->heard + 8, " 200", 4) || !length) return -1;
    return client->got >= (size_t)(body + 4 - client->heard) + atol(length + 15);
}

static void heard(struct client *client) {
    int good;
    if (client->state == GREETING) {
        if (client->got >= 2) say(client, ASKING, request, request_size);
    } else if (client->state == ASKING) {
        if ((good = answered(client)) < 0) fail(client);
        else if (good) say(client, TALKING, payload, payload_size);
    } else {
        good = paged ? page_is_whole(client) : client->got >= payload_size;
        if (good < 0) fail(client);
        else if (good) succeed(client);
    }
}

static void listen_to(struct client *client) {
    ssize_t size = recv(client->sock, client->heard + client->got, room - client->got, 0);
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) {
        if (paged && !client->got) reconnect(client);
        else fail(client);
        return;
    }
    client->got += size;
    client->heard[client->got] = 0;
    heard(client);
}

static void turn(void) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(epoll, events, EVENTS, 200);
    for (int i = 0; i < count; i++) {
        struct client *client = events[i].data.ptr;
        if (client->state == CONNECTING) connected(client);
        else listen_to(client);
    }
}

/* --- runs */

static int by_size(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return difference < 0 ? -1 : difference > 0;
}

static void report(double seconds) {
    qsort(latency, done, sizeof *latency, by_size);
    double p50 = done ? latency[done / 2] : 0, p99 = done ? latency[done * 99 / 100] : 0;
    printf("{\"done\": %ld, \"failed\": %ld, \"seconds\": %.4f, \"per_second\": %.1f, \"p50_ms\": %.4f, \"p99_ms\": %.4f}\n",
           done, total - done, seconds, done / seconds, p50 * 1e3, p99 * 1e3);
    fflush(stdout);
}

static struct client *crowd(int width) {
    struct client *clients = calloc(width, sizeof *clients);
    if (kept) room = 1024; /* there are thousands */
    latency = malloc(sizeof *latency * (total + 1));
    for (int i = 0; i < width; i++) clients[i].heard = malloc(room + 1);
    return clients;
}

static void run(int width) {
    struct client *clients = crowd(width);
    double begun = now();
    for (int i = 0; i < width; i++) start(&clients[i]);
    while (done + failed < total && now() < begun + PATIENCE) turn();
    report(now() - begun);
}

static int still_echoes(struct client *client) {
    char words[sizeof payload];
    size_t got = 0;
    double deadline = now() + 5;
    if (client->sock < 0 || send(client->sock, payload, payload_size, MSG_NOSIGNAL) != (ssize_t)payload_size) return 0;
    while (got < payload_size && now() < deadline) {
        ssize_t size = recv(client->sock, words + got, payload_size - got, 0);
        if (!size || (size < 0 && errno != EAGAIN)) return 0;
        got += size > 0 ? size : 0;
    }
    return got == payload_size;
}

static void hold(int count) {
    struct client *clients;
    double begun = now();
    kept = 1;
    total = count;
    clients = crowd(count);
    for (int i = 0; i < count;) { /* few handshakes at a time, so that no backlog overflows */
        for (int k = 0; k < AT_ONCE && i < count; k++) start(&clients[i++]);
        while (done + failed < started && now() < begun + PATIENCE) turn();
    }
    report(now() - begun);
    getchar();
    long alive = 0;
    for (int i = 0; i < count; i++) alive += still_echoes(&clients[i]);
    printf("{\"held\": %d, \"alive\": %ld}\n", count, alive);
}

static void exchange(int sock, const char *words, size_t size, size_t answer) {
    char byte, end[5] = "", head[13] = "";
    if (send(sock, words, size, MSG_NOSIGNAL) != (ssize_t)size) die("the proxy went away");
    for (size_t got = 0; answer ? got < answer : strcmp(end, "\r\n\r\n"); got++) {
        if (recv(sock, &byte, 1, 0) != 1) die("the proxy refused");
        memmove(end, end + 1, 3);
        end[3] = byte;
        if (got < 12) head[got] = byte;
    }
    if (answer ? head[1] : strcmp(head + 8, " 200")) die("the proxy refused");
}

static void bulk(void) {
    static char block[BLOCK];
    int sock = dial(0);
    long sum = 0;
    ssize_t size;
    if (sock < 0) die("the proxy is not there");
    if (way == SOCKS5) exchange(sock, "\5\1\0", 3, 2);
    if (way != DIRECT) exchange(sock, request, request_size, way == SOCKS5 ? 10 : 0);
    double begun = now();
    send(sock, "x", 1, MSG_NOSIGNAL);
    while ((size = recv(sock, block, sizeof block, 0)) > 0) sum += size;
    printf("{\"bytes\": %ld, \"seconds\": %.4f, \"gb_per_second\": %.4f}\n", sum, now() - begun, sum / (now() - begun) / 1e9);
}

int main(int argc, char **argv) {
    struct rlimit files;
    if (argc < 5) die("usage: tunnels run|hold|bulk|pages VIA HOST PORT …");
    const char *what = argv[1];
    target = argv[3];
    target_port = atoi(argv[4]);
    paged = !strcmp(what, "pages");
    parse_way(argv[2]);
    make_request();
    memset(payload, 'x', payload_size);
    epoll = epoll_create1(EPOLL_CLOEXEC);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (!strcmp(what, "bulk")) return bulk(), 0;
    if (argc == 6 && !strcmp(what, "hold")) return hold(atoi(argv[5])), 0;
    if (argc < 7) die("WIDTH and TOTAL are needed");
    total = atol(argv[6]);
    if (argc > 7) read_payload(argv[7]);
    run(atoi(argv[5]));
    return 0;
}
