/* The thread owns all sockets, since those of ZeroMQ belong to one thread. The main thread reaches it by a queue and an
 * eventfd; text that was written before a message was queued is published before the message is sent. */
#include "jupyter/service.h"

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include "base/process/signals.h"
#include "base/process/threads.h"
#include "base/status/status.h"
#include "base/trace/time.h"
#include "jupyter/capture.h"
#include "jupyter/connection.h"
#include "jupyter/message.h"
#include "jupyter/queue.h"

enum { LINGER_MS = 1000, WAITING = 64, PUBLISHED = 10000, PARENT_MS = 1000 };
static const int64_t shutdown_ns = 5000000000, look_ns = 50000000;

static struct {
    struct ah_jupyter_connection connection;
    char session[33], *info;
    void *context, *socket[AH_SOCKETS];
    int wake; /* an eventfd */
    pthread_t thread;
    struct ah_jupyter_queue requests, answers, outgoing; /* of the shell channel, of the stdin channel, to be sent */
    struct ah_capture capture;
    atomic_int pairs; /* of `capture`, and those that are queued for it: a thread that is late must not have too many */
    atomic_bool done;
    int64_t end_ns; /* of a kernel whose end was requested; 0: it was not */
    pid_t parent, own;
} service;

/* Sending. */

static void service_send_frame(void *socket, const void *bytes, size_t count, bool more)
{
    zmq_send(socket, bytes, count, ZMQ_DONTWAIT | (more ? ZMQ_SNDMORE : 0));
}

static struct ah_jupyter_text service_text(const char *text)
{
    return (struct ah_jupyter_text){text, strlen(text)};
}

static struct ah_jupyter_text service_object(struct ah_jupyter_text text)
{
    return text.count ? text : service_text("{}");
}

static void service_write(const struct ah_jupyter_message *message)
{
    void *socket = service.socket[message->channel];
    struct ah_jupyter_text identity;
    char signature[AH_MESSAGE_SIGNATURE + 1], *header = ah_message_header(message->type, service.session);
    if (!header)
        return;
    const struct ah_jupyter_text part[4] = {
        service_text(header), service_object(message->parent), service_object(message->metadata),
        service_object(message->content),
    };
    ah_message_sign(signature, &service.connection, part);
    if (message->channel == AH_JUPYTER_IOPUB)
        service_send_frame(socket, message->type, strlen(message->type), true);
    for (size_t at = 0; ah_message_identity(message->route, &at, &identity);)
        service_send_frame(socket, identity.bytes, identity.count, true);
    service_send_frame(socket, "<IDS|MSG>", 9, true);
    service_send_frame(socket, signature, strlen(signature), true);
    for (int i = 0; i < 4; i++)
        service_send_frame(socket, part[i].bytes, part[i].count, i < 3);
    free(header);
}

static void service_publish(const char *type, struct ah_jupyter_text parent, const char *content)
{
    struct ah_jupyter_message message = {.channel = AH_JUPYTER_IOPUB, .parent = parent,
                                         .content = service_text(content)};
    snprintf(message.type, sizeof message.type, "%s", type);
    service_write(&message);
}

static void service_stream(void *context, const struct ah_capture_pair *pair, const char *name, const char *text,
                           size_t bytes)
{
    json_t *content = json_pack("{s:s, s:s%}", "name", name, "text", text, bytes);
    char *written = content ? json_dumps(content, JSON_COMPACT) : NULL;
    if (written)
        service_publish("stream", pair->header, written);
    free(written);
    json_decref(content);
}

/* Read and publish captured text; count the pairs that have reached their end. */
static void service_read_text(bool now)
{
    int before = service.capture.count;
    ah_capture_read(&service.capture, now);
    atomic_fetch_sub(&service.pairs, before - service.capture.count);
}

/* Send the queued messages in order, each after the text written before it. */
static void service_send_queued(void)
{
    struct ah_jupyter_message *message;
    while ((message = ah_queue_take(&service.outgoing))) {
        service_read_text(true);
        if (*message->type) {
            service_write(message);
        } else {
            int fd[2];
            memcpy(fd, message->route.bytes, sizeof fd);
            if (ah_capture_add(&service.capture, fd, message->header) < 0 && fd[0] >= 0)
                atomic_fetch_sub(&service.pairs, 1);
        }
        free(message);
    }
}

/* Receiving. */

