/* Lines of the list: a word, the attempt, the machine, and what belongs to the word. The thread reads them one after
 * the other, waits a moment for each, and writes its own in between, so that one connection does. What must stay true:
 * a machine writes about an attempt only after it has read how the one before ended. */
#include "cli/machines_link.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/status.h"
#include "base/threads.h"
#include "comm/store.h"

static const char list[] = "events";
static const int64_t moment_ns = 50000000;

/* Reading, with the lock. */

static void take_trouble(struct ah_machine_link *link, struct ah_machine *machine)
{
    if (!machine->order)
        machine->order = ++link->orders;
}

static void take_verdict(struct ah_machine_link *link, struct ah_machine *machine, const char *text)
{
    int victim, final, at = 0;
    if (sscanf(text, "%d %d %d%n", &machine->code, &victim, &final, &at) != 3 || text[at] != '\n')
        return;
    machine->victim = victim;
    machine->final = final;
    machine->concluded = true;
    free(machine->text);
    machine->text = strdup(text + at + 1);
    if (machine->code)
        take_trouble(link, machine);
}

static void take_gone(struct ah_machine_link *link, int number, const char *reason)
{
    if (link->left[number] || link->gone[number])
        return;
    link->gone[number] = true;
    link->gone_order[number] = ++link->orders;
    snprintf(link->reason[number], sizeof link->reason[number], "%s", reason);
}

static void take(struct ah_machine_link *link, const char *line)
{
    char word[16];
    int attempt, number, at = 0;
    if (sscanf(line, "%15s %d %d %n", word, &attempt, &number, &at) != 3 || !at || attempt < 0 || number < 0 ||
        number >= link->count)
        return;
    struct ah_machine_round *round = &link->round[attempt % 2];
    struct ah_machine *machine = &round->machine[number];
    if (!strcmp(word, "gone")) {
        take_gone(link, number, line + at);
    } else if (!strcmp(word, "here")) {
        link->here[number] = true;
    } else if (!strcmp(word, "left")) {
        link->left[number] = true;
    } else if (!strcmp(word, "store")) {
        round->port = (int)strtol(line + at, NULL, 10);
    } else if (!strcmp(word, "verdict")) {
        take_verdict(link, machine, line + at);
    } else if (!strcmp(word, "failing")) {
        machine->failing = true;
        take_trouble(link, machine);
    } else if (!strcmp(word, "signal")) {
        machine->signal = (int)strtol(line + at, NULL, 10);
        take_trouble(link, machine);
    }
}

static void tell(struct ah_machine_link *link)
{
    uint64_t one = 1;
    while (write(link->news, &one, sizeof one) < 0 && errno == EINTR)
        continue;
    pthread_cond_broadcast(&link->change);
}

static void lose(struct ah_machine_link *link)
{
    pthread_mutex_lock(&link->lock);
    link->lost = true;
    take_gone(link, 0, "the network does not reach it");
    tell(link);
    pthread_mutex_unlock(&link->lock);
}

/* Writing. */

/* All that there is to say; *over: and nothing will follow. */
static int say(struct ah_machine_link *link, bool *over)
{
    struct ah_text posts;
    int status = 0;
    pthread_mutex_lock(&link->lock);
    posts = link->posts;
    link->posts = (struct ah_text){0};
    *over = link->ending;
    pthread_mutex_unlock(&link->lock);
    for (size_t at = 0; at < posts.bytes && status == 0; at += strlen(posts.at + at) + 1)
        status = ah_store_append(link->store, list, posts.at + at, strlen(posts.at + at), NULL);
    free(posts.at);
    if (*over && status == 0)
        ah_store_will(link->store, list, NULL, 0);
    return status;
}

static void *run(void *context)
{
    struct ah_machine_link *link = context;
    bool over = false;
    for (int64_t place = 0;;) {
        char key[32], *line;
        size_t bytes;
        if (say(link, &over) < 0) {
            lose(link);
            return NULL;
        }
        if (over)
            return NULL;
        snprintf(key, sizeof key, "%s/%lld", list, (long long)place);
        int status = ah_store_get(link->store, key, &line, &bytes, moment_ns);
        if (status == 0) {
            pthread_mutex_lock(&link->lock);
            take(link, line);
            tell(link);
            pthread_mutex_unlock(&link->lock);
            free(line);
            place++;
        } else if (status != AH_ETIMEOUT || ah_store_is_closed(link->store)) {
            lose(link);
            return NULL;
        }
    }
}

int ah_machine_link_open(struct ah_machine_link *link, struct ah_store *store, int mine, int count)
{
    char will[32];
    link->store = store;
    link->mine = mine;
    link->count = count;
    pthread_mutex_init(&link->lock, NULL);
    pthread_cond_init(&link->change, NULL);
    snprintf(will, sizeof will, "gone 0 %d ", mine);
    AH_TRY(ah_store_will(store, list, will, strlen(will)));
    link->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    link->runs = link->news >= 0 && !ah_helper_start(&link->thread, run, link);
    return link->runs ? 0 : ah_fail(AH_ENOMEM, "no thread to talk with the other machines");
}

void ah_machine_link_close(struct ah_machine_link *link)
{
    pthread_mutex_lock(&link->lock);
    link->ending = true;
    pthread_mutex_unlock(&link->lock);
    if (link->runs)
        pthread_join(link->thread, NULL);
    ah_store_close(link->store);
    if (link->news >= 0)
        close(link->news);
    ah_machine_link_clear(link, 0);
    ah_machine_link_clear(link, 1);
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
    (void)ah_text_append(&link->posts, line, (size_t)bytes + 1); /* without memory nothing can be told */
    pthread_mutex_unlock(&link->lock);
    free(line);
}

void ah_machine_link_clear(struct ah_machine_link *link, int attempt)
{
    struct ah_machine_round *round = &link->round[attempt % 2];
    for (int h = 0; h < AH_HOSTS_MAX; h++)
        free(round->machine[h].text);
    memset(round, 0, sizeof *round);
}
