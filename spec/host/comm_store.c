/* The store over TCP: values, waits, deadlines, admission, and broken bytes. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/status/notice.h"
#include "base/trace/time.h"
#include "comm/store/store_protocol.h"
#include "test.h"

static const int64_t second_ns = 1000000000, short_ns = 30000000;

static struct ah_store_options place_of(const struct ah_store_server *server, const char *secret, uint64_t generation)
{
    return (struct ah_store_options){.port = server ? ah_store_port(server) : 0, .secret = secret,
                                     .secret_bytes = strlen(secret), .generation = generation};
}

static struct ah_store_server *store_serve(void)
{
    struct ah_store_server *server = NULL;
    struct ah_store_options place = place_of(NULL, "secret", 3);
    CHECK_OK(ah_store_serve(&server, &place));
    return server;
}

static struct ah_store *store_join(const struct ah_store_server *server)
{
    struct ah_store *store = NULL;
    struct ah_store_options place = place_of(server, "secret", 3);
    CHECK_OK(ah_store_connect(&store, &place, 10 * second_ns));
    return store;
}

static bool store_holds(struct ah_store *store, const char *key, const char *expected, size_t bytes)
{
    char *value = NULL;
    size_t got = 0;
    bool same = ah_store_get(store, key, &value, &got, second_ns) == 0 && got == bytes && !memcmp(value, expected, got);
    free(value);
    return same;
}

AH_TEST(a_store_keeps_values_of_several_processes)
{
    struct ah_store_server *server = store_serve();
    REQUIRE(server);
    struct ah_store *one = store_join(server), *two = store_join(server);
    REQUIRE(one && two);
    int64_t sum;
    bool was;
    CHECK_OK(ah_store_set(one, "a", "x\0y", 3));
    CHECK(store_holds(two, "a", "x\0y", 3));
    CHECK_OK(ah_store_set(two, "a", "", 0));
    CHECK(store_holds(one, "a", "", 0));
    CHECK_OK(ah_store_add(one, "n", 5, &sum));
    CHECK_OK(ah_store_add(two, "n", -7, &sum));
    CHECK(sum == -2 && store_holds(one, "n", "-2", 2));
    CHECK_FAILS(ah_store_add(one, "a", 1, &sum), AH_EINVAL, "'a' is no number");
    CHECK_OK(ah_store_set(one, "n", "9223372036854775807", 19));
    CHECK_FAILS(ah_store_add(one, "n", 1, &sum), AH_EINVAL, "'n' is no number");
    CHECK_OK(ah_store_delete(two, "a", &was));
    CHECK(was);
    CHECK_OK(ah_store_delete(two, "a", &was));
    CHECK(!was);
    /* As long as they may be, and longer. */
    char *key = calloc(AH_STORE_KEY + 2, 1), *value = calloc(AH_STORE_VALUE + 1, 1);
    REQUIRE(key && value);
    memset(key, 'k', AH_STORE_KEY);
    memset(value, 'v', AH_STORE_VALUE);
    CHECK_OK(ah_store_set(one, key, value, AH_STORE_VALUE));
    CHECK(store_holds(two, key, value, AH_STORE_VALUE));
    CHECK_FAILS(ah_store_set(one, key, value, AH_STORE_VALUE + 1), AH_EINVAL, "a value of 1048577 bytes");
    key[AH_STORE_KEY] = 'k';
    CHECK_FAILS(ah_store_set(one, key, "", 0), AH_EINVAL, "a key of 1025 bytes");
    /* No more than fits. */
    int status = 0;
    char name[16];
    for (int i = 0; i < 80 && status == 0; i++) {
        snprintf(name, sizeof name, "big %d", i);
        status = ah_store_set(one, name, value, AH_STORE_VALUE);
    }
    CHECK(status == AH_ENOMEM && strstr(ah_error_text(), "no room for 'big 6"));
    CHECK(store_holds(one, "big 0", value, AH_STORE_VALUE));
    free(key);
    free(value);
    ah_store_close(one);
    ah_store_close(two);
    ah_store_end(server);
}