/* Read a message of a socket, with all its frames; NULL: there is none that is right. */
static struct ah_jupyter_message *service_read(void *socket)
{
    zmq_msg_t frame[AH_MESSAGE_FRAMES], rest;
    struct ah_jupyter_text text[AH_MESSAGE_FRAMES];
    struct ah_jupyter_message *message = NULL;
    int count = 0, more = 1;
    bool fits = true;
    while (more) {
        fits = fits && count < AH_MESSAGE_FRAMES;
        zmq_msg_t *at = fits ? &frame[count] : &rest;
        zmq_msg_init(at);
        if (zmq_msg_recv(at, socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(at);
            fits = false;
            break;
        }
        more = zmq_msg_more(at);
        if (fits)
            text[count] = (struct ah_jupyter_text){zmq_msg_data(at), zmq_msg_size(at)};
        if (fits)
            count++;
        else
            zmq_msg_close(at);
    }
    if (fits && ah_message_read(&message, text, count, &service.connection) < 0)
        message = NULL;
    for (int i = 0; i < count; i++)
        zmq_msg_close(&frame[i]);
    return message;
}

static void service_reply(const struct ah_jupyter_message *request, const char *content)
{
    struct ah_jupyter_message reply = {.channel = request->channel, .route = request->route,
                                       .parent = request->header, .content = service_text(content)};
    size_t stem = strlen(request->type) - strlen("request");
    snprintf(reply.type, sizeof reply.type, "%.*sreply", (int)stem, request->type);
    service_write(&reply);
}

/* Ctrl-C for the main thread, and for programs that it has started where the kernel leads their process group. */
static void service_interrupt(void)
{
    if (getpgrp() == service.own)
        killpg(service.own, SIGINT);
    else
        kill(service.own, SIGINT);
}

/* The main thread ends by itself within shutdown_ns, else the process ends without it. */
static void service_begin_end(void)
{
    if (service.end_ns)
        return;
    service.end_ns = ah_now_ns() + shutdown_ns;
    ah_queue_end(&service.requests);
    ah_queue_end(&service.answers);
    service_interrupt();
}

static void service_shut_down(const struct ah_jupyter_message *request)
{
    json_t *content = json_loadb(request->content.bytes, request->content.count, 0, NULL);
    const char *answer = json_is_true(json_object_get(content, "restart")) ? "{\"status\":\"ok\",\"restart\":true}"
                                                                          : "{\"status\":\"ok\",\"restart\":false}";
    service_reply(request, answer);
    service_publish("shutdown_reply", request->header, answer);
    json_decref(content);
}

/* A request of the control channel, answered while code runs. */
static void service_control(const struct ah_jupyter_message *request)
{
    bool shutdown = !strcmp(request->type, "shutdown_request");
    service_publish("status", request->header, "{\"execution_state\":\"busy\"}");
    if (!strcmp(request->type, "interrupt_request")) {
        service_interrupt();
        service_reply(request, "{\"status\":\"ok\"}");
    } else if (shutdown) {
        service_shut_down(request);
    } else if (!strcmp(request->type, "kernel_info_request")) {
        service_reply(request, service.info);
    }
    service_publish("status", request->header, "{\"execution_state\":\"idle\"}");
    if (shutdown)
        service_begin_end();
}

static void service_receive(enum ah_jupyter_channel channel)
{
    struct ah_jupyter_message *message = service_read(service.socket[channel]);
    if (!message)
        return;
    message->channel = channel;
    if (channel == AH_JUPYTER_CONTROL || !strcmp(message->type, "shutdown_request")) {
        service_control(message);
        free(message);
    } else if (channel == AH_JUPYTER_STDIN && ah_queue_is_full(&service.answers)) {
        free(message);
    } else {
        ah_queue_add(channel == AH_JUPYTER_STDIN ? &service.answers : &service.requests, message);
    }
}

/* A client has subscribed: it learns that nothing more is lost. */
static void service_welcome(void)
{
    char topic[256];
    int bytes = zmq_recv(service.socket[AH_SOCKET_IOPUB], topic, sizeof topic, ZMQ_DONTWAIT);
    if (bytes < 1 || bytes > (int)sizeof topic || topic[0] != 1)
        return;
    json_t *content = json_pack("{s:s%}", "subscription", topic + 1, (size_t)bytes - 1);
    char *text = content ? json_dumps(content, JSON_COMPACT) : NULL;
    if (text)
        service_publish("iopub_welcome", (struct ah_jupyter_text){0}, text);
    free(text);
    json_decref(content);
}

static void service_echo(void)
{
    zmq_msg_t message;
    zmq_msg_init(&message);
    if (zmq_msg_recv(&message, service.socket[AH_SOCKET_HEARTBEAT], ZMQ_DONTWAIT) >= 0)
        zmq_msg_send(&message, service.socket[AH_SOCKET_HEARTBEAT], ZMQ_DONTWAIT);
    zmq_msg_close(&message);
}

/* The thread. */

static void service_dispatch(const zmq_pollitem_t *item)
{
    if (item[AH_SOCKET_HEARTBEAT].revents)
        service_echo();
    if (item[AH_SOCKET_IOPUB].revents)
        service_welcome();
    if (item[AH_SOCKET_CONTROL].revents)
        service_receive(AH_JUPYTER_CONTROL);
    if (item[AH_SOCKET_STDIN].revents)
        service_receive(AH_JUPYTER_STDIN);
    if (item[AH_SOCKET_SHELL].revents)
        service_receive(AH_JUPYTER_SHELL);
}

/* Has the program that started the kernel ended, or the kernel not ended when it was asked to? */
static void service_check_end(void)
{
    if (service.parent && getppid() != service.parent)
        service_begin_end();
    if (service.end_ns && ah_now_ns() > service.end_ns)
        _exit(1);
}

static void *service_run(void *unused)
{
    zmq_pollitem_t item[AH_SOCKETS + 1 + 2 * AH_CAPTURE_PAIRS];
    while (!atomic_load(&service.done)) {
        int count = 0;
        for (; count < AH_SOCKETS; count++)
            item[count] = (zmq_pollitem_t){.socket = service.socket[count], .events = ZMQ_POLLIN};
        if (ah_queue_is_full(&service.requests))
            item[AH_SOCKET_SHELL].events = 0;
        item[count++] = (zmq_pollitem_t){.fd = service.wake, .events = ZMQ_POLLIN};
        for (int k = 0; k < service.capture.count; k++)
            for (int i = 0; i < 2; i++)
                if (service.capture.pair[k]->stream[i].fd >= 0)
                    item[count++] = (zmq_pollitem_t){.fd = service.capture.pair[k]->stream[i].fd,
                                                     .events = ZMQ_POLLIN};
        int delay = ah_capture_delay(&service.capture);
        if (zmq_poll(item, count, delay < 0 || delay > PARENT_MS ? PARENT_MS : delay) < 0 && errno != EINTR)
            break;
        service_dispatch(item);
        uint64_t wakes;
        if (item[AH_SOCKETS].revents && read(service.wake, &wakes, sizeof wakes) > 0)
            service_send_queued();
        service_read_text(false);
        service_check_end();
    }
    service_send_queued();
    service_read_text(true);
    return NULL;
}

static int service_bind(enum ah_jupyter_socket at, int type)
{
    const int linger = LINGER_MS, waiting = WAITING, published = PUBLISHED, on = 1;
    const int64_t most = AH_MESSAGE_BYTES;
    void *socket = service.socket[at] = zmq_socket(service.context, type);
    if (!socket)
        return ah_fail(AH_EIO, "a socket cannot be opened: %s", zmq_strerror(errno));
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
    zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof most);
    zmq_setsockopt(socket, ZMQ_RCVHWM, &waiting, sizeof waiting);
    if (type == ZMQ_ROUTER) /* a client that connects again replaces its former connection */
        zmq_setsockopt(socket, ZMQ_ROUTER_HANDOVER, &on, sizeof on);
    if (type == ZMQ_XPUB) {
        zmq_setsockopt(socket, ZMQ_SNDHWM, &published, sizeof published);
        zmq_setsockopt(socket, ZMQ_XPUB_VERBOSE, &on, sizeof on);
    }
    if (strchr(service.connection.address[at], '['))
        zmq_setsockopt(socket, ZMQ_IPV6, &on, sizeof on);
    if (zmq_bind(socket, service.connection.address[at]))
        return ah_fail(AH_EIO, "%s: %s", service.connection.address[at], zmq_strerror(errno));
    return 0;
}

