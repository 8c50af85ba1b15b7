/* The far end of a benchmark: what a proxy is asked to connect to.
 *
 *   origin echo             sends back what comes
 *   origin source BYTES     sends so many bytes to whoever says one
 *   origin pages BYTES      answers every HTTP request with a body of that size, and keeps the connection
 *
 * Listens on loopback, on a port of the kernel's choice, and prints it. One thread, epoll, and nothing on the path
 * of a byte that a proxy's own work could hide behind; only `source` forks, because a bulk sender should block.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EVENTS = 512, BLOCK = 1 << 20, HEAD = 128 };

static char block[BLOCK];
static char *page;
static long page_size;

static void die(const char *what) { perror(what); exit(1); }

static int listen_anywhere(int flags) {
    int sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    setsockopt(sock, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(sock, (struct sockaddr *)&address, size) || listen(sock, 4096)) die("listen");
    setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on); /* those accepted inherit it */
    getsockname(sock, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    return sock;
}

/* Whether the connection goes on. */
static int echo(int sock) {
    ssize_t size = recv(sock, block, sizeof block, 0);
    if (size < 0) return errno == EAGAIN;
    return size > 0 && send(sock, block, size, MSG_NOSIGNAL) == size;
}

/* One page for each end of a head. Requests are small and have no body, so one never comes in two pieces. */
static int answer(int sock) {
    ssize_t size = recv(sock, block, sizeof block - 1, 0);
    if (size < 0) return errno == EAGAIN;
    block[size > 0 ? size : 0] = 0;
    for (char *at = block; (at = strstr(at, "\r\n\r\n")); at += 4)
        if (send(sock, page, page_size, MSG_NOSIGNAL) != page_size) return 0;
    return size > 0 && !strcasestr(block, "\nconnection: close");
}

static void make_page(long body) {
    page = malloc(body + HEAD);
    page_size = snprintf(page, HEAD, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %ld\r\n\r\n", body);
    memset(page + page_size, 'x', body);
    page_size += body;
}

static void watch(int epoll, int sock) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = sock};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, sock, &event)) die("epoll_ctl");
}

/* A proxy that closes first is left with a port in TIME_WAIT, and a long run with none at all: an echo, which has
 * nothing left to say at the end, answers with a reset, and that frees the port. */
static void end_with_reset(int sock) {
    struct linger reset = {1, 0};
    setsockopt(sock, SOL_SOCKET, SO_LINGER, &reset, sizeof reset); /* those accepted inherit it */
}

static void serve(int (*speak)(int)) {
    int listener = listen_anywhere(SOCK_NONBLOCK), epoll = epoll_create1(EPOLL_CLOEXEC), sock;
    if (speak == echo) end_with_reset(listener);
    struct epoll_event events[EVENTS];
    for (watch(epoll, listener);;) {
        int count = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd != listener) {
                if (!speak(events[i].data.fd)) close(events[i].data.fd);
            } else {
                while ((sock = accept4(listener, 0, 0, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) watch(epoll, sock);
            }
        }
    }
}

static void pour(int sock, long bytes) {
    char word;
    if (recv(sock, &word, 1, 0) != 1) return;
    while (bytes > 0) {
        ssize_t sent = send(sock, block, bytes < BLOCK ? bytes : BLOCK, MSG_NOSIGNAL);
        if (sent <= 0) return;
        bytes -= sent;
    }
}

static void serve_bulk(long bytes) {
    int listener = listen_anywhere(0);
    for (;;) {
        int sock = accept(listener, 0, 0);
        if (fork() == 0) {
            pour(sock, bytes);
            _exit(0);
        }
        close(sock);
    }
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    long bytes = argc > 2 ? atol(argv[2]) : 0;
    struct rlimit files;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a benchmark that was killed leaves no server */
    signal(SIGCHLD, SIG_IGN);
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (!strcmp(what, "echo")) serve(echo);
    if (!strcmp(what, "pages")) make_page(bytes), serve(answer);
    if (!strcmp(what, "source")) serve_bulk(bytes);
    fprintf(stderr, "usage: origin echo | source BYTES | pages BYTES\n");
    return 2;
}
