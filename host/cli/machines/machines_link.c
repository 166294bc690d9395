/* Lines of the list: a word, the place of the machine's own line in the list of hosts, and the word's arguments. The
 * thread reads them one after the other, waits a moment for each, and writes its own in between, so that one connection
 * does. */
#include "cli/machines/machines_link.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/process/threads.h"
#include "base/status/status.h"
#include "cli/machines/machines_rendezvous.h"

static const int64_t moment_ns = 50000000;

/* Reading, with the lock. */

static void take_trouble(struct ah_machine_link *link, struct ah_machine *machine)
{
    if (!machine->order)
        machine->order = ++link->orders;
}

static void read_attribution(struct ah_machine_link *link, struct ah_machine *machine, const char *text)
{
    int code, victim, final, at = 0;
    if (sscanf(text, "%d %d %d%n", &code, &victim, &final, &at) != 3 || text[at] != '\n' || code < 0 || code > 255)
        return;
    machine->code = code;
    machine->victim = victim;
    machine->final = final;
    machine->concluded = true;
    free(machine->text);
    machine->text = strdup(text + at + 1);
    if (machine->code)
        take_trouble(link, machine);
}

static void take_signal(struct ah_machine_link *link, struct ah_machine *machine, long number)
{
    if (number < 1 || number >= NSIG)
        return;
    machine->signal = (int)number;
    if (machine->concluded && !machine->code)
        machine->code = 128 + machine->signal; /* its ranks had ended well, but not the job */
    take_trouble(link, machine);
}

static void lose_machine(struct ah_machine_link *link, struct ah_machine *machine, const char *reason)
{
    if (machine->left || machine->lost)
        return;
    machine->lost = true;
    machine->lost_order = ++link->orders;
    snprintf(machine->reason, sizeof machine->reason, "%s", reason);
}

/* After a machine has completed, the members continue without the newcomer. */
static void take_newcomer(struct ah_machine_link *link, const char *name)
{
    size_t at = strlen(link->newcomers);
    if (!ah_host_is_name(name))
        return;
    for (int h = 0; h < link->count; h++)
        if (link->machine[h].concluded && !link->machine[h].code)
            return;
    if (!link->joined)
        link->joined = ++link->orders;
    link->arrivals++;
    snprintf(link->newcomers + at, sizeof link->newcomers - at, "%s%.63s", at ? ", " : "", name);
}

/* A machine that has no part in this generation. */
static void take_stranger(struct ah_machine_link *link, const char *word, int64_t place, const char *text)
{
    int at = 0;
    while (at < link->knocks && link->knock[at] != place)
        at++;
    if (!strcmp(word, "join"))
        take_newcomer(link, text);
    else if (!strcmp(word, "here") && at == link->knocks && at < AH_HOSTS_MAX)
        link->knock[link->knocks++] = place;
    else if (!strcmp(word, "gone") && at < link->knocks)
        link->knock[at] = link->knock[--link->knocks];
}

static void machines_link_take(struct ah_machine_link *link, const char *line)
{
    char word[16];
    int64_t place;
    int h = 0, at = 0;
    if (sscanf(line, "%15s %" SCNd64 " %n", word, &place, &at) != 2 || !at)
        return;
    while (h < link->count && link->places[h] != place)
        h++;
    if (h == link->count) {
        take_stranger(link, word, place, line + at);
        return;
    }
    struct ah_machine *machine = &link->machine[h];
    if (!strcmp(word, "gone")) {
        lose_machine(link, machine, line + at);
    } else if (!strcmp(word, "left")) {
        machine->left = true;
    } else if (!strcmp(word, "outcome")) {
        read_attribution(link, machine, line + at);
    } else if (!strcmp(word, "failing")) {
        machine->failing = true;
        take_trouble(link, machine);
    } else if (!strcmp(word, "signal")) {
        take_signal(link, machine, strtol(line + at, NULL, 10));
    }
}

static void machines_link_report(struct ah_machine_link *link)
{
    uint64_t one = 1;
    while (write(link->notification, &one, sizeof one) < 0 && errno == EINTR)
        continue;
    pthread_cond_broadcast(&link->change);
}