static int service_bind_all(void)
{
    static const int types[AH_SOCKETS] = {ZMQ_ROUTER, ZMQ_ROUTER, ZMQ_ROUTER, ZMQ_XPUB, ZMQ_REP};
    service.context = zmq_ctx_new();
    AH_TRY_MEMORY(service.context, "out of memory");
    for (int i = 0; i < AH_SOCKETS; i++)
        AH_TRY(service_bind((enum ah_jupyter_socket)i, types[i]));
    return 0;
}

static void service_close_sockets(void)
{
    for (int i = 0; i < AH_SOCKETS; i++)
        if (service.socket[i])
            zmq_close(service.socket[i]);
    if (service.context)
        zmq_ctx_term(service.context);
}

static int service_start(void)
{
    int failed = ah_helper_start(&service.thread, service_run, NULL);
    return failed ? ah_fail(AH_ENOMEM, "a thread cannot be started: %s", strerror(failed)) : 0;
}

int ah_service_open(const char *path, const char *info)
{
    int status, fd[2];
    AH_TRY(ah_connection_read(&service.connection, path));
    ah_message_identifier(service.session);
    service.own = getpid();
    service.parent = getenv("JPY_PARENT_PID") ? getppid() : 0;
    service.info = strdup(info);
    service.wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    service.capture = (struct ah_capture){.publish = service_stream};
    if (!service.info || service.wake < 0)
        return ah_fail(AH_ENOMEM, "out of memory");
    AH_TRY(ah_queue_open(&service.requests));
    AH_TRY(ah_queue_open(&service.answers));
    AH_TRY(ah_queue_open(&service.outgoing));
    AH_TRYGO(service_bind_all(), failed);
    AH_TRYGO(ah_capture_replace(fd), failed);
    AH_TRYGO(ah_capture_add(&service.capture, fd, service_text("{}")), failed);
    atomic_store(&service.pairs, 1);
    setvbuf(stdout, NULL, _IONBF, 0); /* text of one write is shown at once, and in order with the children's */
    service_publish("status", (struct ah_jupyter_text){0}, "{\"execution_state\":\"starting\"}");
    AH_TRYGO(service_start(), failed);
    return 0;
failed:
    service_close_sockets();
    return status;
}

