/* Fuzz target: reports of hosts and machines on themselves: a host table, lines of a member table, the answer of the
 * first machine, and the machines' list of events.
 * sources: host/comm/join/membership.c host/comm/join/membership_table.c host/base/memory/array.c
 * sources: host/base/status/status.c
 * sources: host/base/status/notice.c host/base/trace/time.c */
#include "cli/machines/machines_link.c"

#include "cli/machines/machines_rendezvous.c"
#include "comm/control/control_block.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Nothing here talks to a store. */
int ah_store_connect(struct ah_store **out, const struct ah_store_options *place, int64_t timeout_ns)
{
    (void)out, (void)place, (void)timeout_ns;
    abort();
}
void ah_store_close(struct ah_store *store)
{
    (void)store;
    abort();
}
bool ah_store_is_closed(const struct ah_store *store)
{
    (void)store;
    abort();
}
int ah_store_get(struct ah_store *store, const char *key, char **value, size_t *bytes, int64_t timeout_ns)
{
    (void)store, (void)key, (void)value, (void)bytes, (void)timeout_ns;
    abort();
}
int ah_store_append(struct ah_store *store, const char *list, const void *value, size_t bytes, int64_t *place)
{
    (void)store, (void)list, (void)value, (void)bytes, (void)place;
    abort();
}
int ah_store_will(struct ah_store *store, const char *list, const void *value, size_t bytes)
{
    (void)store, (void)list, (void)value, (void)bytes;
    abort();
}
int ah_helper_start(pthread_t *thread, void *(*body)(void *), void *context)
{
    (void)thread, (void)body, (void)context;
    abort();
}

/* An accepted table fits every array of a job's largest size. */
static void check_table(const struct ah_hosts *hosts)
{
    bool good = hosts->count >= 1 && hosts->count <= AH_HOSTS_MAX && hosts->mine >= 0 && hosts->mine < hosts->count &&
                hosts->first[0] == 0 && hosts->first[hosts->count] <= AH_MAX_RANKS;
    for (int h = 0; good && h < hosts->count; h++)
        good = hosts->first[h] < hosts->first[h + 1] && strlen(hosts->name[h]) < AH_HOST_NAME;
    if (!good)
        abort();
}

/* Check that written hosts are read as the same. */
static void check_text(const struct ah_hosts *hosts)
{
    struct ah_hosts back = {0};
    char text[AH_HOSTS_TEXT];
    ah_hosts_write(hosts, text, sizeof text);
    if (ah_hosts_read(&back, text) < 0 || back.count != hosts->count || back.mine != hosts->mine ||
        memcmp(back.first, hosts->first, (size_t)(hosts->count + 1) * sizeof back.first[0]))
        abort();
}

static void read_table(char *text)
{
    struct ah_membership mine = {.what = "machine", .number = -1, .first = -1, .ranks = 1, .hosts = 3, .name = "here"};
    struct ah_member_table member_table = {.mine = &mine};
    struct ah_hosts hosts = {0};
    int order[AH_HOSTS_MAX];
    char missing[512], line[AH_MEMBER_TEXT], *rest = text;
    int64_t place = 0;
    for (char *one; (one = strsep(&rest, "\n")) != NULL; place++) {
        snprintf(line, sizeof line, "%zu %s", sizeof(struct ah_rank_entry), one);
        ah_member_table_add(&member_table, line, place);
        if (*one == '-')
            ah_member_table_drop(&member_table, place / 2);
    }
    ah_member_table_missing(&member_table, missing, sizeof missing);
    ah_member_table_order(&member_table, order);
    if (!member_table.count || ah_member_table_make(&member_table, order, &hosts) < 0)
        return;
    check_table(&hosts);
    check_text(&hosts);
}

static void read_events(char *text)
{
    struct ah_machine_link link = {.count = 3, .places = {0, 1, 2}, .lock = PTHREAD_MUTEX_INITIALIZER};
    char *rest = text;
    for (char *one; (one = strsep(&rest, "\1")) != NULL;)
        machines_link_take(&link, one);
    for (int h = 0; h < link.count; h++) {
        const struct ah_machine *machine = &link.machine[h];
        if (machine->code < 0 || machine->code > 255 || machine->signal < 0 || machine->signal >= NSIG ||
            !memchr(machine->reason, 0, sizeof machine->reason))
            abort();
        free(machine->text);
    }
    if (link.knocks < 0 || link.knocks > AH_HOSTS_MAX || !memchr(link.newcomers, 0, sizeof link.newcomers))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    struct ah_rendezvous rendezvous = {.mine = {.what = "machine", .name = "here", .first = -1, .ranks = 1}};
    struct ah_hosts hosts = {0};
    if (!count)
        return 0;
    char *text = malloc(count); /* a separate block: its end is watched */
    if (!text)
        abort();
    memcpy(text, bytes + 1, count - 1);
    text[count - 1] = 0;
    switch (bytes[0] % 4) {
    case 0: read_table(text); break;
    case 1: read_events(text); break;
    case 2:
        if (read_answer(&rendezvous, text, &hosts) == 0)
            check_table(&hosts);
        break;
    default:
        if (ah_hosts_read(&hosts, text) == 0) {
            check_table(&hosts);
            check_text(&hosts);
        }
    }
    free(text);
    return 0;
}