static void machines_link_lose(struct ah_machine_link *link)
{
    AH_LOCK_SCOPE(&link->lock);
    link->lost = true;
    lose_machine(link, &link->machine[0], ah_store_reason(link->store));
    machines_link_report(link);
}

/* Writing. */

static void name_list(const struct ah_machine_link *link, char *list, size_t room)
{
    snprintf(list, room, "events/%d", link->generation);
}

/* Print all pending lines; *over: none will follow. */
static int machines_link_print(struct ah_machine_link *link, bool *over)
{
    struct ah_text posts;
    char list[32];
    int status = 0;
    name_list(link, list, sizeof list);
    pthread_mutex_lock(&link->lock);
    posts = link->posts;
    link->posts = (struct ah_text){0};
    *over = link->shutting_down;
    bool lost = link->keeps;
    pthread_mutex_unlock(&link->lock);
    for (size_t at = 0; at < posts.bytes && status == 0; at += strlen(posts.at + at) + 1)
        status = ah_store_append(link->store, list, posts.at + at, strlen(posts.at + at), NULL);
    free(posts.at);
    if (*over && status == 0 && !lost)
        ah_store_will(link->store, list, NULL, 0);
    return status;
}

static void *machines_link_run(void *context)
{
    struct ah_machine_link *link = context;
    bool over = false;
    for (int64_t at = 0;;) {
        char list[32], key[64], *line;
        size_t bytes;
        if (machines_link_print(link, &over) < 0) {
            machines_link_lose(link);
            return NULL;
        }
        if (over)
            return NULL;
        name_list(link, list, sizeof list);
        snprintf(key, sizeof key, "%s/%" PRId64, list, at);
        int status = ah_store_get(link->store, key, &line, &bytes, moment_ns);
        if (status == 0) {
            pthread_mutex_lock(&link->lock);
            machines_link_take(link, line);
            machines_link_report(link);
            pthread_mutex_unlock(&link->lock);
            free(line);
            at++;
        } else if (status != AH_ETIMEOUT || ah_store_is_closed(link->store)) {
            machines_link_lose(link);
            return NULL;
        }
    }
}

int ah_machine_link_open(struct ah_machine_link *link, struct ah_rendezvous *rendezvous, int mine, int count)
{
    *link = (struct ah_machine_link){
        .store = rendezvous->store, .generation = rendezvous->generation, .mine = mine, .count = count,
    };
    memcpy(link->places, rendezvous->places, sizeof link->places);
    rendezvous->store = NULL;
    pthread_mutex_init(&link->lock, NULL);
    pthread_cond_init(&link->change, NULL);
    link->notification = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    link->runs = link->notification >= 0 && !ah_helper_start(&link->thread, machines_link_run, link);
    return link->runs ? 0 : ah_fail(AH_ENOMEM, "no thread to talk with the other machines");
}

void ah_machine_link_close(struct ah_machine_link *link, bool lost)
{
    pthread_mutex_lock(&link->lock);
    link->shutting_down = true;
    link->keeps = lost;
    pthread_mutex_unlock(&link->lock);
    if (link->runs)
        pthread_join(link->thread, NULL);
    ah_store_close(link->store);
    if (link->notification >= 0)
        close(link->notification);
    for (int h = 0; h < link->count; h++)
        free(link->machine[h].text);
    free(link->posts.at);
    pthread_cond_destroy(&link->change);
    pthread_mutex_destroy(&link->lock);
}

void ah_machine_link_post(struct ah_machine_link *link, const char *format, ...)
{
    char *line;
    va_list args;
    va_start(args, format);
    int bytes = vasprintf(&line, format, args);
    va_end(args);
    if (bytes < 0)
        return;
    pthread_mutex_lock(&link->lock);
    (void)ah_text_append(&link->posts, line, (size_t)bytes + 1); /* out of memory: not reported */
    pthread_mutex_unlock(&link->lock);
    free(line);
}