AH_TEST(a_store_keeps_lists_in_one_order_for_all)
{
    struct ah_store_server *server = store_serve();
    REQUIRE(server);
    struct ah_store *one = store_join(server), *two = store_join(server);
    REQUIRE(one && two);
    int64_t place = -1;
    CHECK_OK(ah_store_append(one, "list", "a", 1, &place));
    CHECK(place == 0);
    CHECK_OK(ah_store_append(two, "list", "", 0, &place));
    CHECK(place == 1);
    CHECK_OK(ah_store_append(one, "list", "c", 1, NULL));
    CHECK(store_holds(two, "list/0", "a", 1) && store_holds(two, "list/1", "", 0) &&
          store_holds(two, "list/2", "c", 1));
    CHECK(store_holds(two, "list", "3", 1));
    CHECK_OK(ah_store_set(one, "word", "x", 1));
    CHECK_FAILS(ah_store_append(one, "word", "a", 1, NULL), AH_ENOMEM, "no room for more of 'word'");
    ah_store_close(one);
    ah_store_close(two);
    ah_store_end(server);
}

AH_TEST(a_store_carries_out_a_client_s_will_when_its_connection_ends)
{
    struct ah_store_server *server = store_serve();
    REQUIRE(server);
    struct ah_store *one = store_join(server), *two = store_join(server), *three = store_join(server);
    REQUIRE(one && two && three);
    CHECK_OK(ah_store_will(one, "gone", "first ", 6));
    CHECK_OK(ah_store_will(one, "gone", "one ", 4));
    CHECK_OK(ah_store_will(two, "gone", "two ", 4));
    CHECK_OK(ah_store_will(two, "gone", NULL, 0));
    ah_store_close(two);
    ah_store_close(one);
    CHECK(store_holds(three, "gone/0", "one its connection ended", 24));
    char *value;
    size_t bytes;
    CHECK_FAILS(ah_store_get(three, "gone/1", &value, &bytes, short_ns), AH_ETIMEOUT, "'gone/1' was not set");
    ah_store_close(three);
    ah_store_end(server);
}

static void *set_later(void *context)
{
    struct ah_store *store = store_join(context);
    usleep(20000);
    if (store)
        ah_store_set(store, "late", "here", 4);
    ah_store_close(store);
    return NULL;
}

AH_TEST(a_store_waits_for_a_value_up_to_its_timeout)
{
    struct ah_store_server *server = store_serve();
    REQUIRE(server);
    struct ah_store *store = store_join(server);
    REQUIRE(store);
    char *value;
    size_t bytes;
    CHECK_FAILS(ah_store_get(store, "late", &value, &bytes, short_ns), AH_ETIMEOUT,
                "'late' was not set within 0.03 s");
    CHECK_FAILS(ah_store_get(store, "late", &value, &bytes, 0), AH_ETIMEOUT, "'late' was not set");
    pthread_t thread;
    REQUIRE(!pthread_create(&thread, NULL, set_later, server));
    REQUIRE(ah_store_get(store, "late", &value, &bytes, 20 * second_ns) == 0);
    CHECK(bytes == 4 && !strcmp(value, "here"));
    free(value);
    pthread_join(thread, NULL);
    ah_store_end(server);
    CHECK_FAILS(ah_store_get(store, "late", &value, &bytes, second_ns), AH_EIO, "store at 127.0.0.1");
    CHECK_FAILS(ah_store_set(store, "late", "", 0), AH_EIO, "a call failed before");
    ah_store_close(store);
}