int ah_service_wait(struct ah_jupyter_message **out, enum ah_jupyter_channel channel, double seconds)
{
    struct ah_jupyter_queue *queue = channel == AH_JUPYTER_STDIN ? &service.answers : &service.requests;
    int64_t end = ah_now_ns() + (int64_t)(seconds * 1e9);
    for (;;) {
        /* Code that waits for an answer may be interrupted; no code runs while the kernel waits for a request. */
        int64_t left = end - ah_now_ns();
        int64_t slice = channel == AH_JUPYTER_STDIN && left > look_ns ? look_ns : left;
        if (left > 0)
            ah_queue_wait(queue, true, (double)slice / 1e9);
        if (ah_queue_is_ended(queue))
            return ah_fail(AH_ESTATE, "the kernel ends");
        *out = ah_queue_take(queue);
        if (*out)
            return 0;
        if (ah_interrupted) {
            ah_interrupted = AH_INTERRUPT_HEEDED;
            return ah_fail(AH_EINTR, "interrupted");
        }
        if (left <= 0)
            return ah_fail(AH_ETIMEOUT, "no message");
    }
}

/* Queue a copy of a message for the thread. */
static int service_queue(const struct ah_jupyter_message *message)
{
    const struct ah_jupyter_text *part = &message->route;
    size_t bytes = sizeof *message;
    for (int i = 0; i < 5; i++)
        bytes += part[i].count;
    struct ah_jupyter_message *copy = malloc(bytes);
    AH_TRY_MEMORY(copy, "out of memory");
    *copy = *message;
    char *to = (char *)(copy + 1);
    struct ah_jupyter_text *own = &copy->route;
    for (int i = 0; i < 5; i++) {
        if (part[i].count)
            memcpy(to, part[i].bytes, part[i].count);
        own[i].bytes = to;
        to += part[i].count;
    }
    const uint64_t one = 1;
    ah_queue_wait(&service.outgoing, false, 60);
    ah_queue_add(&service.outgoing, copy);
    if (write(service.wake, &one, sizeof one) < 0)
        errno = 0; /* the counter is at its largest number: the thread is woken already */
    return 0;
}

int ah_service_send(const struct ah_jupyter_message *message)
{
    if (getpid() != service.own)
        return 0; /* a forked child: its text is captured, its messages are not */
    if (!*message->type)
        return ah_fail(AH_EINVAL, "expected a type of message");
    return service_queue(message);
}

int ah_service_begin(struct ah_jupyter_text header, bool shared)
{
    int fd[2] = {-1, -1};
    if (!shared && atomic_load(&service.pairs) < AH_CAPTURE_PAIRS) {
        AH_TRY(ah_capture_replace(fd));
        atomic_fetch_add(&service.pairs, 1);
    }
    struct ah_jupyter_message message = {.header = header, .route = {(const char *)fd, sizeof fd}};
    int status = service_queue(&message);
    if (status < 0 && fd[0] >= 0) {
        close(fd[0]);
        close(fd[1]);
        atomic_fetch_sub(&service.pairs, 1);
    }
    return status;
}

void ah_service_close(void)
{
    const uint64_t one = 1;
    atomic_store(&service.done, true);
    if (write(service.wake, &one, sizeof one) < 0)
        errno = 0; /* the thread wakes within a second */
    pthread_join(service.thread, NULL);
    service_close_sockets();
    ah_capture_close(&service.capture);
    ah_queue_close(&service.requests);
    ah_queue_close(&service.answers);
    ah_queue_close(&service.outgoing);
    free(service.info);
}