AH_TEST(a_store_lets_in_who_knows_its_secret_and_generation)
{
    struct ah_store_server *server = store_serve();
    REQUIRE(server);
    struct ah_store *store;
    struct ah_store_options other = place_of(server, "another", 3), old = place_of(server, "secret", 2);
    CHECK_FAILS(ah_store_connect(&store, &other, second_ns), AH_EINVAL, "it has another secret");
    CHECK_FAILS(ah_store_connect(&store, &old, second_ns), AH_EINVAL, "another generation of this job than 2");
    int port = ah_store_port(server);
    ah_store_end(server);
    struct ah_store_options gone = {.port = port};
    CHECK_FAILS(ah_store_connect(&store, &gone, short_ns), AH_ETIMEOUT, "store at 127.0.0.1, port");
}

AH_TEST(a_try_to_reach_a_store_is_not_cut_short_by_the_deadline)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* accepts connections and never answers */
    REQUIRE(fd >= 0 && !bind(fd, (struct sockaddr *)&at, sizeof at) && !listen(fd, 1));
    REQUIRE(!getsockname(fd, (struct sockaddr *)&at, &bytes));
    struct ah_store *store;
    struct ah_store_options silent = {.port = ntohs(at.sin_port)};
    int64_t begin = ah_now_ns();
    CHECK_FAILS(ah_store_connect(&store, &silent, short_ns), AH_ETIMEOUT, "the server does not answer");
    CHECK(ah_now_ns() - begin >= 250000000);
    close(fd);
}

/* HMAC-SHA256 by another program. */
AH_TEST(proofs_are_hmac_sha256)
{
    static const unsigned char expected[2][4] = {{0x37, 0xdb, 0x6d, 0xc7}, {0x65, 0x74, 0x6e, 0x6f}};
    char text[101];
    unsigned char nonce[64], proof[AH_SHA256_BYTES];
    for (int i = 0; i < 64; i++)
        nonce[i] = (unsigned char)i;
    memset(text, 'k', 100);
    struct ah_store_options brief = {.secret = "Jefe", .secret_bytes = 4};
    struct ah_store_options lengthy = {.secret = text, .secret_bytes = 100, .generation = 3, .job = "a job"};
    ah_store_prove(proof, &brief, "client", nonce, nonce + 32);
    CHECK(!memcmp(proof, expected[0], 4));
    ah_store_prove(proof, &lengthy, "server", nonce, nonce + 32);
    CHECK(!memcmp(proof, expected[1], 4));
    CHECK(ah_store_same(nonce, nonce) && !ah_store_same(nonce, nonce + 1));
}

static void store_begin(struct ah_store_session *session, struct ah_store_table *table,
                        const struct ah_store_options *place, bool trusted)
{
    *session = (struct ah_store_session){.table = table, .options = place};
    CHECK_OK(ah_store_greet(session, 0));
    session->trusted = trusted;
    session->out.bytes = 0;
}

AH_TEST(a_store_bounds_what_clients_send)
{
    struct ah_store_table table = {0};
    struct ah_store_options place = place_of(NULL, "secret", 0);
    struct ah_store_session session;
    char big[AH_STORE_KEY + 100] = "";
    struct ah_store_request bad[] = {{.op = AH_STORE_OPS}, {.key_bytes = AH_STORE_KEY + 1},
                                     {.value_bytes = AH_STORE_VALUE + 1}, {.op = UINT32_MAX, .key_bytes = UINT32_MAX}};
    for (int i = 0; i < 4; i++) {
        store_begin(&session, &table, &place, true);
        CHECK(ah_store_feed(&session, &bad[i], sizeof bad[i], 0) == AH_EINVAL && session.out.bytes == 0);
        ah_store_session_free(&session);
    }
    /* Not an answer; more than an answer; none in time. */
    store_begin(&session, &table, &place, false);
    CHECK(ah_store_feed(&session, big, sizeof(struct ah_store_answer), 0) == AH_EINVAL && session.out.bytes == 0);
    ah_store_session_free(&session);
    store_begin(&session, &table, &place, false);
    CHECK(ah_store_feed(&session, big, sizeof big, 0) == AH_EINVAL);
    CHECK(ah_store_resume(&session, 4 * second_ns) == 0 && ah_store_resume(&session, 6 * second_ns) == AH_ETIMEOUT);
    ah_store_session_free(&session);
    /* Byte by byte. */
    store_begin(&session, &table, &place, true);
    struct ah_store_request set = {.op = AH_STORE_SET, .key_bytes = 1, .value_bytes = 2};
    memcpy(big, &set, sizeof set);
    memcpy(big + sizeof set, "kvw", 3);
    for (size_t i = 0; i < sizeof set + 3; i++)
        CHECK_OK(ah_store_feed(&session, big + i, 1, 0));
    CHECK(session.out.bytes == sizeof(struct ah_store_reply) && table.count == 1 && session.in.bytes == 0);
    ah_store_session_free(&session);
    ah_store_table_free(&table);
}

/* Strangers. */

static int store_dial(int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0 && !connect(fd, (struct sockaddr *)&at, sizeof at));
    return fd;
}

/* Of silent connections those that the server has ended. */
static int count_dropped(const int *fd, int count)
{
    int dropped = 0;
    char piece[256];
    for (int i = 0; i < count; i++) {
        ssize_t n = recv(fd[i], piece, sizeof piece, MSG_DONTWAIT);
        if (n > 0)
            n = recv(fd[i], piece, sizeof piece, MSG_DONTWAIT);
        dropped += n == 0;
    }
    return dropped;
}

AH_TEST(a_store_keeps_few_connections_that_prove_nothing_and_all_that_do)
{
    enum { COUNT = 3 * AH_STORE_STRANGERS };
    struct ah_store_server *server = store_serve();
    REQUIRE(server);
    int fd[COUNT], dropped = 0;
    struct ah_store *first = store_join(server);
    for (int i = 0; i < COUNT; i++)
        fd[i] = store_dial(ah_store_port(server));
    int64_t begin = ah_now_ns();
    struct ah_store *second = store_join(server);
    REQUIRE(first && second);
    CHECK_OK(ah_store_set(first, "key", "value", 5));
    CHECK(store_holds(second, "key", "value", 5));
    /* Without the bound all of them stay until their five seconds are over. */
    while (dropped < COUNT - AH_STORE_STRANGERS && ah_now_ns() - begin < 4 * second_ns) {
        dropped = count_dropped(fd, COUNT);
        usleep(1000);
    }
    CHECK(dropped >= COUNT - AH_STORE_STRANGERS);
    CHECK(store_holds(first, "key", "value", 5));
    for (int i = 0; i < COUNT; i++)
        close(fd[i]);
    ah_store_close(first);
    ah_store_close(second);
    ah_store_end(server);
}

static double processor_seconds(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

AH_TEST(a_store_without_descriptors_pauses_and_resumes_when_there_are_some)
{
    struct ah_store_server *server = store_serve();
    REQUIRE(server);
    struct ah_store *store = store_join(server);
    REQUIRE(store);
    struct rlimit before, none;
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), next = dup(client);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)ah_store_port(server))};
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    char *value, byte;
    size_t bytes;
    REQUIRE(client >= 0 && next >= 0 && !getrlimit(RLIMIT_NOFILE, &before));
    close(next);
    none = (struct rlimit){(rlim_t)next, before.rlim_max};
    REQUIRE(!setrlimit(RLIMIT_NOFILE, &none));
    CHECK(!connect(client, (struct sockaddr *)&at, sizeof at));
    double used = processor_seconds();
    CHECK_FAILS(ah_store_get(store, "no", &value, &bytes, second_ns / 2), AH_ETIMEOUT, "'no' was not set");
    used = processor_seconds() - used;
    CHECK(!setrlimit(RLIMIT_NOFILE, &before));
    CHECK(used < 0.1);
    CHECK(recv(client, &byte, 1, 0) == 1);
    close(client);
    ah_store_close(store);
    ah_store_end(server);
}

/* Serve the port first: end connections before and after a piece of the server's first message. */
static void *turn_away(void *context)
{
    int listener = *(int *)context;
    struct timeval limit = {.tv_sec = 5};
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    for (int i = 0; i < 3; i++) {
        int fd = accept(listener, NULL, NULL);
        if (fd < 0)
            break; /* the client has closed the connection */
        if (i)
            (void)!write(fd, &(uint64_t){AH_STORE_MAGIC}, sizeof(uint64_t));
        close(fd);
    }
    close(listener);
    return NULL;
}

struct patient {
    struct ah_store_options place;
    int status;
};

static void *join_patiently(void *context)
{
    struct patient *patient = context;
    struct ah_store *store = NULL;
    patient->status = ah_store_connect(&store, &patient->place, 20 * second_ns);
    ah_store_close(store);
    return NULL;
}

AH_TEST(a_client_that_is_turned_away_before_the_welcome_tries_again)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof at;
    struct patient patient = {.place = place_of(NULL, "secret", 3), .status = 1};
    struct ah_store_server *server = NULL;
    pthread_t thread, door;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    REQUIRE(!bind(listener, (struct sockaddr *)&at, sizeof at) && !listen(listener, 8) &&
            !getsockname(listener, (struct sockaddr *)&at, &length));
    patient.place.port = ntohs(at.sin_port);
    REQUIRE(!pthread_create(&door, NULL, turn_away, &listener));
    REQUIRE(!pthread_create(&thread, NULL, join_patiently, &patient));
    pthread_join(door, NULL);
    CHECK_OK(ah_store_serve(&server, &patient.place));
    pthread_join(thread, NULL);
    CHECK(patient.status == 0);
    ah_store_end(server);
}

/* Jobs. */

static char reported[512];

static void keep_line(const char *line)
{
    snprintf(reported, sizeof reported, "%s", line);
}

AH_TEST(a_store_and_a_client_of_another_job_of_the_same_secret_both_report_it)
{
    struct ah_store_options place = place_of(NULL, "secret", 3);
    struct ah_store_server *server = NULL;
    struct ah_store *store = NULL;
    place.job = "mine";
    reported[0] = 0;
    ah_notice_set_output(keep_line);
    CHECK_OK(ah_store_serve(&server, &place));
    REQUIRE(server);
    place.port = ah_store_port(server);
    CHECK_OK(ah_store_connect(&store, &place, 10 * second_ns));
    ah_store_close(store);
    place.job = "other\n";
    CHECK_FAILS(ah_store_connect(&store, &place, 10 * second_ns), AH_EINVAL,
                "expected the job 'other?' (rdzv_id), got 'mine', another job of this user");
    place.job = NULL;
    CHECK_FAILS(ah_store_connect(&store, &place, 10 * second_ns), AH_EINVAL,
                "expected the job '' (rdzv_id), got 'mine'");
    ah_store_end(server);
    ah_notice_set_output(NULL);
    CHECK(
        strstr(reported, "store: expected the job 'mine' (rdzv_id), got '' from 127.0.0.1, another job of this user"));
}

AH_TEST(a_client_s_proof_covers_its_generation_and_job)
{
    struct ah_store_table table = {0};
    struct ah_store_options place = place_of(NULL, "secret", 3), claimed = place;
    struct ah_store_session session;
    for (int wrong = 0; wrong < 3; wrong++) {
        struct ah_store_answer answer = {.magic = AH_STORE_MAGIC, .generation = 3};
        store_begin(&session, &table, &place, false);
        claimed.generation = wrong == 1 ? 2 : 3;
        claimed.job = wrong == 2 ? "x" : NULL;
        ah_store_prove(answer.proof, &claimed, "client", session.nonce, answer.nonce);
        CHECK(ah_store_feed(&session, &answer, sizeof answer, 0) == (wrong ? AH_EINVAL : 0));
        CHECK(session.trusted == !wrong && session.refused == (wrong ? AH_STORE_OTHER_SECRET : AH_STORE_FINE));
        ah_store_session_free(&session);
    }
    ah_store_table_free(&table);
}
